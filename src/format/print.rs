//! Canonical JSON of messages, with the names of fields as in their definition, as from Envoy and go-control-plane.

use std::collections::BTreeMap;

use prost::encoding::WireType;
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::{
    any,
    known::{self, Unshown, show_number},
    scalar::encode_base64,
    types::{Types, WellKnown},
};
use crate::{
    redact,
    wire::{Field, Fields, Malformed, Value as Wire},
};

/// A converter of messages to JSON. Fields that are not in the descriptors are omitted, as in a decoder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer<'p> {
    /// The known messages.
    types: Types,
    /// Messages of an application, which come before the known ones.
    own: Option<&'p DescriptorPool>,
}

/// All occurrences of one field, in the order of the message.
type Found<'b> = Vec<Field<'b>>;

impl<'p> Printer<'p> {
    /// A printer of these messages.
    pub(super) fn new(types: Types) -> Self {
        Self { types, own: None }
    }

    /// Adds the messages of an application. Credentials in them are redacted.
    #[cfg(feature = "tool-support")]
    pub(super) fn with_own(self, own: &'p DescriptorPool) -> Self {
        Self { own: Some(own), ..self }
    }

    /// Converts a message of at most [`MAX_DEPTH`].
    ///
    /// # Errors
    /// The bytes are not of the message, or deeper, or contain a time out of range, outside of each `Any`.
    pub(super) fn show(self, message: &MessageDescriptor, bytes: &[u8]) -> Result<Value, Unshown> {
        self.message(message, bytes, MAX_DEPTH)
    }

    /// Shows a message in its JSON form.
    fn message(self, message: &MessageDescriptor, bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
        let depth = depth.checked_sub(1).ok_or(Unshown::TooDeep)?;
        // Redaction by the wire format alone does not know the types of the fields of an application.
        let redacted = self.own.and_then(|_| redact::redacted_message(message.full_name(), bytes));
        let bytes = redacted.as_deref().unwrap_or(bytes);
        match WellKnown::of(message) {
            None => self.fields(message, bytes, depth).map(Value::Object),
            Some(WellKnown::Any) => self.any(bytes, depth),
            Some(WellKnown::Wrapper) => self.wrapper(message, bytes, depth),
            Some(WellKnown::Struct) => known::show_struct(bytes, depth),
            Some(WellKnown::List) => known::show_list(bytes, depth),
            Some(WellKnown::Value) => known::show_value(bytes, depth),
            Some(time @ (WellKnown::Duration | WellKnown::Timestamp)) => known::show_time(time, bytes),
        }
    }

