//! The numbers of messages and bytes of one server, and of the ends of its streams.
//!
//! The counters are sums since the last [`take`](Traffic::take). Their number is bounded by the types that the client requests and by
//! the variants of enums: a type that a server makes up has no counter of its own.

use std::collections::BTreeMap;

use super::{
    id::TypeId,
    stream_event::{Disconnect, DisconnectKind},
};
use crate::error::Code;

/// What was sent to a server and received from it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The requests by their type and kind.
    pub(crate) requests: BTreeMap<(TypeId, RequestKind), Messages>,
    /// The responses by their type; `None` for those that are of no requested type, or that cannot be read.
    pub(crate) responses: BTreeMap<Option<TypeId>, Messages>,
    /// The ends of streams, and of attempts to open one.
    pub(crate) ends: BTreeMap<StreamEnd, u64>,
}

/// A number of messages, and their size.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) count: u64,
    /// Their size in bytes, as protobuf and uncompressed.
    pub(crate) bytes: u64,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    /// The request answers no response: the first of a stream, or a change of subscriptions. Each poll is one.
    Subscription,
    /// The request accepts a response, and may change subscriptions as well.
    Ack,
    /// The request rejects a response.
    Nack,
}

/// Why a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamEnd {
    /// The client has closed it.
    Cancelled,
    /// No connection was established.
    Unreachable,
    /// The server has ended it without an error.
    Closed,
    /// It has ended with a status, by its number.
    Failed(i32),
    /// A message was too large.
    TooLarge,
    /// The server has reported too many keepalive pings.
    TooManyPings,
    /// The local identity could not be loaded.
    Credentials,
    /// The received bytes were not what was expected.
    Unusable,
}

impl Traffic {
    /// A request was handed to the transport.
    pub(super) fn on_request(&mut self, ty: TypeId, kind: RequestKind, bytes: usize) {
        self.requests.entry((ty, kind)).or_default().add(bytes);
    }

    /// A message was received.
    pub(super) fn on_response(&mut self, ty: Option<TypeId>, bytes: usize) {
        self.responses.entry(ty).or_default().add(bytes);
    }

    /// A stream has ended, or an attempt to open one.
    pub(super) fn on_disconnected(&mut self, reason: &Disconnect) {
        *self.ends.entry(reason.into()).or_default() += 1;
    }

    /// The client has closed a stream.
    pub(super) fn on_cancelled(&mut self) {
        *self.ends.entry(StreamEnd::Cancelled).or_default() += 1;
    }

    /// The numbers since the last call, if there are any.
    pub(super) fn take(&mut self) -> Option<Self> {
        let Self { requests, responses, ends } = self;
        let is_empty = requests.is_empty() && responses.is_empty() && ends.is_empty();
        (!is_empty).then(|| std::mem::take(self))
    }

    /// Adds the numbers of another one.
    pub(crate) fn add(&mut self, other: Self) {
        for (key, messages) in other.requests {
            self.requests.entry(key).or_default().merge(messages);
        }
        for (key, messages) in other.responses {
            self.responses.entry(key).or_default().merge(messages);
        }
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
    }
}

impl Messages {
    fn add(&mut self, bytes: usize) {
        self.merge(Self { count: 1, bytes: bytes as u64 });
    }

    fn merge(&mut self, Self { count, bytes }: Self) {
        self.count += count;
        self.bytes += bytes;
    }
}

impl RequestKind {
    /// The label of metrics.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone show it"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Subscription => "subscription",
            Self::Ack => "ack",
            Self::Nack => "nack",
        }
    }
}

impl StreamEnd {
    /// The label of metrics: the name of a gRPC status is that of a stream that has ended with it.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone show it"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled_by_client",
            Self::Unreachable => "unreachable",
            Self::Closed => "closed_by_server",
            Self::Failed(code) => Code::from_i32(code).as_str(),
            Self::TooLarge => "message_too_large",
            Self::TooManyPings => "too_many_pings",
            Self::Credentials => "credentials",
            Self::Unusable => "unusable",
        }
    }
}

impl From<&Disconnect> for StreamEnd {
    fn from(reason: &Disconnect) -> Self {
        match reason.kind {
            DisconnectKind::Unreachable => Self::Unreachable,
            DisconnectKind::Closed => Self::Closed,
            DisconnectKind::Failed(code) => Self::Failed(code as i32),
            DisconnectKind::TooLarge { .. } => Self::TooLarge,
            DisconnectKind::TooManyPings => Self::TooManyPings,
            DisconnectKind::Credentials => Self::Credentials,
            DisconnectKind::Unusable => Self::Unusable,
        }
    }
}
