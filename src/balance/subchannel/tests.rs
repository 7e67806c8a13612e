mod simulation;

use std::time::Duration;

use super::*;
use crate::balance::{command::Command, stream_queue::StreamWaiter};

/// A subchannel with its clock, and a limit of connections.
struct Rig {
    subchannel: Subchannel<Arc<()>>,
    limit: usize,
    now: Instant,
    random: fastrand::Rng,
    commands: Commands,
    start: Arc<()>,
}

impl Rig {
    fn new(limit: usize) -> Self {
        Self {
            subchannel: Subchannel::new(
                SocketAddr::from(([127, 0, 0, 1], 1)).into(),
                ConnectSettings::default(),
            ),
            limit,
            now: Instant::now(),
            random: fastrand::Rng::with_seed(1),
            commands: Commands::default(),
            start: Arc::default(),
        }
    }

    /// With a connection that permits so many streams.
    fn ready(limit: usize, streams: usize) -> Self {
        let mut rig = Self::new(limit);
        rig.connect();
        rig.connected(streams);
        rig
    }

    fn connect(&mut self) -> usize {
        self.subchannel.connect(&mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        self.scale()
    }

    /// The attempt succeeds.
    fn connected(&mut self, streams: usize) -> usize {
        let streams = Streams::new(self.start.clone(), streams);
        self.subchannel.on_connected(streams, self.now, &OnFull::default(), &mut self.commands);
        self.scale()
    }

    fn failed(&mut self) -> usize {
        self.subchannel.on_failed(ConnectFailure::Refused);
        self.scale()
    }

    /// A call is complete on each connection.
    fn complete(&self) {
        self.subchannel.connections.iter().for_each(|(_, streams)| streams.on_complete());
    }

    /// The oldest connection, or the attempt, ends.
    fn lost(&mut self) -> usize {
        let oldest = self.subchannel.ids().next().unwrap();
        self.subchannel.on_lost(oldest, self.now);
        self.scale()
    }

    /// The delay after a failure is over.
    fn delay(&mut self) -> usize {
        self.now = self.subchannel.poll_timeout().unwrap();
        self.subchannel.on_timeout(self.now);
        self.scale()
    }

    /// As after each event; returns the number of new attempts to connect.
    fn scale(&mut self) -> usize {
        self.subchannel
            .scale(self.limit, &mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        let commands = std::iter::from_fn(|| self.commands.poll());
        commands.filter(|it| matches!(it, Command::Connect { .. })).count()
    }

    /// An attempt of a call that waits.
    fn wait(&self) -> StreamWaiter<Arc<()>> {
        self.subchannel.queue.as_ref().unwrap().wait().unwrap()
    }

    fn state(&self) -> (Connectivity, usize) {
        (self.subchannel.connectivity(), self.subchannel.connections.len())
    }
}

#[test]
fn ch3_1_a_subchannel_connects_when_asked_and_is_idle_again_after_backoff_and_loss() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.state().0, Connectivity::Idle);
    assert_eq!(rig.connected(1), 0);
    assert_eq!(rig.state().0, Connectivity::Idle, "it was not asked to connect");
    assert_eq!(rig.connect() + rig.connect(), 1);
    assert_eq!(rig.state().0, Connectivity::Connecting);
    assert_eq!(rig.failed(), 0);
    let until = rig.subchannel.poll_timeout().unwrap();
    assert_eq!(rig.state().0, Connectivity::TransientFailure);
    rig.now = until - Duration::from_nanos(1);
    rig.subchannel.on_timeout(rig.now);
    assert_eq!(rig.connect(), 0, "it is in backoff");
    assert_eq!(rig.state().0, Connectivity::TransientFailure);
    assert_eq!(rig.delay(), 0);
    assert_eq!(rig.state().0, Connectivity::Idle);
    assert_eq!(rig.connect(), 1);
    rig.connected(1);
    assert_eq!((rig.state(), rig.subchannel.ready().is_some()), ((Connectivity::Ready, 1), true));
    assert_eq!(rig.connect(), 0, "it is connected");
    rig.lost();
    assert_eq!((rig.state(), rig.subchannel.ready().is_none()), ((Connectivity::Idle, 0), true));
    assert_eq!(Arc::strong_count(&rig.start), 1, "the handle went with the connection");
}

