use super::*;
use crate::balance::{
    command::{Commands, LeafIndex, Purpose},
    identity::Destination,
};

/// Attempts with numbers as ids, and virtual time.
struct Rig {
    connects: Connects,
    commands: Commands,
    ids: Vec<ConnectionId>,
    limit: usize,
    now: Instant,
}

const FIRST: Purpose = Purpose::First { was_silent: false };

fn queue(leaf: usize, priority: usize) -> QueueId {
    QueueId { leaf: LeafIndex(leaf), part: QueuePart::Priority(priority) }
}

impl Rig {
    fn new(limit: usize) -> Self {
        Self {
            connects: Connects::default(),
            commands: Commands::default(),
            ids: Vec::new(),
            limit,
            now: Instant::now(),
        }
    }

    /// An attempt with the next number.
    fn add(&mut self, urgency: Urgency, queue: QueueId) -> usize {
        let purpose = match urgency {
            Urgency::Replacement => Purpose::Replace(self.ids[0]),
            Urgency::Requested | Urgency::Unserved | Urgency::Ordinary | Urgency::Silent => FIRST,
        };
        let connection = self.commands.next_id();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let destination = Destination::from(address);
        let command = Command::Connect { connection, destination, timeout: Duration::from_secs(20), purpose };
        self.connects.add(connection, command, (urgency, queue));
        self.ids.push(connection);
        self.ids.len() - 1
    }

    fn add_all(&mut self, count: usize, urgency: Urgency, queue: QueueId) {
        for _ in 0..count {
            self.add(urgency, queue);
        }
    }

    /// The numbers of the attempts that begin now.
    fn begin(&mut self) -> Vec<usize> {
        let mut begun = Vec::new();
        while let Some(command) = self.connects.poll(self.limit, self.now) {
            let Command::Connect { connection, .. } = command else { continue };
            begun.push(self.ids.iter().position(|known| *known == connection).unwrap());
        }
        begun
    }

    fn pass(&mut self, milliseconds: u64) -> Vec<usize> {
        self.now += Duration::from_millis(milliseconds);
        self.begin()
    }

    fn fail(&mut self, number: usize, cause: ConnectFailure) -> ConnectFailure {
        self.connects.on_failed(self.ids[number], cause, self.now)
    }
}

#[test]
fn ch11_8_an_attempt_gives_its_slot_back_after_500_ms_and_runs_on() {
    let mut rig = Rig::new(2);
    rig.add_all(5, Urgency::Unserved, queue(0, 0));
    assert_eq!(rig.begin().len(), 2);
    assert_eq!(rig.connects.poll_timeout(), Some(rig.now + SLOT_TIME));
    assert!(rig.pass(499).is_empty());
    assert_eq!(rig.pass(1).len(), 2);
    assert_eq!(rig.connects.running().len(), 4);
    assert_eq!(rig.pass(500).len(), 1);
    assert_eq!(rig.connects.poll_timeout(), None, "nothing waits");
}

#[test]
fn ch11_8_an_attempt_that_ends_gives_its_slot_back_at_once() {
    let mut rig = Rig::new(1);
    rig.add_all(4, Urgency::Ordinary, queue(0, 0));
    assert_eq!(rig.begin(), [0]);
    rig.connects.on_connected(rig.ids[0]);
    let [second] = rig.begin()[..] else { panic!() };
    assert_eq!(rig.fail(second, ConnectFailure::Refused), ConnectFailure::Refused);
    let [third] = rig.begin()[..] else { panic!() };
    rig.connects.cancel(rig.ids[third]);
    assert_eq!(rig.connects.poll(1, rig.now), Some(Command::Cancel { connection: rig.ids[third] }));
    assert_eq!(rig.begin().len(), 1);
}

#[test]
fn ch11_8_the_failure_of_an_attempt_without_an_answer_counts_as_silence() {
    let mut rig = Rig::new(1);
    rig.add_all(2, Urgency::Ordinary, queue(0, 0));
    rig.begin();
    assert_eq!(rig.pass(500), [1]);
    assert_eq!(rig.fail(0, ConnectFailure::Refused), ConnectFailure::Silent);
    assert_eq!(rig.fail(1, ConnectFailure::Refused), ConnectFailure::Refused);
}

#[test]
fn ch11_8_clusters_and_their_priorities_have_turns() {
    let mut rig = Rig::new(1);
    rig.add_all(10, Urgency::Unserved, queue(0, 0));
    let (next, other) = (rig.add(Urgency::Unserved, queue(0, 1)), rig.add(Urgency::Unserved, queue(1, 0)));
    let begun: Vec<_> = std::iter::once(rig.begin()).chain((0..3).map(|_| rig.pass(500))).flatten().collect();
    assert_eq!(begun, [0, next, other, 9], "one of each, and then of the first again");
}

