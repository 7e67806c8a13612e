//! The forms of an `Any` in JSON.
//!
//! | form | for |
//! |---|---|
//! | `{"@type": URL, FIELD: …}` | a message |
//! | `{"@type": URL, "value": …}` | a message that JSON has a form of its own for, such as a duration |
//! | `{"@type": URL, "@bytes": BASE64}` | what cannot be shown as a message. Other programs don't know this form |
//!
//! A message of a type that is not known here is kept as it was written: its bytes are one that no protobuf message begins
//! with, and then its JSON. So it fails where it would have to be understood, and only there, differs when it was changed,
//! and is never taken for an empty message.

use prost_reflect::MessageDescriptor;
use serde_json::{Map, Value};

use super::{
    scalar::{decode_base64, encode_base64, found},
    types::WellKnown,
};

/// What the object of an `Any` holds.
#[derive(Debug)]
pub(super) enum AnyForm<'m, 'a> {
    Bytes(Vec<u8>),
    Opaque(Vec<u8>),
    Value(&'m MessageDescriptor, &'a Value),
    Fields(&'m MessageDescriptor),
}

/// The type of an `Any`; none for one that is empty.
pub(super) fn type_url(object: &Map<String, Value>) -> Result<Option<&str>, String> {
    match object.get(TYPE) {
        Some(Value::String(type_url)) => Ok(Some(type_url)),
        Some(other) => Err(format!("{TYPE} must be a text, not {}", found(other))),
        None if object.is_empty() => Ok(None),
        None => Err(format!("has no {TYPE}")),
    }
}

pub(super) fn form<'m, 'a>(
    object: &'a Map<String, Value>,
    message: Option<&'m MessageDescriptor>,
) -> Result<AnyForm<'m, 'a>, String> {
    if let Some(bytes) = object.get(BYTES) {
        let Value::String(bytes) = bytes else {
            return Err(format!("{BYTES} must be base64 in quotes, not {}", found(bytes)));
        };
        return decode_base64(bytes).map(AnyForm::Bytes).map_err(|why| format!("{BYTES} {why}"));
    }
    let Some(message) = message else {
        return Ok(AnyForm::Opaque(opaque(object)));
    };
    match (WellKnown::of(message), object.get(VALUE)) {
        (None, _) => Ok(AnyForm::Fields(message)),
        (Some(_), Some(value)) => Ok(AnyForm::Value(message, value)),
        (Some(_), None) => Err(format!("has no {VALUE}, in which a {} is written", message.name())),
    }
}

/// The bytes that stand for a message of an unknown type.
fn opaque(object: &Map<String, Value>) -> Vec<u8> {
    let mut rest = object.clone();
    rest.remove(TYPE);
    let mut rest = Value::Object(rest);
    rest.sort_all_objects();
    [&[OPAQUE][..], rest.to_string().as_bytes()].concat()
}

/// The JSON that bytes stand for which no message begins with.
pub(super) fn revealed(value: &[u8]) -> Option<Map<String, Value>> {
    let object: Map<String, Value> = serde_json::from_slice(value.strip_prefix(&[OPAQUE])?).ok()?;
    let faithful = !object.contains_key(TYPE) && !object.contains_key(BYTES) && opaque(&object) == value;
    faithful.then_some(object)
}

/// What cannot be shown as a message.
pub(super) fn as_bytes(value: &[u8]) -> Map<String, Value> {
    Map::from_iter([(BYTES.to_owned(), Value::String(encode_base64(value)))])
}

/// Stands for the name of an enum's value that is not known here: a number that none has, and the same for the same name.
pub(super) fn unknown_number(name: &str) -> i32 {
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    (name.bytes().fold(0x811c_9dc5, hash) | 1 << 31).cast_signed()
}

pub(super) const TYPE: &str = "@type";
pub(super) const VALUE: &str = "value";
const BYTES: &str = "@bytes";
/// As the key of a field it would be that of number 0 and of wire type 7, and there are neither.
pub(super) const OPAQUE: u8 = 0x07;