#[test]
fn ch4_9_ch4_10_connections_are_added_up_to_the_limit_while_attempts_wait() {
    let mut rig = Rig::ready(3, 1);
    assert_eq!(rig.scale(), 0, "nobody waits");
    let waiting: Vec<_> = (0..9).map(|_| rig.wait()).collect();
    assert_eq!(rig.scale(), 1);
    assert_eq!(rig.scale(), 0, "one attempt at a time");
    assert_eq!(rig.connected(1), 1, "more attempts wait than that connection has streams");
    assert_eq!(rig.connected(1), 0, "that is the limit");
    assert_eq!(rig.state(), (Connectivity::Ready, 3));
    drop(waiting);
}

#[test]
fn ch4_9_a_limit_applies_to_a_living_subchannel_and_a_lower_one_closes_nothing() {
    let mut rig = Rig::ready(1, 0);
    let waiting = rig.wait();
    assert_eq!(rig.scale(), 0);
    rig.limit = 2;
    assert_eq!(rig.scale(), 1);
    assert_eq!(rig.connected(0), 0);
    rig.limit = 1;
    assert_eq!((rig.scale(), rig.state()), (0, (Connectivity::Ready, 2)));
    assert_eq!((rig.lost(), rig.state()), (0, (Connectivity::Ready, 1)));
    drop(waiting);
}

#[test]
fn ch4_11_the_end_of_a_delay_and_a_loss_add_a_connection_while_attempts_wait() {
    let mut rig = Rig::ready(2, 0);
    let waiting = rig.wait();
    assert_eq!(rig.scale(), 1);
    assert_eq!(rig.failed(), 0);
    assert_eq!(rig.state().0, Connectivity::Ready, "CH4.15");
    drop(rig.wait());
    assert_eq!(rig.scale(), 0, "it is in backoff");
    assert_eq!(rig.delay(), 1);
    assert_eq!(rig.connected(0), 0);
    assert_eq!(rig.lost(), 1, "there are fewer than the limit");
    drop(waiting);
}

#[test]
fn ch4_12_all_connections_have_one_backoff_which_a_complete_call_resets() {
    let mut rig = Rig::ready(2, 0);
    rig.complete();
    let waiting = rig.wait();
    let mut delays = Vec::new();
    rig.scale();
    for _ in 0..3 {
        let begin = rig.now;
        rig.failed();
        assert_eq!(rig.delay(), 1);
        delays.push((rig.now - begin).as_millis());
    }
    assert!(delays.is_sorted() && delays[2] > 2_000, "{delays:?}");
    rig.connected(0);
    rig.complete();
    assert_eq!(rig.lost(), 1);
    let begin = rig.now;
    rig.failed();
    assert_eq!(rig.delay(), 1);
    assert!((rig.now - begin).as_millis() <= 1_200, "the first delay");
    // Nobody waits any more when the delay is over, and then the last connection is lost.
    rig.failed();
    drop(waiting);
    assert_eq!(rig.delay(), 0);
    rig.lost();
    assert_eq!((rig.state(), rig.connect()), ((Connectivity::Idle, 0), 1));
    let begin = rig.now;
    rig.failed();
    rig.delay();
    assert!((rig.now - begin).as_millis() <= 1_200, "the first delay after a loss (CH3.3)");
}

#[test]
fn ch3_3_a_connection_that_has_proved_itself_resets_the_backoff_of_further_ones_once() {
    let mut rig = Rig::ready(2, 0);
    rig.complete();
    let waiting = rig.wait();
    rig.scale();
    let mut delays = Vec::new();
    for _ in 0..4 {
        let begin = rig.now;
        rig.failed();
        assert_eq!(rig.delay(), 1);
        delays.push((rig.now - begin).as_millis());
    }
    assert!(delays[0] <= 1_200 && delays.is_sorted(), "the first delay, and then longer ones: {delays:?}");
    drop(waiting);
}

