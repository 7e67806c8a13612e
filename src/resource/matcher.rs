//! Matchers of text and of headers.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Invalid;
use crate::pb::envoy::{
    config::route::v3::{self as route, header_matcher::HeaderMatchSpecifier},
    r#type::matcher::v3::{self as matcher, string_matcher::MatchPattern},
};

/// Matches text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StringMatcher {
    /// What to look for.
    #[serde(flatten)]
    pub pattern: StringPattern,
    /// Whether upper and lower case of ASCII letters are the same; never set for a regex, which ignores it (M7).
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_case: bool,
}

/// What a [`StringMatcher`] looks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StringPattern {
    /// The whole text; may be empty.
    Exact(Box<str>),
    /// The beginning, not empty.
    Prefix(Box<str>),
    /// The end, not empty.
    Suffix(Box<str>),
    /// Any part, not empty.
    Contains(Box<str>),
    /// A regular expression for the whole text.
    SafeRegex(Regex),
}

impl StringMatcher {
    /// Rules M1 to M7.
    pub(crate) fn parse(message: matcher::StringMatcher) -> Result<Self, Invalid> {
        let ignore_case = message.ignore_case;
        let pattern = match message.match_pattern {
            None => return Err(Invalid::new("no pattern that is supported")),
            Some(MatchPattern::Exact(text)) => StringPattern::Exact(text.into()),
            Some(MatchPattern::Prefix(text)) => StringPattern::Prefix(non_empty("prefix", text)?),
            Some(MatchPattern::Suffix(text)) => StringPattern::Suffix(non_empty("suffix", text)?),
            Some(MatchPattern::Contains(text)) => StringPattern::Contains(non_empty("contains", text)?),
            Some(MatchPattern::SafeRegex(regex)) => {
                let regex = Regex::parse(regex).map_err(|e| e.at("safe_regex"))?;
                return Ok(Self { pattern: StringPattern::SafeRegex(regex), ignore_case: false });
            }
        };
        Ok(Self { pattern, ignore_case })
    }

    /// Whether the text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// The same for what need not be UTF-8, as the value of a header.
    pub(crate) fn matches_bytes(&self, text: &[u8]) -> bool {
        match &self.pattern {
            StringPattern::Exact(exact) => self.same(text, exact.as_bytes()),
            StringPattern::Prefix(prefix) => {
                text.get(..prefix.len()).is_some_and(|start| self.same(start, prefix.as_bytes()))
            }
            StringPattern::Suffix(suffix) => text
                .len()
                .checked_sub(suffix.len())
                .is_some_and(|start| self.same(&text[start..], suffix.as_bytes())),
            StringPattern::Contains(part) => {
                text.windows(part.len().max(1)).any(|window| self.same(window, part.as_bytes()))
            }
            StringPattern::SafeRegex(regex) => regex.compiled.is_match(text),
        }
    }

    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.ignore_case { a.eq_ignore_ascii_case(b) } else { a == b }
    }
}

/// Matches one header of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMatcher {
    /// The header's name, as written.
    pub name: Box<str>,
    /// What must be true of the header.
    #[serde(flatten)]
    pub condition: HeaderCondition,
    /// Whether the condition must not be true instead.
    #[serde(skip_serializing_if = "is_false")]
    pub invert: bool,
    /// Whether a header that is not there counts as an empty one.
    #[serde(skip_serializing_if = "is_false")]
    pub missing_is_empty: bool,
}

/// What a [`HeaderMatcher`] says of a header.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeaderCondition {
    /// Its value matches.
    #[serde(rename = "string_match")]
    Value(StringMatcher),
    /// Its value is a decimal integer of this range.
    #[serde(rename = "range_match")]
    #[non_exhaustive]
    Range {
        /// The first integer of the range.
        start: i64,
        /// The first integer after the range; not before `start`.
        end: i64,
    },
    /// It is there (`true`), or is not (`false`).
    #[serde(rename = "present_match")]
    Present(bool),
}

impl HeaderMatcher {
    /// Rule M8.
    pub(crate) fn parse(message: route::HeaderMatcher) -> Result<Self, Invalid> {
        let condition = match message.header_match_specifier {
            Some(specifier) => HeaderCondition::parse(specifier)?,
            None => return Err(Invalid::new("no match specifier that is supported")),
        };
        Ok(Self {
            name: message.name.into(),
            condition,
            invert: message.invert_match,
            missing_is_empty: message.treat_missing_header_as_empty,
        })
    }

    /// Whether the header matches, whose value is `value`; `None` if it is not there.
    ///
    /// The values of a header that is there several times are joined with commas by the caller (A41-3).
    pub fn matches(&self, value: Option<&str>) -> bool {
        self.matches_bytes(value.map(str::as_bytes))
    }

