use serde::Serialize;

use super::Invalid;

/// Hosts that a virtual host is for: `a.example`, `*.example`, `a.*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct DomainPattern(Box<str>);

/// How well a pattern fits a host (A28-1); the greater is the better.
///
/// An exact domain fits better than one with the wildcard in front, that better than one with it at the end, and that
/// better than `*`; among the same kind the longest fits best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fit {
    kind: u8,
    length: usize,
}

/// What a [`DomainPattern`] says of a host.
pub(in crate::resource) enum DomainKind<'a> {
    Everything,
    StartsWith(&'a [u8]),
    EndsWith(&'a [u8]),
    Exactly(&'a [u8]),
}

impl DomainPattern {
    /// Checks a pattern (R7).
    ///
    /// # Errors
    /// When it is empty, or has a `*` but neither at its beginning nor at its end.
    pub fn new(pattern: impl Into<Box<str>>) -> Result<Self, Invalid> {
        let pattern = pattern.into();
        if pattern.is_empty() {
            return Err(Invalid::new("a domain must not be empty"));
        }
        if pattern.contains('*') && !pattern.starts_with('*') && !pattern.ends_with('*') {
            let reason = format!("{pattern:?} has its wildcard neither at the beginning nor at the end");
            return Err(Invalid::new(reason));
        }
        Ok(Self(pattern))
    }

    /// The pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How well the pattern fits a host, whatever the case of its letters; `None` if it does not.
    pub fn fit(&self, host: &str) -> Option<Fit> {
        let host = host.as_bytes();
        let (kind, fits) = match self.kind() {
            DomainKind::Everything => (0, true),
            // The wildcard stands for at least one character.
            DomainKind::EndsWith(suffix) => (
                2,
                host.len() > suffix.len() && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix),
            ),
            DomainKind::StartsWith(prefix) => {
                (1, host.len() > prefix.len() && host[..prefix.len()].eq_ignore_ascii_case(prefix))
            }
            DomainKind::Exactly(exact) => (3, host.eq_ignore_ascii_case(exact)),
        };
        fits.then_some(Fit { kind, length: self.0.len() })
    }

    /// What the pattern says, without its wildcard.
    pub(in crate::resource) fn kind(&self) -> DomainKind<'_> {
        match self.0.as_bytes() {
            b"*" => DomainKind::Everything,
            [b'*', suffix @ ..] => DomainKind::EndsWith(suffix),
            [prefix @ .., b'*'] => DomainKind::StartsWith(prefix),
            exact => DomainKind::Exactly(exact),
        }
    }
}
