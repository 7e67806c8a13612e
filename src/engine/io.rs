//! What passes between the engine and the shell.
//!
//! All times are arguments of the calls that take these, so that a test or a simulation replays a run exactly: equal inputs
//! at equal times lead to equal outputs.

use std::sync::Arc;

use crate::{
    base::{Addresses, Erased, WatchId},
    protocol::{self, StreamCommand, StreamEvent},
    resolve::LookupId,
};

/// An event outside: the shell reports it, the engine handles it.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// An event of a stream.
    Transport(StreamEvent),
    /// The addresses of a host were looked up.
    Resolved {
        /// The id of the lookup.
        lookup: LookupId,
        /// The addresses, or the reason of the failure, in words.
        result: Result<Addresses, String>,
    },
}

/// An order of the engine to the shell.
#[derive(Debug)]
pub(crate) enum Output {
    /// A command for a stream.
    Transport(StreamCommand),
    /// Publish the state of a watch: an `Observed<T>`, the `ErasedMembers` of a wildcard, the value that a target
    /// has [`Resolved`](crate::resolve::Resolved) to, or the next `ErasedBatch` of a consumer.
    Notify { watch_id: WatchId, observed: Erased },
    /// Look up the addresses of a host, and report them once.
    Lookup { lookup: LookupId, host: Arc<str> },
}

/// The owner of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A response is in progress.
    Work,
    /// A timer of a server.
    Server(protocol::Timer),
    /// A response has waited for its consumers for long enough.
    Batch,
    /// A resource expires that was not confirmed.
    Expiry,
    /// A host is looked up again, or its lookup is cancelled.
    Lookup,
    /// A deletion that a resolution has postponed.
    Grace,
}

impl From<StreamEvent> for Input {
    fn from(event: StreamEvent) -> Self {
        Self::Transport(event)
    }
}
