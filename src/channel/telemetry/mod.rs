//! What is recorded of calls: metrics (A66, A89, A96) and spans. Without a listener no clock is read, and nothing is made (CH9.20).

#[cfg(feature = "fuzzing")]
mod call_recording;
mod delay;
mod lookups;
mod observer;
mod sizes;
mod subchannels;

use std::{
    borrow::Cow,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::Request;
use tokio::time::Instant;
use tonic::GrpcMethod;
use tracing::{Span, debug_span, field::Empty, trace};

#[cfg(feature = "fuzzing")]
pub use self::call_recording::CallRecording;
pub(in crate::channel) use self::delay::Delay;
pub(crate) use self::delay::{DelayScope, DelayType};
pub(crate) use self::lookups::{CacheUsage, LookupTarget, PickResult};
pub(crate) use self::observer::{
    AttemptSummary, CallSummary, ChannelObserver, MethodObserver, Retried, SecurityLevel, SubchannelEvent,
};
pub(super) use self::{sizes::MessageBytes, subchannels::Subchannels};
use crate::{
    balance::{observer::PickLabels, pick_args::CallAttributes, picker::Pick},
    error::Code,
};

/// An extension of a request: the value of the label `grpc.client.call.custom` of its call and attempts (A108), if that label is
/// enabled. It should have few values: each makes series of its own.
///
/// ```
/// use xdskit::channel::CustomLabel;
///
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(CustomLabel("checkout".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomLabel(pub Arc<str>);

/// The telemetry of a channel.
#[derive(Debug, Clone)]
pub(super) struct Telemetry {
    /// Records metrics; `None` without.
    observer: Option<Arc<dyn ChannelObserver>>,
    /// The target, for spans.
    target: Arc<str>,
}

/// The records of a call, and of its attempt in progress. They end as CANCELLED when they are dropped.
#[derive(Debug, Default)]
pub(super) struct CallTelemetry {
    /// The metrics of the method; `None` if there are only spans.
    metered: Option<Metered>,
    /// The record of the call, until it has ended.
    call: Option<CallRecord>,
    /// The record of the attempt in progress.
    attempt: Option<AttemptRecord>,
    /// The cluster of the call, if it was looked up and is metered.
    lookup: Option<Box<LookupTarget>>,
}

/// The metrics of a method, with the label that the application has given to the call.
#[derive(Debug, Clone)]
struct Metered {
    /// Records the calls of the method.
    method: Arc<dyn MethodObserver>,
    /// The value of the label; `None` without the extension [`CustomLabel`].
    custom: Option<Arc<str>>,
}

/// The record of a call.
#[derive(Debug)]
struct CallRecord {
    span: CheapSpan,
    /// The begin of the call, if it is metered.
    begin: Option<Instant>,
    /// The begin, until the call waits for something or makes an attempt, which begins then, too: the clock is read once for both.
    just_begun: Option<Instant>,
    /// The number of attempts so far.
    attempts: u32,
    /// The number of these that repeat a request which no server has processed.
    transparent_retries: u32,
    /// Whether the next attempt is one of these.
    repeats_transparently: bool,
    /// The retries so far.
    retried: Retried,
    /// The begin of the delay before a retry, while it lasts.
    delayed_since: Option<Instant>,
}

/// The record of an attempt.
#[derive(Debug)]
struct AttemptRecord {
    span: CheapSpan,
    /// The begin of the attempt, if it is metered.
    begin: Option<Instant>,
    /// The bytes of the messages of the request.
    sent: Sent,
    /// The bytes of the messages of the response.
    received: MessageBytes,
    /// The labels of its last pick.
    labels: PickLabels,
}

/// The position of an attempt among those of its call.
#[derive(Debug, Clone, Copy)]
struct AttemptNumber {
    /// The number of the attempt, from 1 on.
    number: u32,
    /// The number of attempts before, without those that repeat a request which no server has processed.
    previous: u32,
    /// Whether it repeats such a request.
    is_transparent: bool,
}

/// A span that takes little room in a call if it is disabled.
#[derive(Debug)]
struct CheapSpan(Option<Box<Span>>);

/// The bytes that were sent.
#[derive(Debug)]
enum Sent {
    /// The bytes that were sent so far.
    Known(u64),
    /// The count of an upload that goes on beside the response.
    Counted(Arc<AtomicU64>),
}

impl Telemetry {
    pub(super) fn new(observer: Option<Arc<dyn ChannelObserver>>, target: Arc<str>) -> Self {
        Self { observer, target }
    }

    /// Begins the records of a call. Without an observer and a subscriber of its span, there are none.
    pub(super) fn begin<B>(&self, request: &Request<B>) -> CallTelemetry {
        let path = request.uri().path();
        let span = CheapSpan::new(call_span(&self.target, path));
        if self.observer.is_none() && span.0.is_none() {
            return CallTelemetry::default();
        }
        let metered = self.observer.as_ref().map(|observer| {
            let custom = request.extensions().get().map(|CustomLabel(label)| label.clone());
            // The clients that tonic generates name their methods, which are as few as the code has (A66).
            let is_generated = request.extensions().get::<GrpcMethod<'static>>().is_some();
            Metered { method: observer.method(path, is_generated), custom }
        });
        let begin = metered.as_ref().map(|_| Instant::now());
        let (retried, delayed_since) = (Retried::default(), None);
        let call = CallRecord {
            span,
            begin,
            just_begun: begin,
            attempts: 0,
            transparent_retries: 0,
            repeats_transparently: false,
            retried,
            delayed_since,
        };
        let call = Some(call);
        CallTelemetry { metered, call, attempt: None, lookup: None }
    }
}

impl CallTelemetry {
    /// The span of the call.
    pub(super) fn span(&self) -> Span {
        self.call.as_ref().map_or_else(Span::none, |call| call.span.get())
    }

    /// Returns the begin of the call, if it is metered.
    pub(super) fn begin(&self) -> Option<Instant> {
        self.call.as_ref().and_then(|call| call.begin)
    }

    /// Handles that the call waits for something before its first attempt.
    pub(super) fn on_wait(&mut self) {
        if let Some(call) = &mut self.call {
            call.just_begun = None;
        }
    }

    /// Begins a delay before the first attempt of the call; `None` without a listener (A121).
    pub(super) fn delay_call(
        &self,
        kind: DelayType,
        reason: impl FnOnce() -> Cow<'static, str>,
    ) -> Option<Delay> {
        let parent = self.span();
        let is_heard = self.metered.is_some() || !parent.is_disabled();
        is_heard.then(|| Delay::new(self.metered.clone(), parent, DelayScope::Call, kind, reason()))
    }

    /// Begins a delay of the attempt in progress; `None` without a listener (A121).
    pub(super) fn delay_attempt(
        &self,
        kind: DelayType,
        reason: impl FnOnce() -> Cow<'static, str>,
    ) -> Option<Delay> {
        let attempt = self.attempt.as_ref()?;
        let scope = DelayScope::Attempt;
        Some(Delay::new(self.metered.clone(), attempt.span.get(), scope, kind, reason()))
    }

    /// Returns labels for picks to fill in, if they are recorded.
    pub(super) fn pick_labels(&self) -> Option<PickLabels> {
        self.has_pick_labels().then(PickLabels::default)
    }

    pub(super) fn has_pick_labels(&self) -> bool {
        self.metered.as_ref().is_some_and(|metered| metered.method.has_pick_labels())
    }

    /// Begins the record of an attempt, unless one goes on with another connection (CH2.22). Returns its span.
    pub(super) fn begin_attempt(&mut self, path: &str) -> Span {
        let Some(call) = &mut self.call else { return Span::none() };
        let attempt = self.attempt.get_or_insert_with(|| {
            let begin = self.metered.as_ref().map(|metered| {
                metered.method.on_attempt_started(metered.custom.as_ref());
                call.just_begun.take().unwrap_or_else(Instant::now)
            });
            call.retried.retries += u32::from(call.delayed_since.is_some());
            call.end_delay(begin);
            let number = call.next_attempt();
            let span = call.span.0.as_ref();
            let span = span.map_or_else(Span::none, |span| attempt_span(span, path, number));
            let span = CheapSpan::new(span);
            let (sent, received) = (Sent::Known(0), MessageBytes::default());
            AttemptRecord { span, begin, sent, received, labels: PickLabels::default() }
        });
        attempt.span.get()
    }

    /// Records the cluster that was looked up for the call.
    pub(super) fn on_lookup(&mut self, target: impl FnOnce() -> LookupTarget) {
        self.lookup = self.metered.is_some().then(|| Box::new(target()));
    }

    /// Records that there is no cluster for the call, by the failure of a lookup at a service.
    pub(super) fn on_lookup_failed(&self, service: &Arc<str>) {
        if let Some(metered) = &self.metered {
            metered.method.on_lookup_failed(service);
        }
    }

    /// Records the result of a pick, if the cluster was looked up.
    pub(super) fn on_pick_result<H>(&self, pick: &Pick<H>) {
        if let (Some(metered), Some(target)) = (&self.metered, &self.lookup)
            && let Some(result) = PickResult::of(pick)
        {
            metered.method.on_lookup_pick(target, result);
        }
    }

    /// Records the labels of a pick.
    pub(super) fn on_pick(&mut self, attributes: &CallAttributes) {
        if let (Some(attempt), Some(labels)) = (&mut self.attempt, &attributes.labels) {
            attempt.labels.clone_from(labels);
        }
    }

    /// Records the labels of picks that were made while the call waited.
    pub(super) fn set_labels(&mut self, labels: Option<PickLabels>) {
        if let (Some(attempt), Some(labels)) = (&mut self.attempt, labels) {
            attempt.labels = labels;
        }
    }

    /// Records that the request is sent to an endpoint.
    pub(super) fn on_stream(&mut self, cluster: &str, endpoint: std::net::SocketAddr) {
        let Some(attempt) = &mut self.attempt else { return };
        let call = self.call.as_ref().map(|call| &call.span);
        for span in call.into_iter().chain([&attempt.span]).filter_map(|span| span.0.as_ref()) {
            span.record("cluster", cluster).record("endpoint", tracing::field::display(endpoint));
        }
        trace!(target: TARGET, cluster, %endpoint, "request sent");
    }

    /// Whether the bytes of messages are counted.
    pub(super) fn counts_bytes(&self) -> bool {
        self.metered.is_some()
    }

    /// Records the bytes of messages that were sent so far.
    pub(super) fn set_sent(&mut self, bytes: u64) {
        if let Some(attempt) = &mut self.attempt {
            attempt.sent = Sent::Known(bytes);
        }
    }

    /// Takes the bytes that were sent from a count that the upload updates.
    pub(super) fn share_sent(&mut self, bytes: Arc<AtomicU64>) {
        if let Some(attempt) = &mut self.attempt {
            attempt.sent = Sent::Counted(bytes);
        }
    }

    /// Counts a part of the response.
    pub(super) fn on_received(&mut self, data: &[u8]) {
        if let (Some(attempt), Some(_)) = (&mut self.attempt, &self.metered) {
            attempt.received.count(data);
        }
    }

    /// Ends the record of the attempt. The call goes on, or ends.
    pub(super) fn end_attempt(&mut self, code: Code) {
        if self.attempt.is_some() {
            self.end_attempt_at(code, self.now());
        }
    }

    fn end_attempt_at(&mut self, code: Code, now: Option<Instant>) {
        let Some(AttemptRecord { span, begin, sent, received, labels }) = self.attempt.take() else { return };
        span.record_code(code);
        if let (Some(metered), Some(begin), Some(now)) = (&self.metered, begin, now) {
            let (duration, received) = (now - begin, received.total());
            let summary = AttemptSummary { code, duration, sent: sent.bytes(), received, labels: &labels };
            metered.method.on_attempt_ended(metered.custom.as_ref(), &summary);
        }
    }

    /// The time, if somebody counts.
    fn now(&self) -> Option<Instant> {
        self.metered.as_ref().map(|_| Instant::now())
    }

    /// Records that the next attempt repeats a request that the server has not processed (CH6.13).
    pub(super) fn on_transparent_retry(&mut self) {
        if let Some(call) = &mut self.call {
            call.retried.transparent += 1;
            call.repeats_transparently = true;
        }
    }

    /// Records the begin of a delay before a retry.
    pub(super) fn on_delay(&mut self) {
        let now = self.now();
        if let Some(call) = &mut self.call {
            call.delayed_since = now;
        }
    }

    /// Ends the record of the call, and of its attempt if there is one.
    pub(super) fn end(&mut self, code: Code) {
        // These are the records of an attempt alone, whose call a filter may end otherwise: see `take`.
        if self.call.is_none() {
            return self.end_attempt(code);
        }
        let now = self.now();
        self.end_attempt_at(code, now);
        let Some(mut call) = self.call.take() else { return };
        call.span.record_code(code);
        if let Some(span) = &call.span.0 {
            span.record("attempts", call.attempts);
        }
        if let (Some(metered), Some(begin), Some(now)) = (&self.metered, call.begin, now) {
            call.end_delay(Some(now));
            let summary = CallSummary { code, duration: now - begin, retries: call.retried };
            metered.method.on_call_ended(metered.custom.as_ref(), &summary);
        }
    }

    /// Moves the records to the body of a response: those of the attempt alone if a filter of the application may respond
    /// instead, since the call then ends with its response.
    pub(super) fn take(&mut self, is_filtered: bool) -> Self {
        if is_filtered {
            let (metered, attempt) = (self.metered.clone(), self.attempt.take());
            return Self { metered, call: None, attempt, lookup: None };
        }
        mem::take(self)
    }
}

impl Drop for CallTelemetry {
    /// Whoever made the call has let go of it.
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

impl CallRecord {
    /// Counts the next attempt.
    fn next_attempt(&mut self) -> AttemptNumber {
        let is_transparent = mem::take(&mut self.repeats_transparently);
        self.transparent_retries += u32::from(is_transparent);
        let previous = self.attempts - self.transparent_retries.min(self.attempts);
        self.attempts += 1;
        AttemptNumber { number: self.attempts, previous, is_transparent }
    }

    /// Ends the delay before a retry.
    fn end_delay(&mut self, now: Option<Instant>) {
        if let (Some(since), Some(now)) = (self.delayed_since.take(), now) {
            self.retried.delay += now - since;
        }
    }
}

impl CheapSpan {
    fn new(span: Span) -> Self {
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    fn get(&self) -> Span {
        self.0.as_ref().map_or_else(Span::none, |span| Span::clone(span))
    }

    /// Records the status (A72). That of a success is left unset, as OpenTelemetry asks of libraries.
    fn record_code(&self, code: Code) {
        let Some(span) = &self.0 else { return };
        span.record("code", code.as_str());
        if code != Code::Ok {
            span.record("otel.status_code", "ERROR");
        }
    }
}

impl Sent {
    fn bytes(&self) -> u64 {
        match self {
            Self::Known(bytes) => *bytes,
            Self::Counted(bytes) => bytes.load(Ordering::Relaxed),
        }
    }
}

/// The span of a call, which is disabled unless the application's subscriber wants it (CH9.21).
fn call_span(target: &str, path: &str) -> Span {
    debug_span!(
        target: TARGET,
        "call",
        otel.name = %format_args!("Sent.{}", path.trim_start_matches('/')),
        otel.kind = "client",
        target_name = target,
        method = path.trim_start_matches('/'),
        cluster = Empty,
        endpoint = Empty,
        attempts = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// Creates the span of an attempt (A72).
fn attempt_span(call: &Span, path: &str, attempt: AttemptNumber) -> Span {
    debug_span!(
        target: TARGET,
        parent: call,
        "attempt",
        otel.name = %format_args!("Attempt.{}", path.trim_start_matches('/')),
        number = attempt.number,
        "previous-rpc-attempts" = attempt.previous,
        "transparent-retry" = attempt.is_transparent,
        cluster = Empty,
        endpoint = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// The target of the spans and events of calls.
const TARGET: &str = "xdskit::call";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch9_20_without_a_listener_nothing_is_recorded_and_no_clock_is_read() {
        let request = Request::post("/shop.Cart/Add").body(()).unwrap();
        // Reading tokio's clock here would be that of the system, so that its absence shows in what is kept.
        let mut none = Telemetry::new(None, "xds:///shop".into()).begin(&request);
        assert!(none.metered.is_none() && none.call.is_none());
        assert!(none.begin_attempt("/shop.Cart/Add").is_disabled() && none.attempt.is_none());
        assert!(none.pick_labels().is_none() && !none.counts_bytes());
        none.on_delay();
        let reason = || unreachable!("nobody reads it");
        assert!(none.delay_call(DelayType::Resolving, reason).is_none());
        assert!(none.delay_attempt(DelayType::PickerFailing, reason).is_none());
        none.end(Code::Ok);
        assert!(none.attempt.is_none());
    }
}
