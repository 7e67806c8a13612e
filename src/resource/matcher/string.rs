//! Conditions on texts.

use serde::Serialize;

use super::{Invalid, Regex, is_false, non_empty};
use crate::pb::envoy::r#type::matcher::v3::{self as pb, string_matcher::MatchPattern};

/// A matcher for text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StringMatcher {
    /// The pattern.
    #[serde(flatten)]
    pub pattern: StringPattern,
    /// Whether case differences of ASCII letters are ignored; never set for a regex, which has its own flags.
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_case: bool,
}

/// The pattern of a [`StringMatcher`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StringPattern {
    /// The whole text; may be empty.
    Exact(Box<str>),
    /// A prefix, not empty.
    Prefix(Box<str>),
    /// A suffix, not empty.
    Suffix(Box<str>),
    /// A substring, not empty.
    Contains(Box<str>),
    /// A regular expression for the whole text.
    SafeRegex(Regex),
}

impl StringMatcher {
    /// Rules M1 to M7.
    pub(crate) fn parse(message: pb::StringMatcher) -> Result<Self, Invalid> {
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

    /// Returns whether the text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// Like [`matches`](Self::matches), for bytes that need not be UTF-8, such as a header value.
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
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
                // Never empty when it was parsed (M4); `windows` would panic for 0.
                text.windows(part.len().max(1)).any(|window| self.same(window, part.as_bytes()))
            }
            StringPattern::SafeRegex(regex) => regex.matches_bytes(text),
        }
    }

    /// Whether texts are equal, as far as case matters.
    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.ignore_case { a.eq_ignore_ascii_case(b) } else { a == b }
    }
}
