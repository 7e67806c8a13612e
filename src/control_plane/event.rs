use std::net::SocketAddr;

use super::{
    message::{Request, Variant},
    session::Handled,
};
use crate::config::TransportApiVersion;

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
        /// The version of the transport.
        api_version: TransportApiVersion,
        /// The type, by its URL of v3, of a stream of one type; an aggregated stream (ADS) has any.
        type_url: Option<&'static str>,
    },
    /// A client sent a request.
    #[non_exhaustive]
    Request {
        /// The stream.
        stream: u64,
        /// The request as it came, but that its type URL is that of v3, also if it was of v2 or left out.
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
        /// The type, by its URL of v3; empty when the server was told to send raw bytes.
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
