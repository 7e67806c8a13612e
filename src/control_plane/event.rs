use std::net::SocketAddr;

use super::{
    message::{Request, Variant},
    session::Handled,
};

/// Something that happened on a stream of a [`ControlPlane`](super::ControlPlane).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A client opened a stream.
    #[non_exhaustive]
    Opened {
        /// Counts the streams of the control plane, from 1.
        stream: u64,
        /// Where the client is, if it is known.
        peer: Option<SocketAddr>,
        /// The variant of the protocol.
        variant: Variant,
    },
    /// A client sent a request.
    #[non_exhaustive]
    Request {
        /// The stream.
        stream: u64,
        /// The request as it came.
        request: Request,
        /// How many bytes the message had.
        bytes: usize,
        /// What the server made of it.
        handled: Handled,
    },
    /// The server sent a response, or something in its place.
    #[non_exhaustive]
    Response {
        /// The stream.
        stream: u64,
        /// The type; empty when the server was told to send raw bytes.
        type_url: String,
        /// The version.
        version: String,
        /// How many resources it holds, heartbeats included.
        resources: usize,
        /// How many names it says are gone.
        removed: usize,
        /// How many bytes the message has.
        bytes: usize,
    },
    /// A stream ended.
    #[non_exhaustive]
    Closed {
        /// The stream.
        stream: u64,
    },
}
