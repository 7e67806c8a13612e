//! The spans of calls and attempts.

use super::*;
use crate::test_log::Log;

/// The lines, with `ADDRESS` in the place of an address.
fn lines(log: &Log, address: SocketAddr) -> Vec<String> {
    log.lines().iter().map(|line| line.replace(&address.to_string(), "ADDRESS")).collect()
}

#[tokio::test]
async fn ch9_21_a_call_and_its_attempts_are_spans_that_end_with_them() {
    let (log, _guard) = Log::start("xdskit::call=trace");
    let mut peer = Peer::start().await;
    let name = "ch9_21";
    let mesh = Mesh::start(name, &[&peer]).await;
    let route = retries::with_policy(route::prefix("").cluster(name), retries::policy("unavailable", 1));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = mesh.get("/shop.Cart/Add");
    peer.request().await.fail(Code::Unavailable, &[]);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let call = r#"call{otel.name=Sent.shop.Cart/Add otel.kind="client" target_name="xds:///shop" method="shop.Cart/Add""#;
    let sent = r#"cluster="ch9_21" endpoint=ADDRESS"#;
    let both = format!("{call} {sent} {sent}");
    let expected = [
        format!("TRACE {call} {sent}}}:attempt{{number=1 {sent}}}: xdskit::call: request sent {sent}"),
        format!(
            "DEBUG {call} {sent}}}:attempt{{number=1 {sent} code=\"UNAVAILABLE\" otel.status_code=\"ERROR\"}}: xdskit::call: close"
        ),
        format!("TRACE {both}}}:attempt{{number=2 {sent}}}: xdskit::call: request sent {sent}"),
        format!("DEBUG {both}}}:attempt{{number=2 {sent} code=\"OK\"}}: xdskit::call: close"),
        format!("DEBUG {both} code=\"OK\" attempts=2}}: xdskit::call: close"),
    ];
    assert_eq!(lines(&log, peer.address), expected);
}

#[tokio::test]
async fn ch9_21_the_span_of_a_call_that_fails_or_is_dropped_has_an_error_status() {
    let (log, _guard) = Log::start("xdskit::call=debug");
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch9_21_errors", &[&peer]).await;
    let call = mesh.get("/fails");
    peer.request().await.fail(Code::NotFound, &[]);
    soon(call).await.unwrap().unwrap_err();
    let call = mesh.get("/is_dropped");
    let held = peer.request().await;
    call.abort();
    soon(call).await.unwrap_err();
    drop(held);
    let lines = lines(&log, peer.address);
    let codes: Vec<_> =
        lines.iter().filter_map(|line| line.split_once(" code=")).map(|(_, end)| end).collect();
    let failed = |code| format!(r#"{code} otel.status_code="ERROR""#);
    let expected =
        ["\"NOT_FOUND\"", "\"CANCELLED\""].map(|code| [failed(code), format!("{} attempts=1", failed(code))]);
    let expected: Vec<_> =
        expected.iter().flatten().map(|end| format!("{end}}}: xdskit::call: close")).collect();
    assert_eq!(codes, expected, "attempts before their calls");
}

#[tokio::test]
async fn ch9_20_ch9_21_a_subscriber_that_does_not_want_them_gets_no_spans() {
    let (log, _guard) = Log::start("xdskit=trace,xdskit::call=info");
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch9_20_spans", &[&peer]).await;
    let call = mesh.get("/a");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert!(
        lines(&log, peer.address)
            .iter()
            .all(|line| !line.contains("xdskit::call") && !line.contains("call{"))
    );
}
