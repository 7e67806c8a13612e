//! The security of the connections of a channel (CH7.1 to CH7.3).

#[cfg_attr(feature = "tls", path = "security/tls.rs")]
#[cfg_attr(not(feature = "tls"), path = "security/none.rs")]
mod tls;

use std::{fmt, net::SocketAddr};

#[cfg(feature = "tls")]
pub use self::tls::FallbackCredentials;
pub(super) use self::tls::{ChannelSecurity, RotationWatch, Secured, SecuritySettings, Tls};

/// The other end of a connection. Connections with equal peers are made alike, so that channels may share them (CH7.21).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// The address of the endpoint.
    pub(super) address: SocketAddr,
    /// The HTTP proxy before it (CH7.25).
    pub(super) proxy: Option<SocketAddr>,
    /// `None` is plaintext.
    pub(super) tls: Option<Tls>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proxy {
            Some(proxy) => write!(f, "{} through the proxy {proxy}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// In plaintext, without a proxy.
#[cfg(test)]
impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, proxy: None, tls: None }
    }
}
