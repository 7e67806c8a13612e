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

/// What a [`PathMatcher`] looks for. Any shape of text is kept: a path without a leading slash just never matches.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathPattern {
    /// How it begins; empty matches every path.
    Prefix(Box<str>),
    /// All of it.
    #[serde(rename = "path")]
    Exact(Box<str>),
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
        let same = |a: &[u8], b: &[u8]| if self.case_sensitive { a == b } else { a.eq_ignore_ascii_case(b) };
        match &self.pattern {
            PathPattern::Prefix(prefix) => {
                path.as_bytes().get(..prefix.len()).is_some_and(|start| same(start, prefix.as_bytes()))
            }
            PathPattern::Exact(exact) => same(path.as_bytes(), exact.as_bytes()),
            PathPattern::SafeRegex(regex) => regex.matches(path),
        }
    }
}

impl PathPattern {
    fn parse(specifier: Option<PathSpecifier>) -> Result<Self, Invalid> {
        match specifier {
            Some(PathSpecifier::Prefix(prefix)) => Ok(Self::Prefix(prefix.into())),
            Some(PathSpecifier::Path(path)) => Ok(Self::Exact(path.into())),
            Some(PathSpecifier::SafeRegex(regex)) => {
                Regex::parse(regex).map(Self::SafeRegex).map_err(|e| e.at("safe_regex"))
            }
            Some(PathSpecifier::ConnectMatcher(_)) => Err(unsupported("connect_matcher")),
            Some(PathSpecifier::PathSeparatedPrefix(_)) => Err(unsupported("path_separated_prefix")),
            Some(PathSpecifier::PathMatchPolicy(_)) => Err(unsupported("path_match_policy")),
            None => Err(Invalid::new("no path specifier that is supported: prefix, path or safe_regex")),
        }
    }
}

fn unsupported(field: &str) -> Invalid {
    Invalid::field(field, "not supported; expected prefix, path or safe_regex")
}
