//! Whether a Listener is for a socket.

use std::net::SocketAddr;

use super::{Identity, NotServing};
use crate::{
    error::Code,
    resource::{
        Listener,
        filter_chain::{FilterChain, SocketListener},
        listener::ListenerKind,
    },
};

/// What becomes of the TLS settings of filter chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsSupport {
    /// The application has chosen security of its own, so that those of chains are not used (A29).
    Ignored,
    /// Chains with TLS cannot be served, and must not be served without it.
    Unsupported,
}

/// The socket's part of a Listener that is for this socket.
///
/// # Errors
/// It is a client's listener, for another address, or cannot be served.
pub(super) fn check<'a>(
    listener: &'a Listener,
    identity: &Identity,
    tls: TlsSupport,
) -> Result<&'a SocketListener, NotServing> {
    let failed = |reason: String| {
        let Identity { name, node, .. } = identity;
        NotServing::new(Code::FailedPrecondition, format!("Listener {name:?}: {reason} [node id: {node}]"))
    };
    let Some(socket) = socket(listener) else {
        return Err(failed("it is a client's listener (api_listener), without filter chains".to_owned()));
    };
    if !fits(socket.address, identity.address) {
        let (theirs, bound) = (socket.address, identity.address);
        return Err(failed(format!("its address is {theirs}, the server listens on {bound}")));
    }
    match tls {
        TlsSupport::Ignored => {}
        TlsSupport::Unsupported => {
            let mut chains = socket.filter_chains.iter().chain(socket.default_filter_chain.as_deref());
            if let Some(FilterChain { name, .. }) = chains.find(|chain| chain.tls.is_some()) {
                return Err(failed(format!(
                    "filter chain {name:?} has TLS, which the server does not support"
                )));
            }
        }
    }
    Ok(socket)
}

/// The part of a Listener for servers.
pub(super) fn socket(listener: &Listener) -> Option<&SocketListener> {
    match &listener.kind {
        ListenerKind::Socket(socket) => Some(socket),
        ListenerKind::Api(_) => None,
    }
}

/// Whether the address of a Listener is that of a bound socket. Port 0 is any; `0.0.0.0` and `::` are different addresses.
fn fits(configured: SocketAddr, bound: SocketAddr) -> bool {
    // SV2.4, SV2.5
    configured.ip() == bound.ip() && (configured.port() == 0 || configured.port() == bound.port())
}
