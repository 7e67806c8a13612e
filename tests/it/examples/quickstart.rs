//! `quickstart`: the states of a service while its mesh changes.

use super::process::Process;

#[tokio::test]
async fn the_quickstart_runs_as_it_prints() {
    let mut quickstart = Process::start::<&str>("quickstart", []);
    let mut text = String::new();
    while let Some(line) = quickstart.line().await {
        text += &line;
        text.push('\n');
    }
    assert_eq!(quickstart.exit().await.code(), Some(0), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours where there is no terminal: {text}");
    for part in [
        "● xds:///shop  listener shop → routes shop-routes → virtual host shop (shop)",
        "▸ │  └─ eu/b 50 %  ◌ 10.0.1.2:8080 draining",
        "▸ ├─ /cart/*  → 90 % cart, 10 % cart-canary",
        "of 1000 requests for /cart/add to the canary",
        "rejects it",
        "Connection refused",
        "still has 2 routes, 3 clusters, 5 endpoints",
        "▸ ├─ ● cart         EDS  eu/a  ● 10.0.1.1:8080  ● 10.0.1.3:8080",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
