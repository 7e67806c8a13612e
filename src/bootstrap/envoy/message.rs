//! Messages in canonical JSON. Fields are read by the names of their definition or in camel case; unread fields are
//! reported as ignored.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::super::reader::{Fields, Reader};
use crate::config::ValidationError;

/// An object of the document, with a record of the fields that were read.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// All fields.
    fields: Fields<'a>,
    /// The names of fields that were read, so that others can be reported.
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Message<'a> {
    /// The value as a message; anything other than an object is an error.
    pub(super) fn new(reader: &Reader<'a>) -> Option<Self> {
        Some(Self { fields: reader.fields()?, read: RefCell::default() })
    }

    /// A field that is present and not `null`.
    pub(super) fn get(&self, name: &str) -> Option<Reader<'a>> {
        let camel = camel_case(name);
        // By both names, since `end` looks for those of the document.
        let mut read = self.read.borrow_mut();
        read.insert(camel.clone());
        read.insert(name.to_owned());
        let (plain, other) = (self.fields.get(name), self.fields.get(&camel));
        if camel != name && plain.is_some() && other.is_some() {
            self.fields.fail(&camel, format!("is there as {name}, too"));
        }
        plain.or(other)
    }

    /// Whether a field is present.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A required field.
    /// Without it an error is reported.
    pub(super) fn required(&self, name: &str) -> Option<Reader<'a>> {
        let found = self.get(name);
        if found.is_none() {
            self.fail(name, "missing");
        }
        found
    }

    /// A string, if present and not empty.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.text().filter(|text| !text.is_empty())
    }

    /// A required, non-empty string.
    pub(super) fn required_text(&self, name: &str) -> Option<&'a str> {
        let field = self.required(name)?;
        let text = field.text()?;
        if text.is_empty() {
            field.fail("empty");
            return None;
        }
        Some(text)
    }

    /// The texts of a list.
    pub(super) fn texts(&self, name: &str) -> Vec<(Reader<'a>, &'a str)> {
        self.items(name).into_iter().filter_map(|item| Some((item.clone(), item.text()?))).collect()
    }

    /// The message in a field.
    pub(super) fn message(&self, name: &str) -> Option<Self> {
        self.of(&self.get(name)?)
    }

    /// The messages of a list.
    pub(super) fn messages(&self, name: &str) -> Vec<Self> {
        self.items(name).iter().filter_map(|item| self.of(item)).collect()
    }

    /// The elements of a list. A single object counts as a list of one, the form of `grpc_services` in older
    /// documents.
    pub(super) fn items(&self, name: &str) -> Vec<Reader<'a>> {
        let Some(field) = self.get(name) else { return Vec::new() };
        match field.value().is_object() {
            true => vec![field],
            false => field.items().unwrap_or_default(),
        }
    }

    /// Reads another value as a message.
    pub(super) fn of(&self, reader: &Reader<'a>) -> Option<Self> {
        Self::new(reader)
    }

    /// A boolean; `false` if it is absent.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|field| field.boolean().unwrap_or(false))
    }

    /// An integer, which may be a string in JSON.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let field = self.get(name)?;
        let number = match field.value().as_str() {
            Some(text) => text.parse().ok(),
            None => field.value().as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        if number.is_none() {
            field.fail("expected a whole number");
        }
        number
    }

    /// `"1.5s"`, or `{seconds, nanos}` as in older documents.
    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        let field = self.get(name)?;
        if !field.value().is_object() {
            return field.duration();
        }
        let parts = self.of(&field)?;
        let (seconds, nanos) = (parts.number("seconds").unwrap_or(0), parts.number("nanos").unwrap_or(0));
        parts.end();
        match nanos < 1_000_000_000 {
            true => Some(Duration::new(seconds.into(), nanos)),
            false => {
                parts.fail("nanos", "must be less than a second");
                None
            }
        }
    }

    /// A value of an enum, by its name or its number.
    /// Each choice has both, and the value that is returned for it; any other value is an error.
    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, u64, T)]) -> Option<T> {
        let field = self.get(name)?;
        let (text, value) = (field.value().as_str(), field.value().as_u64());
        let chosen = choices.iter().find(|(name, number, _)| text == Some(name) || value == Some(*number));
        if chosen.is_none() {
            let known: Vec<_> = choices.iter().map(|(name, ..)| *name).collect();
            field.fail(format!("{} is not supported; known are {}", field.value(), known.join(", ")));
        }
        chosen.map(|(.., value)| *value)
    }

    /// Reports unsupported fields that would change the behavior of the client. `false`, an empty text and an empty list are as good
    /// as absent.
    /// Reading them here keeps `end` from a warning beside the error.
    pub(super) fn refuse(&self, names: &[&str]) {
        let is_set = |name: &&&str| self.get(name).is_some_and(|field| !is_default(field.value()));
        for name in names.iter().filter(is_set) {
            self.fail(name, "not supported");
        }
    }

    /// Marks fields as read whose effect is the default behavior.
    pub(super) fn heed(&self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.get(name)));
    }

    /// Reports an error in a field.
    pub(super) fn fail(&self, name: &str, reason: impl Into<String>) {
        self.fields.fail(&self.spelling(name), reason);
    }

    /// Reports an error in the message.
    pub(super) fn fail_whole(&self, reason: impl Into<String>) {
        self.fields.problems().add(ValidationError::new(self.fields.path(), reason));
    }

    /// Reports that a field, if present, is ignored, with the reason.
    pub(super) fn warn(&self, name: &str, reason: &str) {
        if self.has(name) {
            self.fields.problems().warn(|| self.fields.path_of(&self.spelling(name)), reason);
        }
    }

    /// Reports that a part of the message is ignored.
    pub(super) fn warn_whole(&self, reason: &str) {
        self.fields.problems().warn(|| self.fields.path().to_owned(), reason);
    }

    /// Reports the fields that were not read.
    pub(super) fn end(&self) {
        let read = self.read.borrow();
        self.fields.warn_of_others(|name| read.contains(name));
    }

    /// The spelling of a field's name in the document.
    fn spelling(&self, name: &str) -> String {
        let camel = camel_case(name);
        match self.fields.get(name).is_none() && self.fields.get(&camel).is_some() {
            true => camel,
            false => name.to_owned(),
        }
    }
}

/// Whether a value is that of a field that is not there. An empty message is not: it may choose something by being there.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The name of a field in protobuf's JSON.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        camel.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        camel.push_str(chars.as_str());
    }
    camel
}
