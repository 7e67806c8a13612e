//! The connection of a request, as far as RBAC depends on it (A41).

use std::{net::SocketAddr, sync::Arc};

/// The connection of a request: its addresses, and what TLS has proved of the peer.
///
/// It is cheap to clone. Headers such as `x-forwarded-for` play no part in it (A41).
///
/// ```
/// use xdskit::resource::http_filter::rbac::{ConnectionFacts, TlsFacts};
///
/// let tls = TlsFacts::new().with_uri_sans(["spiffe://shop.example/cart"]);
/// let connection = ConnectionFacts::new(([10, 0, 0, 1], 443).into(), ([10, 0, 0, 2], 50_123).into()).with_tls(tls);
/// assert_eq!(connection.tls().and_then(TlsFacts::spiffe_id), Some("spiffe://shop.example/cart"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionFacts {
    local: SocketAddr,
    peer: SocketAddr,
    tls: Option<Arc<TlsFacts>>,
}

/// The names in the verified certificate of a peer, in the order of the certificate; none of a peer without a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFacts {
    uri_sans: Box<[Box<str>]>,
    dns_sans: Box<[Box<str>]>,
    subject: Box<str>,
}

impl ConnectionFacts {
    /// A connection in plain text, between the address of the server's socket and that of the peer.
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self { local, peer, tls: None }
    }

    /// Sets that the connection has TLS. A peer without a certificate has [no names](TlsFacts::new).
    #[must_use]
    pub fn with_tls(mut self, tls: impl Into<Arc<TlsFacts>>) -> Self {
        self.tls = Some(tls.into());
        self
    }

    /// The address of the server's socket.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The address of the peer's socket.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The names of the peer; `None` in plain text.
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }
}

impl TlsFacts {
    /// A peer without a certificate, or with one without names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the subject alternative names of the type URI.
    #[must_use]
    pub fn with_uri_sans<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.uri_sans = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the subject alternative names of the type DNS.
    #[must_use]
    pub fn with_dns_sans<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.dns_sans = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the subject in the text form of RFC 2253: `CN=cart,O=Shop`.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<Box<str>>) -> Self {
        self.subject = subject.into();
        self
    }

    /// The subject alternative names of the type URI.
    pub fn uri_sans(&self) -> &[Box<str>] {
        &self.uri_sans
    }

    /// The subject alternative names of the type DNS.
    pub fn dns_sans(&self) -> &[Box<str>] {
        &self.dns_sans
    }

    /// The subject in the text form of RFC 2253; empty without one.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The SPIFFE id: the only URI, if that is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        let [uri] = &*self.uri_sans else { return None };
        let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        (!domain.is_empty() && !path.is_empty()).then_some(uri)
    }
}
