//! Messages of applications, by a descriptor set that is known at run time alone.

use prost_reflect::{DescriptorPool, MessageDescriptor};
use serde_json::Value;

use super::{FormatError, any, print::Printer, types::Types, unknown};
use crate::redact;

/// The messages of a `google.protobuf.FileDescriptorSet`.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors(DescriptorPool);

impl Descriptors {
    /// Reads a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.
    ///
    /// # Errors
    /// The bytes are no such set, or one of its files refers to something that is not in it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        DescriptorPool::decode(bytes).map(Self).map_err(|error| error.to_string())
    }

    /// Whether the message of a type URL is in the set.
    pub(crate) fn has(&self, type_url: &str) -> bool {
        self.message(type_url).is_some()
    }

    /// Converts a message of the set to the JSON form of an `Any`, without the credentials in the protocol's messages at any depth.
    ///
    /// # Errors
    /// The message is not in the set, or the bytes are not of it, or too deep.
    pub(crate) fn show(&self, type_url: &str, bytes: &[u8]) -> Result<Value, FormatError> {
        let message = self.message(type_url).ok_or_else(|| unknown(type_url))?;
        let redacted = redact::redacted(type_url, bytes);
        let bytes = redacted.as_deref().unwrap_or(bytes);
        let printer = Printer::new(Types::load()).with_own(&self.0);
        let mut shown =
            printer.show_fields(&message, bytes).map_err(|unshown| unshown.into_error(&message))?;
        shown.insert(any::TYPE.to_owned(), Value::String(type_url.to_owned()));
        Ok(Value::Object(shown))
    }

    fn message(&self, type_url: &str) -> Option<MessageDescriptor> {
        let (_, name) = type_url.rsplit_once('/')?;
        self.0.get_message_by_name(name).filter(|found| !found.is_map_entry())
    }
}
