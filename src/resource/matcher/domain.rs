//! Patterns of hosts, and the order in which they apply.

use serde::Serialize;

use super::Invalid;

/// A domain of a virtual host: `a.example`, `*.example`, `a.*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct DomainPattern(Box<str>);

/// The precedence of a matching pattern; greater is better.
///
/// Exact domains precede patterns with a leading wildcard, those precede patterns with a trailing wildcard, and those
/// precede `*`; within a kind, the longest pattern precedes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fit {
    /// How exact the pattern is.
    kind: u8,
    /// The length of its text.
    length: usize,
}

/// The kind of a [`DomainPattern`], with its text.
pub(in crate::resource) enum DomainKind<'a> {
    /// All hosts.
    Everything,
    /// Hosts that begin with the text.
    StartsWith(&'a [u8]),
    /// Hosts that end with the text.
    EndsWith(&'a [u8]),
    /// The host of the text.
    Exact(&'a [u8]),
}

impl DomainPattern {
    /// Creates a pattern.
    ///
    /// # Errors
    /// The pattern is empty, or has a `*` that is neither at its beginning nor at its end.
    pub fn new(pattern: impl Into<Box<str>>) -> Result<Self, Invalid> {
        let pattern = pattern.into();
        // R7.
        if pattern.is_empty() {
            return Err(Invalid::new("a domain must not be empty"));
        }
        if pattern.contains('*') && !pattern.starts_with('*') && !pattern.ends_with('*') {
            let reason = format!("{pattern:?} has its wildcard neither at the beginning nor at the end");
            return Err(Invalid::new(reason));
        }
        Ok(Self(pattern))
    }

    /// Returns the pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns how well the pattern matches a host, ignoring case; `None` if it does not match.
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
            DomainKind::Exact(exact) => (3, host.eq_ignore_ascii_case(exact)),
        };
        // With the wildcard, which all patterns of a kind have, so that it makes no difference.
        fits.then_some(Fit { kind, length: self.0.len() })
    }

    /// Returns the kind of the pattern, with its text without the wildcard.
    pub(in crate::resource) fn kind(&self) -> DomainKind<'_> {
        match self.0.as_bytes() {
            b"*" => DomainKind::Everything,
            [b'*', suffix @ ..] => DomainKind::EndsWith(suffix),
            [prefix @ .., b'*'] => DomainKind::StartsWith(prefix),
            exact => DomainKind::Exact(exact),
        }
    }
}
