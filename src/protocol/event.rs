use super::{
    digests::Digests,
    id::{EntryId, StreamId, TypeId},
    input::Disconnect,
};
use crate::resource::Version;

/// What others must know of.
#[derive(Debug)]
pub(crate) enum Event {
    /// No stream came about, or one ended before it gave anything.
    Failed(Disconnect),
    /// The first response of a stream: the server is there.
    Recovered,
    /// Nothing is requested from the server any more, so that its failures are history.
    Rested,
    /// The server had its time to send a resource.
    TimedOut(EntryId),
    /// The same of everything of a type: nothing of the type came.
    AllTimedOut(TypeId),
    /// Streams to the server end with an error, and nothing of a type ever came.
    Unanswered(TypeId),
    /// The same of one resource of a type that is not requested any more because of that.
    HeldBack(EntryId),
    /// The server was notified that the resource is unsubscribed.
    Released(EntryId),
    /// The same of the wildcard of a type.
    ReleasedAll(TypeId),
    /// The server was quiet for so long that what it should have sent of a type and did not is missed.
    Quiet(TypeId),
}

/// Whose deadline it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A response is being worked off.
    Work,
    /// A request or an answer may be written.
    Write,
    /// The does-not-exist time of a requested resource ends.
    DoesNotExist,
    /// A resource expires that was not confirmed.
    Expiry,
    /// The next attempt to connect.
    Reconnect,
    /// A stream that serves no name.
    IdleStream,
    /// A host is looked up again, or its lookup is cancelled.
    Lookup,
    /// A deletion that a resolution has put off.
    Grace,
}

/// What was found out about a response.
#[derive(Debug)]
pub(crate) struct ResponseOutcome {
    pub(crate) ty: TypeId,
    /// The stream that it came on.
    pub(crate) stream: StreamId,
    pub(crate) version: Version,
    pub(crate) nonce: String,
    /// What is wrong with it, in words for the server's operator; empty when it is accepted.
    pub(crate) error: String,
    /// Identifies its resources; compared when it is rejected.
    pub(crate) digests: Digests,
    /// It only confirms resources, in a version that is not held: it does not become the accepted one.
    pub(crate) is_outdated: bool,
}
