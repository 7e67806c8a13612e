use std::net::SocketAddr;

use super::*;
use crate::balance::{command::Command, stream_queue::StreamWaiter};

mod simulation;

/// pick_first with its clock. Address `n` is `10.0.0.n`, or an IPv6 one above 100; connections are numbered by their commands.
struct Rig {
    pick_first: PickFirst<()>,
    commands: Commands,
    now: Instant,
    random: fastrand::Rng,
    connections: Vec<ConnectionId>,
}

impl Rig {
    fn new() -> Self {
        Self {
            pick_first: PickFirst::new(PickFirstSettings::default()),
            commands: Commands::default(),
            now: Instant::now(),
            random: fastrand::Rng::with_seed(1),
            connections: Vec::new(),
        }
    }

    /// Connecting to these addresses.
    fn connecting(addresses: &[u8]) -> (Self, Vec<String>) {
        let mut rig = Self::new();
        assert!(rig.update(addresses).is_empty());
        let said = rig.connect();
        (rig, said)
    }

    fn update(&mut self, addresses: &[u8]) -> Vec<String> {
        let addresses: Vec<_> = addresses.iter().copied().map(address).map(Destination::from).collect();
        let mut released = ReleasedConnections::new();
        self.pick_first.update(
            addresses,
            &mut released,
            &mut Scope::of_test(self.now, &mut self.random, &mut self.commands),
        );
        released.release(&mut self.commands);
        self.drain()
    }

