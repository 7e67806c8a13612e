//! Conversions of messages from canonical JSON, YAML and protobuf's text format, and to canonical JSON, by the
//! descriptors of `proto/`.
//!
//! ```text
//!   YAML ──▶ value of JSON ──▶ parse ──▶ bytes ──▶ print ──▶ value of JSON
//!   text ──▶ entries ────────────────────▶
//! ```
//!
//! Values are encoded directly, in the order of field numbers, and not by dynamic messages: these have unordered
//! maps, so that the encoding of the same document would change with each reading.
//!
//! - Unknown fields are skipped, with a warning that has their path: `proto/` contains only the used parts of the
//!   published messages, and unknown fields are skipped in binary documents, too. Unknown names of enum values become
//!   a number without a defined value.
//! - An [`Any`](any) of an unknown type is kept as it is, and fails only where it would in binary.
//! - Documents are limited in size and in depth; the depth bounds recursion.

mod any;
#[cfg(feature = "tool-support")]
mod descriptors;
mod document;
mod error;
mod known;
#[cfg(feature = "tool-support")]
mod outline;
mod parse;
mod print;
mod scalar;
mod text;
mod time;
mod types;
#[cfg(feature = "tool-support")]
mod visit;
mod yaml;

#[cfg(test)]
mod tests;

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

#[cfg(feature = "tool-support")]
pub(crate) use self::descriptors::Descriptors;
pub(crate) use self::error::FormatError;
#[cfg(feature = "tool-support")]
pub(crate) use self::visit::visit;
#[cfg(feature = "tool-support")]
pub use self::{outline::Outline, visit::Visited};
use self::{parse::Parser, print::Printer, types::Types};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Protobuf's wire format, by the extension `pb`.
    Binary,
    /// Protobuf's text format, by the extension `pb_text`.
    Text,
    /// YAML, for the extensions `yaml` and `yml`.
    Yaml,
    /// JSON, for all other extensions.
    Json,
}

impl Format {
    /// The format of a file by its extension (D5).
    pub(crate) fn from_path(path: &Path) -> Self {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("pb") => Self::Binary,
            Some("pb_text") => Self::Text,
            Some("yaml" | "yml") => Self::Yaml,
            Some(_) | None => Self::Json,
        }
    }
}

/// The result of reading, as a protobuf message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) message: Bytes,
    /// Warnings about skipped parts, each with its path; limited to the first ones.
    pub(crate) warnings: Vec<String>,
    /// Whether it contains a list of resources, possibly empty, which a truncated document may not.
    pub(crate) lists_resources: bool,
}

/// Reads a `DiscoveryResponse`, or a `Resource` with a list collection, which becomes the only resource of a response
/// (D6, D9).
///
/// # Errors
/// The document is neither. An empty document is an error, too, and never a response without resources (D7).
pub(crate) fn read(document: &[u8], format: Format) -> Result<Read, FormatError> {
    // Before anything is parsed: a parsed document takes several times the memory of its text.
    if document.len() > MAX_SIZE {
        return Err(FormatError::document(format!("is larger than {MAX_SIZE} bytes")));
    }
    match format {
        Format::Binary => document::binary(document),
        Format::Text => document::text(utf8(document)?),
        Format::Yaml => document::value(&yaml::read(utf8(document)?)?),
        Format::Json => document::value(&json(document)?),
    }
}

/// Reads a message from canonical JSON.
///
/// `message` is the full name of the message, such as `envoy.service.discovery.v3.DiscoveryRequest`. Unknown fields are warnings.
///
/// # Errors
/// The text is not JSON, or not of that message.
pub(crate) fn decode_json(message: &str, json_text: &[u8]) -> Result<Read, FormatError> {
    let types = Types::load();
    let message = types.message(message).ok_or_else(|| unknown(message))?;
    let value = json(json_text)?;
    let mut parser = Parser::new(types);
    let bytes = parser.message(&message, &value)?;
    // Without a meaning for other messages than responses: requests list no resources.
    Ok(Read { message: bytes.into(), warnings: parser.into_warnings(), lists_resources: true })
}

/// Converts a message to canonical JSON, with the names of fields as in their definition (D10).
///
/// Default values of fields without presence are left out, and so are fields without a definition.
///
/// # Errors
/// The bytes are not of that message, or too deep. The content of an `Any` is never an error.
pub(crate) fn encode_json(message: &str, bytes: &[u8]) -> Result<String, FormatError> {
    let types = Types::load();
    let message = types.message(message).ok_or_else(|| unknown(message))?;
    let shown = Printer::new(types).show(&message, bytes).map_err(|unshown| unshown.into_error(&message))?;
    Ok(shown.to_string())
}

/// Converts a message of a type URL to the JSON form of an `Any`; an unknown, malformed or too deep message is
/// represented by its bytes.
pub(crate) fn show_any(type_url: &str, bytes: &[u8]) -> Value {
    Printer::new(Types::load()).show_any(type_url, bytes)
}

/// Reads an `Any` from its canonical JSON.
///
/// # Errors
/// The value is not the JSON form of an `Any`, or of the message in it.
#[cfg(feature = "tool-support")]
pub(crate) fn read_any(value: &Value) -> Result<Read, FormatError> {
    const ANY: &str = "google.protobuf.Any";
    let types = Types::load();
    let message = types.message(ANY).ok_or_else(|| unknown(ANY))?;
    let mut parser = Parser::new(types);
    let bytes = parser.message(&message, value)?;
    Ok(Read { message: bytes.into(), warnings: parser.into_warnings(), lists_resources: true })
}

/// Reads the positions of the values of a message in protobuf's text format.
///
/// # Errors
/// The syntax of the text is wrong.
#[cfg(feature = "tool-support")]
pub(crate) fn outline_text(text: &str) -> Result<Outline, FormatError> {
    Ok(text::Text::read(text)?.outline())
}

/// Reads YAML as a JSON value.
pub(crate) fn read_yaml(document: &str) -> Result<Value, FormatError> {
    yaml::read(document)
}

fn json(document: &[u8]) -> Result<Value, FormatError> {
    let document = without_byte_order_mark(document);
    if document.trim_ascii().is_empty() {
        return Err(FormatError::document("there is nothing in it"));
    }
    serde_json::from_slice(document).map_err(|e| {
        // The column is that of the last byte that was read, and 0 if the text ends with a line feed.
        let position = error::Position::Text { line: e.line(), column: e.column().max(1) };
        let why = e.to_string();
        // The text of serde_json ends with the position, which the error has as numbers.
        let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
        FormatError::at(position, why)
    })
}

fn utf8(document: &[u8]) -> Result<&str, FormatError> {
    let text = without_byte_order_mark(document);
    std::str::from_utf8(text).map_err(|e| FormatError::document(format!("is not UTF-8: {e}")))
}

/// Skips the byte order mark that some editors write before UTF-8.
fn without_byte_order_mark(document: &[u8]) -> &[u8] {
    document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document)
}

fn unknown(message: &str) -> FormatError {
    FormatError::document(format!("{message} is not a known message"))
}

/// The maximum size of a document, as of a response on a stream, in bytes.
const MAX_SIZE: usize = 256 << 20;
