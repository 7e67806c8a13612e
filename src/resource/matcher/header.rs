//! Conditions on headers.

use serde::Serialize;

use super::{Invalid, Regex, StringMatcher, StringPattern, is_false, non_empty};
use crate::pb::envoy::config::route::v3::{self as pb, header_matcher::HeaderMatchSpecifier};

/// A matcher for one header of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMatcher {
    /// The header's name, as written.
    pub name: Box<str>,
    /// The condition on the header.
    #[serde(flatten)]
    pub condition: HeaderCondition,
    /// Whether the result of the condition is inverted.
    #[serde(skip_serializing_if = "is_false")]
    pub invert: bool,
    /// Whether a missing header counts as an empty one.
    #[serde(skip_serializing_if = "is_false")]
    pub missing_is_empty: bool,
}

/// The condition of a [`HeaderMatcher`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeaderCondition {
    /// The value matches.
    #[serde(rename = "string_match")]
    Value(StringMatcher),
    /// The value is a decimal integer in this range.
    #[serde(rename = "range_match")]
    #[non_exhaustive]
    Range {
        /// The first integer of the range.
        start: i64,
        /// The first integer after the range; not before `start`.
        end: i64,
    },
    /// The header is present (`true`) or absent (`false`).
    #[serde(rename = "present_match")]
    Present(bool),
}

impl HeaderMatcher {
    /// Rule M8.
    pub(crate) fn parse(message: pb::HeaderMatcher) -> Result<Self, Invalid> {
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

    /// Returns whether the header with this value matches; `None` is a missing header.
    ///
    /// The caller joins the values of a repeated header with commas.
    pub fn matches(&self, value: Option<&str>) -> bool {
        // A41-3.
        self.matches_bytes(value.map(str::as_bytes))
    }

    /// Like [`matches`](Self::matches), for a value that need not be UTF-8. One that is not matches nothing but its presence, inverted
    /// or not.
    pub fn matches_bytes(&self, value: Option<&[u8]>) -> bool {
        // Before all conditions, so that a missing header that counts as empty is also present.
        let value = value.or(self.missing_is_empty.then_some(b""));
        // CH2.11: RBAC and routes match text; bytes that are no text must not pass an inverted matcher.
        let holds = match (&self.condition, value) {
            (HeaderCondition::Present(present), value) => value.is_some() == *present,
            // A missing value does not match, inverted or not.
            (HeaderCondition::Value(_) | HeaderCondition::Range { .. }, None) => return false,
            (HeaderCondition::Value(matcher), Some(value)) => match str::from_utf8(value) {
                Ok(text) => matcher.matches(text),
                Err(_) => return false,
            },
            (HeaderCondition::Range { start, end }, Some(value)) => match str::from_utf8(value) {
                Ok(text) => text.parse::<i64>().is_ok_and(|number| (*start..*end).contains(&number)),
                Err(_) => return false,
            },
        };
        holds != self.invert
    }
}

impl HeaderCondition {
    /// The deprecated specifiers, such as `exact_match`, mean a `string_match` with the same pattern.
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
