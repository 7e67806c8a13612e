use std::fmt;

use serde::{Serialize, Serializer};

use super::Invalid;
use crate::pb::envoy::r#type::matcher::v3::RegexMatcher;

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

    pub(crate) fn parse(message: RegexMatcher) -> Result<Self, Invalid> {
        Self::new(&message.regex).map_err(|e| e.at("regex"))
    }

    /// The pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// What each text that matches begins with, as far as that can be seen at a glance.
    pub(in crate::resource) fn literal_start(&self) -> Vec<u8> {
        let pattern = self.pattern.as_bytes();
        let mut start = Vec::new();
        // With alternatives, only one of them would be seen.
        let mut rest = if pattern.contains(&b'|') { &[] } else { pattern };
        loop {
            let (byte, after) = match rest {
                [b'\\', byte @ (b'.' | b'/' | b'-' | b'+' | b'*' | b'?' | b'$'), after @ ..] => {
                    (*byte, after)
                }
                [byte @ (b'/' | b'-' | b'_' | b':' | b'=' | b'~' | b'%' | b'@' | b','), after @ ..] => {
                    (*byte, after)
                }
                [byte, after @ ..] if byte.is_ascii_alphanumeric() => (*byte, after),
                _ => return start,
            };
            // What is repeated may not be there at all.
            if matches!(after, [b'*' | b'+' | b'?' | b'{', ..]) {
                return start;
            }
            start.push(byte);
            rest = after;
        }
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// The same for what need not be UTF-8.
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
        self.compiled.is_match(text)
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
pub(in crate::resource) fn compile(pattern: &str) -> Result<regex::bytes::Regex, Invalid> {
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

/// In bytes, of a compiled regex.
const REGEX_SIZE_LIMIT: usize = 1 << 20;
