use std::time::Duration;

use bytes::Bytes;

use super::{id::StreamId, source_key::ConnectTarget};

/// A command of a machine to the transport.
#[derive(Debug)]
pub(crate) enum StreamCommand {
    /// Open a stream.
    Connect { stream: StreamId, to: ConnectTarget, keepalive: Duration },
    /// Write a request. No other follows on the stream until it is reported as sent.
    Send { stream: StreamId, message: Bytes },
    /// Read one more message. Without it none is read, so that a server cannot send faster than the client works.
    Read { stream: StreamId },
    /// Abort a stream; no event of it is to be reported any more.
    Disconnect { stream: StreamId },
}
