//! Translation of the syntax of RE2, which the configurations of Envoy and gRPC have, to that of the `regex` crate (M6).
//!
//! The two look alike and differ where it hurts: `/v1/{id}` and `[^[]+` are errors there and literals in RE2, `\<a\>` and
//! `[a&&b]` have another meaning, `\s` and `\w` other members, and `a**` is an error in RE2 alone. So each pattern is read by
//! RE2's rules, and written anew with nothing but constructs that mean the same in both: special characters as `\x{…}`,
//! the classes of Perl by their members, and word boundaries of ASCII.
//!
//! The [syntax](https://github.com/google/re2/wiki/Syntax) is that of RE2's Perl mode without its POSIX option, as Envoy and
//! gRPC use it.

use std::borrow::Cow;

use self::{
    classes::{Class, is_posix},
    output::{Counts, Output},
};

mod classes;
mod output;

/// Translates a pattern.
pub(super) fn translate(pattern: &str) -> Result<Translated, SyntaxError> {
    Translator::new(pattern).translate()
}

/// A pattern in the syntax of the `regex` crate.
#[derive(Debug)]
pub(super) struct Translated {
    /// The pattern in the syntax of the `regex` crate, with the capture groups of the original, without their names.
    pub(super) pattern: String,
    /// An upper estimate of its size when compiled, in bytes.
    pub(super) size: usize,
}

/// The reason why RE2 does not accept a pattern, or why this crate does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The position in the pattern, in bytes from its start.
    pub(super) at: usize,
    /// What is wrong there.
    pub(super) reason: Cow<'static, str>,
}

/// A translation in progress, in one pass over the pattern.
struct Translator<'a> {
    /// The pattern.
    text: &'a str,
    /// The position of the next character.
    at: usize,
    /// The translated pattern.
    out: Output,
    /// The item before is a repetition: RE2 repeats none.
    after_repetition: bool,
    /// The number of classes by a property of Unicode, and of long ranges.
    tables: usize,
    /// Whether the pattern may match single bytes of a character.
    has_bytes: bool,
}

