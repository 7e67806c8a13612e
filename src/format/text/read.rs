//! The syntax of protobuf's text format.

use crate::format::error::{FormatError, Position};

/// The entries of a message, and their source text.
#[derive(Debug)]
pub(super) struct Message<'t> {
    /// The entries in their order.
    pub(super) entries: Vec<Entry<'t>>,
    /// The text between the braces; the whole text for the outermost message.
    pub(super) source: &'t str,
}

/// A name, its value, and its position.
#[derive(Debug)]
pub(super) struct Entry<'t> {
    /// The name of the field.
    pub(super) name: Name<'t>,
    /// Its value, or values.
    pub(super) value: Node<'t>,
    /// The position in the text, in bytes, for errors.
    pub(super) at: usize,
}

/// The name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'t> {
    /// The name of a field of the message.
    Field(&'t str),
    /// The type URL of an `Any`, in brackets; or an extension's name.
    Expanded(&'t str),
}

/// A value as it was written: its type is known only when it is encoded.
#[derive(Debug)]
pub(super) enum Node<'t> {
    /// A message in braces.
    Message(Message<'t>),
    /// Values in brackets.
    List(Vec<Self>),
    /// A quoted string.
    Text(Vec<u8>),
    /// A number or a name, with its sign.
    Word(&'t str),
}

/// Reads the message that a whole text is.
pub(super) fn message(text: &str) -> Result<Message<'_>, FormatError> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let entries = reader.entries(None)?;
    Ok(Message { entries, source: text })
}

/// The position in a text, and the depth there.
#[derive(Debug)]
struct Reader<'t> {
    /// The whole text.
    text: &'t str,
    /// The position in the text, in bytes.
    at: usize,
    /// The number of open messages and lists.
    depth: usize,
}