    /// The same for a value that need not be UTF-8.
    pub(crate) fn matches_bytes(&self, value: Option<&[u8]>) -> bool {
        let value = value.or(self.missing_is_empty.then_some(b""));
        let holds = match (&self.condition, value) {
            (HeaderCondition::Present(present), value) => value.is_some() == *present,
            // A value that is not there matches nothing, inverted or not.
            (HeaderCondition::Value(_) | HeaderCondition::Range { .. }, None) => return false,
            (HeaderCondition::Value(matcher), Some(value)) => matcher.matches_bytes(value),
            (HeaderCondition::Range { start, end }, Some(value)) => {
                let number = str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }
        };
        holds != self.invert
    }
}

impl HeaderCondition {
    fn parse(specifier: HeaderMatchSpecifier) -> Result<Self, Invalid> {
        let pattern = match specifier {
            HeaderMatchSpecifier::StringMatch(message) => {
                return StringMatcher::parse(message).map(Self::Value).map_err(|e| e.at("string_match"));
            }
            HeaderMatchSpecifier::RangeMatch(range) if range.start > range.end => {
                let reason = format!("start {} is after end {}", range.start, range.end);
                return Err(Invalid::field("range_match", reason));
            }
            HeaderMatchSpecifier::RangeMatch(range) => {
                return Ok(Self::Range { start: range.start, end: range.end });
            }
            HeaderMatchSpecifier::PresentMatch(present) => return Ok(Self::Present(present)),
            HeaderMatchSpecifier::ExactMatch(text) => StringPattern::Exact(text.into()),
            HeaderMatchSpecifier::PrefixMatch(text) => {
                StringPattern::Prefix(non_empty("prefix_match", text)?)
            }
            HeaderMatchSpecifier::SuffixMatch(text) => {
                StringPattern::Suffix(non_empty("suffix_match", text)?)
            }
            HeaderMatchSpecifier::ContainsMatch(text) => {
                StringPattern::Contains(non_empty("contains_match", text)?)
            }
            HeaderMatchSpecifier::SafeRegexMatch(regex) => {
                StringPattern::SafeRegex(Regex::parse(regex).map_err(|e| e.at("safe_regex_match"))?)
            }
        };
        Ok(Self::Value(StringMatcher { pattern, ignore_case: false }))
    }
}

/// A regular expression that matches a whole text, in time linear in the text.
///
/// The classes `\d`, `\w` and `\s` are those of ASCII, as in RE2, which other clients use. A pattern whose compiled
/// form is over 1 MiB is rejected. Two regexes are equal when their patterns are.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    compiled: regex::bytes::Regex,
}

impl Regex {
    /// Compiles a pattern (M6, R13).
    ///
    /// # Errors
    /// When the pattern is no regular expression, needs what takes more than linear time, or is too large.
    pub fn new(pattern: &str) -> Result<Self, Invalid> {
        // By itself first: `a)|(b` would otherwise become valid by the parentheses that anchor it.
        compile(pattern)?;
        let compiled = compile(&format!(r"\A(?:{pattern})\z"))?;
        Ok(Self { pattern: pattern.into(), compiled })
    }

    pub(crate) fn parse(message: matcher::RegexMatcher) -> Result<Self, Invalid> {
        Self::new(&message.regex).map_err(|e| e.at("regex"))
    }

    /// The pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.compiled.is_match(text.as_bytes())
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex({:?})", self.pattern)
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for Regex {}

impl Serialize for Regex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.pattern)
    }
}

/// Compiles a pattern as it stands, without anchors.
pub(super) fn compile(pattern: &str) -> Result<regex::bytes::Regex, Invalid> {
    let build = |unicode| {
        regex::bytes::RegexBuilder::new(pattern).unicode(unicode).size_limit(REGEX_SIZE_LIMIT).build()
    };
    // Only patterns that cannot do without Unicode, such as `\p{L}` or `é`, pay for it.
    let built = match build(false) {
        Err(regex::Error::Syntax(_)) => build(true),
        other => other,
    };
    built.map_err(|error| {
        if let regex::Error::CompiledTooBig(limit) = error {
            return Invalid::new(format!("the regex is over the size limit of {limit} bytes when compiled"));
        }
        // The text of the error repeats the pattern over several lines; its last line says what is wrong.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Invalid::new(format!("{pattern:?} is no regex: {reason}"))
    })
}

fn non_empty(field: &str, text: String) -> Result<Box<str>, Invalid> {
    if text.is_empty() { Err(Invalid::field(field, "must not be empty")) } else { Ok(text.into()) }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

/// In bytes, of a compiled regex.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

#[cfg(test)]
mod tests;
