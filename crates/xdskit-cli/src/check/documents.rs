//! The resources in a document: a response, a single resource, a list of them, the dump of Envoy's configuration, or a client's status.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use serde_json::Value;
use xdskit::{
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource as Wrapper},
        google::protobuf::Any,
    },
    tool_support::{self, DocumentError},
};

use super::{input::Document, kinds::Kind, source::Step};

/// A resource in a document.
#[derive(Debug)]
pub(crate) struct Found {
    /// The type.
    pub(crate) kind: &'static Kind,
    /// The message.
    pub(crate) bytes: Bytes,
    /// The path in the document.
    pub(crate) place: Vec<Step>,
}

/// What else a document has to say.
#[derive(Debug)]
pub(crate) enum Remark {
    /// A resource cannot be read.
    Malformed(DocumentError),
    /// A field is not known: its path and the warning.
    UnknownField(String, String),
    /// A resource has a type that is not known.
    UnknownType(String),
}

/// The content of a document.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The resources.
    pub(crate) resources: Vec<Found>,
    /// The rest, each with its path in the document.
    pub(crate) remarks: Vec<(Vec<Step>, Remark)>,
    /// The number of resources beyond the limit.
    pub(crate) beyond: usize,
}

impl Content {
    /// Reads the resources of a document.
    ///
    /// # Errors
    /// The document is no message with resources.
    pub(crate) fn read(document: &Document) -> Result<Self, DocumentError> {
        let mut content = Self::default();
        match document {
            Document::Value(value, _) => content.walk(value)?,
            Document::Text(text, _) => {
                let read = tool_support::read_text(text)?;
                for warning in read.warnings {
                    content.warn(Vec::new(), &warning);
                }
                content.response(&read.message)?;
            }
            Document::Binary(bytes) => content.binary(bytes)?,
        }
        if content.resources.is_empty() && content.remarks.is_empty() {
            let reason = "has no resources: a resource is an object with its type in \"@type\", alone, in a list, or in the \
                          resources of a response";
            return Err(DocumentError { position: None, path: String::new(), reason: reason.to_owned() });
        }
        Ok(content)
    }

    /// Reads all resources in a value, wherever they are.
    fn walk(&mut self, value: &Value) -> Result<(), DocumentError> {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            let reason = "must be an object or a list".to_owned();
            return Err(DocumentError { position: None, path: String::new(), reason });
        }
        let mut places = Places::default();
        places.collect(value, &mut Vec::new(), false);
        let active: BTreeSet<_> = places.active.iter().filter_map(|(_, value)| identity(value)).collect();
        let warming = places.warming.into_iter();
        let new = warming.filter(|(_, value)| identity(value).is_none_or(|one| !active.contains(&one)));
        for (place, value) in places.active.iter().cloned().chain(new) {
            self.value(place, value);
        }
        self.remarks.extend(places.unknown);
        Ok(())
    }

    /// Reads a resource in JSON.
    fn value(&mut self, place: Vec<Step>, value: &Value) {
        let read = match tool_support::read_any(value) {
            Ok(read) => read,
            Err(error) => return self.remarks.push((place, Remark::Malformed(error))),
        };
        for warning in &read.warnings {
            self.warn(place.clone(), warning);
        }
        if let Ok(any) = Any::decode(read.message) {
            self.add(any, place);
        }
    }

    /// Reads a message in the wire format.
    fn binary(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        if self.response(bytes).is_ok() && !(self.resources.is_empty() && self.remarks.is_empty()) {
            return Ok(());
        }
        *self = Self::default();
        match Any::decode(bytes) {
            Ok(any) if any.type_url.contains('/') => {
                self.add(any, Vec::new());
                Ok(())
            }
            Ok(_) | Err(_) => {
                let reason = "is neither a DiscoveryResponse with resources nor an Any".to_owned();
                Err(DocumentError { position: None, path: String::new(), reason })
            }
        }
    }

    /// Reads the resources of a response in the wire format.
    fn response(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        let failed = |reason: String| DocumentError { position: None, path: String::new(), reason };
        let response = DiscoveryResponse::decode(bytes)
            .map_err(|error| failed(format!("is not a DiscoveryResponse: {error}")))?;
        if let Some(index) = response.resources.iter().position(|any| !any.type_url.contains('/')) {
            return Err(failed(format!("resources[{index}] has no type URL")));
        }
        for (index, any) in response.resources.into_iter().enumerate() {
            self.add(any, vec![Step::Field("resources".to_owned()), Step::Index(index)]);
        }
        Ok(())
    }

    /// Adds a resource, without its wrapper.
    fn add(&mut self, any: Any, mut place: Vec<Step>) {
        let Any { type_url, value } = any;
        if type_url == WRAPPER {
            match Wrapper::decode(&*value).map(|wrapper| wrapper.resource) {
                Ok(Some(any)) if any.type_url != WRAPPER => {
                    place.push(Step::Field("resource".to_owned()));
                    return self.add(any, place);
                }
                Ok(_) => {}
                Err(error) => {
                    let reason = format!("is not a Resource: {error}");
                    let error = DocumentError { position: None, path: String::new(), reason };
                    return self.remarks.push((place, Remark::Malformed(error)));
                }
            }
        }
        match Kind::of(&type_url) {
            Some(_) if self.resources.len() >= MAX_RESOURCES => self.beyond += 1,
            Some(kind) => self.resources.push(Found { kind, bytes: value, place }),
            None => self.remarks.push((place, Remark::UnknownType(type_url))),
        }
    }

    /// Adds a warning of the reader: a path, and what is skipped there.
    fn warn(&mut self, place: Vec<Step>, warning: &str) {
        let (path, what) = warning.split_once(": ").unwrap_or(("", warning));
        self.remarks.push((place, Remark::UnknownField(path.to_owned(), what.to_owned())));
    }
}

