//! `tcp` and `udp_relay`: load balancing by applications with transports of their own.

use super::process::Process;

/// What an example prints until it ends, which must be well.
async fn run(example: &str) -> Vec<String> {
    let mut process = Process::start::<&str>(example, []);
    let mut lines = Vec::new();
    while let Some(line) = process.line().await {
        lines.push(line);
    }
    assert_eq!(process.exit().await.code(), Some(0), "{lines:?}");
    lines
}

#[tokio::test]
async fn the_pool_of_tcp_fails_over_between_priorities_without_a_failed_request() {
    let lines = run("tcp").await;
    assert!(lines[0].starts_with("all servers run: 20 requests are answered, "), "{lines:?}");
    let shares = [
        "near has stopped: 20 requests are answered, 20 by next",
        "next has stopped, too: 20 requests are answered, 20 by far",
        "near has started again: 20 requests are answered, 20 by near",
    ];
    assert_eq!(lines[1..4], shares);
    assert!(lines[4].ends_with(" requests, none has failed"), "{lines:?}");
}

#[tokio::test]
async fn the_relay_of_datagrams_moves_the_flows_of_a_silent_backend_alone() {
    let lines = run("udp_relay").await;
    let [before, silence, after, moved] = &*lines else { panic!("{lines:?}") };
    let (silent, flows) = silence.split_once(" goes silent, which concerns ").unwrap();
    let flows: usize = flows.strip_suffix(" flows").unwrap().parse().unwrap();
    assert!(before.contains(&format!("{flows} at {silent}")), "{lines:?}");
    assert!(!after.contains(&format!(" at {silent}")), "{lines:?}");
    assert_eq!(*moved, format!("{flows} flows have moved, and {} stayed at their backends", 30 - flows));
}
