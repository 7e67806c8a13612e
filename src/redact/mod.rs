//! Redaction of credentials in messages that are shown: private keys, passwords, session ticket keys, tokens.
//!
//! The fields are those that Envoy annotates as `udpa.annotations.sensitive`, and a few more (`fields.txt`). They are found by
//! type and field number on the wire, so that fields and types that `proto/` does not define are redacted, too. An `Any` is found
//! by its form at any depth, in messages of any type. A `TypedStruct` is redacted by the names of fields.
//!
//! Names of files and of environment variables stay. Whatever is malformed, or nested too deep, where credentials may be is
//! redacted as a whole.

mod table;
#[cfg(test)]
mod tests;
mod tree;

use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint},
};

use self::table::{Field as KnownField, Kind, Message};
use crate::{
    pb::google::protobuf::{Struct, Value as StructValue, value::Kind as Content},
    wire::{Field, Fields, Malformed, Value},
};

/// A copy of a message without its credentials; `None` if it has none.
pub(crate) fn redacted(type_url: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    value_of_type(type_url, bytes, MAX_DEPTH)
}

/// A copy of a message that is known to have credentials, by its full name; `None` if it is not, or has none.
#[cfg(feature = "json")]
pub(crate) fn redacted_message(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let known = Message::of_name(name)?;
    message(Shape::Known(known), bytes, MAX_DEPTH).unwrap_or_else(|_| whole())
}

/// The text in place of a credential.
pub(crate) const REDACTED: &str = "[redacted]";

/// The type of a message on the wire.
#[derive(Debug, Clone, Copy)]
enum Shape<'a> {
    Known(&'static Message),
    /// An entry of a map, with these values.
    Entry(Kind),
    /// A `DataSource` with confidential data.
    Source,
    /// An `Any` with a type URL, whose value is confidential or not.
    Any {
        type_url: &'a str,
        is_sensitive: bool,
    },
    TypedStruct(Option<&'static Message>),
    Unknown,
}

/// Redacts the value of an `Any`, which is a message, or the JSON of one of an unknown type in a file.
fn value_of_type(type_url: &str, bytes: &[u8], depth: usize) -> Option<Vec<u8>> {
    if let Some(json) = bytes.strip_prefix(&[OPAQUE]) {
        return redacted_json(type_url, json);
    }
    if TYPED_STRUCTS.iter().any(|name| type_url.ends_with(name)) {
        let shape = Shape::TypedStruct(struct_type(bytes));
        return message(shape, bytes, depth).unwrap_or_else(|_| whole());
    }
    match Message::of_url(type_url) {
        Some(known) => message(Shape::Known(known), bytes, depth).unwrap_or_else(|_| whole()),
        None => unknown(bytes, depth),
    }
}

/// Redacts bytes that may be a message, text, or anything else.
fn unknown(bytes: &[u8], depth: usize) -> Option<Vec<u8>> {
    let shape = match any_type(bytes) {
        Some(type_url) => Shape::Any { type_url, is_sensitive: false },
        None => Shape::Unknown,
    };
    message(shape, bytes, depth).unwrap_or_else(|_| if names_known_type(bytes) { whole() } else { None })
}

/// A copy of a message without its credentials; `None` if it has none.
///
/// # Errors
/// The message is malformed or nested too deep.
fn message(shape: Shape<'_>, bytes: &[u8], depth: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let too_deep = Malformed { offset: 0, what: "nested too deep" };
    let depth = depth.checked_sub(1).ok_or(too_deep)?;
    let mut copy = Vec::new();
    // The bytes before `copied` are in the copy; `start` is the beginning of a field.
    let (mut copied, mut start) = (0, 0);
    for field in Fields::of(bytes) {
        let field = field?;
        let end = field.start + field.bytes().map_or(0, <[u8]>::len);
        if let Some(content) = shape.redact_field(&field, depth) {
            copy.extend_from_slice(&bytes[copied..start]);
            encode_key(field.number, WireType::LengthDelimited, &mut copy);
            encode_varint(content.len() as u64, &mut copy);
            copy.extend_from_slice(&content);
            copied = end;
        }
        start = end;
    }
    if copied == 0 {
        return Ok(None);
    }
    copy.extend_from_slice(&bytes[copied..]);
    Ok(Some(copy))
}

impl Shape<'_> {
    /// The content in place of that of a field; `None` if it is not redacted.
    fn redact_field(self, field: &Field<'_>, depth: usize) -> Option<Vec<u8>> {
        let Value::Bytes(bytes) = field.value else { return None };
        match (self, field.number) {
            (Self::Known(known), number) => match known.field(number) {
                Some(field) => redact_known(field, bytes, depth),
                None => unknown(bytes, depth),
            },
            (Self::Entry(kind), 2) => redact_content(kind, bytes, depth),
            (Self::Source, FILENAME | ENVIRONMENT_VARIABLE | WATCHED_DIRECTORY) => None,
            (Self::Source, _) => whole(),
            (Self::Any { is_sensitive: true, .. }, 2) => Some(Vec::new()),
            (Self::Any { type_url, is_sensitive: false }, 2) => value_of_type(type_url, bytes, depth),
            (Self::TypedStruct(known), 2) => redacted_struct(known, bytes),
            (Self::Entry(_) | Self::Any { .. } | Self::TypedStruct(_), _) => None,
            (Self::Unknown, _) => unknown(bytes, depth),
        }
    }
}

