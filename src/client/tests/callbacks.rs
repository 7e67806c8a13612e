//! Callbacks of watches that are slow, or panic.

use super::*;
use crate::test_log::Log;

/// Lets the tasks of the runtime run until nothing is left to do.
async fn run_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_callback_that_panics_ends_its_own_watch_with_an_error_in_the_log() {
    let (log, _guard) = Log::start("xdskit::background=error");
    let (client, mut driver) = client();
    let (calls, called) = std_mpsc::channel();
    let _panicking = client.on_change::<Text, _>("a", |seen| panic!("no use for {:?}", text(seen).unwrap()));
    let (panicking_id, panicking) = driver.watched("a");
    let _other = client.on_change::<Text, _>("b", move |seen| calls.send(text(seen)).unwrap());
    let (_, other) = driver.watched("b");
    panicking.upgrade().unwrap().publish(present("one")).wake();
    run_tasks().await;
    assert_eq!(driver.unwatched(), panicking_id);
    other.upgrade().unwrap().publish(present("two")).wake();
    run_tasks().await;
    assert_eq!(called.try_recv(), Ok(Some("two")));
    driver.expect_nothing();
    let expected = r#"ERROR xdskit::background: background task panicked task="callback of a watch" reason="no use for \"one\"""#;
    assert_eq!(log.lines(), [expected]);
}

/// The callback blocks its thread, which is another one than that of the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_callback_skips_states_and_delays_no_other() {
    let (client, mut driver) = client();
    let (calls, called) = std_mpsc::channel();
    let (go_on, may_go_on) = std_mpsc::channel::<()>();
    let _slow = client.on_change::<Text, _>("a", move |seen| {
        calls.send(text(seen)).unwrap();
        let _ = may_go_on.recv();
    });
    let (_, publish) = driver.watched("a");
    let publish = |text| publish.upgrade().unwrap().publish(present(text)).wake();
    let mut other = client.watch::<Text>("a");
    publish("one");
    assert_eq!(called.recv(), Ok(Some("one")));
    for state in ["two", "three", "four"] {
        publish(state);
        let seen = other.next().now_or_never().expect("it waits for no callback");
        assert_eq!(seen.as_deref().and_then(text), Some(state));
    }
    assert_eq!(called.try_recv(), Err(std_mpsc::TryRecvError::Empty));
    go_on.send(()).unwrap();
    assert_eq!(called.recv(), Ok(Some("four")), "the latest state follows");
    drop(go_on);
}
