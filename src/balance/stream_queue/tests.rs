use std::task::Waker;

use super::*;
use crate::balance::command::Commands;

type Reserving = StreamWaiter<()>;

/// The connections of a subchannel, by the limits of their peers.
struct Rig {
    connections: Vec<(ConnectionId, Arc<Streams<()>>)>,
    queue: Arc<StreamQueue<()>>,
    /// The connections beside which further ones were requested.
    full: Arc<Mutex<Vec<ConnectionId>>>,
    commands: Commands,
}

impl Rig {
    fn new(limit: usize) -> Self {
        let full = Arc::<Mutex<Vec<_>>>::default();
        let requests = full.clone();
        let on_full = OnFull::new(move |connection| requests.lock().unwrap().push(connection));
        let mut commands = Commands::default();
        let (connection, streams) = (commands.next_id(), Streams::new((), limit));
        let queue = StreamQueue::of(connection, &streams, &on_full);
        Self { connections: vec![(connection, streams)], queue, full, commands }
    }

    /// As with a limit of connections above one.
    fn scaled(limit: usize) -> Self {
        let rig = Self::new(limit);
        assert!(!rig.queue.set_growth(true, true));
        rig
    }

    fn add(&mut self, limit: usize) -> bool {
        let (connection, streams) = (self.commands.next_id(), Streams::new((), limit));
        self.connections.push((connection, streams.clone()));
        self.queue.add(connection, &streams)
    }

    fn streams(&self, number: usize) -> &Arc<Streams<()>> {
        &self.connections[number].1
    }

    /// The streams that run on each connection.
    fn running(&self) -> Vec<u64> {
        self.connections.iter().map(|(_, it)| it.running()).collect()
    }

    /// A stream without waiting.
    fn reserve(&self) -> bool {
        Connections::new(&self.connections, &self.queue).unwrap().try_reserve().is_some()
    }

    fn wait(&self) -> Reserving {
        self.queue.wait().unwrap()
    }

    /// The number of requests for further connections since the last time.
    fn requests(&self) -> usize {
        std::mem::take(&mut *self.full.lock().unwrap()).len()
    }
}

fn poll(waiter: &mut Reserving) -> Poll<bool> {
    Pin::new(waiter).poll(&mut Context::from_waker(Waker::noop())).map(|it| it.is_ok())
}

/// The places of those that have a stream.
fn done(waiting: &mut [Reserving]) -> Vec<usize> {
    (0..waiting.len()).filter(|place| poll(&mut waiting[*place]) == Poll::Ready(true)).collect()
}

#[test]
fn ch4_13_ch4_11_attempts_above_the_limit_wait_in_their_order_for_the_ends_of_streams() {
    let rig = Rig::new(2);
    assert!(rig.reserve() && rig.reserve());
    assert!(!rig.reserve());
    let mut waiting: Vec<_> = (0..3).map(|_| rig.wait()).collect();
    assert_eq!(done(&mut waiting), [0; 0]);
    rig.streams(0).release(false);
    assert!(!rig.reserve(), "nobody passes those that wait");
    // The order of polls is not that of the streams.
    waiting.reverse();
    assert_eq!(done(&mut waiting), [2]);
    waiting.pop();
    rig.streams(0).release(false);
    rig.streams(0).release(false);
    assert_eq!(done(&mut waiting), [0, 1]);
    assert_eq!(rig.running(), [2]);
    waiting.clear();
    rig.streams(0).release(false);
    assert!(rig.reserve(), "nobody waits any more");
    assert_eq!(rig.requests(), 0, "there is one connection");
}

#[test]
fn ch4_10_an_attempt_takes_the_oldest_connection_that_has_a_free_stream() {
    let mut rig = Rig::scaled(2);
    assert!(rig.add(2) && rig.add(2));
    assert!((0..3).all(|_| rig.reserve()));
    assert_eq!(rig.running(), [2, 1, 0]);
    rig.streams(0).release(false);
    assert!((0..3).all(|_| rig.reserve()));
    assert_eq!(rig.running(), [2, 2, 1]);
    assert!(rig.reserve() && !rig.reserve());
    // Those that wait, too.
    let mut waiting: Vec<_> = (0..2).map(|_| rig.wait()).collect();
    rig.streams(2).release(false);
    rig.streams(1).release(false);
    assert_eq!((done(&mut waiting), rig.running()), (vec![0, 1], vec![2, 2, 2]));
    rig.streams(1).release(false);
    rig.streams(0).release(false);
    let mut next = rig.wait();
    assert_eq!(poll(&mut next), Poll::Ready(true));
    assert_eq!(rig.running(), [2, 1, 2]);
}

