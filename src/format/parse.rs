//! Encoding of messages from canonical JSON values.

use std::collections::BTreeMap;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::{
    any::{self, AnyForm},
    error::{FormatError, Step, Trail},
    known,
    scalar::{Scalar, found, mismatch, write_nested, write_text},
    types::{Types, WellKnown, is_collection},
};

/// An encoder of messages. Fields are encoded in the order of their numbers and maps in that of their keys, so that
/// the same document always results in the same bytes.
///
/// The depth of the value bounds recursion; its reader has limited it.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    /// The known messages.
    types: Types,
    /// The current path, and warnings.
    trail: Trail<'a>,
}

impl<'a> Parser<'a> {
    /// A parser at the head of a document.
    pub(super) fn new(types: Types) -> Self {
        Self { types, trail: Trail::default() }
    }

    /// The warnings of all that was parsed.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.trail.into_warnings()
    }

    /// Encodes a message from any of its JSON forms.
    pub(super) fn message(
        &mut self,
        message: &MessageDescriptor,
        value: &'a Value,
    ) -> Result<Vec<u8>, FormatError> {
        match (WellKnown::of(message), value) {
            (Some(WellKnown::Any), Value::Object(object)) => self.any(object),
            (Some(WellKnown::Wrapper), _) => self.wrapper(message, value),
            (Some(known), _) if known != WellKnown::Any => {
                known::parse(known, value).map_err(|why| self.trail.error(why))
            }
            (_, Value::Object(object)) => self.fields(message, object.iter()),
            _ => Err(self.trail.error(format!("must be an object, not {}", found(value)))),
        }
    }

    /// Encodes the fields of a message, in the order of their numbers.
    fn fields(
        &mut self,
        message: &MessageDescriptor,
        given: impl Iterator<Item = (&'a String, &'a Value)>,
    ) -> Result<Vec<u8>, FormatError> {
        let mut set = BTreeMap::new();
        let mut chosen = BTreeMap::new();
        for (name, value) in given {
            self.trail.enter(Step::Field(name));
            // D6: parsers of protobuf's JSON accept the name of a field in camel case as well as its name in the definition.
            let field = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name));
            match field {
                None => self.trail.warn("unknown field, ignored"),
                // In protobuf's JSON `null` is the absence of a field, but for the messages and enums that have it as a value.
                Some(field) if value.is_null() && !takes_null(&field) => {}
                Some(field) => {
                    if let Some(oneof) = field.containing_oneof()
                        && let Some(other) = chosen.insert(oneof.full_name().to_owned(), name)
                    {
                        return Err(self.trail.error(format!("only one of it and {other} can be set")));
                    }
                    if set.insert(field.number(), (field, name, value)).is_some() {
                        return Err(self.trail.error("is set twice, under each of its names"));
                    }
                }
            }
            self.trail.leave();
        }
        // A second pass: problems are in the order of the document, bytes in that of the numbers.
        let mut out = Vec::new();
        for (field, name, value) in set.into_values() {
            self.trail.enter(Step::Field(name));
            self.field(&field, value, &mut out)?;
            self.trail.leave();
        }
        Ok(out)
    }

    /// Encodes a field: a map, a list or a single value.
    fn field(
        &mut self,
        field: &FieldDescriptor,
        value: &'a Value,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        match (field.is_map(), field.is_list(), value) {
            (true, _, Value::Object(entries)) => self.map(field, entries, out),
            (_, true, Value::Array(elements)) => self.list(field, elements, out),
            (true, ..) => Err(self.trail.error(format!("must be an object, not {}", found(value)))),
            (_, true, _) => Err(self.trail.error(format!("must be a list, not {}", found(value)))),
            (false, false, _) => self.single(field, value, field.supports_presence(), out),
        }
    }

    /// Encodes the entries of a map, in the order of their keys.
    fn map(
        &mut self,
        field: &FieldDescriptor,
        map: &'a Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        // Always such a kind: in descriptors a map is a list of messages with the fields `key` and `value`.
        let Kind::Message(entry) = field.kind() else { return Ok(()) };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        // A JSON map need not be sorted.
        for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
            self.trail.enter(Step::Key(key));
            let mut entry = Vec::new();
            let kind = key_field.kind();
            let written = match (&kind, &**key) {
                (Kind::Bool, "true") => Scalar::Varint(1),
                (Kind::Bool, "false") => Scalar::Varint(0),
                (Kind::String | Kind::Bool, _) => {
                    let key = Value::String(key.clone());
                    Scalar::of_json(&kind, &key).map_err(|why| self.trail.error(why))?
                }
                (_, number) => {
                    let written = Scalar::of_number_text(&kind, number);
                    let written = written.unwrap_or_else(|| Err("must be a number".to_owned()));
                    written.map_err(|why| self.trail.error(why))?
                }
            };
            if !written.is_default() {
                written.write_field(1, &mut entry);
            }
            self.single(&value_field, value, false, &mut entry)?;
            write_nested(field.number(), &entry, out);
            self.trail.leave();
        }
        Ok(())
    }

    /// Encodes the elements of a list, packed where the field is.
    fn list(
        &mut self,
        field: &FieldDescriptor,
        elements: &'a [Value],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let mut packed = Vec::new();
        for (index, value) in elements.iter().enumerate() {
            self.trail.enter(Step::Index(index));
            match field.is_packed() {
                true => self.scalar(&field.kind(), value)?.write(&mut packed),
                // Elements are written even if they have the default value, since they count.
                false => self.single(field, value, true, out)?,
            }
            self.trail.leave();
        }
        if !packed.is_empty() {
            write_nested(field.number(), &packed, out);
        }
        Ok(())
    }

    /// Encodes one value; with `always`, even if it is the default value.
    fn single(
        &mut self,
        field: &FieldDescriptor,
        value: &'a Value,
        always: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        if let Kind::Message(message) = field.kind() {
            write_nested(field.number(), &self.message(&message, value)?, out);
            return Ok(());
        }
        let scalar = self.scalar(&field.kind(), value)?;
        if always || !scalar.is_default() {
            scalar.write_field(field.number(), out);
        }
        Ok(())
    }

    /// Parses a number, a text, bytes or an enum value.
    fn scalar(&mut self, kind: &Kind, value: &Value) -> Result<Scalar, FormatError> {
        let scalar = match (kind, value) {
            (Kind::Enum(kind), Value::String(name)) => Ok(self.enum_value(kind, name)),
            (Kind::Enum(values), Value::Null) if values.full_name() == NULL => Ok(Scalar::Varint(0)),
            (Kind::Enum(_), Value::Number(number)) => match number.as_i64() {
                Some(number) => Scalar::of_integer(kind, number.into()),
                None => Err(mismatch(kind, value)),
            },
            _ => Scalar::of_json(kind, value),
        };
        scalar.map_err(|why| self.trail.error(why))
    }

    /// The number of an enum value. An unknown name is a warning, and has a number that no value has.
    fn enum_value(&mut self, values: &EnumDescriptor, name: &str) -> Scalar {
        let number = values.get_value_by_name(name).map_or_else(
            || {
                self.trail.warn(format_args!("{name:?} is not a value of {}", values.full_name()));
                any::unknown_number(name)
            },
            |value| value.number(),
        );
        Scalar::Varint(i64::from(number).cast_unsigned())
    }

    /// Encodes a scalar in its own message.
    fn wrapper(&mut self, message: &MessageDescriptor, value: &'a Value) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        // The value of a wrapper has no presence of its own, so that a default value leaves the message empty.
        if let Some(field) = message.get_field(1) {
            self.single(&field, value, false, &mut out)?;
        }
        Ok(out)
    }

    /// Encodes an `Any` in its expanded form.
    fn any(&mut self, object: &'a Map<String, Value>) -> Result<Vec<u8>, FormatError> {
        let Some(type_url) = any::type_url(object).map_err(|why| self.trail.error(why))? else {
            return Ok(Vec::new());
        };
        let message = self.types.of_url(type_url);
        let value = match any::form(object, message.as_ref()).map_err(|why| self.trail.error(why))? {
            AnyForm::Bytes(value) | AnyForm::Opaque(value) => value,
            AnyForm::Value(message, value) => {
                self.trail.enter(Step::Field(any::VALUE));
                let written = self.message(message, value)?;
                self.trail.leave();
                written
            }
            AnyForm::Fields(message) => {
                let written = self.fields(message, object.iter().filter(|(name, _)| *name != any::TYPE))?;
                self.check_collection(message, object, &written)?;
                written
            }
        };
        let mut out = Vec::new();
        write_text(1, type_url, &mut out);
        if !value.is_empty() {
            write_nested(2, &value, &mut out);
        }
        Ok(out)
    }

    /// A list collection without entries removes all members, so that the name of its field must not be misspelled.
    fn check_collection(
        &self,
        message: &MessageDescriptor,
        object: &Map<String, Value>,
        written: &[u8],
    ) -> Result<(), FormatError> {
        let is_unknown = |name: &&String| {
            let is_field = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name));
            **name != any::TYPE && is_field.is_none()
        };
        match object.keys().find(is_unknown).filter(|_| written.is_empty() && is_collection(message)) {
            Some(field) => Err(self.trail.error(lacks_entries(field))),
            None => Ok(()),
        }
    }
}

/// Why a collection is an error that has only an unknown field.
pub(super) fn lacks_entries(field: &str) -> String {
    format!(
        "a list collection without `entries`, but with the unknown field {field:?}, would remove all members"
    )
}

/// Whether `null` is a value of a field rather than its absence.
fn takes_null(field: &FieldDescriptor) -> bool {
    let kind = field.kind();
    let value = kind.as_message().is_some_and(|message| WellKnown::of(message) == Some(WellKnown::Value));
    let null = kind.as_enum().is_some_and(|values| values.full_name() == NULL);
    !field.is_list() && (value || null)
}

/// The enum whose only value is `null` in JSON.
const NULL: &str = "google.protobuf.NullValue";
