//! `filters`: an HTTP filter of the application.

use super::process::Process;

#[tokio::test]
async fn ch5_5_a_filter_of_the_application_has_its_configuration_from_the_control_plane() {
    let mut filters = Process::start("filters", [""; 0]);
    let mut lines = Vec::new();
    while let Some(line) = filters.line().await {
        lines.push(line);
    }
    let expected = "\
iron has 2 requests
  one greets, 1 left
  one greets, 0 left
  the quota of 2 requests is used up
gold has 4 requests
  one greets, 3 left
  one greets, 2 left
  one greets, 1 left
  one greets, 0 left
  the quota of 4 requests is used up";
    assert_eq!(lines.join("\n"), expected);
}
