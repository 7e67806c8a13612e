//! Why a client has no connection.

use std::{fmt, io};

use tokio_rustls::rustls::{self, CertificateError};

use crate::tls::{explain::is_closed, generation::NoMaterial, unreadable::Unreadable, verifier::refusal};

/// A handshake that has failed: the reason, and a text for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcceptError {
    failure: AcceptFailure,
    text: Box<str>,
}

/// The reason why a handshake has failed, by which failures are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AcceptFailure {
    /// The client was too slow.
    Timeout,
    /// There was no usable certificate of the server, or no roots, until the deadline.
    NoMaterial,
    /// The bytes of the client are not TLS.
    NotTls,
    /// The client has closed the connection, or that was lost.
    Closed,
    /// Client and server have no protocol (ALPN) in common, or the client has offered none.
    Alpn,
    /// The client has sent no certificate, and needs one.
    NoClientCertificate,
    /// The client's certificate was refused.
    ClientCertificate,
    /// The client has refused the server, by an alert.
    RefusedByClient,
    /// The client has violated the protocol, or has no version or cipher suite in common.
    Protocol,
}

impl AcceptError {
    /// Classifies an error of a handshake.
    pub(super) fn of(error: &io::Error) -> Self {
        if let Some(refused) = refusal(error) {
            return Self::new(AcceptFailure::ClientCertificate, refused.to_string());
        }
        if is_closed(error) {
            return Self::new(AcceptFailure::Closed, "the client closed the connection");
        }
        let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
            return Self::new(AcceptFailure::Closed, format!("the connection was lost: {error}"));
        };
        #[allow(clippy::wildcard_enum_match_arm, reason = "the errors of rustls are not exhaustive")]
        let (failure, text) = match error {
            rustls::Error::InvalidMessage(e) => match Unreadable::of(e) {
                Unreadable::NotTls => (AcceptFailure::NotTls, format!("the client does not use TLS: {e:?}")),
                Unreadable::TooLarge => (
                    AcceptFailure::ClientCertificate,
                    "the client's certificates are larger than 64 KiB, the limit".to_owned(),
                ),
                Unreadable::Malformed => {
                    (AcceptFailure::Protocol, format!("the client sent a malformed message of TLS: {e:?}"))
                }
            },
            rustls::Error::NoCertificatesPresented => {
                (AcceptFailure::NoClientCertificate, "the client has no certificate".to_owned())
            }
            rustls::Error::InvalidCertificate(e @ CertificateError::BadSignature) => (
                AcceptFailure::ClientCertificate,
                format!("the client has not the key of its certificate: {e:?}"),
            ),
            rustls::Error::InvalidCertificate(e) => {
                (AcceptFailure::ClientCertificate, format!("the client's certificate is refused: {e:?}"))
            }
            rustls::Error::NoApplicationProtocol => {
                (AcceptFailure::Alpn, "ALPN: the client and the server have no protocol in common".to_owned())
            }
            rustls::Error::AlertReceived(alert) => {
                (AcceptFailure::RefusedByClient, format!("the client sent the TLS alert {alert:?}"))
            }
            other => (AcceptFailure::Protocol, other.to_string()),
        };
        Self::new(failure, text)
    }

    /// The client was too slow.
    pub(super) fn timeout() -> Self {
        Self::new(AcceptFailure::Timeout, "the client has not completed the TLS handshake in time")
    }

    /// The client has offered no protocol.
    pub(super) fn without_alpn() -> Self {
        Self::new(AcceptFailure::Alpn, "ALPN: the client has offered no protocol")
    }

    /// There was no material until the deadline, for the last reason.
    pub(super) fn no_material(missing: Option<NoMaterial>) -> Self {
        let text =
            missing.map_or_else(|| "the certificates are not loaded yet".to_owned(), |e| e.to_string());
        Self::new(AcceptFailure::NoMaterial, text)
    }

    /// Settings or material with which there are no handshakes.
    pub(super) fn unusable(reason: impl fmt::Display) -> Self {
        Self::new(AcceptFailure::NoMaterial, reason.to_string())
    }

    /// The certificate of a client is refused after the handshake.
    pub(super) fn refused(reason: impl fmt::Display) -> Self {
        Self::new(AcceptFailure::ClientCertificate, reason.to_string())
    }

    /// Returns the reason.
    pub(crate) fn failure(&self) -> AcceptFailure {
        self.failure
    }

    fn new(failure: AcceptFailure, text: impl Into<Box<str>>) -> Self {
        Self { failure, text: text.into() }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for AcceptError {}
