//! The forms of an `Any` in JSON.
//!
//! | form | for |
//! |---|---|
//! | `{"@type": URL, FIELD: …}` | a message |
//! | `{"@type": URL, "value": …}` | a message with a special JSON form, such as a duration |
//! | `{"@type": URL, "@bytes": BASE64}` | bytes that cannot be represented as a message; a form of this crate alone |
//!
//! A message of an unknown type is kept as it was written: its bytes are one that no protobuf message begins with,
//! followed by its JSON. So it fails only where it would have to be decoded, differs if it was changed, and is never
//! mistaken for an empty message.

use prost_reflect::MessageDescriptor;
use serde_json::{Map, Value};

use super::{
    scalar::{decode_base64, encode_base64, found},
    types::WellKnown,
};

/// The content of the object of an `Any`.
#[derive(Debug)]
pub(super) enum AnyForm<'m, 'a> {
    /// Bytes that are no message.
    Bytes(Vec<u8>),
    /// The bytes that represent a message of an unknown type.
    Opaque(Vec<u8>),
    /// A message with a special JSON form.
    Value(&'m MessageDescriptor, &'a Value),
    /// A message, whose fields are beside the type URL.
    Fields(&'m MessageDescriptor),
}

/// The type URL of an `Any`; `None` for an empty one.
pub(super) fn type_url(object: &Map<String, Value>) -> Result<Option<&str>, String> {
    match object.get(TYPE) {
        Some(Value::String(type_url)) => Ok(Some(type_url)),
        Some(other) => Err(format!("{TYPE} must be a text, not {}", found(other))),
        // In protobuf's JSON, `{}` is an `Any` with neither a type nor content.
        None if object.is_empty() => Ok(None),
        None => Err(format!("has no {TYPE}")),
    }
}

/// The form of an object; `message` is that of its type URL, if it is known.
pub(super) fn form<'m, 'a>(
    object: &'a Map<String, Value>,
    message: Option<&'m MessageDescriptor>,
) -> Result<AnyForm<'m, 'a>, String> {
    // Before the type is looked at: messages of known types are printed in this form, too, if they are malformed or too deep.
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

/// The bytes that represent a message of an unknown type.
fn opaque(object: &Map<String, Value>) -> Vec<u8> {
    let mut rest = object.clone();
    rest.remove(TYPE);
    let mut rest = Value::Object(rest);
    // Sorted, so that a document whose keys were only reordered has the bytes that are cached.
    rest.sort_all_objects();
    [&[OPAQUE][..], rest.to_string().as_bytes()].concat()
}

/// Returns the JSON in the bytes that represent a message of an unknown type.
pub(super) fn revealed(value: &[u8]) -> Option<Map<String, Value>> {
    let object: Map<String, Value> = serde_json::from_slice(value.strip_prefix(&[OPAQUE])?).ok()?;
    // Other bytes may begin with that byte, too. They are shown as bytes if their JSON would not become them again.
    let faithful = !object.contains_key(TYPE) && !object.contains_key(BYTES) && opaque(&object) == value;
    faithful.then_some(object)
}

/// The form of bytes that cannot be represented as a message.
pub(super) fn as_bytes(value: &[u8]) -> Map<String, Value> {
    Map::from_iter([(BYTES.to_owned(), Value::String(encode_base64(value)))])
}

/// The number that represents an unknown name of an enum value: no defined value has it, and equal names have equal
/// numbers.
pub(super) fn unknown_number(name: &str) -> i32 {
    // FNV-1a with the sign bit set: the values of the enums in proto/ are not negative.
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    (name.bytes().fold(0x811c_9dc5, hash) | 1 << 31).cast_signed()
}

/// The key of the type URL.
pub(super) const TYPE: &str = "@type";
/// The key of a message with a special JSON form.
pub(super) const VALUE: &str = "value";
/// The key of bytes that are no message.
const BYTES: &str = "@bytes";
/// As a field key it would have field number 0 and wire type 7, both of which are invalid.
pub(super) const OPAQUE: u8 = 0x07;