#[test]
fn ch4_10_the_first_attempt_that_waits_requests_a_connection_and_the_others_do_not() {
    let mut rig = Rig::scaled(1);
    assert!(rig.reserve());
    let mut waiting: Vec<_> = (0..3).map(|_| rig.wait()).collect();
    assert_eq!(rig.requests(), 1);
    // It is attempted.
    assert!(!rig.queue.set_growth(false, true));
    waiting.push(rig.wait());
    assert_eq!(rig.requests(), 0);
    assert!(rig.add(1));
    assert_eq!(done(&mut waiting), [0], "the queue is worked off");
    waiting.remove(0);
    assert!(rig.queue.set_growth(true, true), "others wait for one more");
    assert_eq!(rig.requests(), 0, "which is known");
    rig.streams(1).release(false);
    assert_eq!(done(&mut waiting), [0], "its streams are those of the attempts that wait");
    waiting.remove(0);
    assert!(rig.add(9));
    assert_eq!((done(&mut waiting), rig.running()), (vec![0, 1], vec![1, 1, 2]));
    assert!(!rig.queue.set_growth(true, true), "nobody waits");
}

#[test]
fn ch4_11_the_loss_of_one_of_several_connections_lets_attempts_wait_for_the_others() {
    let mut rig = Rig::scaled(1);
    assert!(rig.add(1));
    assert!(rig.reserve() && rig.reserve());
    assert!(!rig.queue.set_growth(false, true));
    let mut waiting = rig.wait();
    rig.streams(0).close();
    assert!(poll(&mut waiting).is_pending());
    rig.streams(0).release(false);
    assert!(poll(&mut waiting).is_pending(), "nothing is sent on a lost connection");
    assert!(rig.queue.set_growth(true, true), "a further connection is permitted now");
    rig.streams(1).release(false);
    assert_eq!((poll(&mut waiting), rig.running()), (Poll::Ready(true), vec![0, 1]));
    // Calls that still have a picker with the lost one pass it over.
    rig.streams(1).set_limit(2);
    assert!(rig.reserve() && !rig.reserve());
    assert_eq!(rig.running(), [0, 2]);
}

#[test]
fn ch4_13_a_limit_of_0_lets_nothing_pass_until_the_peer_raises_it() {
    let rig = Rig::new(0);
    let mut waiting: Vec<_> = (0..3).map(|_| rig.wait()).collect();
    assert_eq!(done(&mut waiting), [0; 0]);
    rig.streams(0).set_limit(2);
    assert_eq!(done(&mut waiting), [0, 1]);
    waiting.drain(..2);
    rig.streams(0).set_limit(usize::MAX);
    assert_eq!(done(&mut waiting), [0]);
}

#[test]
fn ch4_14_a_lower_limit_lets_streams_run_on() {
    let rig = Rig::scaled(3);
    assert!((0..3).all(|_| rig.reserve()));
    rig.streams(0).set_limit(1);
    assert_eq!(rig.running(), [3]);
    let mut waiting = rig.wait();
    assert_eq!(rig.requests(), 1, "another connection may have a free stream");
    rig.streams(0).release(false);
    rig.streams(0).release(false);
    assert!(poll(&mut waiting).is_pending());
    rig.streams(0).release(false);
    assert_eq!(poll(&mut waiting), Poll::Ready(true));
}

#[test]
fn ch1_7_an_attempt_that_is_dropped_leaves_the_queue_and_returns_its_stream() {
    let rig = Rig::new(1);
    assert!(rig.reserve());
    let (mut gone, mut granted, mut last) = (rig.wait(), rig.wait(), rig.wait());
    assert!(poll(&mut gone).is_pending() && poll(&mut granted).is_pending() && poll(&mut last).is_pending());
    drop(gone);
    assert_eq!(rig.queue.waiting(), 2);
    // It has the stream, and is dropped before it is polled again.
    rig.streams(0).release(false);
    drop(granted);
    assert_eq!(poll(&mut last), Poll::Ready(true));
    assert_eq!((rig.running(), rig.queue.waiting()), (vec![1], 0));
    let only = rig.wait();
    drop(only);
    rig.streams(0).release(false);
    assert!(rig.reserve(), "nobody waits any more");
}

