//! Whole documents: the detection of their message, and checks that they are not empty.

use prost::Message;
use prost_reflect::MessageDescriptor;
use serde_json::Value;

use super::{
    Read,
    error::FormatError,
    parse::Parser,
    scalar::found,
    text::Text,
    types::{Types, is_collection},
};
use crate::{
    base::type_url::WRAPPER,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource},
        google::protobuf::Any,
    },
};

/// Reads a JSON value, whatever the language of the document.
pub(super) fn value(value: &Value) -> Result<Read, FormatError> {
    let Value::Object(object) = value else {
        return Err(FormatError::document(format!("must be an object, not {}", found(value))));
    };
    let has =
        |names: &[&str]| names.iter().any(|name| object.get(*name).is_some_and(|value| !value.is_null()));
    let (shape, lists) = (Shape::of(has)?, has(&["resources"]));
    let types = Types::load();
    let mut parser = Parser::new(types);
    let message = parser.message(&shape.message(types)?, value)?;
    shape.finish(types, message, lists, parser.into_warnings())
}

/// Reads protobuf's text format.
pub(super) fn text(text: &str) -> Result<Read, FormatError> {
    let text = Text::read(text)?;
    let has = |names: &[&str]| names.iter().any(|name| text.names(name));
    let (shape, lists) = (Shape::of(has)?, has(&["resources"]));
    let types = Types::load();
    let (message, warnings) = text.write(types, &shape.message(types)?)?;
    shape.finish(types, message, lists, warnings)
}

/// Reads the wire format. Almost any bytes can be decoded as a message of unknown fields, so known ones are required.
pub(super) fn binary(document: &[u8]) -> Result<Read, FormatError> {
    let not_one = |why: &str| FormatError::document(format!("is not a DiscoveryResponse: {why}"));
    let response = DiscoveryResponse::decode(document).map_err(|e| not_one(&e.to_string()))?;
    // D7: an empty file must not delete all resources, and so must not one that is cut off before them.
    if response.version_info.is_empty() && response.type_url.is_empty() && response.resources.is_empty() {
        return Err(not_one("it has neither a version nor a type nor resources"));
    }
    if let Some(index) = response.resources.iter().position(|any| !any.type_url.contains('/')) {
        return Err(not_one(&format!("resources[{index}] has no type URL")));
    }
    // The type is written after the resources: a document that was cut off before both has neither.
    let lists_resources = !response.type_url.is_empty() || !response.resources.is_empty();
    Ok(Read { message: document.to_vec().into(), warnings: Vec::new(), lists_resources })
}

/// The message of a document.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A `DiscoveryResponse`.
    Response,
    /// A list collection in its wrapper.
    Collection,
}

impl Shape {
    /// Detects the message by its fields; `names` is whether a document has one of some fields.
    fn of(names: impl Fn(&[&str]) -> bool) -> Result<Self, FormatError> {
        // D9: the wrapper of a list has the field `resource`, which no response has.
        if names(&["resource"]) && !names(&["resources"]) {
            return Ok(Self::Collection);
        }
        // D7: without this check, misspelled names would make an empty response of a document, which deletes resources.
        match names(&["resources", "version_info", "versionInfo", "type_url", "typeUrl"]) {
            true => Ok(Self::Response),
            false => Err(FormatError::document(
                "has neither resources nor a version, so it is not a DiscoveryResponse",
            )),
        }
    }

    /// The descriptor of the message.
    fn message(self, types: Types) -> Result<MessageDescriptor, FormatError> {
        let name = match self {
            Self::Response => "envoy.service.discovery.v3.DiscoveryResponse",
            Self::Collection => "envoy.service.discovery.v3.Resource",
        };
        types.message(name).ok_or_else(|| super::unknown(name))
    }

    /// Checks an encoded message, and makes a response of it. `lists` is whether there is a list of resources, which may be
    /// empty.
    fn finish(
        self,
        types: Types,
        message: Vec<u8>,
        lists: bool,
        warnings: Vec<String>,
    ) -> Result<Read, FormatError> {
        let message = match self {
            Self::Response if message.is_empty() && !lists => {
                return Err(FormatError::document("empty: neither resources nor a version nor a type_url"));
            }
            Self::Response => message,
            Self::Collection => around(types, message, &warnings)?,
        };
        // A document that was cut off behind its version has none: it is no proof that resources are gone (found by fuzzing).
        let lists_resources = lists || matches!(self, Self::Collection);
        Ok(Read { message: message.into(), warnings, lists_resources })
    }
}

/// A response with a list collection in its wrapper as its only resource.
fn around(types: Types, wrapper: Vec<u8>, warnings: &[String]) -> Result<Vec<u8>, FormatError> {
    let read = Resource::decode(&*wrapper);
    let Resource { version, resource, .. } =
        read.map_err(|e| FormatError::document(format!("is not a Resource: {e}")))?;
    let Any { type_url, value } = resource.unwrap_or_default();
    // Protobuf's text format has no other place for this.
    if let Some(warning) = warnings.iter().find(|_| value.is_empty()) {
        return Err(FormatError::document(format!(
            "a list collection without `entries` would remove all members; {warning}"
        )));
    }
    if !types.of_url(&type_url).is_some_and(|message| is_collection(&message)) {
        return Err(FormatError::document(format!(
            "resource is of the type {type_url:?}, which is not a list collection"
        )));
    }
    // In its wrapper, since a list has no name in it; the response has the version of the wrapper, as the document has no other.
    let resource = Any { type_url: WRAPPER.to_owned(), value: wrapper.into() };
    let response = DiscoveryResponse {
        version_info: version,
        type_url,
        resources: vec![resource],
        ..Default::default()
    };
    Ok(response.encode_to_vec())
}