    /// Shows the fields of a message that has no special form.
    fn fields(
        self,
        message: &MessageDescriptor,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, Unshown> {
        let mut shown = Map::new();
        for (field, found) in gather(message, bytes)?.into_values() {
            if let Some(value) = self.field(&field, &found, depth)? {
                shown.insert(field.name().to_owned(), value);
            }
        }
        Ok(shown)
    }

    /// Converts a field, unless it has the default value.
    fn field(
        self,
        field: &FieldDescriptor,
        found: &Found<'_>,
        depth: usize,
    ) -> Result<Option<Value>, Unshown> {
        // A list or a map is a level of the JSON of its own, beside those of the messages in it.
        let inner = depth.checked_sub(1).ok_or(Unshown::TooDeep)?;
        if field.is_map() {
            return self.map(field, found, inner).map(|map| Some(Value::Object(map)));
        }
        if field.is_list() {
            return self.list(field, found, inner).map(|list| Some(Value::Array(list)));
        }
        if let Kind::Message(message) = field.kind() {
            // A message in parts is merged.
            let mut whole = Vec::new();
            for part in found {
                whole.extend(part.bytes()?);
            }
            return self.message(&message, &whole, depth).map(Some);
        }
        let Some(last) = found.last() else { return Ok(None) };
        let implied = !field.supports_presence() && is_default(last);
        let shown = scalar(&field.kind(), last)?;
        Ok((!implied).then_some(shown))
    }

    /// Shows a list, whose numbers may be packed or not.
    fn list(self, field: &FieldDescriptor, found: &Found<'_>, depth: usize) -> Result<Vec<Value>, Unshown> {
        let mut list = Vec::new();
        for part in found {
            match (field.kind(), part.value) {
                (Kind::Message(message), _) => list.push(self.message(&message, part.bytes()?, depth)?),
                (kind @ (Kind::String | Kind::Bytes), _) => list.push(scalar(&kind, part)?),
                // Decoders accept numbers in both encodings, whatever the definition of the field.
                (kind, Wire::Bytes(packed)) => unpack(&kind, packed, &mut list)?,
                (kind, _) => list.push(scalar(&kind, part)?),
            }
        }
        Ok(list)
    }

    /// Shows a map by the texts of its keys.
    fn map(
        self,
        field: &FieldDescriptor,
        found: &Found<'_>,
        depth: usize,
    ) -> Result<Map<String, Value>, Unshown> {
        let Kind::Message(entry) = field.kind() else { return Ok(Map::new()) };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let mut map = Map::new();
        for part in found {
            let fields = gather(&entry, part.bytes()?)?;
            // Encoders may leave out a key and a value with the default.
            let key = match fields.get(&1).and_then(|(_, found)| found.last()) {
                Some(key) => scalar(&key_field.kind(), key)?,
                None => default_of(&key_field.kind()),
            };
            let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
            let found = fields.get(&2).map_or(&[][..], |(_, found)| found);
            let value = match (value_field.kind(), found.last()) {
                (Kind::Message(message), _) => {
                    let mut whole = Vec::new();
                    for part in found {
                        whole.extend(part.bytes()?);
                    }
                    self.message(&message, &whole, depth)?
                }
                (kind, Some(value)) => scalar(&kind, value)?,
                (kind, None) => default_of(&kind),
            };
            map.insert(key, value);
        }
        Ok(map)
    }

    /// Shows the scalar in its own message.
    fn wrapper(self, message: &MessageDescriptor, bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
        let fields = gather(message, bytes)?;
        let Some(field) = message.get_field(1) else { return Ok(Value::Null) };
        let shown = match fields.get(&1) {
            Some((field, found)) => self.field(field, found, depth)?,
            None => None,
        };
        Ok(shown.unwrap_or_else(|| default_of(&field.kind())))
    }

    /// Converts an `Any`, which is represented by its bytes if necessary.
    fn any(self, bytes: &[u8], depth: usize) -> Result<Value, Unshown> {
        let (mut type_url, mut value) = ("", &[][..]);
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => type_url = field.text()?,
                2 => value = field.bytes()?,
                _ => {}
            }
        }
        if type_url.is_empty() && value.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        Ok(Value::Object(self.typed(type_url, value, depth)))
    }

    /// Converts a message of a type URL, to the depth [`MAX_DEPTH`].
    pub(super) fn show_any(self, type_url: &str, value: &[u8]) -> Value {
        Value::Object(self.typed(type_url, value, MAX_DEPTH))
    }

    /// Shows the message of an `Any`, or its bytes if they are no such message.
    /// Never fails: one extension that cannot be shown does not hide the message around it.
    fn typed(self, type_url: &str, value: &[u8], depth: usize) -> Map<String, Value> {
        let shown = match self.of_url(type_url) {
            Some(message) => self.expand(&message, value, depth).ok(),
            None => any::revealed(value).filter(|object| is_within(object, depth)),
        };
        let mut shown = shown.unwrap_or_else(|| any::as_bytes(value));
        shown.insert(any::TYPE.to_owned(), Value::String(type_url.to_owned()));
        shown
    }

    /// The message of a type URL.
    fn of_url(self, type_url: &str) -> Option<MessageDescriptor> {
        let own = self.own.zip(type_url.rsplit_once('/'));
        let own = own.and_then(|(own, (_, name))| own.get_message_by_name(name));
        own.filter(|found| !found.is_map_entry()).or_else(|| self.types.of_url(type_url))
    }

    /// Converts a message to the object of an `Any`, but for its type URL, to the depth [`MAX_DEPTH`].
    ///
    /// # Errors
    /// As of [`Self::show`].
    #[cfg(feature = "tool-support")]
    pub(super) fn show_fields(
        self,
        message: &MessageDescriptor,
        value: &[u8],
    ) -> Result<Map<String, Value>, Unshown> {
        self.expand(message, value, MAX_DEPTH)
    }

    /// Shows a message within the object of an `Any`.
    fn expand(
        self,
        message: &MessageDescriptor,
        value: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, Unshown> {
        match WellKnown::of(message) {
            None => self.fields(message, value, depth),
            Some(_) => {
                let shown = self.message(message, value, depth)?;
                Ok(Map::from_iter([(any::VALUE.to_owned(), shown)]))
            }
        }
    }
}

