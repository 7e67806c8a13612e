//! Messages that are written as JSON, or as a `Struct` in a `TypedStruct`.

use serde_json::Value as Json;

use super::{
    REDACTED,
    table::{Field, Kind, Message},
};
use crate::pb::google::protobuf::{Struct, Value as StructValue, value::Kind as Content};

/// A value of such a document.
pub(super) trait Tree {
    /// A string.
    fn text(text: &str) -> Self;

    fn as_text(&self) -> Option<&str>;

    /// The elements of a list.
    fn items(&mut self) -> Vec<&mut Self>;

    /// The fields of an object.
    fn entries(&mut self) -> Vec<(&str, &mut Self)>;
}

impl Tree for Json {
    fn text(text: &str) -> Self {
        Self::String(text.to_owned())
    }

    fn as_text(&self) -> Option<&str> {
        self.as_str()
    }

    fn items(&mut self) -> Vec<&mut Self> {
        self.as_array_mut().map(|items| items.iter_mut().collect()).unwrap_or_default()
    }

    fn entries(&mut self) -> Vec<(&str, &mut Self)> {
        let Self::Object(map) = self else { return Vec::new() };
        map.iter_mut().map(|(key, value)| (key.as_str(), value)).collect()
    }
}

impl Tree for StructValue {
    fn text(text: &str) -> Self {
        Self { kind: Some(Content::StringValue(text.to_owned())) }
    }

    fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Some(Content::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    fn items(&mut self) -> Vec<&mut Self> {
        match &mut self.kind {
            Some(Content::ListValue(list)) => list.values.iter_mut().collect(),
            _ => Vec::new(),
        }
    }

    fn entries(&mut self) -> Vec<(&str, &mut Self)> {
        match &mut self.kind {
            Some(Content::StructValue(Struct { fields })) => {
                fields.iter_mut().map(|(key, value)| (key.as_str(), value)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Redacts a message of this type, if it is known, and what it contains with a type.
pub(super) fn redact<T: Tree>(value: &mut T, message: Option<&Message>) {
    for item in value.items() {
        redact(item, message);
    }
    let mut entries = value.entries();
    let type_url = |keys: [&str; 2]| {
        let found = entries.iter().find(|(key, _)| keys.contains(key));
        found.and_then(|(_, value)| Message::of_url(value.as_text()?))
    };
    // The types of an `Any` in JSON, and of a `TypedStruct`.
    let (any, typed_struct) = (type_url(["@type", "@type"]), type_url(["type_url", "typeUrl"]));
    let message = any.or(message);
    for (key, value) in &mut entries {
        match message.and_then(|message| message.field_of_name(key)) {
            Some(field) => redact_field(*value, field),
            None if *key == "@bytes" && any.is_some() => **value = T::text(REDACTED),
            None if *key == "value" && typed_struct.or(any).is_some() => redact(*value, typed_struct.or(any)),
            None => redact(*value, None),
        }
    }
}

/// Redacts the content of a field.
fn redact_field<T: Tree>(value: &mut T, field: &Field) {
    match field.is_map {
        true => value.entries().into_iter().for_each(|(_, value)| redact_content(value, field.kind)),
        false => redact_content(value, field.kind),
    }
}

/// Redacts a value.
fn redact_content<T: Tree>(value: &mut T, kind: Kind) {
    match kind {
        Kind::Message(name) => redact(value, Message::of_name(name)),
        Kind::Source => redact_source(value),
        Kind::Text | Kind::Any | Kind::Struct => *value = T::text(REDACTED),
    }
}

/// Redacts a source of data, unless it names where the data are.
fn redact_source<T: Tree>(source: &mut T) {
    if !source.items().is_empty() {
        return source.items().into_iter().for_each(redact_source);
    }
    if source.entries().is_empty() {
        *source = T::text(REDACTED);
    }
    for (key, value) in source.entries() {
        match key {
            "filename"
            | "environment_variable"
            | "environmentVariable"
            | "watched_directory"
            | "watchedDirectory" => {}
            // Bytes are in base64.
            "inline_bytes" | "inlineBytes" => *value = T::text(REDACTED_BASE64),
            _ => *value = T::text(REDACTED),
        }
    }
}

const REDACTED_BASE64: &str = "W3JlZGFjdGVkXQ==";