impl<'t> Reader<'t> {
    /// Reads entries up to the closing character, which is consumed.
    fn entries(&mut self, close: Option<char>) -> Result<Vec<Entry<'t>>, FormatError> {
        let mut entries = Vec::new();
        loop {
            self.skip_blank();
            match self.peek() {
                None if close.is_none() => return Ok(entries),
                None => return Err(self.error("a message without an end")),
                Some(c) if Some(c) == close => {
                    self.at += 1;
                    return Ok(entries);
                }
                Some(_) => entries.push(self.entry()?),
            }
            self.skip_blank();
            if matches!(self.peek(), Some(',' | ';')) {
                self.at += 1;
            }
        }
    }

    /// Reads a name and its value.
    fn entry(&mut self) -> Result<Entry<'t>, FormatError> {
        let at = self.at;
        let name = if self.take('[') {
            let start = self.at;
            // A name in brackets ends on its line, so that the error of a missing bracket is on that line.
            let end = self.rest().find([']', '\n']).filter(|end| self.rest()[*end..].starts_with(']'));
            let Some(end) = end else { return Err(self.error("a bracket without an end")) };
            self.at += end + 1;
            Name::Expanded(self.text[start..start + end].trim())
        } else {
            Name::Field(self.name()?)
        };
        self.skip_blank();
        let colon = self.take(':');
        self.skip_blank();
        // A colon may be left out before a message, and before a list of messages.
        match self.peek() {
            Some('{' | '<') => {}
            Some('[') if colon || matches!(name, Name::Field(_)) => {}
            _ if colon => {}
            _ => return Err(self.error("a colon or a brace is missing")),
        }
        let value = self.value()?;
        Ok(Entry { name, value, at })
    }

    /// Reads the name of a field.
    fn name(&mut self) -> Result<&'t str, FormatError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error("the name of a field is missing"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// Reads a value, by its first character.
    fn value(&mut self) -> Result<Node<'t>, FormatError> {
        match self.peek() {
            Some('{') => self.nested('}').map(Node::Message),
            Some('<') => self.nested('>').map(Node::Message),
            Some('[') => self.list().map(Node::List),
            Some('"' | '\'') => self.texts().map(Node::Text),
            Some(_) => self.word().map(Node::Word),
            None => Err(self.error("a value is missing")),
        }
    }

    /// Reads a message in braces.
    fn nested(&mut self, close: char) -> Result<Message<'t>, FormatError> {
        self.deeper()?;
        self.at += 1;
        let start = self.at;
        let entries = self.entries(Some(close))?;
        self.depth -= 1;
        // `entries` has consumed the closing character, which is one byte.
        Ok(Message { entries, source: &self.text[start..self.at - 1] })
    }

    /// Reads values in brackets.
    fn list(&mut self) -> Result<Vec<Node<'t>>, FormatError> {
        self.deeper()?;
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.skip_blank();
            if self.take(']') {
                break;
            }
            if !values.is_empty() {
                if !self.take(',') {
                    return Err(self.error("a comma or a bracket is missing"));
                }
                self.skip_blank();
            }
            values.push(self.value()?);
        }
        self.depth -= 1;
        Ok(values)
    }

    /// Descends by one level, within the limit.
    fn deeper(&mut self) -> Result<(), FormatError> {
        self.depth += 1;
        match self.depth <= MAX_DEPTH {
            true => Ok(()),
            false => Err(self.error("messages are nested too deep")),
        }
    }

    /// Adjacent strings are concatenated.
    fn texts(&mut self) -> Result<Vec<u8>, FormatError> {
        // Bytes and not a text: escapes write any byte, and only the type of the field decides whether they must be UTF-8.
        let mut bytes = Vec::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            self.at += 1;
            loop {
                match self.next() {
                    None | Some('\n') => return Err(self.error("a text without an end")),
                    Some('\\') => self.escape(&mut bytes)?,
                    Some(c) if c == quote => break,
                    Some(c) => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                }
            }
            self.skip_blank();
        }
        Ok(bytes)
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), FormatError> {
        let byte = match self.next() {
            Some('a') => 0x07,
            Some('b') => 0x08,
            Some('f') => 0x0c,
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('v') => 0x0b,
            Some(same @ ('?' | '\\' | '\'' | '"')) => same as u8,
            // At most two hexadecimal digits, which always fit into a byte.
            Some('x' | 'X') => self.number(16, 1, 2)?.try_into().unwrap_or_default(),
            Some('0'..='7') => {
                // The digit that selected the escape is a part of its number.
                self.at -= 1;
                let number = self.number(8, 1, 3)?;
                u8::try_from(number).map_err(|_| self.error("an escape over 255"))?
            }
            Some(kind @ ('u' | 'U')) => {
                let digits = if kind == 'u' { 4 } else { 8 };
                let number = self.number(16, digits, digits)?;
                let Some(c) = char::from_u32(number) else {
                    return Err(self.error("an escape that is no character"));
                };
                bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            _ => return Err(self.error("an unknown escape")),
        };
        bytes.push(byte);
        Ok(())
    }

    /// Reads the digits of an escape.
    /// The position is left behind the last of at most `most` digits; fewer than `least` are an error.
    fn number(&mut self, radix: u32, least: usize, most: usize) -> Result<u32, FormatError> {
        let digits = self.rest().chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let number = u32::from_str_radix(&self.rest()[..digits], radix).ok().filter(|_| digits >= least);
        let number = number.ok_or_else(|| self.error("an escape without its digits"))?;
        self.at += digits;
        Ok(number)
    }

    /// Reads a number or a name, with its sign.
    fn word(&mut self) -> Result<&'t str, FormatError> {
        let start = self.at;
        if self.take('-') {
            self.skip_blank();
        }
        let rest = self.rest();
        let mut last = ' ';
        // A sign is part of a number behind its exponent alone: `1e-5`.
        let part = |c: char| {
            let exponent = matches!(c, '+' | '-')
                && matches!(last, 'e' | 'E')
                && rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            last = c;
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.') || exponent
        };
        let end = rest.find(negated(part)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error("a value is missing"));
        }
        let spaced = self.at - start > 1;
        self.at += end;
        match spaced {
            true => Err(self.error("a sign apart from its number")),
            false => Ok(&self.text[start..self.at]),
        }
    }

    /// Skips spaces, lines and comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            if !rest.starts_with('#') {
                return;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// The text from the position on.
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The next character.
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Takes the next character if it is the expected one; returns whether it is.
    fn take(&mut self, expected: char) -> bool {
        let there = self.rest().starts_with(expected);
        self.at += if there { expected.len_utf8() } else { 0 };
        there
    }

    /// An error at the position.
    fn error(&self, why: &str) -> FormatError {
        FormatError::at(Position::of_byte(self.text, self.at), why)
    }
}

/// The opposite of a condition.
fn negated(mut part: impl FnMut(char) -> bool) -> impl FnMut(char) -> bool {
    move |c| !part(c)
}

/// The maximum nesting of messages and lists, as in a decoder.
const MAX_DEPTH: usize = 100;
