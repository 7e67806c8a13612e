//! The spans of calls and attempts.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber, set_default},
};
use tracing_subscriber::fmt::format::FmtSpan;

use super::*;

/// While a process has one subscriber only, `tracing` asks that of the thread that comes first to a span or event, which may be
/// another test's without any, and disables it for all threads. With two that are never dropped, it always asks all.
static FURTHER_SUBSCRIBERS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));

/// What a subscriber of this thread writes when spans are closed.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(filter: &str) -> (Self, DefaultGuard) {
        LazyLock::force(&FURTHER_SUBSCRIBERS);
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        (log, set_default(subscriber))
    }

    /// The lines, without how long spans took, and with `ADDRESS` in the place of an address.
    fn lines(&self, address: SocketAddr) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let text = text.replace(&address.to_string(), "ADDRESS");
        let line = |line: &str| line.split(" time.busy").next().unwrap_or_default().trim().to_owned();
        text.lines().map(line).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
        format!("DEBUG {call} {sent}}}:attempt{{number=1 {sent} code=\"UNAVAILABLE\"}}: xdskit::call: close"),
        format!("TRACE {both}}}:attempt{{number=2 {sent}}}: xdskit::call: request sent {sent}"),
        format!("DEBUG {both}}}:attempt{{number=2 {sent} code=\"OK\"}}: xdskit::call: close"),
        format!("DEBUG {both} code=\"OK\" attempts=2}}: xdskit::call: close"),
    ];
    assert_eq!(log.lines(peer.address), expected);
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
        log.lines(peer.address).iter().all(|line| !line.contains("xdskit::call") && !line.contains("call{"))
    );
}
