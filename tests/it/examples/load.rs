//! `load`: a client reports its load, and the control plane prints it.

use super::process::Process;

#[tokio::test]
async fn lr10_6_the_reports_of_a_client_are_printed_and_none_of_its_calls_is_missing() {
    let mut load = Process::start("load", ["--seconds", "1"]);
    let mut lines = Vec::new();
    while let Some(line) = load.line().await {
        lines.push(line);
    }
    assert_eq!(load.exit().await.code(), Some(0), "{lines:?}");
    let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{word:?} in {lines:?}"));
    let words: Vec<_> = lines.last().expect("the sums").split(' ').collect();
    let [calls, "calls", "and", _, "drops,", "in", reports, "reports:", good, "succeeded,", bad, "failed"] =
        words[..]
    else {
        panic!("{lines:?}")
    };
    assert_eq!(number(calls), number(good) + number(bad));
    assert!(number(reports) >= 1);
    assert!(lines.iter().any(|line| line.starts_with("test to shop in 1.")), "{lines:?}");
    let issued = lines.iter().filter_map(|line| line.trim().strip_prefix("eu/"));
    let issued = issued.map(|line| number(line[3..].split(' ').next().unwrap_or_default()));
    assert_eq!(issued.sum::<u64>(), number(calls));
}