/// Collects the known fields of a message, by their numbers. The last field of a oneof counts.
fn gather<'b>(
    message: &MessageDescriptor,
    bytes: &'b [u8],
) -> Result<BTreeMap<u32, (FieldDescriptor, Found<'b>)>, Malformed> {
    let mut fields: BTreeMap<u32, (FieldDescriptor, Found<'b>)> = BTreeMap::new();
    for found in Fields::of(bytes) {
        let found = found?;
        if let Some((_, so_far)) = fields.get_mut(&found.number) {
            so_far.push(found);
            continue;
        }
        let Some(field) = message.get_field(found.number) else { continue };
        // In the order of the message: the last field of a oneof removes the others, whatever their numbers.
        if let Some(oneof) = field.containing_oneof() {
            for other in oneof.fields() {
                fields.remove(&other.number());
            }
        }
        fields.insert(found.number, (field, vec![found]));
    }
    Ok(fields)
}

/// Whether a scalar has the default value.
fn is_default(field: &Field<'_>) -> bool {
    match field.value {
        Wire::Varint(value) | Wire::Fixed64(value) => value == 0,
        Wire::Fixed32(value) => value == 0,
        Wire::Bytes(value) => value.is_empty(),
        Wire::Group => false,
    }
}

/// Shows a scalar. 64-bit numbers are texts, since not every reader of JSON has them.
#[allow(clippy::cast_possible_truncation, reason = "decoders take the lower bits of what is too large")]
fn scalar(kind: &Kind, field: &Field<'_>) -> Result<Value, Malformed> {
    let wrong = Malformed { offset: field.start, what: "a number has another wire type" };
    Ok(match (kind, field.value) {
        (Kind::String, _) => field.text()?.into(),
        (Kind::Bytes, _) => encode_base64(field.bytes()?).into(),
        (Kind::Bool, _) => (field.varint()? != 0).into(),
        (Kind::Int32, _) => (field.varint()? as i32).into(),
        (Kind::Uint32, _) => (field.varint()? as u32).into(),
        (Kind::Int64, _) => field.varint()?.cast_signed().to_string().into(),
        (Kind::Uint64, _) => field.varint()?.to_string().into(),
        (Kind::Sint32, _) => {
            let value = field.varint()? as u32;
            ((value >> 1).cast_signed() ^ -(value & 1).cast_signed()).into()
        }
        (Kind::Sint64, _) => {
            let value = field.varint()?;
            ((value >> 1).cast_signed() ^ -(value & 1).cast_signed()).to_string().into()
        }
        (Kind::Enum(values), _) => {
            let number = field.varint()? as i32;
            values.get_value(number).map_or_else(|| number.into(), |value| value.name().into())
        }
        (Kind::Double, Wire::Fixed64(bits)) => show_number(f64::from_bits(bits)),
        (Kind::Float, Wire::Fixed32(bits)) => show_float(f32::from_bits(bits)),
        (Kind::Fixed32, Wire::Fixed32(value)) => value.into(),
        (Kind::Sfixed32, Wire::Fixed32(value)) => value.cast_signed().into(),
        (Kind::Fixed64, Wire::Fixed64(value)) => value.to_string().into(),
        (Kind::Sfixed64, Wire::Fixed64(value)) => value.cast_signed().to_string().into(),
        (
            Kind::Double
            | Kind::Float
            | Kind::Fixed32
            | Kind::Sfixed32
            | Kind::Fixed64
            | Kind::Sfixed64
            | Kind::Message(_),
            _,
        ) => return Err(wrong),
    })
}

/// Prints an `f32` with the shortest digits that identify it, which are fewer than those of the equal `f64`.
fn show_float(number: f32) -> Value {
    show_number(number.to_string().parse().unwrap_or_else(|_| number.into()))
}

/// The default value of a field.
fn default_of(kind: &Kind) -> Value {
    match kind {
        Kind::String | Kind::Bytes => "".into(),
        Kind::Bool => false.into(),
        Kind::Double | Kind::Float => 0.0.into(),
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => "0".into(),
        Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32 | Kind::Sfixed32 => 0.into(),
        Kind::Enum(values) => values.default_value().name().into(),
        Kind::Message(_) => Value::Null,
    }
}

/// Appends the numbers of a packed list.
fn unpack(kind: &Kind, packed: &[u8], list: &mut Vec<Value>) -> Result<(), Malformed> {
    // The key of field 1 with the wire type of the elements.
    let key: u8 = match kind.wire_type() {
        WireType::SixtyFourBit => 0x09,
        WireType::ThirtyTwoBit => 0x0d,
        WireType::Varint | WireType::LengthDelimited | WireType::StartGroup | WireType::EndGroup => 0x08,
    };
    let mut rest = packed;
    while !rest.is_empty() {
        // Written out as a field, each is read as one.
        let length = match key {
            0x09 => 8,
            0x0d => 4,
            _ => 1 + rest.iter().take_while(|&&byte| byte >= 0x80).count(),
        };
        let Some((number, behind)) = rest.split_at_checked(length) else {
            return Err(Malformed { offset: packed.len() - rest.len(), what: "a list ends within a number" });
        };
        let field = [&[key][..], number].concat();
        for field in Fields::of(&field) {
            list.push(scalar(kind, &field?)?);
        }
        rest = behind;
    }
    Ok(())
}

/// Whether the content of an object is no deeper than this.
fn is_within(object: &Map<String, Value>, depth: usize) -> bool {
    let mut level: Vec<&Value> = object.values().collect();
    for _ in 0..depth {
        let mut inner = Vec::new();
        for value in level {
            match value {
                Value::Array(values) => inner.extend(values),
                Value::Object(fields) => inner.extend(fields.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        if inner.is_empty() {
            return true;
        }
        level = inner;
    }
    false
}

/// The maximum nesting of objects and lists. JSON parsers stop at 128, some at less.
pub(super) const MAX_DEPTH: usize = 100;
