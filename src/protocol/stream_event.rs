use std::time::Instant;

use bytes::Bytes;

use super::id::StreamId;
use crate::error::Code;

/// An event of a stream, or of a poll in place of one, as the transport reports it.
#[derive(Debug, Clone)]
pub(crate) enum StreamEvent {
    /// The connection is up and requests can be written. Response headers may come much later, or never.
    Connected {
        /// The established attempt.
        stream: StreamId,
    },
    /// The first bytes were read from the connection: there is an HTTP/2 server behind it.
    Alive {
        /// The stream on that connection.
        stream: StreamId,
    },
    /// The server has announced the end of the connection (GOAWAY of HTTP/2). Its streams go on until the server ends them.
    GoingAway {
        /// The stream on that connection.
        stream: StreamId,
    },
    /// The one pending request was taken by the transport: it is being sent, not just queued (A57-7).
    RequestSent {
        /// The stream that it was written on.
        stream: StreamId,
    },
    /// A whole message was received, as on the wire. The engine determines whether it is a response.
    Received {
        /// The stream of the message.
        stream: StreamId,
        /// The bytes of the message.
        message: Bytes,
        /// When the transport has received it, if that may be earlier than its handling.
        at: Option<Instant>,
    },
    /// The last request has the same answer as before; there is no message.
    Unchanged {
        /// The stream of the request.
        stream: StreamId,
    },
    /// The server reported that nothing of the last request exists (HTTP status 404), as a response without resources would.
    NotFound {
        /// The stream of the request.
        stream: StreamId,
    },
    /// The last request has no usable answer, or an unsolicited message is unusable. The stream goes on.
    Failed {
        /// The stream.
        stream: StreamId,
        /// The reason.
        reason: Disconnect,
    },
    /// The stream has ended, or could not be opened. Nothing of it follows.
    Disconnected {
        /// The stream.
        stream: StreamId,
        /// The reason.
        reason: Disconnect,
    },
}

impl StreamEvent {
    /// The stream of the event.
    pub(crate) fn stream(&self) -> StreamId {
        match self {
            Self::Connected { stream }
            | Self::Alive { stream }
            | Self::GoingAway { stream }
            | Self::RequestSent { stream }
            | Self::Received { stream, .. }
            | Self::Unchanged { stream }
            | Self::NotFound { stream }
            | Self::Failed { stream, .. }
            | Self::Disconnected { stream, .. } => *stream,
        }
    }
}

/// The reason for the end of a stream, or for a poll without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    /// The kind of the failure.
    pub kind: DisconnectKind,
    /// The transport's message for it, with all causes: `tcp connect error: connection refused (os error 111)`.
    pub message: String,
}

/// The kinds of failures that end a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisconnectKind {
    /// No connection was established.
    Unreachable,
    /// The server ended the stream without an error.
    Closed,
    /// The stream ended with a status, sent by the server or derived from a broken connection.
    Failed(Code),
    /// A message was larger than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The server closed the connection because of too many keepalive pings.
    TooManyPings,
    /// The local identity (certificate, key, token) could not be loaded; nothing was sent.
    Credentials,
    /// The received bytes are not what was expected: no JSON, half a file.
    Unusable,
}

impl Disconnect {
    /// A reason in words.
    pub fn new(kind: DisconnectKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
