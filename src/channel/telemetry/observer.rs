//! The interface of metrics, without OpenTelemetry.

use std::{fmt, sync::Arc, time::Duration};

use super::{CacheUsage, DelayScope, DelayType, LookupTarget, PickResult};
use crate::{
    balance::observer::{Observation, PickLabels},
    error::Code,
};

/// Records the events of a channel. Its methods are called on the path of calls: they take no lock.
pub(crate) trait ChannelObserver: fmt::Debug + Send + Sync {
    /// Returns the recorder of a method, by the path of its requests (CH9.11). `is_generated` is whether generated code has made
    /// the request.
    fn method(&self, path: &str, is_generated: bool) -> Arc<dyn MethodObserver>;

    /// Records a change of the state of a connection.
    fn on_subchannel(&self, labels: &PickLabels, event: SubchannelEvent);

    /// Records an event of load balancing.
    fn on_balance(&self, observation: Observation<'_>);

    /// Records the size of the cache of a lookup service from now on, as long as the channel has the cache.
    fn on_lookup_cache(&self, service: &Arc<str>, usage: &Arc<CacheUsage>);
}

/// Records the calls of a method; `custom` is the label that the application has given to a call.
pub(crate) trait MethodObserver: fmt::Debug + Send + Sync {
    /// Whether the labels of picks are recorded (CH9.14).
    fn has_pick_labels(&self) -> bool;

    /// Records the begin of an attempt, before its pick.
    fn on_attempt_started(&self, custom: Option<&Arc<str>>);

    /// Records the end of an attempt.
    fn on_attempt_ended(&self, custom: Option<&Arc<str>>, attempt: &AttemptSummary<'_>);

    /// Records a delay of a call or an attempt that has ended (A121).
    fn on_delay(&self, custom: Option<&Arc<str>>, scope: DelayScope, kind: DelayType, duration: Duration);

    /// Records a pick of a call whose cluster was looked up.
    fn on_lookup_pick(&self, target: &LookupTarget, result: PickResult);

    /// Records that a call failed, or waits on, since its lookup failed or was not made.
    fn on_lookup_failed(&self, service: &Arc<str>);

    /// Records the end of a call.
    fn on_call_ended(&self, custom: Option<&Arc<str>>, summary: &CallSummary);
}

/// An attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttemptSummary<'a> {
    pub(crate) code: Code,
    pub(crate) duration: Duration,
    /// The sent bytes of messages, without their prefixes.
    pub(crate) sent: u64,
    /// The received bytes of messages, without their prefixes.
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

/// An event of a connection of a subchannel (CH9.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubchannelEvent {
    Connected(SecurityLevel),
    ConnectionFailed,
    /// The connection was lost; the text is the first reason that was seen, as A94 names it.
    Disconnected(SecurityLevel, &'static str),
}

/// The protection of a connection.
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
