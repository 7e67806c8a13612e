//! Ends of a channel's task other than a shutdown, and settings that must not lead to one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{
    balance::observer::{Observation, PickLabels},
    channel::{
        ChannelState,
        telemetry::{
            AttemptSummary, CacheUsage, CallSummary, ChannelObserver, DelayScope, DelayType, LookupTarget,
            MethodObserver, PickResult, SubchannelEvent,
        },
    },
};

/// An observer that panics in the task of the channel, once that is set.
#[derive(Debug, Default)]
struct Panics(AtomicBool);

impl ChannelObserver for Panics {
    fn method(&self, _: &str, _: bool) -> Arc<dyn MethodObserver> {
        Arc::new(Silent)
    }

    fn on_subchannel(&self, _: &PickLabels, event: SubchannelEvent) {
        let _ = event;
        assert!(!self.0.load(Ordering::Relaxed), "as the test says");
    }

    fn on_balance(&self, _: Observation<'_>) {}

    fn on_lookup_cache(&self, _: &Arc<str>, _: &Arc<CacheUsage>) {}
}

#[derive(Debug)]
struct Silent;

impl MethodObserver for Silent {
    fn has_pick_labels(&self) -> bool {
        false
    }

    fn on_attempt_started(&self, _: Option<&Arc<str>>) {}

