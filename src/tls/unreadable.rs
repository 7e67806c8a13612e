//! The meaning of a message that rustls cannot read.

use tokio_rustls::rustls::InvalidMessage;

/// The reason why a message of the peer cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The other side does not use TLS.
    NotTls,
    /// The certificates of the other side are larger than the limit of rustls for a message of a handshake.
    TooLarge,
    /// The other side uses TLS, and its message is malformed.
    Malformed,
}

impl Unreadable {
    /// Classifies an error of rustls.
    pub(crate) fn of(error: &InvalidMessage) -> Self {
        use InvalidMessage::{
            CertificatePayloadTooLarge, HandshakePayloadTooLarge, InvalidContentType, UnknownProtocolVersion,
        };
        if matches!(error, InvalidContentType | UnknownProtocolVersion) {
            Self::NotTls
        } else if matches!(error, CertificatePayloadTooLarge | HandshakePayloadTooLarge) {
            Self::TooLarge
        } else {
            Self::Malformed
        }
    }
}

/// Explains that the certificates of a server are too large.
pub(crate) const TOO_LARGE: &str = "its certificates are larger than 64 KiB, the limit: are there too many names in them, or too many of them?";
