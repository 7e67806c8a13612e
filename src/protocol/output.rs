use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    id::{LookupId, StreamId, WatchId},
    source_key::ConnectTarget,
};
use crate::resource::Erased;

/// An order of the engine to the shell.
#[derive(Debug)]
pub(crate) enum Output {
    /// Open a stream.
    Connect { stream: StreamId, to: ConnectTarget, keepalive: Duration },
    /// Write a request. No other follows on the stream until it is reported as sent.
    Send { stream: StreamId, message: Bytes },
    /// Read one more message. Without it none is read, so that a server cannot send faster than the client works.
    Read { stream: StreamId },
    /// Abort a stream; no event of it is to be reported any more.
    Disconnect { stream: StreamId },
    /// Publish the state of a watch: an `Observed<T>`, the `ErasedMembers` of a wildcard, or the value that a target
    /// has [`Resolved`](crate::resolve::Resolved) to.
    Notify { view: WatchId, observed: Erased },
    /// Look up the addresses of a host, and report them once.
    Lookup { lookup: LookupId, host: Arc<str> },
}
