//! What is told to metrics, without OpenTelemetry.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    balance::observer::{Observation, PickLabels},
    error::Code,
};

/// Records what happens in a channel. Its methods are called on the path of calls: they take no lock.
pub(crate) trait ChannelObserver: fmt::Debug + Send + Sync {
    /// Who records the calls of a method, by the path of its requests (CH9.11), and whether generated code has made the request.
    fn method(&self, path: &str, is_generated: bool) -> Arc<dyn MethodObserver>;

    /// A connection has become another state.
    fn on_subchannel(&self, labels: &PickLabels, event: SubchannelEvent);

    /// What load balancing has done.
    fn on_balance(&self, observation: Observation<'_>);
}

/// Records the calls of a method; `custom` is the label that the application has given to a call.
pub(crate) trait MethodObserver: fmt::Debug + Send + Sync {
    /// Whether the labels of picks are recorded (CH9.14).
    fn has_pick_labels(&self) -> bool;

    /// An attempt begins, before its pick.
    fn on_attempt_started(&self, custom: Option<&Arc<str>>);

    /// An attempt has ended.
    fn on_attempt_ended(&self, custom: Option<&Arc<str>>, attempt: &AttemptSummary<'_>);

    /// A call has ended.
    fn on_call_ended(&self, custom: Option<&Arc<str>>, summary: &CallSummary);
}

/// An attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttemptSummary<'a> {
    pub(crate) code: Code,
    pub(crate) duration: Duration,
    /// The bytes of messages.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) labels: &'a PickLabels,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CallSummary {
    pub(crate) code: Code,
    pub(crate) duration: Duration,
    pub(crate) retries: Retried,
}

/// The retries of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retried {
    /// Attempts that the retry policy has added.
    pub(crate) retries: u32,
    /// Attempts made since the server had not processed the request (transparent retries of gRFC A6).
    pub(crate) transparent: u32,
    /// The time between attempts.
    pub(crate) delay: Duration,
}

/// What happens to a connection of a subchannel (CH9.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubchannelEvent {
    Connected(SecurityLevel),
    ConnectionFailed,
    /// For the first reason that was seen, as A94 names it.
    Disconnected(SecurityLevel, &'static str),
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecurityLevel {
    None,
    PrivacyAndIntegrity,
}

impl SecurityLevel {
    /// Its name in A94.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics have the names"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PrivacyAndIntegrity => "privacy_and_integrity",
        }
    }
}
