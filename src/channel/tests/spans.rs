//! The spans of calls and attempts.

use h2::Reason;

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
    let attempt = |number, previous| {
        format!(
            "attempt{{otel.name=Attempt.shop.Cart/Add number={number} previous-rpc-attempts={previous} transparent-retry=false"
        )
    };
    let (first, second) = (attempt(1, 0), attempt(2, 1));
    let expected = [
        format!("TRACE {call} {sent}}}:{first} {sent}}}: xdskit::call: request sent {sent}"),
        format!(
            "DEBUG {call} {sent}}}:{first} {sent} code=\"UNAVAILABLE\" otel.status_code=\"ERROR\"}}: xdskit::call: close"
        ),
        format!("TRACE {both}}}:{second} {sent}}}: xdskit::call: request sent {sent}"),
        format!("DEBUG {both}}}:{second} {sent} code=\"OK\"}}: xdskit::call: close"),
        format!("DEBUG {both} code=\"OK\" attempts=2}}: xdskit::call: close"),
    ];
    // What it waited for is below.
    let mut lines = lines(&log, peer.address);
    lines.retain(|line| !line.contains("Delay"));
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a121_a_delay_is_a_span_in_that_of_its_call_or_attempt_with_its_reason() {
    let (log, _guard) = Log::start("xdskit::call=debug");
    let mut peer = Peer::start().await;
    peer.open(false);
    let mesh = Mesh::start("a121_spans", &[&peer]).await;
    let call = mesh.get("/a");
    mesh.picks(1).await;
    peer.open(true);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let lines = lines(&log, peer.address);
    let of_delays = lines.iter().filter_map(|line| {
        line.split_once(":Delay{").map(|(parent, delay)| {
            let parent = if parent.contains(":attempt{") { "attempt" } else { "call" };
            format!("{parent} {delay}")
        })
    });
    let of_delays: Vec<_> = of_delays.collect();
    let [resolving, connecting] =
        ["call grpc.delay_type=resolving}", "attempt grpc.delay_type=0:connecting}"];
    let expected = [
        format!(
            "{resolving}: xdskit::call: Delay triggered grpc.delay_reason=\"there is no configuration yet\""
        ),
        format!("{resolving}: xdskit::call: close"),
        format!(
            "{connecting}: xdskit::call: Delay triggered grpc.delay_reason=\"cluster a121_spans: waiting for an endpoint to connect\""
        ),
        format!("{connecting}: xdskit::call: close"),
    ];
    assert_eq!(of_delays, expected);
    for event in ["Delayed name resolution complete", "Delayed LB pick complete"] {
        assert_eq!(lines.iter().filter(|line| line.ends_with(event)).count(), 1, "A72: {event}");
    }
}

#[tokio::test]
async fn a121_a_delay_of_a_call_that_waits_in_vain_completes_nothing() {
    let (log, _guard) = Log::start("xdskit::call=debug");
    let peer = Peer::start().await;
    peer.open(false);
    let mesh = Mesh::start("a121_in_vain", &[&peer]).await;
    soon(mesh.with_timeout("/late", "300m")).await.unwrap().unwrap_err();
    let lines = lines(&log, peer.address);
    assert!(lines.iter().any(|line| line.contains("grpc.delay_type=0:connecting")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.ends_with("Delayed LB pick complete")), "{lines:?}");
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

#[tokio::test]
async fn a72_an_attempt_that_repeats_an_unprocessed_request_is_a_transparent_retry() {
    let (log, _guard) = Log::start("xdskit::call=debug");
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("a72_transparent", &[&peer]).await;
    let call = mesh.get("/shop.Cart/Add");
    peer.request().await.reset(Reason::REFUSED_STREAM);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let mut lines = lines(&log, peer.address);
    lines.retain(|line| !line.contains("Delay"));
    let attempts: Vec<_> =
        lines.iter().filter_map(|line| line.split_once("/Add number=")).map(|(_, end)| &end[..47]).collect();
    let expected = [
        "1 previous-rpc-attempts=0 transparent-retry=fal",
        "2 previous-rpc-attempts=0 transparent-retry=tru",
    ];
    assert_eq!(attempts, expected);
}

#[tokio::test]
async fn a72_the_propagator_adds_the_span_of_each_attempt_to_its_headers() {
    let (_log, _guard) = Log::start("xdskit::call=debug,test=debug");
    let mut peer = Peer::start().await;
    let name = "a72_propagator";
    let mesh = Mesh::with(name, &[&peer], |builder| {
        builder.propagate(|span, headers| {
            let of = span.metadata().map_or("none", |metadata| metadata.name());
            let id = span.id().map_or(0, |id| id.into_u64());
            headers.insert("x-trace", format!("{of} {id}").parse().unwrap());
        })
    })
    .await;
    let route = retries::with_policy(route::prefix("").cluster(name), retries::policy("unavailable", 1));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = mesh.get("/shop.Cart/Add");
    let first = peer.request().await;
    let trace = |received: &peer::Received| received.header("x-trace").unwrap().to_owned();
    let first_trace = trace(&first);
    first.fail(Code::Unavailable, &[]);
    let second = peer.request().await;
    let second_trace = trace(&second);
    second.respond();
    soon(call).await.unwrap().unwrap();
    assert!(first_trace.starts_with("attempt ") && second_trace.starts_with("attempt "), "{second_trace}");
    assert_ne!(first_trace, second_trace, "each attempt has a span of its own");
}

#[tokio::test]
async fn a72_the_propagator_has_the_span_of_the_caller_while_spans_of_attempts_are_disabled() {
    let (_log, _guard) = Log::start("test=debug");
    let mut peer = Peer::start().await;
    let name = "a72_caller";
    let mesh = Mesh::with(name, &[&peer], |builder| {
        builder.propagate(|span, headers| {
            let of = span.metadata().map_or("none", |metadata| metadata.name());
            headers.insert("x-trace", of.parse().unwrap());
        })
    })
    .await;
    let calls = mesh.begin("/a", Given::default());
    let span = tracing::debug_span!(target: "test", "handler");
    let call = tokio::spawn(tracing::Instrument::instrument(finish(calls), span));
    let received = peer.request().await;
    assert_eq!(received.header("x-trace"), Some("handler"));
    received.respond();
    soon(call).await.unwrap().unwrap();
}
