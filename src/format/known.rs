//! The messages of `google.protobuf` with special JSON forms and without nested messages of other packages.

use std::collections::BTreeMap;

use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::MessageDescriptor;
use serde_json::{Map, Number, Value};

use super::{
    FormatError,
    scalar::{found, write_nested, write_text},
    time,
    types::WellKnown,
};
use crate::wire::{Field, Fields, Malformed, Value as Wire};

/// Encodes a JSON value. The depth of the value bounds the recursion.
pub(super) fn parse(known: WellKnown, value: &Value) -> Result<Vec<u8>, String> {
    match (known, value) {
        (WellKnown::Duration, Value::String(text)) => {
            time::parse_duration(text).map(|(seconds, nanos)| write_time(seconds, nanos))
        }
        (WellKnown::Timestamp, Value::String(text)) => {
            time::parse_timestamp(text).map(|(seconds, nanos)| write_time(seconds, nanos))
        }
        (WellKnown::Duration, _) => Err(format!("must be a duration such as \"1.5s\", not {}", found(value))),
        (WellKnown::Timestamp, _) => {
            Err(format!("must be a time of RFC 3339 in quotes, not {}", found(value)))
        }
        (WellKnown::Struct, Value::Object(fields)) => Ok(write_struct(fields)),
        (WellKnown::Struct, _) => Err(format!("must be an object, not {}", found(value))),
        (WellKnown::List, Value::Array(values)) => Ok(write_list(values)),
        (WellKnown::List, _) => Err(format!("must be a list, not {}", found(value))),
        (WellKnown::Value, _) => Ok(write_value(value)),
        // Unreachable: `Parser::message` encodes both by itself.
        (WellKnown::Any | WellKnown::Wrapper, _) => Err("has no such form".to_owned()),
    }
}

/// Encodes a duration or a time, which have the same fields.
fn write_time(seconds: i64, nanos: i32) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, value) in [(1, seconds), (2, nanos.into())] {
        if value != 0 {
            encode_key(number, WireType::Varint, &mut out);
            encode_varint(value.cast_unsigned(), &mut out);
        }
    }
    out
}

/// Encodes a struct, in the order of its keys.
fn write_struct(fields: &Map<String, Value>) -> Vec<u8> {
    // Equal structs have equal bytes, whatever the order in which their keys were written.
    let mut out = Vec::new();
    for (name, value) in fields.iter().collect::<BTreeMap<_, _>>() {
        let mut entry = Vec::new();
        write_text(1, name, &mut entry);
        write_nested(2, &write_value(value), &mut entry);
        write_nested(1, &entry, &mut out);
    }
    out
}

/// Encodes a list of values.
fn write_list(values: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        write_nested(1, &write_value(value), &mut out);
    }
    out
}

/// Encodes a value of any kind.
fn write_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        // `null_value` of the oneof: its field is there although it has the default value.
        Value::Null => out.extend([0x08, 0]),
        Value::Number(number) => {
            encode_key(2, WireType::SixtyFourBit, &mut out);
            out.extend(number.as_f64().unwrap_or(f64::NAN).to_le_bytes());
        }
        Value::String(text) => write_nested(3, text.as_bytes(), &mut out),
        Value::Bool(value) => out.extend([0x20, (*value).into()]),
        Value::Object(fields) => write_nested(5, &write_struct(fields), &mut out),
        Value::Array(values) => write_nested(6, &write_list(values), &mut out),
    }
    out
}

/// The reason why a message has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unshown {
    /// The bytes are no such message.
    Malformed(Malformed),
    /// The JSON would be nested deeper than readers accept.
    TooDeep,
    /// A time or a duration for which JSON has no text.
    OutOfRange(&'static str),
}

impl Unshown {
    /// The error of a document with this message.
    pub(super) fn into_error(self, message: &MessageDescriptor) -> FormatError {
        FormatError::document(match self {
            Self::Malformed(malformed) => format!("is not a {}: {malformed}", message.name()),
            Self::TooDeep => "is nested too deep for JSON".to_owned(),
            Self::OutOfRange(what) => format!("has {what}"),
        })
    }
}

impl From<Malformed> for Unshown {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Converts a duration or a timestamp to JSON.
pub(super) fn show_time(known: WellKnown, bytes: &[u8]) -> Result<Value, Unshown> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => seconds = field.varint()?.cast_signed(),
            #[allow(clippy::cast_possible_truncation, reason = "as decoders do")]
            2 => nanos = field.varint()?.cast_signed() as i32,
            _ => {}
        }
    }
    let shown = match known == WellKnown::Timestamp {
        true => time::show_timestamp(seconds, nanos).ok_or("a time that there is not"),
        false => time::show_duration(seconds, nanos).ok_or("a duration out of range"),
    };
    shown.map(Value::String).map_err(Unshown::OutOfRange)
}

/// Converts a struct to JSON, to the depth `depth`.
pub(super) fn show_struct(bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
    let mut fields = Map::new();
    for entry in Fields::of(bytes) {
        let entry = entry?;
        if entry.number != 1 {
            continue;
        }
        let (mut name, mut value) = ("", Vec::new());
        for field in Fields::of(entry.bytes()?) {
            let field = field?;
            match field.number {
                1 => name = field.text()?,
                // A message in several parts is merged, as decoders do.
                2 => value.extend(field.bytes()?),
                _ => {}
            }
        }
        // Of several entries of a key the last one counts, as in decoders.
        fields.insert(name.to_owned(), show_value(&value, depth)?);
    }
    Ok(Value::Object(fields))
}

/// Converts a list to JSON, to the depth `depth`.
pub(super) fn show_list(bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
    let mut values = Vec::new();
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 {
            values.push(show_value(field.bytes()?, depth)?);
        }
    }
    Ok(Value::Array(values))
}

/// Converts a value to JSON, to the depth `depth`.
pub(super) fn show_value(bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
    let depth = depth.checked_sub(1).ok_or(Unshown::TooDeep)?;
    // The last field counts; structs and lists in parts are merged.
    let (mut kind, mut nested) = (None, Vec::new());
    for field in Fields::of(bytes) {
        let field = field?;
        if !(1..=6).contains(&field.number) {
            continue;
        }
        if kind.is_none_or(|last: Field<'_>| last.number != field.number) {
            nested.clear();
        }
        if matches!(field.number, 5 | 6) {
            nested.extend(field.bytes()?);
        }
        kind = Some(field);
    }
    let Some(field) = kind else { return Ok(Value::Null) };
    Ok(match (field.number, field.value) {
        (2, Wire::Fixed64(bits)) => show_number(f64::from_bits(bits)),
        (2, _) => {
            return Err(Malformed { offset: field.start, what: "a number has another wire type" }.into());
        }
        (3, _) => Value::String(field.text()?.to_owned()),
        (4, _) => Value::Bool(field.varint()? != 0),
        (5, _) => show_struct(&nested, depth)?,
        (6, _) => show_list(&nested, depth)?,
        _ => {
            field.varint()?;
            Value::Null
        }
    })
}

/// A number, or its name if JSON has no number for it.
/// The names are those of protobuf's JSON: `NaN`, `Infinity` and `-Infinity`.
pub(super) fn show_number(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => Value::String("NaN".to_owned()),
        None if number > 0.0 => Value::String("Infinity".to_owned()),
        None => Value::String("-Infinity".to_owned()),
    }
}