    fn on_attempt_ended(&self, _: Option<&Arc<str>>, _: &AttemptSummary<'_>) {}

    fn on_delay(&self, _: Option<&Arc<str>>, _: DelayScope, _: DelayType, _: Duration) {}

    fn on_lookup_pick(&self, _: &LookupTarget, _: PickResult) {}

    fn on_lookup_failed(&self, _: &Arc<str>) {}

    fn on_call_ended(&self, _: Option<&Arc<str>>, _: &CallSummary) {}
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Whatever waits for the channel returns, and calls fail with this reason.
async fn assert_ended(mesh: &Mesh, reason: &str) {
    let status = soon(mesh.get("/later")).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(reason), "{}", status.message());
    let channel = &mesh.channel;
    assert_eq!(channel.state(), ChannelState::Shutdown);
    let error = soon(channel.wait_ready(Duration::MAX)).await.unwrap_err();
    assert_eq!(error.state(), ChannelState::Shutdown);
    assert!(error.reason().unwrap().contains(reason), "{error}");
    assert_eq!(soon(channel.status()).await.state, ChannelState::Shutdown);
    soon(channel.shutdown(Duration::MAX)).await;
    drop(channel.subscribe_cluster("other"));
    channel.reset_backoff();
}

#[test]
fn ch1_32_without_its_runtime_a_channel_that_was_ready_fails_calls_at_once() {
    let (first, second) = (runtime(), runtime());
    let mesh = first.block_on(async {
        let mut peer = Peer::start().await;
        let mesh = Mesh::start("ch1_32_runtime", &[&peer]).await;
        let call = mesh.get("/first");
        peer.request().await.respond();
        soon(call).await.unwrap().unwrap();
        assert_eq!(mesh.channel.state(), ChannelState::Ready);
        mesh
    });
    let states = mesh.channel.watch_state();
    drop(first);
    second.block_on(assert_ended(&mesh, "the runtime that the channel was built on has ended"));
    let mut states = states;
    let last = second.block_on(async { (states.next().await, states.next().await) });
    assert_eq!(last, (Some(ChannelState::Shutdown), None));
}

#[test]
fn ch1_32_calls_that_wait_on_another_runtime_fail_when_that_of_the_channel_ends() {
    let (first, second) = (runtime(), runtime());
    let (mesh, _silent) = first.block_on(async {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mesh =
            Mesh::at("ch1_32_waits", &[silent.local_addr().unwrap()], |it| it.wait_for_ready(true)).await;
        (mesh, silent)
    });
    // Each runtime runs only while it is blocked on.
    let call = {
        let _entered = second.enter();
        mesh.get("/waits")
    };
    second.block_on(mesh.waits(1));
    first.block_on(async {
        while mesh.channel.state() == ChannelState::Idle {
            tokio::task::yield_now().await
        }
    });
    drop(first);
    let status = second.block_on(soon(call)).unwrap().unwrap_err();
    let reason = "the runtime that the channel was built on has ended";
    assert!(status.code() == Code::Unavailable && status.message().contains(reason), "{status:?}");
    second.block_on(assert_ended(&mesh, reason));
}

#[tokio::test]
async fn ch1_32_a_panic_of_the_task_fails_calls_that_wait_and_later_ones_with_its_message() {
    let (observer, mut peer) = (Arc::<Panics>::default(), Peer::start().await);
    let settings = |it: ChannelBuilder| it.observer(observer.clone());
    let mesh = Mesh::with("ch1_32_panic", &[&peer], settings).await;
    let call = mesh.get("/first");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    observer.0.store(true, Ordering::Relaxed);
    // The call waits for another endpoint, whose connection the observer panics at.
    let other = Peer::start().await;
    mesh.server.set(assignment("ch1_32_panic", &[&other]));
    let mut states = mesh.channel.watch_state();
    soon(async { while states.next().await.is_some_and(|state| state != ChannelState::Shutdown) {} }).await;
    assert_ended(&mesh, "the task of the channel panicked: as the test says").await;
}

#[tokio::test]
async fn ch1_32_a_channel_whose_client_has_ended_does_not_wait_for_a_configuration() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch1_32_client", &[&peer]).await;
    let call = mesh.get("/first");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    soon(mesh.client.shutdown()).await;
    // What was known stays in use.
    let call = mesh.get("/second");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let other = mesh.client.channel("xds:///other").build().unwrap();
    let request = Request::post("/first").body(Given::default()).unwrap();
    let mut service = other.clone();
    let failed = finish(async move { service.call(request).await.unwrap_or_else(|error| match error {}) });
    let status = soon(failed).await.unwrap_err();
    assert!(status.code() == Code::Unavailable && status.message().contains("shut down"), "{status:?}");
    assert_eq!(other.state(), ChannelState::TransientFailure);
}

#[tokio::test]
async fn ch1_28_ch3_2_ch3_6_settings_of_the_greatest_length_end_nothing() {
    let never = Duration::MAX;
    type Setting = fn(ChannelBuilder, Duration) -> ChannelBuilder;
    let settings: [Setting; 7] = [
        ChannelBuilder::idle_timeout,
        |builder, never| builder.connect_backoff(never, never),
        |builder, never| builder.connect_backoff(Duration::ZERO, never),
        ChannelBuilder::connect_timeout,
        ChannelBuilder::drain_limit,
        ChannelBuilder::keep_alive_interval,
        |builder, never| builder.keep_alive_interval(Duration::from_secs(10)).keep_alive_timeout(never),
    ];
    for (number, setting) in settings.into_iter().enumerate() {
        let mut peer = Peer::start().await;
        let name = format!("ch1_28_longest_{number}");
        let mesh = Mesh::with(&name, &[&peer], |builder| setting(builder, never)).await;
        let call = mesh.get("/first");
        let request = soon(peer.request()).await;
        request.respond();
        soon(call).await.unwrap().unwrap();
        assert_eq!(mesh.channel.state(), ChannelState::Ready, "setting {number}");
        mesh.channel.reset_backoff();
        assert_eq!(soon(mesh.channel.status()).await.state, ChannelState::Ready, "setting {number}");
    }
}

#[tokio::test]
async fn ch3_2_delays_of_zero_between_attempts_are_no_loop() {
    let mesh = Mesh::at("ch3_2_zero", &[], |it| it).await;
    let builder = mesh.client.channel("xds:///shop").connect_backoff(Duration::ZERO, Duration::ZERO);
    assert_eq!(builder.backoff(), (Duration::from_millis(1), Duration::from_millis(1)));
}