/// The places of resources in a value.
#[derive(Debug, Default)]
struct Places<'v> {
    /// Resources.
    active: Vec<(Vec<Step>, &'v Value)>,
    /// Resources that Envoy does not use yet.
    warming: Vec<(Vec<Step>, &'v Value)>,
    /// Resources of types that are not known.
    unknown: Vec<(Vec<Step>, Remark)>,
}

impl<'v> Places<'v> {
    /// Collects the resources in a value, whose depth its reader has limited.
    fn collect(&mut self, value: &'v Value, place: &mut Vec<Step>, is_warming: bool) {
        match value {
            Value::Object(fields) => {
                let type_url = fields.get("@type").and_then(Value::as_str);
                if type_url.is_some_and(|type_url| Kind::of(type_url).is_some()) {
                    let list = if is_warming { &mut self.warming } else { &mut self.active };
                    list.push((place.clone(), value));
                    return;
                }
                let before = self.active.len() + self.warming.len() + self.unknown.len();
                for (name, value) in fields {
                    // What a client has rejected, and what it is about to drop, is not its configuration.
                    if SKIPPED.contains(&name.as_str()) {
                        continue;
                    }
                    place.push(Step::Field(name.clone()));
                    self.collect(value, place, is_warming || name.contains("warming"));
                    place.pop();
                }
                let is_empty = before == self.active.len() + self.warming.len() + self.unknown.len();
                if let Some(type_url) = type_url.filter(|url| is_empty && !url.contains("/envoy.admin.")) {
                    self.unknown.push((place.clone(), Remark::UnknownType(type_url.to_owned())));
                }
            }
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    place.push(Step::Index(index));
                    self.collect(value, place, is_warming);
                    place.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The type and the name of a resource in JSON.
fn identity(value: &Value) -> Option<(&str, &str)> {
    let name = value.get("name").or_else(|| value.get("cluster_name"))?;
    Some((value.get("@type")?.as_str()?, name.as_str()?))
}

/// The fields of dumps that hold what is not in use.
const SKIPPED: [&str; 3] = ["error_state", "draining_state", "bootstrap"];
/// The type URL of wrapped resources.
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
/// The most resources of a document.
const MAX_RESOURCES: usize = 100_000;
