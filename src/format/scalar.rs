//! Values that are not messages, and their encodings.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::Kind;
use serde_json::Value;

use crate::base;

/// A value by its encoding.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    /// An integer, a boolean or an enum value; negative numbers are in two's complement of 64 bits.
    Varint(u64),
    /// The bits of a `fixed32`, `sfixed32` or `float`.
    Fixed32(u32),
    /// The bits of a `fixed64`, `sfixed64` or `double`.
    Fixed64(u64),
    /// A string, or bytes.
    Bytes(Vec<u8>),
}

impl Scalar {
    /// An integer, if it is in the range of the kind.
    pub(super) fn of_integer(kind: &Kind, number: i128) -> Result<Self, String> {
        let out_of_range = || format!("{number} is out of range");
        macro_rules! fit {
            ($int:ty) => {
                <$int>::try_from(number).map_err(|_| out_of_range())?
            };
        }
        Ok(match kind {
            // With the sign extended to 64 bits, as readers of either width expect. Enums are open: any number is a value.
            Kind::Int32 | Kind::Enum(_) => Self::Varint(i64::from(fit!(i32)).cast_unsigned()),
            Kind::Int64 => Self::Varint(fit!(i64).cast_unsigned()),
            Kind::Uint32 => Self::Varint(fit!(u32).into()),
            Kind::Uint64 => Self::Varint(fit!(u64)),
            Kind::Sint32 => {
                // The ZigZag encoding, in which small negative numbers have few bytes.
                let number = fit!(i32);
                Self::Varint(((number << 1) ^ (number >> 31)).cast_unsigned().into())
            }
            Kind::Sint64 => {
                let number = fit!(i64);
                Self::Varint(((number << 1) ^ (number >> 63)).cast_unsigned())
            }
            Kind::Fixed32 => Self::Fixed32(fit!(u32)),
            Kind::Fixed64 => Self::Fixed64(fit!(u64)),
            Kind::Sfixed32 => Self::Fixed32(fit!(i32).cast_unsigned()),
            Kind::Sfixed64 => Self::Fixed64(fit!(i64).cast_unsigned()),
            #[allow(clippy::cast_precision_loss, reason = "that is what a number with a point is")]
            Kind::Double | Kind::Float => Self::of_float(kind, number as f64)?,
            Kind::Bool | Kind::String | Kind::Bytes | Kind::Message(_) => {
                return Err(format!("must be {}, not the number {number}", expected(kind)));
            }
        })
    }

    /// A floating-point number, if it is in the range of the kind.
    pub(super) fn of_float(kind: &Kind, number: f64) -> Result<Self, String> {
        if matches!(kind, Kind::Double) {
            return Ok(Self::Fixed64(number.to_bits()));
        }
        if matches!(kind, Kind::Float) {
            #[allow(clippy::cast_possible_truncation, reason = "what does not fit is infinite then")]
            let narrow = number as f32;
            return match narrow.is_infinite() && number.is_finite() {
                true => Err(format!("{number} is out of range")),
                false => Ok(Self::Fixed32(narrow.to_bits())),
            };
        }
        // `1.0` and `1e3` are whole numbers in protobuf's JSON.
        match number.fract() == 0.0 && number.abs() < MAX_WHOLE {
            #[allow(clippy::cast_possible_truncation, reason = "it is whole, and in range")]
            true => Self::of_integer(kind, number as i128),
            false => Err(format!("must be {}, not {number}", expected(kind))),
        }
    }

