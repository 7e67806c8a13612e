//! Reference models of the matchers, written for readability rather than speed.

use proptest::prelude::*;

use crate::pb::envoy::{
    config::route::v3::{self as route, header_matcher::HeaderMatchSpecifier},
    r#type::{
        matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
        v3::Int64Range,
    },
};

/// The kinds of matching domains, in ascending precedence.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `*`.
    Everything,
    /// A prefix before `*`; a longer one takes precedence.
    PrefixOf(usize),
    /// A suffix after `*`; a longer one takes precedence.
    SuffixOf(usize),
    /// The host itself.
    Exact,
}

/// How a domain matches a host, written for clarity instead of speed; `None` if it does not.
pub(crate) fn rank(domain: &str, host: &str) -> Option<Rank> {
    let (domain, host) = (domain.to_lowercase(), host.to_lowercase());
    if domain == "*" {
        return Some(Rank::Everything);
    }
    if let Some(suffix) = domain.strip_prefix('*') {
        return (host.ends_with(suffix) && host != suffix).then_some(Rank::SuffixOf(suffix.len()));
    }
    if let Some(prefix) = domain.strip_suffix('*') {
        return (host.starts_with(prefix) && host != prefix).then_some(Rank::PrefixOf(prefix.len()));
    }
    (domain == host).then_some(Rank::Exact)
}

/// A sequence of characters, `.` for any; those marked so may occur any number of times, the others occur once.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Vec<(char, bool)>);

impl Pattern {
    /// The pattern as a regular expression.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|(c, many)| format!("{c}{}", if *many { "*" } else { "" })).collect()
    }

    /// Whether the pattern matches the whole text.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(((c, many), rest)) = self.0.split_first() else { return text.is_empty() };
        let rest = Self(rest.to_vec());
        let first_fits = text.chars().next().is_some_and(|first| first == *c || *c == '.');
        match (many, first_fits) {
            (true, true) => rest.matches(text) || self.matches(&text[1..]),
            (true, false) => rest.matches(text),
            (false, true) => rest.matches(&text[1..]),
            (false, false) => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Text {
    Exact(String),
    Prefix(String),
    /// For paths only.
    PathSeparatedPrefix(String),
    Suffix(String),
    Contains(String),
    Regex(Pattern),
}

impl Text {
    pub(crate) fn matches(&self, text: &str, ignore_case: bool) -> bool {
        let fold = |text: &str| if ignore_case { text.to_lowercase() } else { text.to_owned() };
        let folded = fold(text);
        match self {
            Self::Exact(exact) => folded == fold(exact),
            Self::Prefix(prefix) => folded.find(&fold(prefix)) == Some(0),
            Self::PathSeparatedPrefix(prefix) => {
                let (segments, first) = (folded.split('/'), fold(prefix));
                let first: Vec<_> = first.split('/').collect();
                segments.take(first.len()).eq(first)
            }
            Self::Suffix(suffix) => folded.ends_with(&fold(suffix)),
            Self::Contains(part) => folded.contains(&fold(part)),
            Self::Regex(pattern) => pattern.matches(text),
        }
    }

    pub(crate) fn message(&self, ignore_case: bool) -> StringMatcher {
        let pattern = match self.clone() {
            Self::Exact(text) => MatchPattern::Exact(text),
            Self::Prefix(text) => MatchPattern::Prefix(text),
            Self::PathSeparatedPrefix(_) => unreachable!("only paths have segments"),
            Self::Suffix(text) => MatchPattern::Suffix(text),
            Self::Contains(text) => MatchPattern::Contains(text),
            Self::Regex(pattern) => MatchPattern::SafeRegex(RegexMatcher { regex: pattern.text() }),
        };
        StringMatcher { match_pattern: Some(pattern), ignore_case }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Text(Text, bool),
    Range(i64, i64),
    Present(bool),
}

impl Condition {
    pub(crate) fn matches(&self, value: Option<&str>, invert: bool) -> bool {
        match (self, value) {
            (Self::Present(present), value) => (*present == value.is_some()) != invert,
            (Self::Text(..) | Self::Range(..), None) => false,
            (Self::Text(text, ignore_case), Some(value)) => text.matches(value, *ignore_case) != invert,
            (Self::Range(start, end), Some(value)) => {
                (*start..*end).any(|number| number.to_string() == value) != invert
            }
        }
    }

    pub(crate) fn message(&self, name: &str, invert: bool) -> route::HeaderMatcher {
        let specifier = match self {
            Self::Text(text, ignore_case) => HeaderMatchSpecifier::StringMatch(text.message(*ignore_case)),
            Self::Range(start, end) => {
                HeaderMatchSpecifier::RangeMatch(Int64Range { start: *start, end: *end })
            }
            Self::Present(present) => HeaderMatchSpecifier::PresentMatch(*present),
        };
        route::HeaderMatcher {
            name: name.into(),
            header_match_specifier: Some(specifier),
            invert_match: invert,
            ..Default::default()
        }
    }
}

pub(crate) fn a_pattern() -> impl Strategy<Value = Pattern> {
    let part = (prop::sample::select(vec!['a', 'B', '1', '/', '.']), any::<bool>());
    prop::collection::vec(part, 0..4).prop_map(Pattern)
}

/// A string condition, and whether case is ignored; a regex contains that itself.
pub(crate) fn a_text() -> impl Strategy<Value = (Text, bool)> {
    let text = prop_oneof![
        "[aB1,]{0,2}".prop_map(Text::Exact),
        "[aB1,]{1,2}".prop_map(Text::Prefix),
        "[aB1,]{1,2}".prop_map(Text::Suffix),
        "[aB1,]{1,2}".prop_map(Text::Contains),
        a_pattern().prop_map(Text::Regex),
    ];
    (text, any::<bool>()).prop_map(|(text, ignore_case)| {
        let is_regex = matches!(text, Text::Regex(_));
        (text, ignore_case && !is_regex)
    })
}

pub(crate) fn a_condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        4 => a_text().prop_map(|(text, ignore_case)| Condition::Text(text, ignore_case)),
        1 => (-2..3_i64, 0..4_i64).prop_map(|(start, length)| Condition::Range(start, start + length)),
        1 => any::<bool>().prop_map(Condition::Present),
    ]
}

/// A path condition, and whether case is ignored.
pub(crate) fn a_path() -> impl Strategy<Value = (Text, bool)> {
    let path = prop_oneof![
        "/?[aB/]{0,2}".prop_map(Text::Exact),
        "/?[aB/]{0,1}".prop_map(Text::Prefix),
        "/?[aB/]{1,2}[aB]".prop_map(Text::PathSeparatedPrefix),
        a_pattern().prop_map(Text::Regex),
    ];
    (path, any::<bool>()).prop_map(|(path, ignore_case)| {
        let is_regex = matches!(path, Text::Regex(_));
        (path, ignore_case && !is_regex)
    })
}
