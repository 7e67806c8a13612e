//! Descriptions of connection errors, with what to check.

use std::{error::Error, io};

#[cfg(feature = "tls")]
use tokio_rustls::rustls;

use crate::config::ChannelCredentials;
#[cfg(feature = "tls")]
use crate::tls::{TOO_LARGE, Unreadable};

/// Describes an error with its source chain, and suggests what to check.
///
/// It is for connections on which the server has never responded: most of them are misconfigured, and the messages of
/// lower layers, such as "frame with invalid size", do not explain the mistake.
pub(in crate::transport) fn explain(error: &(dyn Error + 'static), channel: &ChannelCredentials) -> String {
    let text = with_causes(error);
    match causes(error).find_map(|cause| hint(cause, channel)) {
        Some(hint) => format!("{text}: {hint}"),
        None => text,
    }
}

/// Formats an error with its source chain: `http2 error: keep-alive timed out: operation timed out`.
pub(in crate::transport) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Iterates over an error and its sources.
pub(in crate::transport) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// Suggests a reason for a cause, by the credentials of the connection.
fn hint(cause: &(dyn Error + 'static), channel: &ChannelCredentials) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return of_io(error, channel);
    }
    #[cfg(feature = "tls")]
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return of_tls(error, channel);
    }
    if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout) {
        return Some("the server accepts connections but sends nothing".to_owned());
    }
    let error = cause.downcast_ref::<h2::Error>()?;
    match (error.get_io(), channel) {
        (Some(error), _) => of_io(error, channel),
        (None, ChannelCredentials::Insecure) if error.is_library() => Some(
            "it does not use HTTP/2 in plain text; does the server require TLS (channel_creds `tls`)?"
                .to_owned(),
        ),
        (None, ChannelCredentials::Insecure | ChannelCredentials::Tls(_) | ChannelCredentials::Custom(_)) => {
            None
        }
    }
}

/// Suggests a reason for an error of the socket.
fn of_io(error: &io::Error, channel: &ChannelCredentials) -> Option<String> {
    #[cfg(feature = "tls")]
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return of_tls(error, channel);
    }
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return Some("no process listens at this address; is the server running?".to_owned());
    }
    if !CLOSED.contains(&error.kind()) {
        return None;
    }
    let question = question(channel);
    Some(format!("it closed the connection without a response; is it healthy, or {question}"))
}

/// Asks about the likely reason why a server refuses the client.
fn question(channel: &ChannelCredentials) -> String {
    match channel {
        ChannelCredentials::Insecure => "does the server require TLS (channel_creds `tls`)?".to_owned(),
        ChannelCredentials::Tls(config) => match &config.certificate_file {
            Some(file) => format!("does it trust the certificate in certificate_file {}?", file.display()),
            None => "does the server require a client certificate (certificate_file)?".to_owned(),
        },
        ChannelCredentials::Custom(custom) => {
            format!("does it accept the channel credentials `{}`?", custom.type_name())
        }
    }
}

/// Suggests a reason for an error of TLS.
#[cfg(feature = "tls")]
fn of_tls(error: &rustls::Error, channel: &ChannelCredentials) -> Option<String> {
    use rustls::AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, UnknownCA,
    };
    if !matches!(channel, ChannelCredentials::Tls(_)) {
        return None;
    }
    if let rustls::Error::InvalidMessage(error) = error {
        return match Unreadable::of(error) {
            Unreadable::NotTls => {
                Some("it does not use TLS; is it one for channel_creds `insecure`?".to_owned())
            }
            Unreadable::TooLarge => Some(TOO_LARGE.to_owned()),
            Unreadable::Malformed => None,
        };
    }
    // The alerts by which servers refuse the certificate of a client, or its absence.
    let refusals = [
        AccessDenied,
        BadCertificate,
        CertificateExpired,
        CertificateRequired,
        CertificateRevoked,
        CertificateUnknown,
        DecryptError,
        UnknownCA,
    ];
    let rustls::Error::AlertReceived(alert) = error else { return None };
    refusals.contains(alert).then(|| question(channel))
}

/// The errors of a connection that the other end has closed.
const CLOSED: [io::ErrorKind; 5] = [
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::NotConnected,
];
