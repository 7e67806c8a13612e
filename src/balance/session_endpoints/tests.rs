use super::{picker::HostPicker, *};
use crate::balance::{
    identity::Identity, load::Loads, ready_endpoint::ReadyEndpoint, stream_queue::Connections,
};

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn ready(port: u16) -> HostState<u16> {
    let (load, breaker) = (Loads::default().add(), Arc::default());
    HostState::Ready(Arc::new(ReadyEndpoint {
        connection: ConnectionId::default(),
        connections: Connections::of_one(port),
        address: address(port),
        identity: Identity::default(),
        hostname: None,
        locality: None,
        load,
        breaker,
        outcomes: None,
        weight: None,
    }))
}

/// A picker of endpoints at the ports 1 and so on, with these states.
fn picker(epoch: Instant, states: impl IntoIterator<Item = HostState<u16>>) -> HostPicker<u16> {
    let hosts = (1..).zip(states).map(|(port, state)| {
        let (list, last_used) = (format!("list {port}").into(), Arc::default());
        (address(port), Arc::new(HostEntry { list, is_allowed: port != 9, last_used, state }))
    });
    HostPicker { hosts: hosts.collect(), epoch }
}

/// What a pick with these ports in its cookie comes to.
fn picked(picker: &HostPicker<u16>, ports: &[u16], now: Instant) -> String {
    let mut of = HostOverride::new(ports.iter().map(|port| address(*port)).collect());
    of.begin_pick(now);
    match picker.pick(&of) {
        HostPick::Endpoint(endpoint) => format!("endpoint {}", endpoint.handle()),
        HostPick::Connect(address) => format!("connect {}", address.port()),
        HostPick::Wait => "wait".to_owned(),
        HostPick::Policy => "policy".to_owned(),
    }
}

#[test]
fn ch8_11_ready_addresses_come_first_then_idle_connecting_and_absent_ones() {
    use HostState::{Absent, Connecting, Failing, Idle};
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let states = [Absent, Absent, Connecting, Idle, Idle, ready(6), ready(7), Failing(Some(later)), ready(9)];
    let picker = picker(now, states.into_iter().chain([Failing(None)]));
    for (ports, expected) in [
        (&[1, 3, 4, 7, 6][..], "endpoint 7"),
        (&[1, 3, 5, 4], "connect 5"),
        (&[1, 8, 3, 2], "wait"),
        (&[8, 2, 1], "connect 2"),
        (&[8, 10], "policy"),
        (&[], "policy"),
        (&[100, 6], "endpoint 6"),
        (&[100], "policy"),
        // The health of 9 is none that cookies may lead to.
        (&[9], "policy"),
        (&[9, 3], "wait"),
    ] {
        assert_eq!(picked(&picker, ports, now), expected, "{ports:?}");
    }
    // At the end of its delay a subchannel is idle. An ejected endpoint has no such end.
    assert_eq!(picked(&picker, &[10, 8, 3], later), "connect 8");
    assert_eq!(picked(&picker, &[10], later), "policy");
}

#[test]
fn ch8_13_a_pick_notes_the_time_and_hands_back_the_addresses_of_the_endpoint() {
    let epoch = Instant::now();
    let picker = picker(epoch, [ready(1), ready(2)]);
    let used = |port| picker.hosts[&address(port)].last_used.get();
    let mut of = HostOverride::new([].into());
    let mut note = |port, millis| {
        of.begin_pick(epoch + Duration::from_millis(millis));
        assert_eq!(of.picked(), None, "what an earlier pick found is forgotten");
        picker.note(address(port), &mut of);
        of.picked().map(ToString::to_string)
    };
    assert_eq!((used(1), used(2)), (None, None));
    assert_eq!(note(1, 0).as_deref(), Some("list 1"));
    assert_eq!(note(2, 5_000).as_deref(), Some("list 2"));
    assert_eq!((used(1), used(2)), (Some(Duration::ZERO), Some(Duration::from_secs(5))));
    assert_eq!(note(3, 5_000), None, "it is not there any more");
    note(2, 5_900);
    assert_eq!(used(2), Some(Duration::from_secs(5)), "the clock is coarse");
    note(2, 6_000);
    note(2, 3_000);
    assert_eq!(used(2), Some(Duration::from_secs(6)));
}
