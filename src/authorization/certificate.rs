//! The names in the certificate of a peer.

use crate::{rbac::TlsFacts, resource::Invalid, tls};

/// Reads the names of a peer's certificate in DER, the leaf of its chain: its URIs, its DNS names, and its subject in the text form of
/// RFC 2253.
///
/// TLS must have verified the certificate before, as that of a client with one: otherwise the names prove nothing.
///
/// # Errors
/// The bytes are no certificate of X.509, or a name is malformed.
pub fn names_of_certificate(der: &[u8]) -> Result<TlsFacts, Invalid> {
    tls::names_of_peer(der).map_err(Invalid::new)
}