#[test]
fn ch3_3_a_further_connection_that_is_lost_at_once_is_replaced_once_and_then_with_backoff() {
    let mut rig = Rig::ready(2, 0);
    let waiting = rig.wait();
    assert_eq!(rig.scale(), 1);
    let lose_youngest = |rig: &mut Rig| {
        rig.connected(0);
        let youngest = rig.subchannel.connections[1].0;
        rig.subchannel.on_lost(youngest, rig.now);
        rig.scale()
    };
    assert_eq!(lose_youngest(&mut rig), 1, "at once");
    assert_eq!(lose_youngest(&mut rig), 0);
    assert_eq!(rig.state(), (Connectivity::Ready, 1));
    let begin = rig.now;
    assert_eq!(rig.delay(), 1);
    assert!((rig.now - begin).as_millis() >= 1_280);
    drop(waiting);
}

#[test]
fn ch3_1_ch3_3_an_endpoint_whose_connections_are_lost_at_once_is_idle_until_it_is_asked_to_connect() {
    let mut rig = Rig::ready(1, 1);
    rig.lost();
    assert_eq!((rig.state().0, rig.connect()), (Connectivity::Idle, 1), "at once");
    rig.connected(1);
    rig.lost();
    assert_eq!((rig.state().0, rig.subchannel.poll_timeout()), (Connectivity::Idle, None));
    assert_eq!((rig.connect(), rig.state().0), (0, Connectivity::TransientFailure));
    assert_eq!(rig.delay(), 0);
    assert_eq!((rig.state().0, rig.connect()), (Connectivity::Idle, 1));
}

#[test]
fn ch4_15_ch4_16_without_a_connection_the_state_is_that_of_the_attempt() {
    let mut rig = Rig::ready(2, 0);
    let mut waiting = rig.wait();
    assert_eq!(rig.scale(), 1);
    assert_eq!(rig.state(), (Connectivity::Ready, 1));
    rig.lost();
    assert_eq!(rig.state(), (Connectivity::Connecting, 0));
    let polled =
        std::pin::Pin::new(&mut waiting).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(polled, std::task::Poll::Ready(Err(_))), "never sent (CH4.12)");
    assert_eq!((rig.connected(0), rig.state()), (0, (Connectivity::Ready, 1)));
    let waiting = rig.wait();
    assert_eq!(rig.scale(), 1);
    rig.failed();
    rig.lost();
    assert_eq!(rig.state(), (Connectivity::TransientFailure, 0));
    rig.delay();
    assert_eq!(rig.state(), (Connectivity::Idle, 0));
    drop(waiting);
}

#[test]
fn ch4_12_a_connection_that_comes_after_the_loss_of_the_others_has_a_queue_of_its_own() {
    let mut rig = Rig::ready(2, 0);
    let before = rig.wait();
    assert_eq!(rig.scale(), 1);
    // The loss is seen by the connection first.
    rig.subchannel.connections[0].1.close();
    rig.connected(1);
    drop(before);
    let ready = rig.subchannel.ready().unwrap();
    let connections = crate::balance::stream_queue::Connections::new(ready.connections, ready.queue).unwrap();
    assert!(connections.try_reserve().is_some_and(|it| it.is_some()), "that of the second one");
    rig.lost();
    assert_eq!(rig.state(), (Connectivity::Ready, 1));
}

#[test]
fn ch3_17_a_release_ends_all_connections_and_the_attempt() {
    let mut rig = Rig::ready(3, 0);
    let waiting = rig.wait();
    rig.scale();
    rig.connected(0);
    rig.subchannel.release(&mut rig.commands);
    let commands: Vec<_> = std::iter::from_fn(|| rig.commands.poll()).collect();
    assert!(
        matches!(commands[..], [Command::Cancel { .. }, Command::Drain { .. }, Command::Drain { .. }]),
        "{commands:?}"
    );
    assert_eq!(rig.state(), (Connectivity::Idle, 0));
    drop(waiting);
}
