//! Messages as canonical JSON, YAML and protobuf's text format, by the descriptors of `proto/`.
//!
//! ```text
//!   YAML ──▶ value of JSON ──▶ parse ──▶ bytes ──▶ print ──▶ value of JSON
//!   text ──▶ entries ────────────────────▶
//! ```
//!
//! Values are written as bytes at once, in the order of their numbers, and not as dynamic messages: these hold maps in no
//! order, so that the same document would look changed each time that it is read.
//!
//! - Fields that are not known are passed over, with a warning that has their path: `proto/` has no more of the published
//!   messages than is used, and binary documents are read so, too. Names of enums' values that are not known become a
//!   number that none has.
//! - An [`Any`](any) of an unknown type is kept as it is, and fails only where it would in binary.
//! - What is read is limited in size and in depth, and what calls itself has that depth as its bound.

mod any;
mod document;
mod error;
mod known;
mod parse;
mod print;
mod scalar;
mod text;
mod time;
mod types;
mod yaml;

#[cfg(test)]
mod tests;

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use self::error::FormatError;
use self::{known::Unshown, parse::Parser, print::Printer, types::Types};

/// What a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Protobuf's own, by the extension `pb`.
    Binary,
    /// Protobuf's text format, by the extension `pb_text`.
    Text,
    /// By the extensions `yaml` and `yml`.
    Yaml,
    /// By all other extensions.
    Json,
}

impl Format {
    /// The format that a file's extension says it is written in (D5).
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

/// What was read, as a protobuf message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) message: Bytes,
    /// What was passed over, each with its path; of very many the first.
    pub(crate) warnings: Vec<String>,
    /// It says which resources there are, and be it none: more than what a document that was cut off may say.
    pub(crate) lists_resources: bool,
}

/// Reads a `DiscoveryResponse`, or a `Resource` that is a list collection, which becomes the only resource of a response
/// (D6, D9).
///
/// # Errors
/// When it is neither. What says nothing at all is an error, too, and never a response without resources (D7).
pub(crate) fn read(document: &[u8], format: Format) -> Result<Read, FormatError> {
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
/// # Errors
/// When it is not JSON, or not of that message.
pub(crate) fn decode_json(message: &str, json_text: &[u8]) -> Result<Read, FormatError> {
    let types = Types::load();
    let message = types.message(message).ok_or_else(|| unknown(message))?;
    let value = json(json_text)?;
    let mut parser = Parser::new(types);
    let bytes = parser.message(&message, &value)?;
    Ok(Read { message: bytes.into(), warnings: parser.into_warnings(), lists_resources: true })
}

/// Writes a message as canonical JSON, with the names of fields as in their definition (D10).
///
/// # Errors
/// When the bytes are not of that message, or too deep. What is within an `Any` is never an error.
pub(crate) fn encode_json(message: &str, bytes: &[u8]) -> Result<String, FormatError> {
    let types = Types::load();
    let message = types.message(message).ok_or_else(|| unknown(message))?;
    let shown = Printer::new(types).show(&message, bytes).map_err(|unshown| {
        FormatError::document(match unshown {
            Unshown::Malformed(malformed) => format!("is not a {}: {malformed}", message.name()),
            Unshown::TooDeep => "is nested too deep for JSON".to_owned(),
            Unshown::OutOfRange(what) => format!("has {what}"),
        })
    })?;
    Ok(shown.to_string())
}

/// Shows a message of a type URL as an `Any` is shown: what is not known, malformed or too deep is shown as its bytes.
pub(crate) fn show_any(type_url: &str, bytes: &[u8]) -> Value {
    Printer::new(Types::load()).show_any(type_url, bytes)
}

/// Reads YAML as a value of JSON.
pub(crate) fn read_yaml(document: &str) -> Result<Value, FormatError> {
    yaml::read(document)
}

fn json(document: &[u8]) -> Result<Value, FormatError> {
    if document.trim_ascii().is_empty() {
        return Err(FormatError::document("there is nothing in it"));
    }
    serde_json::from_slice(document).map_err(|e| {
        // The column is that of the last byte that was read: 0 where the text ends with a line end.
        let place = error::Place::Text { line: e.line(), column: e.column().max(1) };
        let why = e.to_string();
        let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
        FormatError::at(place, why)
    })
}

fn utf8(document: &[u8]) -> Result<&str, FormatError> {
    let text = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    std::str::from_utf8(text).map_err(|e| FormatError::document(format!("is not UTF-8: {e}")))
}

fn unknown(message: &str) -> FormatError {
    FormatError::document(format!("{message} is not a known message"))
}

/// As much as a response may have on a stream.
const MAX_SIZE: usize = 256 << 20;