fn redact_known(field: &KnownField, bytes: &[u8], depth: usize) -> Option<Vec<u8>> {
    match field.is_map {
        true => message(Shape::Entry(field.kind), bytes, depth).unwrap_or_else(|_| whole()),
        false => redact_content(field.kind, bytes, depth),
    }
}

fn redact_content(kind: Kind, bytes: &[u8], depth: usize) -> Option<Vec<u8>> {
    let shape = match kind {
        Kind::Text => return whole(),
        Kind::Struct => return Some(Vec::new()),
        Kind::Source => Shape::Source,
        Kind::Any => Shape::Any { type_url: "", is_sensitive: true },
        Kind::Message(name) => Message::of_name(name).map_or(Shape::Unknown, Shape::Known),
    };
    message(shape, bytes, depth).unwrap_or_else(|_| whole())
}

/// The type URL of bytes with the form of an `Any`.
fn any_type(bytes: &[u8]) -> Option<&str> {
    let mut type_url = None;
    for field in Fields::of(bytes) {
        let field = field.ok()?;
        match field.number {
            1 => type_url = Some(field.text().ok()?),
            2 => drop(field.bytes().ok()?),
            _ => return None,
        }
    }
    type_url.filter(|type_url| type_url.contains('/'))
}

/// The type that the value of a `TypedStruct` has.
fn struct_type(bytes: &[u8]) -> Option<&'static Message> {
    let urls =
        Fields::of(bytes).filter_map(|field| field.ok().filter(|field| field.number == 1)?.text().ok());
    urls.last().and_then(Message::of_url)
}

fn redacted_struct(known: Option<&'static Message>, bytes: &[u8]) -> Option<Vec<u8>> {
    let Ok(original) = Struct::decode(bytes) else {
        return if known.is_some() { whole() } else { None };
    };
    let mut value = StructValue { kind: Some(Content::StructValue(original.clone())) };
    tree::redact(&mut value, known);
    match value.kind {
        Some(Content::StructValue(redacted)) if redacted != original => Some(redacted.encode_to_vec()),
        _ => None,
    }
}

fn redacted_json(type_url: &str, json: &[u8]) -> Option<Vec<u8>> {
    let known = Message::of_url(type_url);
    let Ok(original) = serde_json::from_slice::<serde_json::Value>(json) else {
        return if known.is_some() { whole() } else { None };
    };
    let mut value = original.clone();
    tree::redact(&mut value, known);
    (value != original).then(|| [&[OPAQUE], value.to_string().as_bytes()].concat())
}

/// Whether the type URL of a message with credentials is in bytes that are no message, with something behind it.
fn names_known_type(bytes: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._".contains(byte);
    bytes.split(|byte| *byte == b'/').skip(1).any(|rest| {
        let length = rest.iter().take_while(|byte| is_name(byte)).count();
        let name = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        // The key of the next field may be a letter.
        let longest = [name, &name[..length.saturating_sub(1)]].into_iter().find_map(Message::of_name);
        length < rest.len() && longest.is_some()
    })
}

#[allow(clippy::unnecessary_wraps, reason = "it is a result of redaction")]
fn whole() -> Option<Vec<u8>> {
    Some(REDACTED.into())
}

/// The maximum nesting, as in decoders.
const MAX_DEPTH: usize = 100;
/// The first byte of messages of unknown types in files, before their JSON.
const OPAQUE: u8 = 0x07;
const TYPED_STRUCTS: [&str; 2] = ["/xds.type.v3.TypedStruct", "/udpa.type.v1.TypedStruct"];

// The fields of a `DataSource` that are not its data.
const FILENAME: u32 = 1;
const ENVIRONMENT_VARIABLE: u32 = 4;
const WATCHED_DIRECTORY: u32 = 5;
