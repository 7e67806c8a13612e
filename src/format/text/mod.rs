//! Messages from protobuf's text format.

mod read;

use std::collections::BTreeMap;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use self::read::{Entry, Message, Name, Node};
#[cfg(feature = "tool-support")]
use super::outline::{Cursor, Outline};
use super::{
    any,
    error::{FormatError, Position, Step, Trail},
    scalar::{Scalar, write_nested, write_text},
    types::{Types, WellKnown},
};

/// A parsed text, before it is encoded.
#[derive(Debug)]
pub(super) struct Text<'t> {
    /// The text, for the positions of errors.
    text: &'t str,
    /// The message that was read.
    root: Message<'t>,
}

impl<'t> Text<'t> {
    /// Reads the syntax of a text, without the types of its fields.
    pub(super) fn read(text: &'t str) -> Result<Self, FormatError> {
        Ok(Self { text, root: read::message(text)? })
    }

    /// Whether the outermost message has a field.
    pub(super) fn names(&self, field: &str) -> bool {
        self.root.entries.iter().any(|entry| entry.name == Name::Field(field))
    }

    /// The positions of all fields.
    #[cfg(feature = "tool-support")]
    pub(super) fn outline(&self) -> Outline {
        let mut cursor = Cursor::new(self.text);
        let root = cursor.outline_at(0);
        Outline { fields: self.fields(&self.root, &mut cursor), ..root }
    }

    /// The positions of the fields of a message.
    #[cfg(feature = "tool-support")]
    fn fields(&self, message: &Message<'t>, cursor: &mut Cursor<'_>) -> Vec<(String, Outline)> {
        let mut fields = Vec::new();
        for entry in &message.entries {
            let (Name::Field(name) | Name::Expanded(name)) = entry.name;
            let at = cursor.outline_at(entry.at);
            fields.push((name.to_owned(), self.node(&entry.value, at, cursor)));
        }
        fields
    }

    /// The positions in a value that begins at one. Of the elements of a list, only messages know theirs.
    #[cfg(feature = "tool-support")]
    fn node(&self, node: &Node<'t>, at: Outline, cursor: &mut Cursor<'_>) -> Outline {
        match node {
            Node::Message(message) => Outline { fields: self.fields(message, cursor), ..at },
            Node::List(nodes) => {
                let mut elements = Vec::new();
                for node in nodes {
                    let at = match node {
                        // The source of a message is a part of the text.
                        Node::Message(message) => {
                            let start = message.source.as_ptr().addr();
                            cursor.outline_at(start.saturating_sub(self.text.as_ptr().addr()))
                        }
                        Node::List(_) | Node::Text(_) | Node::Word(_) => at.clone(),
                    };
                    elements.push(self.node(node, at, cursor));
                }
                Outline { elements, ..at }
            }
            Node::Text(_) | Node::Word(_) => at,
        }
    }

    /// Encodes it as a message, and returns the warnings.
    pub(super) fn write(
        &self,
        types: Types,
        message: &MessageDescriptor,
    ) -> Result<(Vec<u8>, Vec<String>), FormatError> {
        let mut writer = Writer { text: self.text, types, trail: Trail::default() };
        let written = writer.message(message, &self.root)?;
        Ok((written, writer.trail.into_warnings()))
    }
}

/// The encoder of what was read, by the descriptors of messages.
#[derive(Debug)]
struct Writer<'t> {
    /// The text, for the positions of errors.
    text: &'t str,
    /// The known messages.
    types: Types,
    /// The current path, and warnings.
    trail: Trail<'t>,
}

impl<'t> Writer<'t> {
    /// Encodes a message, whose fields may be in any order.
    fn message(&mut self, message: &MessageDescriptor, read: &Message<'t>) -> Result<Vec<u8>, FormatError> {
        if WellKnown::of(message) == Some(WellKnown::Any)
            && let [Entry { name: Name::Expanded(type_url), value, .. }] = &*read.entries
        {
            return self.any(type_url, value);
        }
        let mut fields: BTreeMap<u32, (FieldDescriptor, Vec<u8>)> = BTreeMap::new();
        let mut chosen = BTreeMap::new();
        for entry in &read.entries {
            let name = match entry.name {
                Name::Field(name) | Name::Expanded(name) => name,
            };
            self.trail.enter(Step::Field(name));
            // A name in brackets beside other fields would be an extension, of which proto/ has none.
            match message.get_field_by_name(name).filter(|_| matches!(entry.name, Name::Field(_))) {
                None => self.trail.warn("unknown field, ignored"),
                Some(field) => {
                    if let Some(oneof) = field.containing_oneof()
                        && let Some(other) = chosen.insert(oneof.full_name().to_owned(), name)
                        // A field that is there twice has an error of its own below.
                        && other != name
                    {
                        return Err(self.error(entry, format!("only one of {name} and {other} can be set")));
                    }
                    let known = fields.contains_key(&field.number());
                    if known && !field.is_list() && !field.is_map() {
                        return Err(self.error(entry, format!("{name} is set twice")));
                    }
                    let (_, written) =
                        fields.entry(field.number()).or_insert_with(|| (field.clone(), Vec::new()));
                    self.field(&field, entry, written)?;
                }
            }
            self.trail.leave();
        }
        // Several entries of a packed list become one field.
        let mut out = Vec::new();
        for (field, written) in fields.into_values() {
            match field.is_packed() {
                true if written.is_empty() => {}
                true => write_nested(field.number(), &written, &mut out),
                false => out.extend(written),
            }
        }
        Ok(out)
    }

