//! The periods for which certificates are valid, for errors: rustls' own text has seconds since 1970, and no name.

use std::{iter, time::Duration};

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{DateTime, Decode},
};

/// Explains which certificate of a chain is not valid at a time, with its dates; `None` if all of them are valid. The first of the
/// chain is `leaf`, whose names are in the rest of the error.
pub(super) fn outside_of_validity(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Option<String> {
    let now = Duration::from_secs(now.as_secs());
    iter::once(leaf).chain(intermediates).enumerate().find_map(|(index, der)| {
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let certificate = certificate.tbs_certificate();
        let validity = certificate.validity();
        let (not_before, not_after) = (validity.not_before.to_date_time(), validity.not_after.to_date_time());
        let (state, limit) = if now < not_before.unix_duration() {
            ("is not valid yet", format!("not before {not_before}, not after {not_after}"))
        } else if now > not_after.unix_duration() {
            ("has expired", format!("not after {not_after}"))
        } else {
            return None;
        };
        let certificate = match index {
            0 => "it".to_owned(),
            // An intermediate authority has a subject, and no alternative names.
            _ => {
                let subject: String = certificate.subject().to_string().chars().take(MAX_SUBJECT).collect();
                format!("the certificate of the authority {subject:?} in its chain")
            }
        };
        let now = date(now);
        Some(format!("{certificate} {state} ({limit}; now is {now})"))
    })
}

/// Formats a time since 1970 as a date in UTC, such as `2026-11-20T19:30:00Z`.
pub(crate) fn date(since_1970: Duration) -> String {
    let date = DateTime::from_unix_duration(since_1970);
    date.map_or_else(|_| format!("{} s after 1970", since_1970.as_secs()), |date| date.to_string())
}

/// The longest subject in an error, in characters.
const MAX_SUBJECT: usize = 200;