impl<'a> Translator<'a> {
    /// A translator at the head of a pattern.
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            out: Output::new(2 * text.len()),
            after_repetition: false,
            tables: 0,
            // Also if it is quoted, which only costs the compact form of classes.
            has_bytes: text.contains(r"\C"),
        }
    }

    /// Translates the whole pattern.
    fn translate(mut self) -> Result<Translated, SyntaxError> {
        while let Some(c) = self.peek() {
            let begins = self.at;
            let counts = match c {
                '*' => Some((Counts { min: 0, max: None }, 1)),
                '+' => Some((Counts { min: 1, max: None }, 1)),
                '?' => Some((Counts { min: 0, max: Some(1) }, 1)),
                // A brace that begins no repetition is a literal.
                '{' => counts(&self.text[self.at..]),
                _ => None,
            };
            if let Some((counts, length)) = counts {
                self.at += length;
                self.repeat(begins, counts)?;
                self.after_repetition = true;
                continue;
            }
            self.after_repetition = false;
            self.bump();
            self.item(c, begins)?;
        }
        let (pattern, size) = self.out.finish().map_err(|opened| error(opened, "`(` without `)`"))?;
        Ok(Translated { pattern, size })
    }

    /// One item other than a repetition, whose first character was read.
    fn item(&mut self, c: char, begins: usize) -> Result<(), SyntaxError> {
        match c {
            '(' => return self.open(begins),
            ')' if self.out.close() => {}
            ')' => return Err(error(begins, "`)` without `(`")),
            '|' => self.out.alternative(),
            '[' => return self.class(begins),
            // With `\C` behind it, a class by bytes could match a part of a character and leave the rest of it.
            '.' if self.has_bytes => self.out.atom(UNICODE_SIZE, |out| out.push('.')),
            '.' => {
                let excluded = if self.out.flags().dot_matches_newline { "" } else { r"\n" };
                self.out.atom(CLASS_SIZE, |out| classes::write_all_but(out, excluded));
            }
            '^' | '$' => self.out.atom(ASSERTION_SIZE, |out| out.push(c)),
            '\\' => return self.escape(begins),
            literal => self.out.literal(u32::from(literal)),
        }
        Ok(())
    }

    /// Translates an escape.
    fn escape(&mut self, begins: usize) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(c @ ('A' | 'z')) => {
                self.bump();
                self.out.atom(ASSERTION_SIZE, |out| out.extend(['\\', c]));
            }
            // Those of the crate are of Unicode; RE2's are of ASCII.
            Some(c @ ('b' | 'B')) => {
                self.bump();
                let boundary = if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" };
                self.out.atom(ASSERTION_SIZE, |out| out.push_str(boundary));
            }
            Some('C') => {
                self.bump();
                self.out.atom(CLASS_SIZE, |out| out.push_str("(?s-u:.)"));
            }
            Some('Q') => {
                self.bump();
                let rest = &self.text[self.at..];
                let (literals, length) = match rest.find(r"\E") {
                    Some(end) => (&rest[..end], end + 2),
                    None => (rest, rest.len()),
                };
                literals.chars().for_each(|literal| self.out.literal(u32::from(literal)));
                self.at += length;
            }
            _ => match self.class_escape(begins)? {
                Some(class) => {
                    let excluded = class.excluded().filter(|_| self.may_exclude());
                    self.out.atom(class.size(), |out| match excluded {
                        Some(members) => classes::write_all_but(out, members),
                        None => class.write(out),
                    });
                }
                None => {
                    let literal = self.escaped(begins)?;
                    self.out.literal(literal);
                }
            },
        }
        Ok(())
    }

    /// A class by an escape: `\d`, `\pL`.
    fn class_escape(&mut self, begins: usize) -> Result<Option<Class<'a>>, SyntaxError> {
        let Some(c) = self.peek() else { return Ok(None) };
        if let Some(perl) = Class::perl(c) {
            self.bump();
            return Ok(Some(perl));
        }
        if !matches!(c, 'p' | 'P') {
            return Ok(None);
        }
        self.bump();
        let rest = &self.text[self.at..];
        let (name, length) = match rest.strip_prefix('{') {
            Some(inner) => match inner.find('}') {
                Some(end) => (&inner[..end], end + 2),
                None => return Err(error(begins, "the property has no closing `}`")),
            },
            None => {
                let length = rest.chars().next().map_or(0, char::len_utf8);
                (&rest[..length], length)
            }
        };
        self.at += length;
        let (name, inverted) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        self.count_table(begins)?;
        let class = Class::property(name, (c == 'P') != inverted);
        class.map(Some).ok_or_else(|| {
            let reason = "not a general category, such as `Lu`, or a script, such as `Greek`, of RE2";
            error(begins, reason)
        })
    }

    /// Counts a table of many characters, which takes time to compile.
    fn count_table(&mut self, begins: usize) -> Result<(), SyntaxError> {
        self.tables += 1;
        if self.tables <= MAX_TABLES {
            return Ok(());
        }
        let reason = format!("more than {MAX_TABLES} properties and long ranges of Unicode");
        Err(SyntaxError { at: begins, reason: reason.into() })
    }

    /// A character by an escape, as its number; the backslash was read.
    fn escaped(&mut self, begins: usize) -> Result<u32, SyntaxError> {
        let Some(c) = self.bump() else { return Err(error(begins, "`\\` at the end")) };
        let scalar = match c {
            'a' => 0x07,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'v' => 0x0b,
            '0' => self.octal(0, 2),
            '1'..='7' if matches!(self.peek(), Some('0'..='7')) => {
                self.octal(c.to_digit(8).unwrap_or_default(), 2)
            }
            'x' => return self.hexadecimal(begins),
            '1'..='9' => return Err(error(begins, "RE2 has no backreferences")),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => u32::from(c),
            c => {
                let reason = format!("RE2 has no escape `\\{}` here", c.escape_default());
                return Err(SyntaxError { at: begins, reason: reason.into() });
            }
        };
        Ok(scalar)
    }

    /// Reads at most so many octal digits more.
    fn octal(&mut self, first: u32, more: usize) -> u32 {
        let mut value = first;
        for _ in 0..more {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
            self.bump();
            value = 8 * value + digit;
        }
        value
    }

    /// `\xFF` or `\x{10FFFF}`; `x` was read.
    fn hexadecimal(&mut self, begins: usize) -> Result<u32, SyntaxError> {
        let invalid =
            || error(begins, "`\\x` is followed by two hexadecimal digits, or `{` digits `}` up to 10FFFF");
        let rest = &self.text[self.at..];
        let (digits, length) = match rest.strip_prefix('{') {
            Some(inner) => {
                let end = inner.find('}').ok_or_else(invalid)?;
                // Leading zeros may be any number.
                (inner[..end].trim_start_matches('0'), end + 2)
            }
            None => (rest.get(..2).ok_or_else(invalid)?, 2),
        };
        let is_zero = digits.is_empty() && length > 2;
        let is_number = digits.len() <= 6 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let value = if is_zero { Ok(0) } else { u32::from_str_radix(digits, 16) };
        self.at += length;
        value.ok().filter(|value| is_number && *value <= MAX_SCALAR).ok_or_else(invalid)
    }

    /// A class in brackets; the first one was read.
    fn class(&mut self, begins: usize) -> Result<(), SyntaxError> {
        let before = self.tables;
        let is_negated = self.peek() == Some('^');
        if is_negated {
            self.bump();
        }
        let (mut class, mut is_ascii, mut is_first) = (String::new(), true, true);
        loop {
            let item = self.at;
            match self.peek() {
                None => return Err(error(begins, "`[` without `]`")),
                // As the first character, the bracket is a literal.
                Some(']') if !is_first => break,
                Some('[') if self.posix(&mut class)? => is_ascii &= !class.contains('^'),
                Some('\\') => {
                    self.bump();
                    match self.class_escape(item)? {
                        Some(inner) => {
                            is_ascii &= inner.is_ascii();
                            inner.write(&mut class);
                        }
                        None => {
                            let low = self.escaped(item)?;
                            is_ascii &= self.range(&mut class, low, item)? < 0x80;
                        }
                    }
                }
                Some(c) => {
                    self.bump();
                    is_ascii &= self.range(&mut class, u32::from(c), item)? < 0x80;
                }
            }
            is_first = false;
        }
        self.bump();
        let excludes = is_negated && is_ascii && self.may_exclude();
        // Each item is a range, and up to ten where it is not of ASCII.
        let is_small = is_ascii && (excludes || !self.out.flags().ignores_case);
        let size = if is_small { CLASS_SIZE } else { UNICODE_SIZE + class.len() * UNICODE_SIZE / 4 };
        let size = size + class.len() * 8 + (self.tables - before) * TABLE_SIZE;
        self.out.atom(size, |out| match (excludes, is_negated) {
            (true, _) => classes::write_all_but(out, &class),
            (false, true) => out.extend(["[^", &class, "]"]),
            (false, false) => out.extend(["[", &class, "]"]),
        });
        Ok(())
    }

    /// Whether a negated class of ASCII may be written by its bytes. Without regard to case it excludes more: `K` has a
    /// variant outside of ASCII.
    fn may_exclude(&self) -> bool {
        !self.out.flags().ignores_case && !self.has_bytes
    }

    /// `[:alpha:]`; true if it is one. Without `:]` anywhere behind it, the bracket is a literal.
    fn posix(&mut self, class: &mut String) -> Result<bool, SyntaxError> {
        let rest = &self.text[self.at..];
        let Some(length) = rest.strip_prefix("[:").and_then(|inner| inner.find(":]")).map(|end| end + 4)
        else {
            return Ok(false);
        };
        let name = &rest[2..length - 2];
        if !is_posix(name.strip_prefix('^').unwrap_or(name)) {
            return Err(error(self.at, "not a class of POSIX, such as `[:alpha:]`"));
        }
        class.push_str(&rest[..length]);
        self.at += length;
        Ok(true)
    }

    /// A character or a range of characters in a class, whose first one was read. Returns the last one.
    fn range(&mut self, class: &mut String, low: u32, begins: usize) -> Result<u32, SyntaxError> {
        let rest = &self.text[self.at..];
        let mut high = low;
        // A dash before the end is a literal.
        if let Some(after) = rest.strip_prefix('-')
            && !after.is_empty()
            && !after.starts_with(']')
        {
            self.bump();
            let at = self.at;
            high = match self.bump() {
                Some('\\') => self.escaped(at)?,
                Some(c) => u32::from(c),
                None => low,
            };
        }
        if high < low {
            return Err(error(begins, "the range ends before it begins"));
        }
        if high >= 0x80 && high - low >= LONG_RANGE {
            self.count_table(begins)?;
        }
        classes::write_range(class, low, high);
        Ok(high)
    }

    /// Translates the begin of a group.
    fn open(&mut self, begins: usize) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        if let Some(name) = rest.strip_prefix("?P<").or_else(|| rest.strip_prefix("?<")) {
            if name.starts_with(['=', '!']) {
                return Err(error(begins, "RE2 has no look-around assertions"));
            }
            let name = name.split_once('>').map_or("", |(name, _)| name);
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return Err(error(begins, "the group has no name of letters, digits and `_`"));
            }
            self.at += rest.find('>').map_or(0, |end| end + 1);
        } else if rest.starts_with('?') {
            self.bump();
            let (text, is_group) = self.flags(begins)?;
            let flags = self.out.flags().with(&text);
            match is_group {
                true => self.out.open(begins, &["(?", &text, ":"], flags),
                false => self.out.set_flags(&text, flags),
            }
            return Ok(());
        }
        self.out.open(begins, &["("], self.out.flags());
        Ok(())
    }

    /// The flags after `(?`, and whether a group of them begins rather than the rest of the group around them.
    fn flags(&mut self, begins: usize) -> Result<(String, bool), SyntaxError> {
        let (mut on, mut off) = (String::new(), String::new());
        let (mut is_negated, mut is_empty) = (false, false);
        loop {
            match self.bump() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    on.retain(|other| other != flag);
                    off.retain(|other| other != flag);
                    if is_negated {
                        off.push(flag)
                    } else {
                        on.push(flag)
                    }
                    is_empty = false;
                }
                Some('-') if !is_negated => (is_negated, is_empty) = (true, true),
                Some(end @ (':' | ')')) if !is_empty => {
                    if !off.is_empty() {
                        on.push('-');
                        on.push_str(&off);
                    }
                    return Ok((on, end == ':'));
                }
                Some('=' | '!') => return Err(error(begins, "RE2 has no look-around assertions")),
                None => return Err(error(begins, "`(` without `)`")),
                Some(_) => return Err(error(begins, "`(?` begins no group, and no flags out of `imsU`")),
            }
        }
    }

    /// Translates a repetition of the item before.
    fn repeat(&mut self, begins: usize, counts: Counts) -> Result<(), SyntaxError> {
        // Lazy ones match the same texts.
        if self.peek() == Some('?') {
            self.bump();
        }
        let operator = &self.text[begins..self.at];
        let repeated = match self.after_repetition {
            true => Err(format!("RE2 does not repeat a repetition: {operator:?}")),
            false => self.out.repeat(operator, counts),
        };
        repeated.map_err(|reason| SyntaxError { at: begins, reason: reason.into() })
    }

    /// The next character.
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Takes the next character.
    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }
}

