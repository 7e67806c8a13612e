use std::{cell::Cell, fmt};

use serde::{Serialize, Serializer};

use super::Invalid;
use crate::pb::envoy::r#type::matcher::v3::RegexMatcher;

/// A regular expression that matches a whole text, in time linear in the text.
///
/// The classes `\d`, `\w` and `\s` are those of ASCII, as in RE2, which other clients use. A pattern is rejected if
/// its compiled form exceeds 1 MiB, and so is a resource if the compiled forms of all its patterns exceed 16 MiB. Two
/// regexes are equal if their patterns are.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    compiled: regex::bytes::Regex,
}

impl Regex {
    /// Compiles a pattern (M6, R13).
    ///
    /// # Errors
    /// The pattern is not a regular expression, has a feature that requires more than linear time, or is too large.
    pub fn new(pattern: &str) -> Result<Self, Invalid> {
        // Compiled without anchors first: in the anchored form, `a)|(b` would become valid.
        compile_within(pattern, limit())?;
        let compiled = compile(&format!(r"\A(?:{pattern})\z"))?;
        Ok(Self { pattern: pattern.into(), compiled })
    }

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
        self.matches_bytes(text.as_bytes())
    }

    /// Like [`matches`](Self::matches), for a text that need not be UTF-8.
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

/// Parses a resource with a budget for all regexes in it. The budget is per thread, since regexes may be anywhere in
/// the resource; a parser does not change threads.
pub(in crate::resource) fn with_regex_budget<T>(parse: impl FnOnce() -> T) -> T {
    struct Before(Option<usize>);

    impl Drop for Before {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }

    let _before = Before(BUDGET.replace(Some(REGEX_BUDGET)));
    parse()
}

/// Compiles a pattern without anchors, and subtracts its size from the budget of the resource.
pub(in crate::resource) fn compile(pattern: &str) -> Result<regex::bytes::Regex, Invalid> {
    let (compiled, size) = compile_within(pattern, limit())?;
    if let Some(left) = BUDGET.get() {
        BUDGET.set(Some(left.saturating_sub(size)));
    }
    Ok(compiled)
}

/// Returns the current maximum size of a regex, in bytes.
fn limit() -> usize {
    BUDGET.get().map_or(REGEX_SIZE_LIMIT, |left| left.min(REGEX_SIZE_LIMIT))
}

/// Compiles a pattern within a limit, and returns its approximate size. The library does not report sizes, so limits
/// are tried: each is twice the previous one, so that a pattern that is too large costs no more than one that fits.
fn compile_within(pattern: &str, limit: usize) -> Result<(regex::bytes::Regex, usize), Invalid> {
    let mut size = SMALLEST.min(limit);
    loop {
        match build(pattern, size) {
            Ok(compiled) => return Ok((compiled, size)),
            Err(regex::Error::CompiledTooBig(_)) if size < limit => size = (2 * size).min(limit),
            Err(regex::Error::CompiledTooBig(_)) if limit < REGEX_SIZE_LIMIT => {
                return Err(Invalid::new(format!(
                    "the regexes of the resource are over the budget of {REGEX_BUDGET} bytes when compiled"
                )));
            }
            Err(error) => return Err(invalid(pattern, &error)),
        }
    }
}

fn build(pattern: &str, limit: usize) -> Result<regex::bytes::Regex, regex::Error> {
    let build = |unicode| regex::bytes::RegexBuilder::new(pattern).unicode(unicode).size_limit(limit).build();
    // Unicode tables are only compiled in for patterns that need them, such as `\p{L}` or `é`.
    match build(false) {
        Err(regex::Error::Syntax(_)) => build(true),
        other => other,
    }
}

fn invalid(pattern: &str, error: &regex::Error) -> Invalid {
    if let regex::Error::CompiledTooBig(limit) = error {
        return Invalid::new(format!("the regex is over the size limit of {limit} bytes when compiled"));
    }
    // The error text repeats the pattern over several lines; its last line is the reason.
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    Invalid::new(format!("{pattern:?} is no regex: {reason}"))
}

thread_local! {
    /// The rest of the budget of the resource that is being parsed; `None` outside of parsing.
    static BUDGET: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The maximum size of a compiled regex, in bytes.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// The maximum size of all compiled regexes of a resource, in bytes. A simple pattern, such as `/api/v[0-9]+/.*`, has
/// at most 4 KiB.
pub(in crate::resource) const REGEX_BUDGET: usize = 16 << 20;

/// The first limit to try for a pattern, in bytes.
const SMALLEST: usize = 1 << 10;