    fn connect(&mut self) -> Vec<String> {
        self.pick_first.connect(&mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        self.drain()
    }

    /// Connection `number` is ready.
    fn ready(&mut self, number: usize) -> Vec<String> {
        let streams = Streams::new((), usize::MAX);
        self.pick_first.on_connected(
            self.connections[number - 1],
            streams,
            &mut Scope::of_test(self.now, &mut self.random, &mut self.commands),
        );
        self.drain()
    }

    fn fail(&mut self, number: usize) -> Vec<String> {
        let error = format!("refused {number}").into();
        let connection = self.connections[number - 1];
        self.pick_first.on_failed(
            connection,
            error,
            &mut Scope::of_test(self.now, &mut self.random, &mut self.commands),
        );
        self.drain()
    }

    fn lose(&mut self, number: usize) -> Vec<String> {
        let connection = self.connections[number - 1];
        self.pick_first
            .on_lost(connection, &mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        self.drain()
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> Vec<String> {
        let until = self.now + time;
        let mut said = Vec::new();
        while let Some(at) = self.pick_first.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.pick_first.handle_timeout(&mut Scope::of_test(
                self.now,
                &mut self.random,
                &mut self.commands,
            ));
            said.extend(self.drain());
        }
        self.now = until;
        said
    }

    /// A call that waits for a stream of the connections, which have none.
    fn full(&self) -> StreamWaiter<()> {
        let ready = self.pick_first.ready().unwrap();
        ready.connections.iter().for_each(|(_, streams)| streams.set_limit(0));
        ready.queue.wait().unwrap()
    }

    fn scale(&mut self, limit: usize) -> Vec<String> {
        self.pick_first.scale(limit, &mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        self.drain()
    }

    fn state(&self) -> Connectivity {
        self.pick_first.connectivity()
    }

    fn drain(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(command) = self.commands.poll() {
            let number = |connection| {
                self.connections.iter().position(|other| *other == connection).expect("it is known") + 1
            };
            said.push(match command {
                Command::Connect { connection, destination: Destination { address, .. }, .. } => {
                    self.connections.push(connection);
                    format!("connect {}", address.ip())
                }
                Command::Cancel { connection } => format!("cancel {}", number(connection)),
                Command::Drain { connection } => format!("drain {}", number(connection)),
                Command::RequestReresolution => "resolve".to_owned(),
                Command::WatchLoad { .. } | Command::UnwatchLoad { .. } => "load".to_owned(),
            });
        }
        said
    }
}

fn address(number: u8) -> SocketAddr {
    match number {
        0..=100 => ([10, 0, 0, number], 80).into(),
        101.. => (std::net::Ipv6Addr::from(u128::from(number)), 80).into(),
    }
}

const NONE: [&str; 0] = [];
const DELAY: Duration = Duration::from_millis(250);
/// Longer than the first delay after a failure.
const BACKOFF: Duration = Duration::from_millis(1_201);

#[test]
fn ch3_16_ch3_17_the_next_address_is_tried_after_the_delay_and_the_first_ready_one_wins() {
    let (mut rig, said) = Rig::connecting(&[1, 2, 3]);
    assert_eq!(said, ["connect 10.0.0.1"]);
    assert_eq!(rig.pass(DELAY - Duration::from_millis(1)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["connect 10.0.0.2"]);
    assert_eq!(rig.pass(DELAY), ["connect 10.0.0.3"]);
    assert_eq!(rig.pass(Duration::from_secs(19)), NONE, "the last one has no timer");
    assert_eq!(rig.ready(1), ["cancel 2", "cancel 3"], "the first that is ready");
    assert_eq!(rig.state(), Connectivity::Ready);
}

#[test]
fn ch3_16_the_next_address_is_tried_at_once_when_the_current_one_fails() {
    let (mut rig, _) = Rig::connecting(&[1, 2, 3]);
    assert_eq!(rig.fail(1), ["connect 10.0.0.2"]);
    assert_eq!(rig.pass(DELAY), ["connect 10.0.0.3"], "the delay begins with each attempt");
    assert_eq!(rig.fail(2), NONE, "not the current one");
    assert_eq!(rig.state(), Connectivity::Connecting);
    assert_eq!(rig.fail(3), ["resolve"], "CH3.18: every address has failed");
    assert_eq!(rig.state(), Connectivity::TransientFailure);
    assert_eq!(rig.pick_first.error().map(|error| &**error), Some("refused 3"));
}

#[test]
fn ch3_16_the_delay_between_attempts_is_100_ms_to_2_s() {
    for (given, used) in [(0, 100), (100, 100), (1_999, 1_999), (60_000, 2_000)] {
        let attempt_delay = Duration::from_millis(given);
        let pick_first =
            PickFirst::<()>::new(PickFirstSettings { attempt_delay, ..PickFirstSettings::default() });
        assert_eq!(pick_first.settings.attempt_delay, Duration::from_millis(used));
    }
}

#[test]
fn ch3_14_addresses_are_tried_in_turns_of_their_families() {
    let (mut rig, said) = Rig::connecting(&[101, 102, 1]);
    assert_eq!(said, ["connect ::65"]);
    assert_eq!(rig.pass(2 * DELAY), ["connect 10.0.0.1", "connect ::66"]);
}

#[test]
fn ch3_18_a_pass_ends_although_an_earlier_attempt_fails_last() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.pass(DELAY);
    assert_eq!(rig.fail(2), NONE);
    assert_eq!(rig.state(), Connectivity::Connecting, "the first one may be ready still");
    assert_eq!(rig.fail(1), ["resolve"]);
    assert_eq!(rig.state(), Connectivity::TransientFailure);
}

#[test]
fn ch3_10_failure_is_reported_until_a_connection_is_ready() {
    let (mut rig, _) = Rig::connecting(&[1]);
    assert_eq!(rig.fail(1), ["resolve"]);
    assert_eq!(rig.pass(BACKOFF), ["connect 10.0.0.1"]);
    assert_eq!(rig.state(), Connectivity::TransientFailure, "connecting again is not shown");
    assert_eq!(rig.update(&[1, 2]), NONE, "nor a new list");
    assert_eq!(rig.state(), Connectivity::TransientFailure);
    assert_eq!(rig.ready(2), NONE);
    assert_eq!((rig.state(), rig.pick_first.error()), (Connectivity::Ready, None));
}

#[test]
fn ch3_19_failed_addresses_are_tried_after_their_backoff_and_resolved_again_after_each_round() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.fail(1);
    assert_eq!(rig.fail(2), ["resolve"]);
    let mut said = rig.pass(BACKOFF);
    said.sort();
    assert_eq!(said, ["connect 10.0.0.1", "connect 10.0.0.2"]);
    assert_eq!(rig.fail(3), NONE, "one of two");
    assert_eq!(rig.fail(4), ["resolve"]);
    // The delay is 1.28 s at least, from the start of the attempt, which was 0.401 s ago at most.
    assert_eq!(rig.pass(Duration::from_millis(878)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1_042)).len(), 2);
}

#[test]
fn ch3_20_a_new_list_with_the_selected_address_changes_nothing() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.ready(1);
    assert_eq!(rig.update(&[3, 2, 1]), NONE);
    assert_eq!(rig.state(), Connectivity::Ready);
    assert_eq!(rig.update(&[3, 2]), ["connect 10.0.0.3", "drain 1"]);
    assert_eq!(rig.state(), Connectivity::Connecting);
}