/// The counts of `{n}`, `{n,}` or `{n,m}` at the start of the text, and its length. Anything else is a literal.
fn counts(text: &str) -> Option<(Counts, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        // With a leading zero, RE2 takes the braces for literals.
        let is_padded = digits.len() > 1 && digits.starts_with('0');
        // What does not fit is over the limit anyway.
        (is_number && !is_padded).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let counts = match inner.split_once(',') {
        None => number(inner).map(|count| Counts { min: count, max: Some(count) })?,
        Some((min, "")) => Counts { min: number(min)?, max: None },
        Some((min, max)) => Counts { min: number(min)?, max: Some(number(max)?) },
    };
    Some((counts, end + 1))
}

/// An error at a position.
fn error(at: usize, reason: &'static str) -> SyntaxError {
    SyntaxError { at, reason: reason.into() }
}

/// The maximum number of classes such as `\pL`, and of long ranges outside of ASCII, in a pattern. To compile one takes up to
/// some milliseconds.
const MAX_TABLES: usize = 32;

/// The number of characters from which on a range counts as a table.
const LONG_RANGE: u32 = 256;

const MAX_SCALAR: u32 = 0x10_ffff;

/// Upper estimates of sizes when compiled, in bytes: measured, with a margin.
const ASSERTION_SIZE: usize = 64;
const CLASS_SIZE: usize = 512;
const UNICODE_SIZE: usize = 1536;
/// This one also is for the time.
const TABLE_SIZE: usize = 64 << 10;

#[cfg(test)]
mod tests;
