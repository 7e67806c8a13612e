//! The delays of a call before its request is sent (A121).

use std::{borrow::Cow, fmt};

use tokio::time::Instant;
use tracing::{Level, Span, debug, debug_span, event};

use super::{Metered, TARGET};
use crate::balance::picker::ActivePriority;

/// What a call or an attempt waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayType {
    /// The first configuration of the channel, or routes.
    Resolving,
    /// A connection to an endpoint of a priority of the cluster.
    Connecting(ActivePriority),
    /// Another connection, since the one of the pick was lost before the request was sent.
    SubchannelMismatch,
    /// A picker that does not fail, as the call waits for ready.
    PickerFailing,
}

/// Whether a delay is one of a call or of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayScope {
    Call,
    Attempt,
}

/// A delay in progress, which ends when it is dropped: with the wait, or with the call that waits.
#[derive(Debug)]
pub(in crate::channel) struct Delay {
    metered: Option<Metered>,
    /// The span of the call or of the attempt.
    parent: Span,
    scope: DelayScope,
    current: Current,
    /// Whether the wait has led to what it was for.
    is_complete: bool,
}

/// What the delay is by now.
#[derive(Debug)]
struct Current {
    kind: DelayType,
    /// The begin, if it is metered.
    since: Option<Instant>,
    span: Span,
    /// The last reason that was an event of the span.
    reason: Cow<'static, str>,
}

impl DelayType {
    /// The value of `grpc.delay_type`.
    pub(crate) fn as_text(self) -> Cow<'static, str> {
        match self {
            Self::Resolving => "resolving".into(),
            Self::Connecting(ActivePriority { aggregate: None, priority: Some(0) }) => "0:connecting".into(),
            // Each priority policy prepends its index to the type of its child.
            Self::Connecting(ActivePriority { aggregate, priority }) => {
                let indices = aggregate.into_iter().chain(priority);
                indices.rev().fold("connecting".into(), |kind, index| format!("{index}:{kind}").into())
            }
            Self::SubchannelMismatch => "subchannel_state_mismatch".into(),
            Self::PickerFailing => "picker_failing_with_wait_for_ready".into(),
        }
    }
}

impl fmt::Display for DelayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_text())
    }
}

impl Delay {
    /// Begins a delay.
    pub(super) fn new(
        metered: Option<Metered>,
        parent: Span,
        scope: DelayScope,
        kind: DelayType,
        reason: Cow<'static, str>,
    ) -> Self {
        let current = Current::new(kind, reason, metered.is_some(), &parent);
        Self { metered, parent, scope, current, is_complete: false }
    }

    /// The wait goes on for another thing, or for another reason. Another type ends the delay and begins the next one.
    pub(in crate::channel) fn change(&mut self, kind: DelayType, reason: impl Into<Cow<'static, str>>) {
        let reason = reason.into();
        if kind != self.current.kind {
            self.end();
            self.current = Current::new(kind, reason, self.metered.is_some(), &self.parent);
        } else if reason != self.current.reason {
            self.current.reason = reason;
            self.current.on_reason();
        }
    }

    /// The wait has led to what it was for: its end is an event of A72.
    pub(in crate::channel) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Records the end.
    fn end(&mut self) {
        if let (Some(metered), Some(since)) = (&self.metered, self.current.since.take()) {
            let (scope, kind) = (self.scope, self.current.kind);
            metered.method.on_delay(metered.custom.as_ref(), scope, kind, since.elapsed());
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.end();
        if !self.is_complete {
            return;
        }
        match self.scope {
            DelayScope::Call => {
                debug!(target: TARGET, parent: &self.parent, "Delayed name resolution complete")
            }
            DelayScope::Attempt => debug!(target: TARGET, parent: &self.parent, "Delayed LB pick complete"),
        }
    }
}

impl Current {
    fn new(kind: DelayType, reason: Cow<'static, str>, is_metered: bool, parent: &Span) -> Self {
        let span = match parent.is_disabled() {
            true => Span::none(),
            false => debug_span!(target: TARGET, parent: parent, "Delay", grpc.delay_type = %kind),
        };
        let current = Self { kind, since: is_metered.then(Instant::now), span, reason };
        current.on_reason();
        current
    }

    fn on_reason(&self) {
        if !self.span.is_disabled() {
            event!(
                target: TARGET,
                parent: &self.span,
                Level::DEBUG,
                { grpc.delay_reason = &*self.reason },
                "Delay triggered"
            );
        }
    }
}
