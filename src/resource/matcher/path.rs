//! Conditions on paths.

use serde::Serialize;

use super::{Invalid, Regex};
use crate::pb::envoy::config::route::v3::route_match::PathSpecifier;

/// A matcher for the path of a request, without its query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathMatcher {
    /// The pattern.
    #[serde(flatten)]
    pub pattern: PathPattern,
    /// Whether case differences of ASCII letters matter; ignored for a regex.
    pub case_sensitive: bool,
}

/// The pattern of a [`PathMatcher`].
///
/// Prefixes and paths of any form are accepted: one without a leading slash never matches. A path-separated prefix
/// must have the form that Envoy requires.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathPattern {
    /// A prefix; an empty one matches every path.
    Prefix(Box<str>),
    /// The exact path.
    #[serde(rename = "path")]
    Exact(Box<str>),
    /// A prefix of whole segments: `/api/dev` matches `/api/dev`, `/api/dev/` and `/api/dev/v1`, but not
    /// `/api/developer`. It has at least two characters, does not contain `?` or `#` and does not end with `/`.
    ///
    /// An extension, as in Envoy: gRPC's clients reject a route with it.
    PathSeparatedPrefix(Box<str>),
    /// A regular expression for the whole path.
    SafeRegex(Regex),
}

impl PathMatcher {
    /// Rules R12 to R15.
    pub(crate) fn parse(specifier: Option<PathSpecifier>, case_sensitive: bool) -> Result<Self, Invalid> {
        Ok(Self { pattern: PathPattern::parse(specifier)?, case_sensitive })
    }

    /// Returns whether the path of a request matches, without its query.
    pub fn matches(&self, path: &str) -> bool {
        match &self.pattern {
            PathPattern::Prefix(prefix) => self.after(prefix, path).is_some(),
            PathPattern::Exact(exact) => self.same(path.as_bytes(), exact.as_bytes()),
            PathPattern::PathSeparatedPrefix(prefix) => {
                self.after(prefix, path).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }
            PathPattern::SafeRegex(regex) => regex.matches(path),
        }
    }

    /// Returns the rest of a path that begins with a prefix.
    fn after<'a>(&self, prefix: &str, path: &'a str) -> Option<&'a [u8]> {
        let (start, rest) = path.as_bytes().split_at_checked(prefix.len())?;
        self.same(start, prefix.as_bytes()).then_some(rest)
    }

    /// Whether texts are equal, as far as case matters.
    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.case_sensitive { a == b } else { a.eq_ignore_ascii_case(b) }
    }
}

impl PathPattern {
    /// Parses a pattern.
    fn parse(specifier: Option<PathSpecifier>) -> Result<Self, Invalid> {
        match specifier {
            Some(PathSpecifier::Prefix(prefix)) => Ok(Self::Prefix(prefix.into())),
            Some(PathSpecifier::Path(path)) => Ok(Self::Exact(path.into())),
            Some(PathSpecifier::PathSeparatedPrefix(prefix)) => {
                path_separated_prefix(prefix).map_err(|e| e.at("path_separated_prefix"))
            }
            Some(PathSpecifier::SafeRegex(regex)) => {
                Regex::parse(regex).map(Self::SafeRegex).map_err(|e| e.at("safe_regex"))
            }
            Some(PathSpecifier::ConnectMatcher(_)) => Err(unsupported("connect_matcher")),
            Some(PathSpecifier::PathMatchPolicy(_)) => Err(unsupported("path_match_policy")),
            None => Err(Invalid::new(format!("no path specifier that is supported: {SUPPORTED}"))),
        }
    }
}

/// Checks Envoy's rule, `^[^?#]+[^?#/]$` as a regular expression; it does not require a leading slash.
fn path_separated_prefix(prefix: String) -> Result<PathPattern, Invalid> {
    let wrong = match prefix.chars().nth(1) {
        _ if prefix.contains(['?', '#']) => "must not contain `?` or `#`",
        None => "must have at least two characters",
        Some(_) if prefix.ends_with('/') => "must not end with `/`",
        Some(_) => return Ok(PathPattern::PathSeparatedPrefix(prefix.into())),
    };
    Err(Invalid::new(format!("{prefix:?} {wrong}")))
}

/// The error of a condition of another kind.
fn unsupported(field: &str) -> Invalid {
    Invalid::field(field, format!("not supported; expected {SUPPORTED}"))
}

/// The supported path specifiers, for errors.
const SUPPORTED: &str = "prefix, path, path_separated_prefix or safe_regex";
