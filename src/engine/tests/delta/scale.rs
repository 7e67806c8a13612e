//! Many names on the incremental variant: a change costs the same however many are held, and a new stream with all of them
//! ends in agreement, whether their versions fit into a request or not.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message;

use crate::{
    base::WatchId,
    control_plane::{AnyResource, DeltaSession, Store, session},
    engine::{
        Output, Selection, Timer,
        tests::rig::{Full, Rig, message, stream},
    },
    observed::{ErasedMembers, Observed},
    pb::envoy::service::discovery::v3::DeltaDiscoveryRequest,
    protocol::{Disconnect, DisconnectKind, Settings, StreamCommand, StreamEvent, StreamId},
    resource::{Resource, ResourceType},
    scans,
};

/// A client, and a server that answers at once.
struct World {
    rig: Rig,
    store: Store,
    session: DeltaSession,
    stream: StreamId,
    requests: Vec<DeltaDiscoveryRequest>,
    sent: usize,
    received: usize,
    /// What the last members were that the wildcard has seen, and whether they were complete.
    members: Option<(BTreeMap<String, String>, bool)>,
}

/// What was done.
#[derive(Debug, PartialEq)]
struct Cost {
    parsed: u64,
    unchanged: u64,
    /// Places that were gone through to find something.
    scanned: u64,
    requests: usize,
    /// Bytes to the server and back.
    sent: usize,
    received: usize,
}

fn name(index: usize) -> String {
    format!("service-{index:06}.example.com")
}

impl World {
    /// A client that holds some resources: all that there is, or each by its name.
    fn holding(count: usize, whole: bool, settings: Settings) -> Self {
        let mut world = Self {
            rig: Rig::delta_with(settings),
            store: Store::new(),
            session: DeltaSession::new(session::Settings::default()),
            stream: stream(1),
            requests: Vec::new(),
            sent: 0,
            received: 0,
            members: None,
        };
        world.set((0..count).map(|index| (index, Some("one"))));
        for index in 0..if whole { 1 } else { count } {
            let names = if whole { Selection::All } else { Selection::One(name(index).as_str().into()) };
            let watch_id = WatchId::new(index as u64 + 1);
            world.rig.engine.subscribe(watch_id, ResourceType::of::<Full>(), names, world.rig.now);
        }
        world.drain();
        world.rig.engine.handle_input(StreamEvent::Alive { stream: world.stream }, world.rig.now);
        world.rig.engine.handle_input(StreamEvent::Connected { stream: world.stream }, world.rig.now);
        world.pass(Duration::from_secs(5));
        assert_eq!(world.rig.engine.work_counters().parsed, count as u64, "all are there");
        world
    }

    fn set<'a>(&mut self, texts: impl IntoIterator<Item = (usize, Option<&'a str>)>) {
        self.store.update(|tx| {
            for (index, text) in texts {
                let name = name(index);
                match text {
                    Some(text) => {
                        tx.set(AnyResource::new(Full::TYPE_URL, name.as_str(), message(&name, text)));
                    }
                    None => {
                        tx.remove(Full::TYPE_URL, &name);
                    }
                }
            }
        });
    }

    /// What a change costs.
    fn cost_of(&mut self, change: impl FnOnce(&mut Self)) -> Cost {
        self.requests.clear();
        (self.sent, self.received) = (0, 0);
        let (before, scanned) = (self.rig.engine.work_counters(), scans::count());
        change(self);
        self.pass(Duration::from_secs(1));
        let after = self.rig.engine.work_counters();
        Cost {
            parsed: after.parsed - before.parsed,
            unchanged: after.unchanged - before.unchanged,
            scanned: scans::count() - scanned,
            requests: self.requests.len(),
            sent: self.sent,
            received: self.received,
        }
    }

    /// The stream ends, the store changes, and the next stream is open.
    fn reconnect(&mut self, change: impl FnOnce(&mut Self)) {
        let reason = Disconnect::new(DisconnectKind::Closed, "it broke");
        self.rig.engine.handle_input(StreamEvent::Disconnected { stream: self.stream, reason }, self.rig.now);
        change(self);
        self.requests.clear();
        self.stream.attempt += 1;
        self.session = DeltaSession::new(session::Settings::default());
        self.pass(Duration::from_secs(2));
        self.rig.engine.handle_input(StreamEvent::Alive { stream: self.stream }, self.rig.now);
        self.rig.engine.handle_input(StreamEvent::Connected { stream: self.stream }, self.rig.now);
        self.pass(Duration::from_secs(30));
    }

    /// Lets time pass on both sides.
    fn pass(&mut self, time: Duration) {
        let until = self.rig.now + time;
        loop {
            self.drain();
            let Some((at, _)) = self.rig.engine.poll_timeout() else { break };
            if at > until {
                break;
            }
            self.rig.now = self.rig.now.max(at);
            self.rig.engine.handle_timeout(self.rig.now);
        }
        self.rig.now = until;
    }

    /// Follows the orders, and delivers the responses.
    fn drain(&mut self) {
        let mut sent = VecDeque::new();
        loop {
            while let Some(output) = self.rig.engine.poll_output() {
                match output {
                    Output::Transport(StreamCommand::Send { stream, message }) => {
                        sent.push_back((stream, message))
                    }
                    Output::Notify { observed, .. } => self.see(&observed),
                    Output::Transport(StreamCommand::Connect { .. })
                    | Output::Transport(StreamCommand::Disconnect { .. })
                    | Output::Transport(StreamCommand::Read { .. })
                    | Output::Lookup { .. } => {}
                }
            }
            if let Some((stream, message)) = sent.pop_front() {
                self.sent += message.len();
                let request = DeltaDiscoveryRequest::decode(message).unwrap();
                self.requests.push(request.clone());
                self.session.handle_request(request).unwrap();
                self.rig.engine.handle_input(StreamEvent::RequestSent { stream }, self.rig.now);
            } else if let Some((_, Timer::Work)) = self.rig.engine.poll_timeout() {
                self.rig.engine.handle_timeout(self.rig.now);
            } else if self.requests.is_empty() && self.session.subscribed(Full::TYPE_URL).is_empty() {
                return;
            } else if let Some(response) = self.session.poll_response(&self.store) {
                let message = response.encode_to_vec();
                self.received += message.len();
                let input = StreamEvent::Received { stream: self.stream, message: message.into(), at: None };
                self.rig.engine.handle_input(input, self.rig.now);
            } else {
                return;
            }
        }
    }

    fn see(&mut self, observed: &crate::resource::Erased) {
        let Some(members) = observed.downcast_ref::<ErasedMembers>() else { return };
        let text = |seen: &crate::resource::Erased| match seen.downcast_ref::<Observed<Full>>().unwrap() {
            Observed::Present { resource, warning: None, .. } => resource.0.clone(),
            other @ (Observed::Present { .. } | Observed::Absent { .. } | Observed::Pending) => {
                panic!("{other:?}")
            }
        };
        let seen = members.map.iter().map(|(name, seen)| (name.to_string(), text(&seen.0))).collect();
        self.members = Some((seen, members.complete));
    }

    /// Client and server agree on the set.
    fn check_agreement(&self) {
        let text = |bytes: &[u8]| crate::wire::string_field(bytes, 2).unwrap().to_owned();
        let of_type = self.store.get(Full::TYPE_URL);
        let there: BTreeMap<_, _> =
            of_type.iter().map(|(name, stored)| (name.to_owned(), text(stored.bytes()))).collect();
        let (members, complete) = self.members.as_ref().unwrap();
        assert!(*complete && members.len() == there.len(), "{} members of {}", members.len(), there.len());
        assert!(*members == there);
        assert_eq!(self.rig.engine.resources(), there.len(), "nothing else is kept");
    }
}