#[test]
fn ch3_20_attempts_and_delays_of_addresses_that_stay_go_on() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.fail(1);
    assert_eq!(rig.update(&[1, 2, 3]), NONE, "1 is in backoff, 2 is connecting already");
    assert_eq!(rig.pass(DELAY), ["connect 10.0.0.3"]);
    assert_eq!(rig.update(&[1]), ["resolve", "cancel 2", "cancel 3"], "the only one left has failed");
    assert_eq!(rig.state(), Connectivity::TransientFailure);
}

#[test]
fn ch3_20_lists_that_come_faster_than_a_pass_ends_do_not_hide_the_failure() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    for number in 1..=3 {
        assert_eq!(rig.state(), Connectivity::Connecting, "{number}");
        rig.fail(rig.connections.len());
        let next = 2 * number as u8 + 1;
        rig.update(&[next, next + 1]);
    }
    assert_eq!(rig.state(), Connectivity::TransientFailure);
}

#[test]
fn ch3_21_an_empty_list_is_a_failure_that_ends_with_the_next_list() {
    let (mut rig, _) = Rig::connecting(&[1]);
    assert_eq!(rig.update(&[]), ["cancel 1"]);
    assert_eq!(rig.state(), Connectivity::TransientFailure);
    assert!(rig.pick_first.error().is_some());
    assert_eq!(rig.update(&[2]), ["connect 10.0.0.2"]);
    assert_eq!(rig.state(), Connectivity::Connecting);
}

#[test]
fn ch3_22_a_lost_connection_is_idle_and_connects_again_at_once_on_request() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.fail(1);
    rig.ready(2);
    assert_eq!(rig.lose(2), ["resolve"]);
    assert_eq!((rig.state(), rig.pick_first.ready().is_none()), (Connectivity::Idle, true));
    assert_eq!(rig.pass(Duration::from_secs(600)), NONE);
    assert_eq!(rig.connect(), ["connect 10.0.0.1"], "at the first address, without a delay");
}

#[test]
fn ch3_22_a_connection_that_is_lost_before_it_was_seen_ready_is_idle() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.pass(DELAY);
    assert_eq!(rig.lose(1), ["cancel 2", "resolve"]);
    assert_eq!(rig.state(), Connectivity::Idle);
}

#[test]
fn ch4_15_a_further_connection_that_fails_changes_nothing_for_the_endpoint() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.fail(1);
    rig.ready(2);
    let _waiting = rig.full();
    assert_eq!(rig.scale(2), ["connect 10.0.0.2"]);
    assert_eq!(rig.fail(3), NONE);
    assert_eq!((rig.state(), rig.pick_first.error()), (Connectivity::Ready, None));
    assert_eq!(rig.pass(2 * BACKOFF), NONE);
    assert_eq!(rig.scale(2), ["connect 10.0.0.2"], "the delay is over");
    assert_eq!(rig.ready(4), NONE);
    assert_eq!(rig.lose(2), NONE);
    assert_eq!((rig.state(), rig.scale(2)), (Connectivity::Ready, Vec::new()), "nobody waits any more");
}

