//! What a request must look like for a route.

use serde::Serialize;

use super::{
    Invalid,
    matcher::{HeaderMatcher, Regex},
    parts,
};
use crate::pb::envoy::config::route::v3::{self as route, route_match::PathSpecifier};

/// What a request must look like for a route: all of it must be true.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteMatch {
    /// The path, without the query.
    #[serde(flatten)]
    pub path: PathMatcher,
    /// Whether upper and lower case differ in the path; a regex ignores it.
    pub case_sensitive: bool,
    /// The headers.
    pub headers: Box<[HeaderMatcher]>,
    /// The part of the requests that match, of a million; `None` is all of them.
    pub fraction_per_million: Option<u32>,
}

/// What a path must look like. Any shape of text is kept: a path without a leading slash just never matches.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathMatcher {
    /// How it begins; empty matches every path.
    Prefix(Box<str>),
    /// All of it.
    #[serde(rename = "path")]
    Exact(Box<str>),
    /// A regular expression for all of it.
    SafeRegex(Regex),
}

impl RouteMatch {
    /// Rules R12 to R17. Query parameters are the caller's (R11).
    pub(super) fn parse(message: route::RouteMatch) -> Result<Self, Invalid> {
        let path = PathMatcher::parse(message.path_specifier)?;
        let headers = message.headers.into_iter().enumerate();
        let headers = headers
            .map(|(i, header)| HeaderMatcher::parse(header).map_err(|e| e.at_index("headers", i)))
            .collect::<Result<_, _>>()?;
        let fraction = match message.runtime_fraction {
            None => None,
            // The key to override it by is for proxies alone; without a default it says nothing (A28-4).
            Some(fraction) => fraction
                .default_value
                .map(|value| {
                    parts::per_million(&value).map_err(|e| e.at("default_value").at("runtime_fraction"))
                })
                .transpose()?,
        };
        Ok(Self {
            path,
            case_sensitive: message.case_sensitive.is_none_or(|sensitive| sensitive.value),
            headers,
            fraction_per_million: fraction,
        })
    }

    /// Whether the path of a request matches, without its query.
    pub fn matches_path(&self, path: &str) -> bool {
        let same = |a: &[u8], b: &[u8]| if self.case_sensitive { a == b } else { a.eq_ignore_ascii_case(b) };
        match &self.path {
            PathMatcher::Prefix(prefix) => {
                path.as_bytes().get(..prefix.len()).is_some_and(|start| same(start, prefix.as_bytes()))
            }
            PathMatcher::Exact(exact) => same(path.as_bytes(), exact.as_bytes()),
            PathMatcher::SafeRegex(regex) => regex.matches(path),
        }
    }

    /// Whether a drawn number is within the part of the requests that match; `draw` is below 1,000,000 and uniform.
    pub fn matches_fraction(&self, draw: u32) -> bool {
        self.fraction_per_million.is_none_or(|part| draw < part)
    }
}

impl PathMatcher {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::envoy::{
        config::core::v3::{RuntimeFractionalPercent, TypedExtensionConfig},
        config::route::v3::route_match::ConnectMatcher,
        r#type::{matcher::v3::RegexMatcher, v3::FractionalPercent},
    };
    use crate::pb::google::protobuf::BoolValue;

    fn of(specifier: PathSpecifier) -> route::RouteMatch {
        route::RouteMatch { path_specifier: Some(specifier), ..Default::default() }
    }

    fn regex(pattern: &str) -> PathSpecifier {
        PathSpecifier::SafeRegex(RegexMatcher { regex: pattern.into() })
    }

    #[test]
    fn r12_a_path_specifier_that_is_supported_is_required() {
        for specifier in [PathSpecifier::Prefix("/".into()), PathSpecifier::Path("/a".into()), regex("/.*")] {
            assert!(RouteMatch::parse(of(specifier)).is_ok());
        }
        assert!(RouteMatch::parse(route::RouteMatch::default()).is_err());
        for (specifier, path) in [
            (PathSpecifier::ConnectMatcher(ConnectMatcher {}), "connect_matcher"),
            (PathSpecifier::PathSeparatedPrefix("/a".into()), "path_separated_prefix"),
            (PathSpecifier::PathMatchPolicy(TypedExtensionConfig::default()), "path_match_policy"),
        ] {
            assert_eq!(RouteMatch::parse(of(specifier)).unwrap_err().path(), path);
        }
    }

    #[test]
    fn r13_a_regex_must_compile() {
        assert_eq!(RouteMatch::parse(of(regex("("))).unwrap_err().path(), "safe_regex.regex");
        assert!(RouteMatch::parse(of(regex("/a|/b"))).unwrap().matches_path("/b"));
        assert!(!RouteMatch::parse(of(regex("/a|/b"))).unwrap().matches_path("/bc"));
    }

    #[test]
    fn r14_the_shape_of_a_path_does_not_matter() {
        for path in ["", "a", "//", "/a/b/c", "/a//"] {
            let matcher = RouteMatch::parse(of(PathSpecifier::Prefix(path.into()))).unwrap();
            assert_eq!(matcher.path, PathMatcher::Prefix(path.into()));
            assert!(matcher.matches_path(path));
        }
    }

    #[test]
    fn r15_case_matters_unless_said_otherwise() {
        for (specifier, path) in [
            (PathSpecifier::Prefix("/Shop".into()), "/shop/cart"),
            (PathSpecifier::Path("/Shop".into()), "/shOP"),
        ] {
            let message = of(specifier);
            let strict = RouteMatch::parse(message.clone()).unwrap();
            assert!(strict.case_sensitive && !strict.matches_path(path));
            let loose = RouteMatch::parse(route::RouteMatch {
                case_sensitive: Some(BoolValue { value: false }),
                ..message
            })
            .unwrap();
            assert!(loose.matches_path(path));
            assert!(!loose.matches_path("/shore"));
        }
    }

    #[test]
    fn r16_header_matchers_are_parsed() {
        let header = route::HeaderMatcher { name: "a".into(), ..Default::default() };
        let bad = route::RouteMatch { headers: vec![header], ..of(PathSpecifier::Prefix(String::new())) };
        assert_eq!(RouteMatch::parse(bad).unwrap_err().path(), "headers[0]");
    }

    #[test]
    fn r17_the_fraction_is_of_a_million() {
        let parse = |default_value| {
            let runtime_fraction = Some(RuntimeFractionalPercent { default_value, ..Default::default() });
            RouteMatch::parse(route::RouteMatch {
                runtime_fraction,
                ..of(PathSpecifier::Prefix(String::new()))
            })
        };
        let half = parse(Some(FractionalPercent { numerator: 50, denominator: 0 })).unwrap();
        assert_eq!(half.fraction_per_million, Some(500_000));
        assert!(half.matches_fraction(499_999) && !half.matches_fraction(500_000));
        let none = parse(Some(FractionalPercent { numerator: 0, denominator: 0 })).unwrap();
        assert!(!none.matches_fraction(0));
        assert!(parse(None).unwrap().matches_fraction(999_999));
        let unknown = parse(Some(FractionalPercent { numerator: 1, denominator: 9 })).unwrap_err();
        assert_eq!(unknown.path(), "runtime_fraction.default_value.denominator");
    }
}
