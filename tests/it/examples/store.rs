//! `store`: a program that decides on what it is sent, and goes on with its store after a restart.

use super::process::Process;

#[tokio::test]
async fn ap2_ap17_the_server_of_a_store_gets_its_reasons_and_a_restart_goes_on_from_its_versions() {
    let mut store = Process::start("store", [""; 0]);
    let mut lines = Vec::new();
    while let Some(line) = store.line().await {
        lines.push(line);
    }
    let expected = "\
store: web-1=10.0.0.1:80 web-2=10.0.0.2:80
rejected: Workload \"web-1\": \"nowhere\" is no address with a port
store: web-1=10.0.0.1:80 web-2=10.0.0.2:80 web-3=10.0.0.3:80
store: web-1=10.0.0.1:80 web-3=10.0.0.3:80
after the restart: store: web-1=10.0.0.1:80 web-3=10.0.0.3:80
store: web-1=10.0.0.9:80
the new client has sent 2 versions";
    assert_eq!(lines.join("\n"), expected);
}
