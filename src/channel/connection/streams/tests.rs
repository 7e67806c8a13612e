use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use super::*;

type Reserving<'a> = Pin<Box<dyn Future<Output = Result<(), Gone>> + 'a>>;

fn reserving(streams: &Streams) -> Reserving<'_> {
    Box::pin(streams.reserve())
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The places of those that are done.
fn done(waiting: &mut [Reserving<'_>]) -> Vec<usize> {
    (0..waiting.len()).filter(|place| poll(&mut waiting[*place]) == Poll::Ready(Ok(()))).collect()
}

#[test]
fn ch4_13_ch4_11_attempts_above_the_limit_wait_in_their_order_for_the_ends_of_streams() {
    let streams = Streams::new(2);
    assert!(streams.try_reserve() && streams.try_reserve());
    assert!(!streams.try_reserve());
    let mut waiting: Vec<_> = (0..3).map(|_| reserving(&streams)).collect();
    assert_eq!(done(&mut waiting), [0; 0]);
    streams.release(false);
    assert!(!streams.try_reserve(), "nobody passes those that wait");
    // The order of polls is not that of the streams.
    waiting.reverse();
    assert_eq!(done(&mut waiting), [2]);
    waiting.pop();
    streams.release(false);
    streams.release(false);
    assert_eq!(done(&mut waiting), [0, 1]);
    assert_eq!(streams.running(), 2);
    waiting.clear();
    streams.release(false);
    assert!(streams.try_reserve(), "nobody waits any more");
}

#[test]
fn ch4_13_a_limit_of_0_lets_nothing_pass_until_the_peer_raises_it() {
    let streams = Streams::new(0);
    let mut waiting: Vec<_> = (0..3).map(|_| reserving(&streams)).collect();
    assert_eq!(done(&mut waiting), [0; 0]);
    streams.set_limit(2);
    assert_eq!(done(&mut waiting), [0, 1]);
    waiting.drain(..2);
    streams.set_limit(usize::MAX);
    assert_eq!(done(&mut waiting), [0]);
}

#[test]
fn ch4_14_a_lower_limit_lets_streams_run_on() {
    let streams = Streams::new(3);
    assert!((0..3).all(|_| streams.try_reserve()));
    streams.set_limit(1);
    assert_eq!(streams.running(), 3);
    let mut waiting = reserving(&streams);
    assert!(poll(&mut waiting).is_pending());
    streams.release(false);
    streams.release(false);
    assert!(poll(&mut waiting).is_pending());
    streams.release(false);
    assert_eq!(poll(&mut waiting), Poll::Ready(Ok(())));
}

#[test]
fn ch1_7_an_attempt_that_is_dropped_leaves_the_queue_and_returns_its_stream() {
    let streams = Streams::new(1);
    assert!(streams.try_reserve());
    let (mut gone, mut granted, mut last) = (reserving(&streams), reserving(&streams), reserving(&streams));
    assert!(poll(&mut gone).is_pending() && poll(&mut granted).is_pending() && poll(&mut last).is_pending());
    drop(gone);
    assert_eq!(streams.lock().waiting.len(), 2);
    // It has the stream, and is dropped before it is polled again.
    streams.release(false);
    drop(granted);
    assert_eq!(poll(&mut last), Poll::Ready(Ok(())));
    assert_eq!((streams.running(), streams.lock().waiting.len()), (1, 0));
}

#[test]
fn ch4_12_a_lost_connection_ends_the_wait() {
    let streams = Streams::new(0);
    let (mut one, mut other) = (reserving(&streams), reserving(&streams));
    assert!(poll(&mut one).is_pending() && poll(&mut other).is_pending());
    streams.close();
    assert_eq!((poll(&mut one), poll(&mut other)), (Poll::Ready(Err(Gone)), Poll::Ready(Err(Gone))));
    assert_eq!(poll(&mut reserving(&streams)), Poll::Ready(Err(Gone)), "later ones do not wait");
    streams.set_limit(9);
    assert_eq!(streams.running(), 0);
}

#[test]
fn ch4_13_responses_that_are_not_read_do_not_block_the_next_call() {
    let streams = Streams::new(2);
    assert!(streams.try_reserve() && streams.try_reserve());
    streams.on_response();
    let mut waiting: Vec<_> = (0..2).map(|_| reserving(&streams)).collect();
    assert_eq!(done(&mut waiting), [0; 0], "one stream has no response yet");
    streams.on_response();
    assert_eq!(done(&mut waiting), [0], "h2 has the last word");
    assert!(!streams.try_reserve());
    streams.release(true);
    streams.release(true);
    assert_eq!((streams.running(), poll(&mut waiting[1])), (2, Poll::Ready(Ok(()))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ch4_13_no_stream_is_lost_and_none_is_given_twice() {
    use std::sync::atomic::AtomicUsize;
    let (streams, running) = (Streams::new(3), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (streams, running) = (streams.clone(), running.clone());
            tokio::spawn(async move {
                for round in 0..2_000 {
                    // Every seventh attempt is dropped before it is polled twice.
                    let mut reserving = pin!(streams.reserve());
                    if (round + task) % 7 == 0 {
                        let first = std::future::poll_fn(|cx| Poll::Ready(reserving.as_mut().poll(cx))).await;
                        if first.is_ready() {
                            streams.release(false);
                        }
                        continue;
                    }
                    reserving.await.unwrap();
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 3);
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    streams.release(false);
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(std::time::Duration::from_secs(20), task).await.unwrap().unwrap();
    }
    assert_eq!((streams.running(), streams.lock().waiting.len()), (0, 0));
    assert!(!streams.load().has_waiting());
}
