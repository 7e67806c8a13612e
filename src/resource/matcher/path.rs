use serde::Serialize;

use super::{Invalid, Regex};
use crate::pb::envoy::config::route::v3::route_match::PathSpecifier;

/// Matches the path of a request, without its query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathMatcher {
    /// What to look for.
    #[serde(flatten)]
    pub pattern: PathPattern,
    /// Whether upper and lower case of ASCII letters differ; a regex ignores it (R15).
    pub case_sensitive: bool,
}

/// What a [`PathMatcher`] looks for.
///
/// Any shape of a prefix and a path is kept: one without a leading slash never matches. A prefix of whole segments must
/// have the shape that Envoy demands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathPattern {
    /// How it begins; empty matches every path.
    Prefix(Box<str>),
    /// All of it.
    #[serde(rename = "path")]
    Exact(Box<str>),
    /// How it begins, in whole segments: `/api/dev` matches `/api/dev`, `/api/dev/` and `/api/dev/v1`, but not
    /// `/api/developer`. It has at least two characters, does not contain `?` or `#` and does not end with `/`.
    ///
    /// An extension, as in Envoy: gRPC's clients reject a route with it.
    PathSeparatedPrefix(Box<str>),
    /// A regular expression for all of it.
    SafeRegex(Regex),
}

impl PathMatcher {
    /// Rules R12 to R15.
    pub(crate) fn parse(specifier: Option<PathSpecifier>, case_sensitive: bool) -> Result<Self, Invalid> {
        Ok(Self { pattern: PathPattern::parse(specifier)?, case_sensitive })
    }

    /// Whether the path of a request matches, without its query.
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

    /// What follows a prefix, if the path begins with it.
    fn after<'a>(&self, prefix: &str, path: &'a str) -> Option<&'a [u8]> {
        let (start, rest) = path.as_bytes().split_at_checked(prefix.len())?;
        self.same(start, prefix.as_bytes()).then_some(rest)
    }

    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.case_sensitive { a == b } else { a.eq_ignore_ascii_case(b) }
    }
}

impl PathPattern {
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

/// What Envoy demands of it, which is `^[^?#]+[^?#/]$` as a regular expression: a leading slash is not among it.
fn path_separated_prefix(prefix: String) -> Result<PathPattern, Invalid> {
    let wrong = match prefix.chars().nth(1) {
        _ if prefix.contains(['?', '#']) => "must not contain `?` or `#`",
        None => "must have at least two characters",
        Some(_) if prefix.ends_with('/') => "must not end with `/`",
        Some(_) => return Ok(PathPattern::PathSeparatedPrefix(prefix.into())),
    };
    Err(Invalid::new(format!("{prefix:?} {wrong}")))
}

fn unsupported(field: &str) -> Invalid {
    Invalid::field(field, format!("not supported; expected {SUPPORTED}"))
}

const SUPPORTED: &str = "prefix, path, path_separated_prefix or safe_regex";