#[test]
fn ch4_12_the_loss_of_all_connections_ends_the_wait() {
    let mut rig = Rig::scaled(0);
    assert!(rig.add(0));
    let (mut one, mut other) = (rig.wait(), rig.wait());
    rig.streams(1).close();
    assert!(poll(&mut one).is_pending() && poll(&mut other).is_pending());
    rig.streams(0).close();
    assert_eq!((poll(&mut one), poll(&mut other)), (Poll::Ready(false), Poll::Ready(false)));
    assert!(rig.queue.wait().is_err(), "later ones do not wait");
    assert!(!rig.add(9), "the next connection has a queue of its own");
    rig.streams(0).set_limit(9);
    assert!(!rig.streams(0).try_reserve(), "SETTINGS do not open it again");
}

#[test]
fn ch4_13_responses_that_are_not_read_do_not_block_the_next_call() {
    let rig = Rig::new(2);
    assert!(rig.reserve() && rig.reserve());
    rig.streams(0).on_response();
    let mut waiting: Vec<_> = (0..2).map(|_| rig.wait()).collect();
    assert_eq!(done(&mut waiting), [0; 0], "one stream has no response yet");
    rig.streams(0).on_response();
    assert_eq!(done(&mut waiting), [0], "the transport has the last word");
    assert!(!rig.reserve());
    rig.streams(0).release(true);
    rig.streams(0).release(true);
    assert_eq!((rig.running(), poll(&mut waiting[1])), (vec![2], Poll::Ready(true)));
}

#[test]
fn ch4_10_with_several_connections_nothing_is_passed_on_above_the_limit() {
    let mut rig = Rig::scaled(1);
    assert!(rig.reserve());
    rig.streams(0).on_response();
    assert!(!rig.reserve(), "the response may run for hours");
    let mut waiting = rig.wait();
    assert!(poll(&mut waiting).is_pending());
    assert!(rig.add(1));
    assert_eq!((poll(&mut waiting), rig.running()), (Poll::Ready(true), vec![1, 1]));
    rig.streams(1).on_response();
    let mut last = rig.wait();
    assert!(poll(&mut last).is_pending());
    // The limit of connections is lowered to one, and one of them is lost.
    rig.streams(1).close();
    assert!(!rig.queue.set_growth(false, false));
    assert_eq!((poll(&mut last), rig.running()), (Poll::Ready(true), vec![2, 1]));
}

#[test]
fn ch4_13_no_stream_is_lost_and_none_is_given_twice() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut rig = Rig::scaled(2);
    assert!(rig.add(1));
    let running = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let rig = &rig;
    std::thread::scope(|scope| {
        for task in 0..8 {
            let running = &running;
            scope.spawn(move || {
                let connections = Connections::new(&rig.connections, &rig.queue).unwrap();
                for round in 0..2_000 {
                    let streams = match connections.try_reserve() {
                        Some(other) => other.unwrap_or_else(|| connections.oldest().clone()),
                        // Every seventh attempt is dropped before it is polled, and others after it.
                        None if (round + task) % 7 == 0 => {
                            drop(rig.wait());
                            continue;
                        }
                        None => block_on(rig.wait()),
                    };
                    let (place, limit) = if Arc::ptr_eq(&streams, rig.streams(0)) { (0, 2) } else { (1, 1) };
                    assert!(running[place].fetch_add(1, Ordering::SeqCst) < limit);
                    std::thread::yield_now();
                    running[place].fetch_sub(1, Ordering::SeqCst);
                    streams.release(false);
                }
            });
        }
    });
    assert_eq!((rig.running(), rig.queue.waiting()), (vec![0, 0], 0));
    assert!(rig.reserve(), "nobody waits");
}

/// Waits in a thread of its own.
fn block_on(mut waiter: Reserving) -> Arc<Streams<()>> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        match Pin::new(&mut waiter).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(streams) => return streams.unwrap(),
            Poll::Pending => std::thread::park(),
        }
    }
}
