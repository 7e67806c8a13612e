//! The error of starting a server.

use std::{io, net::SocketAddr, sync::Arc};

use thiserror::Error;

use crate::{client::BuildError, config::TargetError, escape::debug_as_message};

/// The reason why a server could not be started.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server was started outside of a tokio runtime.
    #[error("a server needs a tokio runtime: start it in a task, or within `Runtime::enter`")]
    NoRuntime,
    /// Neither the security of the filter chains nor security of its own was chosen.
    #[error("no security is chosen: set `xds_credentials` or `own_credentials`")]
    NoCredentials,
    /// The server has no listener.
    #[error("no listener: set `listen` or `listener`")]
    NoListener,
    /// The client of the server could not be built.
    #[error(transparent)]
    Client(#[from] BuildError),
    /// The bootstrap leads to no name of the Listener of an address.
    #[error("Listener of {address}: {error}")]
    Name {
        /// The bound address.
        address: SocketAddr,
        /// The reason.
        error: TargetError,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: Arc<io::Error>,
    },
    /// The address of a socket that was handed over is unknown.
    #[error("a listener that was handed over has no address: {error}")]
    Socket {
        /// The error of the system.
        error: Arc<io::Error>,
    },
}

debug_as_message!(ServerError);