    /// Encodes an entry, which has one or several values of a field.
    fn field(
        &mut self,
        field: &FieldDescriptor,
        entry: &Entry<'t>,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let several = match &entry.value {
            Node::List(values) if field.is_list() || field.is_map() => values,
            value @ (Node::List(_) | Node::Message(_) | Node::Text(_) | Node::Word(_)) => {
                return self.single(field, value, entry, out);
            }
        };
        for (index, value) in several.iter().enumerate() {
            self.trail.enter(Step::Index(index));
            self.single(field, value, entry, out)?;
            self.trail.leave();
        }
        Ok(())
    }

    /// Encodes a value of a field.
    fn single(
        &mut self,
        field: &FieldDescriptor,
        value: &Node<'t>,
        entry: &Entry<'t>,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let scalar = match (field.kind(), value) {
            (Kind::Message(message), Node::Message(read)) => {
                write_nested(field.number(), &self.message(&message, read)?, out);
                return Ok(());
            }
            (Kind::Message(_), _) => Err("must be a message in braces".to_owned()),
            (Kind::String, Node::Text(text)) if std::str::from_utf8(text).is_err() => {
                Err("is not UTF-8".to_owned())
            }
            (Kind::String | Kind::Bytes, Node::Text(text)) => Ok(Scalar::Bytes(text.clone())),
            (Kind::String | Kind::Bytes, _) => Err("must be a text in quotes".to_owned()),
            (kind, Node::Word(word)) => self.word(&kind, word),
            (_, Node::Text(_) | Node::List(_) | Node::Message(_)) => {
                Err("must be one word or number".to_owned())
            }
        };
        let scalar = scalar.map_err(|why| self.error(entry, format!("{} {why}", field.name())))?;
        if field.is_packed() {
            // Without a key: `message` writes one for all elements of the field.
            scalar.write(out);
        } else if field.is_list() || field.supports_presence() || !scalar.is_default() {
            scalar.write_field(field.number(), out);
        }
        Ok(())
    }

    /// Parses a word as a value of a kind.
    fn word(&mut self, kind: &Kind, word: &str) -> Result<Scalar, String> {
        if matches!(kind, Kind::Bool) {
            return match word {
                "true" | "True" | "t" | "1" => Ok(Scalar::Varint(1)),
                "false" | "False" | "f" | "0" => Ok(Scalar::Varint(0)),
                _ => Err(format!("must be true or false, not {word}")),
            };
        }
        if let Kind::Enum(values) = kind
            // A number in place of a name is read below.
            && !word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        {
            let number = values.get_value_by_name(word).map_or_else(
                || {
                    self.trail.warn(format_args!("{word} is not a value of {}", values.full_name()));
                    any::unknown_number(word)
                },
                |value| value.number(),
            );
            return Ok(Scalar::Varint(i64::from(number).cast_unsigned()));
        }
        if matches!(kind, Kind::Float | Kind::Double) {
            let number = float(word).ok_or_else(|| format!("must be a number, not {word}"))?;
            return Scalar::of_float(kind, number);
        }
        let number = whole(word).ok_or_else(|| format!("must be a whole number, not {word}"))?;
        Scalar::of_integer(kind, number)
    }

    /// Encodes an `Any` that is written by its type URL and its message.
    /// A message of an unknown type is kept as its source text, which starts with a byte that no message starts with.
    fn any(&mut self, type_url: &'t str, value: &Node<'t>) -> Result<Vec<u8>, FormatError> {
        let Node::Message(read) = value else {
            return Err(self.trail.error(format!("[{type_url}] must be a message in braces")));
        };
        let value = match self.types.of_url(type_url) {
            Some(message) => self.message(&message, read)?,
            // As in JSON, but in the text format.
            None => [&[any::OPAQUE][..], read.source.as_bytes()].concat(),
        };
        let mut out = Vec::new();
        write_text(1, type_url, &mut out);
        if !value.is_empty() {
            write_nested(2, &value, &mut out);
        }
        Ok(out)
    }

    /// An error at an entry.
    fn error(&self, entry: &Entry<'_>, why: impl Into<String>) -> FormatError {
        FormatError::at(Position::of_byte(self.text, entry.at), why)
    }
}

/// Parses a decimal, octal or hexadecimal number.
fn whole(word: &str) -> Option<i128> {
    let (sign, digits) = word.strip_prefix('-').map_or((1, word), |digits| (-1, digits));
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hex, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        // A leading zero means octal, but for `0` itself.
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        (None, _) => (digits, 10),
    };
    let all = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let number = all.then(|| i128::from_str_radix(digits, radix).ok())??;
    Some(sign * number)
}

/// Parses a number with or without a point.
fn float(word: &str) -> Option<f64> {
    let (sign, digits) = word.strip_prefix('-').map_or((1.0, word), |digits| (-1.0, digits));
    match &*digits.to_ascii_lowercase() {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "that is what a number with a point is")]
    if (digits.starts_with("0x") || digits.starts_with("0X"))
        && let Some(number) = whole(word)
    {
        return Some(number as f64);
    }
    digits.trim_end_matches(['f', 'F']).parse().ok().map(|number: f64| sign * number)
}
