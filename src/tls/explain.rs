//! Explanations of errors of TLS, for the status of calls.

use std::{error::Error, io, time::Duration};

use tokio_rustls::rustls::{self, pki_types::UnixTime};

use super::{
    published::Identity,
    unreadable::{TOO_LARGE, Unreadable},
    verifier::refusal,
};

/// Explains an error of rustls, possibly inside of one of I/O; `None` for other errors.
pub(super) fn explained(error: &(dyn Error + 'static), identity: Option<&Identity>) -> Option<String> {
    let mut error = error;
    if let Some(io) = error.downcast_ref::<io::Error>() {
        if let Some(refused) = refusal(io) {
            return Some(refused.to_string());
        }
        if is_closed(io) {
            return Some("the server closed the connection; does it use TLS, and is it healthy?".to_owned());
        }
        error = io.get_ref()?;
    }
    let error = error.downcast_ref::<rustls::Error>()?;
    if let rustls::Error::InvalidMessage(e) = error {
        return Some(match Unreadable::of(e) {
            Unreadable::NotTls => {
                format!("the server does not use TLS, its bytes are no message of it: {e:?}")
            }
            Unreadable::TooLarge => format!("the server cannot be verified: {TOO_LARGE}"),
            Unreadable::Malformed => format!("the server sent a malformed message of TLS: {e:?}"),
        });
    }
    if let rustls::Error::AlertReceived(alert) = error {
        return Some(alert_text(*alert, identity));
    }
    Some(error.to_string())
}

/// Formats an error with its sources.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether the other side has closed a connection, with no reason.
pub(super) fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, Some(UnexpectedEof | ConnectionReset | BrokenPipe))
}

/// Explains an alert of the server.
fn alert_text(alert: rustls::AlertDescription, identity: Option<&Identity>) -> String {
    if alert == rustls::AlertDescription::NoApplicationProtocol {
        return "ALPN: the server does not use `h2`".to_owned();
    }
    let hint = refusal_hint(identity);
    format!("the server sent the TLS alert {alert:?}{hint}")
}

/// Returns the likely reason why a server refuses the client, to be appended to an error.
pub(super) fn refusal_hint(identity: Option<&Identity>) -> String {
    match identity {
        None => ": does it require a client certificate (the cluster names no provider of one)?".to_owned(),
        Some(identity) => {
            let now = Duration::from_secs(UnixTime::now().as_secs());
            let origin = &identity.origin;
            let expired = identity.expired(now);
            expired.map_or_else(
                || format!(": does it trust the certificate {origin}?"),
                |why| format!(": {why}"),
            )
        }
    }
}