#[test]
fn one_change_costs_the_same_with_1_000_and_with_100_000_held() {
    for whole in [true, false] {
        let cost = |count| {
            let mut world = World::holding(count, whole, Settings::default());
            let changed = world.cost_of(|world| world.set([(777, Some("two"))]));
            let removed = world.cost_of(|world| world.set([(778, None)]));
            let came_back = world.cost_of(|world| world.set([(778, Some("three"))]));
            [changed, removed, came_back]
        };
        let (few, many) = (cost(1_000), cost(100_000));
        println!("of all there is: {whole}; 1,000 held: {few:?}; 100,000 held: {many:?}");
        for (few, many) in few.into_iter().zip(many) {
            assert!(many.scanned <= few.scanned + 4, "{few:?}, {many:?}");
            // Numbers of versions and nonces have more digits.
            assert!(many.sent <= few.sent + 8 && many.received <= few.received + 16, "{few:?}, {many:?}");
            let rest = Cost { scanned: 0, sent: 0, received: 0, ..many };
            assert_eq!(rest, Cost { scanned: 0, sent: 0, received: 0, ..few });
            assert!(rest.parsed <= 1 && rest.unchanged == 0 && rest.requests == 1);
        }
    }
}

/// A tenth changes, a tenth goes and a tenth comes while there is no stream.
fn change_much(world: &mut World, count: usize) {
    world.set((0..count).step_by(10).map(|index| (index, Some("changed"))));
    world.set((1..count).step_by(10).map(|index| (index, None)));
    world.set((count..count + count / 10).map(|index| (index, Some("new"))));
}

#[test]
fn a_new_stream_with_100_000_cached_sends_their_versions_if_they_fit() {
    const COUNT: usize = 100_000;
    let settings = Settings { max_request_size: 16 << 20, ..Settings::default() };
    let mut world = World::holding(COUNT, true, settings);
    let before = world.rig.engine.work_counters();
    world.reconnect(|world| change_much(world, COUNT));
    assert_eq!(world.requests[0].initial_resource_versions.len(), COUNT);
    let after = world.rig.engine.work_counters();
    assert_eq!(after.parsed - before.parsed, (COUNT / 5) as u64, "what is new or has changed");
    assert_eq!(after.unchanged, before.unchanged, "the rest is not sent");
    world.check_agreement();
}

#[test]
fn a_new_stream_with_100_000_held_leaves_their_versions_out_if_they_do_not_fit() {
    const COUNT: usize = 100_000;
    let mut world = World::holding(COUNT, true, Settings::default());
    let before = world.rig.engine.work_counters();
    world.reconnect(|world| change_much(world, COUNT));
    assert_eq!(world.requests[0].initial_resource_versions.len(), 0, "they are over 3 MiB");
    let after = world.rig.engine.work_counters();
    assert_eq!(after.unchanged - before.unchanged, (COUNT * 8 / 10) as u64, "all is sent again");
    world.check_agreement();
}

#[test]
fn a_new_stream_with_100_000_names_splits_them_over_requests_that_servers_accept() {
    const COUNT: usize = 100_000;
    let settings = Settings { max_request_size: 1 << 20, ..Settings::default() };
    let mut world = World::holding(COUNT, false, settings);
    world.reconnect(|_| {});
    let lists: Vec<_> = world.requests.iter().filter(|r| !r.resource_names_subscribe.is_empty()).collect();
    assert_eq!(lists.iter().map(|request| request.resource_names_subscribe.len()).sum::<usize>(), COUNT);
    assert!(lists.iter().all(|request| request.encoded_len() <= 1 << 20));
    assert!((3..=4).contains(&lists.len()), "{} requests", lists.len());
    assert_eq!(world.rig.engine.resources(), COUNT);
}
