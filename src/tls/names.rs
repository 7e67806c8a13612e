//! The subject alternative names of a certificate, which rustls compares but does not show.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode, Tag, TagNumber, asn1::AnyRef, oid::ObjectIdentifier},
};

use super::spiffe::SpiffeId;
use crate::resource::{
    matcher::StringPattern,
    tls::{SanMatcher, SanType},
};

/// The names and the end of the validity of a certificate. The common name of the subject is never read (CH7.9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    /// Names in the order of the certificate; addresses as in RFC 5952.
    names: Vec<(SanType, String)>,
    /// The end of the validity, since 1970.
    not_after: Duration,
}

impl CertificateNames {
    /// Reads a certificate in DER. Names of other types than ours, and those that are no text or address, are skipped:
    /// nothing matches them (CH7.9).
    pub(crate) fn of(certificate: &[u8]) -> Result<Self, String> {
        let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|e| e.to_string())?;
        let parsed = parsed.tbs_certificate();
        let mut names = Vec::new();
        for extension in parsed.extensions().into_iter().flatten() {
            if extension.extn_id == SUBJECT_ALT_NAME {
                names.extend(Self::in_extension(extension.extn_value.as_bytes())?);
            }
        }
        Ok(Self { names, not_after: parsed.validity().not_after.to_unix_duration() })
    }

    /// Reads the value of the extension of subject alternative names.
    pub(crate) fn in_extension(value: &[u8]) -> Result<Vec<(SanType, String)>, String> {
        let all =
            Vec::<AnyRef<'_>>::from_der(value).map_err(|e| format!("subject alternative names: {e}"))?;
        Ok(all.into_iter().filter_map(name).collect())
    }

    /// The names in the order of the certificate; addresses as in RFC 5952.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SanType, &str)> {
        self.names.iter().map(|(san_type, name)| (*san_type, name.as_str()))
    }

    /// The end of the validity, since 1970.
    pub(crate) fn not_after(&self) -> Duration {
        self.not_after
    }

    /// The SPIFFE id: the only URI of the names (CH7.11).
    pub(crate) fn spiffe_id(&self) -> Result<SpiffeId<'_>, String> {
        let mut uris = self.iter().filter(|(san_type, _)| *san_type == SanType::Uri);
        match (uris.next(), uris.next()) {
            (Some((_, uri)), None) => {
                SpiffeId::parse(uri).map_err(|why| format!("{uri:?} is no SPIFFE id: {why}"))
            }
            (None, _) => Err("it has no URI, so no SPIFFE id".to_owned()),
            (Some(_), Some(_)) => Err("it has several URIs, a SPIFFE id must be the only one".to_owned()),
        }
    }
}

/// The names for an error: types and texts, not more than some.
impl fmt::Display for CertificateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return f.write_str("no names");
        }
        for (at, (san_type, name)) in self.names.iter().take(MAX_SHOWN).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            let end = name.char_indices().nth(MAX_NAME_SHOWN).map_or(name.len(), |(end, _)| end);
            let more = if end < name.len() { "..." } else { "" };
            write!(f, "{separator}{} {:?}{more}", type_name(*san_type), &name[..end])?;
        }
        match self.names.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Matchers in a short form, for an error: `exact "a.example" or URI prefix "spiffe://a/"`.
pub(crate) struct Matchers<'a>(pub(crate) &'a [SanMatcher]);

impl fmt::Display for Matchers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, matcher) in self.0.iter().take(MAX_SHOWN).enumerate() {
            f.write_str(if at == 0 { "" } else { " or " })?;
            if let Some(san_type) = matcher.san_type {
                write!(f, "{} ", type_name(san_type))?;
            }
            match &matcher.matcher.pattern {
                StringPattern::Exact(text) => write!(f, "exact {text:?}")?,
                StringPattern::Prefix(text) => write!(f, "prefix {text:?}")?,
                StringPattern::Suffix(text) => write!(f, "suffix {text:?}")?,
                StringPattern::Contains(text) => write!(f, "contains {text:?}")?,
                StringPattern::SafeRegex(regex) => write!(f, "regex {:?}", regex.as_str())?,
            }
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, " or {more} more"),
        }
    }
}

/// A name of a type that can be matched.
// The context tags are those of `GeneralName` (RFC 5280, section 4.2.1.6).
fn name(general: AnyRef<'_>) -> Option<(SanType, String)> {
    let Tag::ContextSpecific { constructed: false, number } = x509_cert::der::Tagged::tag(&general) else {
        return None;
    };
    let value = general.value();
    let text = |san_type| {
        // These names are ASCII by the standard (IA5String), so that nothing matches other text.
        let text = str::from_utf8(value).ok().filter(|text| text.is_ascii());
        text.map(|text| (san_type, text.to_owned()))
    };
    match number {
        TagNumber(1) => text(SanType::Email),
        TagNumber(2) => text(SanType::Dns),
        TagNumber(6) => text(SanType::Uri),
        TagNumber(7) => address(value).map(|address| (SanType::IpAddress, address.to_string())),
        TagNumber(_) => None,
    }
}

/// Reads an address of 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}

/// Returns a type of names as errors show it.
fn type_name(san_type: SanType) -> &'static str {
    match san_type {
        SanType::Email => "email",
        SanType::Dns => "DNS",
        SanType::Uri => "URI",
        SanType::IpAddress => "IP",
    }
}

/// The identifier of the extension.
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
/// How many names and matchers an error shows.
const MAX_SHOWN: usize = 8;
/// How many characters of a name an error shows.
const MAX_NAME_SHOWN: usize = 256;

#[cfg(test)]
mod tests;