#[test]
fn ch11_8_the_oldest_and_the_newest_attempt_of_a_priority_have_turns() {
    let mut rig = Rig::new(1);
    rig.add_all(3, Urgency::Ordinary, queue(0, 0));
    assert_eq!((rig.begin(), rig.pass(500)), (vec![0], vec![2]));
    let added = rig.add(Urgency::Ordinary, queue(0, 0));
    assert_eq!((rig.pass(500), rig.pass(500)), (vec![1], vec![added]));
}

#[test]
fn ch11_8_requested_and_first_attempts_go_before_those_of_silent_endpoints() {
    let mut rig = Rig::new(4);
    rig.add_all(1, Urgency::Ordinary, queue(0, 0));
    rig.begin();
    let replacement = rig.add(Urgency::Replacement, queue(0, 0));
    let silent = rig.add(Urgency::Silent, queue(0, 0));
    let ordinary = rig.add(Urgency::Ordinary, queue(0, 0));
    let unserved = rig.add(Urgency::Unserved, queue(0, 0));
    let requested = rig.add(Urgency::Requested, queue(0, 0));
    assert_eq!(rig.begin(), [requested, unserved], "a quarter of the slots is kept");
    assert_eq!(rig.pass(500), [ordinary, silent, replacement]);
}

#[test]
fn ch11_8_a_quarter_of_the_slots_is_for_requested_attempts_and_priorities_without_a_slot() {
    let mut rig = Rig::new(8);
    rig.add_all(20, Urgency::Unserved, queue(0, 0));
    assert_eq!(rig.begin().len(), 6);
    let failover = rig.add(Urgency::Unserved, queue(0, 1));
    assert_eq!(rig.begin(), [failover]);
    rig.add_all(3, Urgency::Silent, queue(0, 1));
    rig.add_all(1, Urgency::Replacement, queue(2, 0));
    assert!(rig.begin().is_empty());
    let requested = rig.add(Urgency::Requested, queue(0, 0));
    rig.add(Urgency::Requested, queue(0, 0));
    assert_eq!(rig.begin(), [requested], "the limit holds for all");
}

#[test]
fn ch11_8_without_descriptors_a_cluster_attempts_one_connection_a_second() {
    let mut rig = Rig::new(100);
    rig.add_all(10, Urgency::Ordinary, queue(0, 0));
    assert_eq!(rig.begin().len(), 10);
    assert_eq!(rig.fail(0, ConnectFailure::NoDescriptor), ConnectFailure::NoDescriptor);
    rig.add_all(5, Urgency::Ordinary, queue(0, 0));
    rig.add_all(5, Urgency::Ordinary, queue(1, 0));
    assert_eq!(rig.begin().len(), 1, "of the other cluster");
    assert!(rig.connects.poll_timeout().is_some_and(|at| at <= rig.now + Duration::from_secs(1)));
    assert_eq!((rig.pass(999).len(), rig.pass(1).len()), (0, 2));
    assert_eq!(rig.pass(1_000).len(), 7, "2 s after the last failure there may be descriptors again");
}

#[test]
fn ch11_8_a_cluster_without_connections_goes_first_while_descriptors_are_lacking() {
    let mut rig = Rig::new(100);
    let only = rig.add(Urgency::Unserved, queue(1, 0));
    rig.begin();
    rig.fail(only, ConnectFailure::NoDescriptor);
    for _ in 0..5 {
        rig.add_all(5, Urgency::Ordinary, queue(0, 0));
        rig.add_all(1, Urgency::Silent, queue(2, 0));
        assert!(rig.pass(500).is_empty(), "the descriptors are for the cluster that has none");
        let only = rig.add(Urgency::Unserved, queue(1, 0));
        assert_eq!(rig.pass(500), [only]);
        rig.fail(only, ConnectFailure::NoDescriptor);
    }
    let only = rig.add(Urgency::Unserved, queue(1, 0));
    assert_eq!(rig.pass(1_000), [only]);
    rig.connects.on_connected(rig.ids[only]);
    assert_eq!(rig.begin().len(), 2, "one of each of the others");
}

#[test]
fn ch7_7_a_replacement_that_waits_becomes_ordinary_when_its_connection_is_lost() {
    let mut rig = Rig::new(4);
    rig.add(Urgency::Ordinary, queue(0, 0));
    rig.begin();
    rig.connects.on_connected(rig.ids[0]);
    rig.limit = 1;
    let (replacement, silent) =
        (rig.add(Urgency::Replacement, queue(0, 0)), rig.add(Urgency::Silent, queue(0, 0)));
    rig.connects.on_lost(rig.ids[0]);
    assert_eq!((rig.begin(), rig.pass(500)), (vec![replacement], vec![silent]));
}
