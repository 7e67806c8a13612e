//! The security of accepted connections.

use std::{future::Future, pin::Pin, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Secures the connections of a filter chain.
pub(super) trait Acceptor: Send + Sync {
    /// Makes the handshake of an accepted connection. It is dropped when it takes too long.
    fn accept(&self, stream: TcpStream) -> AcceptFuture;
}

/// A handshake. An error is its reason, for the log.
pub(super) type AcceptFuture = Pin<Box<dyn Future<Output = Result<Secured, String>> + Send>>;

/// A connection after its handshake.
pub(super) struct Secured {
    pub(super) io: Box<dyn Io>,
    /// What the handshake has shown of the peer.
    pub(super) peer: PeerIdentity,
}

/// A connection, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The identity of the peer of a connection, as its certificate has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PeerIdentity {
    pub(super) is_tls: bool,
    pub(super) spiffe_id: Option<Arc<str>>,
    /// The subject alternative names of the certificate.
    pub(super) subject_alt_names: Arc<[Box<str>]>,
}

/// No security.
pub(super) struct Plaintext;

impl Acceptor for Plaintext {
    fn accept(&self, stream: TcpStream) -> AcceptFuture {
        let secured = Secured { io: Box::new(stream), peer: PeerIdentity::default() };
        Box::pin(async { Ok(secured) })
    }
}