    /// Converts a JSON value for a field of a kind that is neither an enum nor a message.
    ///
    /// # Errors
    /// The value is of another JSON type, or out of the range of the kind.
    pub(super) fn of_json(kind: &Kind, value: &Value) -> Result<Self, String> {
        match (kind, value) {
            (Kind::Bool, Value::Bool(value)) => Ok(Self::Varint((*value).into())),
            (Kind::String, Value::String(text)) => Ok(Self::Bytes(text.clone().into_bytes())),
            (Kind::Bytes, Value::String(text)) => decode_base64(text).map(Self::Bytes),
            (Kind::Bool | Kind::String | Kind::Bytes | Kind::Enum(_) | Kind::Message(_), _) => {
                Err(mismatch(kind, value))
            }
            (_, Value::Number(number)) => {
                // By integers where possible: an `f64` has no exact value for most numbers above 2^53.
                match number.as_u64().map(i128::from).or(number.as_i64().map(i128::from)) {
                    Some(number) => Self::of_integer(kind, number),
                    None => Self::of_float(kind, number.as_f64().unwrap_or(f64::NAN)),
                }
            }
            (_, Value::String(text)) => {
                Self::of_number_text(kind, text).ok_or_else(|| mismatch(kind, value))?
            }
            (_, Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(mismatch(kind, value))
            }
        }
    }

    /// Converts a number in a string; `None` if it is not a number.
    pub(super) fn of_number_text(kind: &Kind, text: &str) -> Option<Result<Self, String>> {
        let floats = matches!(kind, Kind::Float | Kind::Double);
        match text {
            "NaN" if floats => return Some(Self::of_float(kind, f64::NAN)),
            "Infinity" if floats => return Some(Self::of_float(kind, f64::INFINITY)),
            "-Infinity" if floats => return Some(Self::of_float(kind, f64::NEG_INFINITY)),
            _ => {}
        }
        // Rust also parses a plus sign, and words such as `inf`.
        if !text.ends_with(|c: char| c.is_ascii_digit()) || text.starts_with('+') {
            return None;
        }
        // As an integer first, for the numbers above 2^53 that an `f64` rounds.
        if let Ok(number) = text.parse() {
            return Some(Self::of_integer(kind, number));
        }
        Some(Self::of_float(kind, text.parse().ok()?))
    }

    /// Whether it is the default value of a field.
    pub(super) fn is_default(&self) -> bool {
        // By the bits, so that -0.0 is written, although it is equal to the default.
        match self {
            Self::Varint(value) | Self::Fixed64(value) => *value == 0,
            Self::Fixed32(value) => *value == 0,
            Self::Bytes(value) => value.is_empty(),
        }
    }

    /// Encodes it as a field.
    pub(super) fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        let wire_type = match self {
            Self::Varint(_) => WireType::Varint,
            Self::Fixed32(_) => WireType::ThirtyTwoBit,
            Self::Fixed64(_) => WireType::SixtyFourBit,
            Self::Bytes(_) => WireType::LengthDelimited,
        };
        encode_key(number, wire_type, out);
        self.write(out);
    }

    /// Encodes it without a field key, as in a packed list.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Varint(value) => encode_varint(*value, out),
            Self::Fixed32(value) => out.extend(value.to_le_bytes()),
            Self::Fixed64(value) => out.extend(value.to_le_bytes()),
            Self::Bytes(value) => {
                encode_varint(value.len() as u64, out);
                out.extend(value);
            }
        }
    }
}

/// Encodes a length-delimited field: a message, or a packed list.
pub(super) fn write_nested(number: u32, inside: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(inside.len() as u64, out);
    out.extend(inside);
}

/// Encodes a string unless it is empty.
pub(super) fn write_text(number: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        write_nested(number, text.as_bytes(), out);
    }
}

/// Decodes bytes in base64.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    base::decode_base64(text).map_err(|e| format!("is not base64: {e}"))
}

/// Bytes as base64 with padding.
pub(super) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The error of a value of the wrong kind.
pub(super) fn mismatch(kind: &Kind, value: &Value) -> String {
    format!("must be {}, not {}", expected(kind), found(value))
}

/// A description of a value without its content.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.chars().count() > MAX_SHOWN => "a text".to_owned(),
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// What a value of a kind must be, for errors.
fn expected(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::String => "a text in quotes",
        Kind::Bytes => "base64 in quotes",
        Kind::Enum(_) => "the name of a value or a number",
        Kind::Message(_) => "an object",
        Kind::Double | Kind::Float => "a number",
        Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64 => "a whole number",
    }
}

/// Below it, the integer part of a number fits into 128 bits.
const MAX_WHOLE: f64 = 1e30;
/// The maximum number of characters of a wrong value in an error.
const MAX_SHOWN: usize = 60;