#[test]
fn ch3_22_ch4_16_the_loss_of_the_last_connection_while_another_one_is_attempted_begins_a_pass() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.fail(1);
    rig.ready(2);
    let _waiting = rig.full();
    assert_eq!(rig.scale(2), ["connect 10.0.0.2"]);
    assert_eq!(rig.lose(2), ["resolve", "connect 10.0.0.1"]);
    assert_eq!(rig.state(), Connectivity::Connecting);
    assert_eq!(rig.ready(3), ["cancel 4"], "the attempt went on");
    assert_eq!(rig.state(), Connectivity::Ready);
}

#[test]
fn ch3_22_ch4_16_the_loss_of_the_last_connection_after_another_one_failed_begins_a_pass() {
    let (mut rig, _) = Rig::connecting(&[1]);
    rig.ready(1);
    let _waiting = rig.full();
    assert_eq!(rig.scale(2), ["connect 10.0.0.1"]);
    rig.fail(2);
    assert_eq!(rig.lose(1), ["resolve", "resolve"], "the only address is in backoff");
    assert_eq!(rig.state(), Connectivity::TransientFailure);
    assert!(rig.pick_first.error().is_some(), "calls fail with a reason");
    assert_eq!(rig.pass(2 * BACKOFF), ["connect 10.0.0.1"]);
}

#[test]
fn ch3_3_ch4_16_the_reason_of_a_delay_is_that_connections_were_lost_though_others_were_lost_later() {
    let (mut rig, _) = Rig::connecting(&[1]);
    rig.ready(1);
    let mut waiting = vec![rig.full()];
    assert_eq!(rig.scale(2), ["connect 10.0.0.1"]);
    rig.ready(2);
    waiting.push(rig.full());
    rig.lose(2);
    assert_eq!(rig.scale(2), ["connect 10.0.0.1"], "at once");
    rig.ready(3);
    waiting.push(rig.full());
    rig.lose(3);
    assert_eq!(rig.scale(2), NONE, "after a delay");
    assert_eq!((rig.state(), rig.pick_first.error()), (Connectivity::Ready, None));
    rig.lose(1);
    assert_eq!(rig.state(), Connectivity::TransientFailure);
    let error = rig.pick_first.error().map(|error| &**error);
    assert_eq!(
        error,
        Some("10.0.0.1:80: the connection was lost again before it had carried a complete call")
    );
}

#[test]
fn ch3_3_a_reset_of_the_backoff_tries_again_at_once() {
    let (mut rig, _) = Rig::connecting(&[1]);
    rig.fail(1);
    rig.pick_first.reset_backoff(&mut Scope::of_test(rig.now, &mut rig.random, &mut rig.commands));
    assert_eq!(rig.drain(), ["connect 10.0.0.1"]);
}

#[test]
fn events_of_connections_that_are_over_change_nothing() {
    let (mut rig, _) = Rig::connecting(&[1, 2]);
    rig.pass(DELAY);
    rig.ready(2);
    assert_eq!([rig.fail(1), rig.ready(1), rig.lose(1)], [NONE; 3].map(Vec::from));
    assert_eq!(rig.state(), Connectivity::Ready);
    let (mut released, next) = (ReleasedConnections::new(), PickFirst::new(PickFirstSettings::default()));
    mem::replace(&mut rig.pick_first, next).release_connections(&mut released);
    released.release(&mut rig.commands);
    assert_eq!(rig.drain(), ["drain 2"]);
    assert_eq!(rig.ready(2), NONE);
}
