use super::{
    digests::Digests,
    id::{EntryId, StreamId, TypeId},
    stream_event::Disconnect,
};
use crate::resource::Version;

/// The events of a machine for its owner.
#[derive(Debug)]
pub(crate) enum Event {
    /// No stream was established, or one ended before its first response.
    Failed(Disconnect),
    /// The first response of a stream: the server is reachable.
    Recovered,
    /// The last subscription has ended, so that earlier failures of the server do not matter any more.
    Rested,
    /// The does-not-exist time of a resource has passed.
    TimedOut(EntryId),
    /// The does-not-exist time of a wildcard has passed: nothing of the type was received.
    AllTimedOut(TypeId),
    /// Streams to the server end with an error, and nothing of a type was ever received.
    Unanswered(TypeId),
    /// A resource was subscribed whose type is held back, because streams with a request for it end with an error.
    HeldBack(EntryId),
    /// The server was notified that the resource is unsubscribed.
    Released(EntryId),
    /// The server was notified that the wildcard of a type is unsubscribed.
    ReleasedAll(TypeId),
    /// The server was quiet for so long that the resources of a type that it did not send are missing.
    Quiet(TypeId),
}

/// The owner of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A request or an answer may be written.
    Write,
    /// The does-not-exist time of a requested resource ends.
    DoesNotExist,
    /// The next attempt to connect.
    Reconnect,
    /// A stream without subscriptions.
    IdleStream,
}

/// The outcome of a response.
#[derive(Debug)]
pub(crate) struct ResponseOutcome {
    pub(crate) ty: TypeId,
    /// The stream of the response.
    pub(crate) stream: StreamId,
    /// The version of the response, which later requests of the state of the world have once it is accepted.
    pub(crate) version: Version,
    /// The nonce of the response, which the answer has.
    pub(crate) nonce: String,
    /// Its errors, in words for the server's operator; empty when it is accepted.
    pub(crate) error: String,
    /// Identifies its resources; compared when it is rejected.
    pub(crate) digests: Digests,
    /// Set for a response that only confirms resources, in a version that is not held: that does not become the accepted one.
    pub(crate) is_outdated: bool,
    /// Set for a response that is rejected, and not only because of resources whose names are known.
    pub(crate) is_unattributed: bool,
    /// Whether some of the response has changed what is held, be it accepted or not.
    pub(crate) is_applied: bool,
}
