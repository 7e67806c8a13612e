//! Many names and large responses: what they cost in requests, bytes and parsing.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use prost::Message;

use super::rig::{Full, Part, Rig, any, response, stream};
use crate::{
    control_plane::{AnyResource, Session, Store, session},
    engine::{Output, Timer},
    pb::envoy::service::discovery::v3::DiscoveryRequest,
    protocol::{StreamCommand, StreamEvent},
    resource::Resource,
};

/// A server that answers at once, after a millisecond on the way, and records what it is sent.
struct Recording {
    store: Store,
    session: Session,
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    /// The sizes of the requests.
    requests: Vec<usize>,
}

impl Recording {
    fn with<T: Resource>(names: &[String]) -> Self {
        let mut store = Store::new();
        store.update(|tx| {
            for name in names {
                tx.set(AnyResource::new(T::TYPE_URL, name.as_str(), super::rig::message(name, "x")));
            }
        });
        let mut settings = session::Settings::default();
        settings.full_state_types.insert(Full::TYPE_URL.to_owned());
        let session = Session::new(settings);
        Self { store, session, on_the_way: VecDeque::new(), requests: Vec::new() }
    }

    /// Lets time pass on both sides.
    fn pass(&mut self, rig: &mut Rig, time: Duration) {
        let until = rig.now + time;
        loop {
            self.obey(rig);
            let response = self.on_the_way.front().map(|(at, _)| *at);
            let timeout = rig.engine.poll_timeout().map(|(at, _)| at.max(rig.now));
            let Some(at) = response.into_iter().chain(timeout).min().filter(|at| *at <= until) else { break };
            rig.now = at;
            if response == Some(at) {
                let (_, bytes) = self.on_the_way.pop_front().unwrap();
                rig.engine.handle_input(
                    StreamEvent::Received { stream: stream(1), message: bytes.into(), at: None },
                    at,
                );
            } else {
                rig.engine.handle_timeout(at);
            }
        }
        rig.now = until;
    }

    fn obey(&mut self, rig: &mut Rig) {
        while self.drain(rig) {}
    }

    /// Follows the orders there are; true when that brought about others.
    fn drain(&mut self, rig: &mut Rig) -> bool {
        let mut sent = Vec::new();
        while let Some(output) = rig.engine.poll_output() {
            if let Output::Transport(StreamCommand::Send { stream, message }) = output {
                self.requests.push(message.len());
                self.session.handle_request(DiscoveryRequest::decode(message).unwrap()).unwrap();
                while let Some(response) = self.session.poll_response(&self.store) {
                    self.on_the_way.push_back((rig.now + Duration::from_millis(1), response.encode_to_vec()));
                }
                sent.push(stream);
            }
        }
        // At most one request is pending.
        let Some(stream) = sent.pop() else { return false };
        rig.engine.handle_input(StreamEvent::RequestSent { stream }, rig.now);
        sent.is_empty()
    }
}

/// Starts watches on a live stream, some time apart, and returns the sizes of the requests that it takes.
fn cost_of_watches<T: Resource>(count: usize, apart: Duration) -> Vec<usize> {
    let names: Vec<_> = (0..count).map(|i| format!("service-{i:05}.example.com")).collect();
    let mut server = Recording::with::<T>(&names);
    let mut rig = Rig::new();
    rig.watch::<T>("something else");
    rig.connect(1);
    rig.sent(1);
    server.pass(&mut rig, Duration::from_secs(1));
    server.requests.clear();
    for name in &names {
        let watch_id = crate::base::WatchId::new(1_000 + rig.engine.resources() as u64);
        let ty = crate::resource::ResourceType::of::<T>();
        rig.engine.subscribe(watch_id, ty, super::super::Selection::One(name.as_str().into()), rig.now);
        server.pass(&mut rig, apart);
    }
    server.pass(&mut rig, Duration::from_secs(1));
    assert_eq!(rig.engine.work_counters().parsed, count as u64, "all are there");
    server.requests
}

#[test]
fn ten_thousand_watches_cost_at_most_40_requests_and_12_times_the_bytes_of_the_last() {
    for apart in [0, 20, 50] {
        for sizes in [
            cost_of_watches::<Full>(10_000, Duration::from_micros(apart)),
            cost_of_watches::<Part>(10_000, Duration::from_micros(apart)),
        ] {
            let (requests, bytes, last) = (sizes.len(), sizes.iter().sum::<usize>(), sizes[sizes.len() - 1]);
            println!("{apart} µs apart: {requests} requests, {:.1} × the last", bytes as f64 / last as f64);
            assert!(requests <= 40, "{requests} requests, {apart} µs apart");
            assert!(bytes <= 12 * last, "{bytes} bytes, the last request has {last}, {apart} µs apart");
            assert!(last > 10_000 * 20);
        }
    }
}

#[test]
fn one_watch_costs_no_delay() {
    let sizes = cost_of_watches::<Full>(1, Duration::ZERO);
    assert_eq!(sizes.len(), 2, "a request and an answer");
}

#[test]
fn of_100_000_clusters_the_one_that_changed_is_parsed_again() {
    let names: Vec<_> = (0..100_000).map(|i| format!("c{i}")).collect();
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    let mut resources: Vec<_> = names.iter().map(|name| any::<Full>(name, "x")).collect();
    let outputs = rig.receive(1, &response::<Full>("1", resources.clone()));
    assert_eq!(outputs.last().unwrap().matches("present 1 x").count(), 100_000);
    assert_eq!(rig.engine.work_counters().parsed, 100_000);
    rig.sent(1);
    resources[77_777] = any::<Full>("c77777", "y");
    let (watch, _) = rig.watch::<Full>("c77777");
    let outputs = rig.receive(1, &response::<Full>("2", resources.clone()));
    assert!(outputs.contains(&format!("#{} present 2 y", rig.watches())), "{watch:?}");
    let counters = rig.engine.work_counters();
    assert_eq!((counters.parsed, counters.unchanged), (100_001, 99_999));
    // In another order the guess of places fails, and nothing else.
    rig.sent(1);
    resources.reverse();
    rig.receive(1, &response::<Full>("3", resources));
    assert_eq!(rig.engine.work_counters().parsed, 100_001);
}

#[test]
fn no_step_of_a_large_response_does_all_of_it() {
    let names: Vec<_> = (0..100_000).map(|i| format!("c{i}")).collect();
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    let resources = names.iter().map(|name| any::<Full>(name, "x")).collect();
    let message = response::<Full>("1", resources).encode_to_vec().into();
    rig.engine.handle_input(StreamEvent::Received { stream: stream(1), message, at: None }, rig.now);
    let mut most = 0;
    while let Some((_, Timer::Work)) = rig.engine.poll_timeout() {
        let before = rig.engine.work_counters().parsed;
        rig.drain();
        rig.engine.handle_timeout(rig.now);
        most = most.max(rig.engine.work_counters().parsed - before);
    }
    assert!((1..=5_000).contains(&most), "{most} in one step");
    assert_eq!(rig.engine.work_counters().parsed, 100_000);
}

#[test]
fn watching_and_unwatching_leaves_nothing_behind() {
    let mut rig = Rig::new();
    for i in 0..10_000 {
        let (watch_id, _) = rig.watch::<Part>(&format!("p{i}"));
        rig.unwatch(watch_id);
    }
    assert_eq!(rig.engine.resources(), 0);
    assert!(!rig.engine.delivery.has_watches());
    rig.watch::<Part>("p");
    assert!(rig.connect(1)[1].starts_with("send Part [p] /"));
}
