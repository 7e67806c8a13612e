//! Regular expressions in the syntax of RE2, within limits.

use std::{cell::Cell, fmt};

use serde::{Serialize, Serializer};

use super::{Invalid, re2};
use crate::{error::shortened, pb::envoy::r#type::matcher::v3::RegexMatcher};

/// A regular expression that matches a whole text, in time linear in the text.
///
/// The syntax is that of [RE2](https://github.com/google/re2/wiki/Syntax), which other clients use. Two regexes are equal if
/// their patterns are.
#[derive(Clone)]
pub struct Regex {
    /// The pattern as it was written.
    pattern: Box<str>,
    /// The compiled pattern.
    compiled: regex::bytes::Regex,
}

/// Limits of the regular expressions in resources, in bytes. A resource with a pattern over one of them is rejected.
///
/// ```
/// use xdskit::resource::matcher::RegexLimits;
///
/// let limits = RegexLimits { pattern: 16 << 10, ..RegexLimits::default() };
/// assert_eq!(limits.compiled, 1 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegexLimits {
    /// The maximum length of a pattern, which is tested before it is parsed: 4 KiB by default.
    pub pattern: usize,
    /// The maximum size of a compiled pattern: 1 MiB by default.
    pub compiled: usize,
    /// The maximum size of all compiled patterns of a resource: 16 MiB by default. Each counts with an estimate of its size,
    /// which is above the real one; a simple pattern, such as `/api/v[0-9]+/.*`, counts with 4 KiB at most, and one by properties
    /// of Unicode with 64 KiB for each of them.
    pub resource: usize,
}

impl RegexLimits {
    pub(crate) const DEFAULT: Self = Self { pattern: 4 << 10, compiled: 1 << 20, resource: 16 << 20 };
}

impl Default for RegexLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Regex {
    /// Compiles a pattern within the default [limits](RegexLimits).
    ///
    /// # Errors
    /// The pattern is not a regular expression of RE2, or is too large.
    pub fn new(pattern: &str) -> Result<Self, Invalid> {
        // M6, R13
        let compiled = compile_as(pattern, |translated| format!(r"\A(?:{translated})\z"))?;
        Ok(Self { pattern: pattern.into(), compiled })
    }

    /// Parses a pattern that must match whole texts.
    pub(crate) fn parse(message: RegexMatcher) -> Result<Self, Invalid> {
        Self::new(&message.regex).map_err(|e| e.at("regex"))
    }

    /// Returns the pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Returns a literal prefix of all matching texts, as far as a simple scan finds it.
    pub(in crate::resource) fn literal_start(&self) -> Vec<u8> {
        let pattern = self.pattern.as_bytes();
        let mut start = Vec::new();
        // With alternatives, it would be the prefix of only one of them.
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
                // The prefix may end early, such as before a group with flags, but must not have a byte that a text may lack.
                _ => return start,
            };
            // A repeated character may occur zero times.
            if matches!(after, [b'*' | b'+' | b'?' | b'{', ..]) {
                return start;
            }
            start.push(byte);
            rest = after;
        }
    }

    /// Returns whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.compiled.is_match(text.as_bytes())
    }

    /// Like [`matches`](Self::matches), for a text that need not be UTF-8: what is not counts as U+FFFD.
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
        match str::from_utf8(text) {
            Ok(text) => self.matches(text),
            Err(_) => self.matches(&String::from_utf8_lossy(text)),
        }
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

/// Parses a resource with a budget for all regexes in it. The budget is per thread, since regexes may be anywhere in
/// the resource; a parser does not change threads.
pub(in crate::resource) fn with_regex_budget<T>(limits: RegexLimits, parse: impl FnOnce() -> T) -> T {
    struct Before(Option<Budget>);

    // Also after a panic of an application's parser (G7), as the thread goes on with other resources.
    impl Drop for Before {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }

    let _before = Before(BUDGET.replace(Some(Budget { limits, left: limits.resource })));
    parse()
}

/// Compiles a pattern without anchors, and subtracts its size from the budget of the resource.
pub(in crate::resource) fn compile(pattern: &str) -> Result<regex::bytes::Regex, Invalid> {
    compile_as(pattern, |translated| translated)
}

/// The rest of the budget of the resource that is being parsed.
#[derive(Clone, Copy)]
struct Budget {
    /// The limits.
    limits: RegexLimits,
    /// The memory that the patterns of the resource may still take.
    left: usize,
}

/// Compiles a pattern within the limits; `anchor` says what it must match.
fn compile_as(pattern: &str, anchor: impl FnOnce(String) -> String) -> Result<regex::bytes::Regex, Invalid> {
    let budget = BUDGET.get();
    let limits = budget.map_or(RegexLimits::DEFAULT, |budget| budget.limits);
    if pattern.len() > limits.pattern {
        let (length, limit) = (pattern.len(), limits.pattern);
        return Err(Invalid::new(format!(
            "the regex of {length} bytes is over the limit of {limit} bytes (setting regex_limits)"
        )));
    }
    let translated = re2::translate(pattern)
        .map_err(|error| no_regex(pattern, &format!("{} at byte {}", error.reason, error.at)))?;
    // What is left of the budget bounds the real size, and the estimate below is what a pattern uses up of it.
    let limit = budget.map_or(limits.compiled, |budget| budget.left.min(limits.compiled));
    let compiled = regex::bytes::RegexBuilder::new(&anchor(translated.pattern)).size_limit(limit).build();
    let compiled = compiled.map_err(|error| {
        if !matches!(error, regex::Error::CompiledTooBig(_)) {
            // The text repeats the pattern over several lines; its last line is the reason.
            let text = error.to_string();
            return no_regex(pattern, text.lines().last().unwrap_or_default().trim_start_matches("error: "));
        }
        Invalid::new(match limit < limits.compiled {
            true => format!(
                "the regexes of the resource are over the budget of {} bytes when compiled (setting regex_limits)",
                limits.resource
            ),
            false => format!(
                "the regex is over the size limit of {limit} bytes when compiled (setting regex_limits)"
            ),
        })
    })?;
    if let Some(Budget { limits, left }) = budget {
        // The estimate, since the `regex` crate does not tell the size of a compiled pattern.
        let left = left.saturating_sub(translated.size.min(limits.compiled));
        BUDGET.set(Some(Budget { limits, left }));
    }
    Ok(compiled)
}

/// The error of an invalid pattern.
fn no_regex(pattern: &str, reason: &str) -> Invalid {
    let pattern = shortened(pattern, LONGEST_PATTERN_IN_ERRORS);
    Invalid::new(format!("{pattern:?} is no regex: {reason}"))
}

thread_local! {
    /// `None` outside of parsing.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// The longest pattern in an error, in bytes; the middle of a longer one is left out.
const LONGEST_PATTERN_IN_ERRORS: usize = 200;
