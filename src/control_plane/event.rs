//! The events that observers of a control plane get.

use std::net::SocketAddr;

use super::{
    message::{Request, Variant},
    session::Handled,
};
use crate::config::TransportApiVersion;

/// An event on a stream of a [`ControlPlane`](super::ControlPlane).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A client opened a stream.
    #[non_exhaustive]
    Opened {
        /// The number of the stream, counted from 1 over the control plane.
        stream: u64,
        /// The address of the client, if known.
        peer: Option<SocketAddr>,
        /// The variant of the protocol.
        variant: Variant,
        /// The version of the transport.
        api_version: TransportApiVersion,
        /// The v3 type URL of a stream of one type; `None` for an aggregated stream (ADS).
        type_url: Option<&'static str>,
    },
    /// A client sent a request.
    #[non_exhaustive]
    Request {
        /// The stream.
        stream: u64,
        /// The request as it was received, except that its type URL is that of v3, also if it was of v2 or missing.
        request: Request,
        /// The size of the message in bytes.
        bytes: usize,
        /// The outcome of the request.
        handled: Handled,
    },
    /// The server sent a response, or raw bytes in place of one.
    #[non_exhaustive]
    Response {
        /// The stream.
        stream: u64,
        /// The v3 type URL; empty for raw bytes.
        type_url: String,
        /// The version.
        version: String,
        /// The number of resources in it, including heartbeats.
        resources: usize,
        /// The number of removed names in it.
        removed: usize,
        /// The size of the message in bytes.
        bytes: usize,
    },
    /// A stream ended.
    #[non_exhaustive]
    Closed {
        /// The stream.
        stream: u64,
    },
}
