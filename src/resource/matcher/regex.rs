use std::{cell::Cell, fmt};

use serde::{Serialize, Serializer};

use super::Invalid;
use crate::pb::envoy::r#type::matcher::v3::RegexMatcher;

/// A regular expression that matches a whole text, in time linear in the text.
///
/// The classes `\d`, `\w` and `\s` are those of ASCII, as in RE2, which other clients use. A pattern whose compiled
/// form is over 1 MiB is rejected, and so is a resource the compiled forms of whose patterns are over 16 MiB together. Two
/// regexes are equal when their patterns are.
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
        compile_within(pattern, limit())?;
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

/// Parses a resource. All regexes in it together have a budget, which is counted by thread since they may be anywhere in it; a parser
/// does not change threads.
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

/// Compiles a pattern as it stands, without anchors, and takes its size from the budget of the resource.
pub(in crate::resource) fn compile(pattern: &str) -> Result<regex::bytes::Regex, Invalid> {
    let (compiled, size) = compile_within(pattern, limit())?;
    if let Some(left) = BUDGET.get() {
        BUDGET.set(Some(left.saturating_sub(size)));
    }
    Ok(compiled)
}

/// What one regex may take now, in bytes.
fn limit() -> usize {
    BUDGET.get().map_or(REGEX_SIZE_LIMIT, |left| left.min(REGEX_SIZE_LIMIT))
}

/// Compiles a pattern within a limit, and tells how large it is. That is not known of a regex, and found out by limits: each is twice
/// the one before, so that what is too large costs no more than what fits.
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
    // Only patterns that cannot do without Unicode, such as `\p{L}` or `é`, pay for it.
    match build(false) {
        Err(regex::Error::Syntax(_)) => build(true),
        other => other,
    }
}

fn invalid(pattern: &str, error: &regex::Error) -> Invalid {
    if let regex::Error::CompiledTooBig(limit) = error {
        return Invalid::new(format!("the regex is over the size limit of {limit} bytes when compiled"));
    }
    // The text of the error repeats the pattern over several lines; its last line says what is wrong.
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    Invalid::new(format!("{pattern:?} is no regex: {reason}"))
}

thread_local! {
    /// What is left for the regexes of the resource that is being parsed; `None` when none is.
    static BUDGET: Cell<Option<usize>> = const { Cell::new(None) };
}

/// In bytes, of a compiled regex.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// In bytes, of all compiled regexes of a resource. A simple pattern, such as `/api/v[0-9]+/.*`, takes 4 KiB of it
/// at most.
pub(in crate::resource) const REGEX_BUDGET: usize = 16 << 20;

/// The first limit that a pattern is tried with, in bytes.
const SMALLEST: usize = 1 << 10;
