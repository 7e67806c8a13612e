//! The files of a check: their formats, and their bytes within a limit.

use std::{
    io::{self, Read},
    path::Path,
};

use clap::ValueEnum;
use serde_json::Value;
use xdskit::tool_support::{self, DocumentError, Outline};

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Json,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Yaml,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Text,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Binary,
}

/// A document, before its resources are read.
#[derive(Debug)]
pub(crate) enum Document {
    /// JSON or YAML, as a value, with the positions in it.
    Value(Value, Outline),
    /// A response in protobuf's text format, with the positions in it.
    Text(Vec<u8>, Outline),
    /// A message in the wire format.
    Binary(Vec<u8>),
}

impl Format {
    /// The format of a file, by its extension or else by its content.
    fn detect(path: &Path, bytes: &[u8]) -> Self {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            Some("pb_text" | "pbtxt" | "txtpb" | "textproto" | "prototxt") => Self::Text,
            Some("pb" | "binpb" | "bin") => Self::Binary,
            Some(_) | None => Self::of_content(bytes),
        }
    }

    /// The format of a content without a name.
    fn of_content(bytes: &[u8]) -> Self {
        let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t');
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::Binary };
        if bytes.iter().any(is_control) {
            return Self::Binary;
        }
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
        let first = lines.peek().copied().unwrap_or("{");
        if first.starts_with("[type.") || lines.take(MAX_LINES).any(begins_message) {
            return Self::Text;
        }
        if first.starts_with(['{', '[']) { Self::Json } else { Self::Yaml }
    }
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// The input is not of the format.
    pub(crate) fn read(format: Format, bytes: Vec<u8>) -> Result<Self, DocumentError> {
        match format {
            Format::Binary => Ok(Self::Binary(bytes)),
            Format::Text => {
                let text = utf8(&bytes)?;
                // A message alone is the only resource of a response.
                if text.trim_start().starts_with('[') {
                    let wrapped = format!("resources {{\n{text}\n}}");
                    let outline = shifted(tool_support::outline_text(&wrapped));
                    return Ok(Self::Text(wrapped.into_bytes(), outline));
                }
                let outline = tool_support::outline_text(text);
                Ok(Self::Text(bytes, outline))
            }
            Format::Yaml => {
                let text = utf8(&bytes)?;
                Ok(Self::Value(tool_support::read_yaml(text)?, tool_support::outline_yaml(text)))
            }
            Format::Json => {
                let text = utf8(&bytes)?;
                let value = serde_json::from_str(text).map_err(|error| {
                    let message = error.to_string();
                    // The text of serde_json ends with the position, which the error has as numbers.
                    let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
                    let position = Some((error.line(), error.column().max(1)));
                    DocumentError { position, path: String::new(), reason: reason.to_owned() }
                })?;
                Ok(Self::Value(value, tool_support::outline_json(text)))
            }
        }
    }
}

/// Reads a file, or the standard input for `-`, and detects its format unless that is given.
///
/// # Errors
/// A text with the reason: it cannot be read, is no regular file, or is too large.
pub(crate) fn read(path: &Path, format: Option<Format>) -> Result<(Format, Vec<u8>), String> {
    let bytes = if path.as_os_str() == STDIN {
        let mut bytes = Vec::new();
        let limited = io::stdin().lock().take(MAX_SIZE + 1).read_to_end(&mut bytes);
        limited.map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(format!("larger than {} MiB", MAX_SIZE >> 20));
        }
        bytes
    } else {
        let named = tool_support::in_file("FILE", path, &"");
        let read = tool_support::read_file("FILE", path, MAX_SIZE);
        read.map_err(|error| error.strip_prefix(&*named).unwrap_or(&error).to_owned())?
    };
    Ok((format.unwrap_or_else(|| Format::detect(path, &bytes)), bytes))
}

/// The text of a document, without the byte order mark that some editors write before it.
fn utf8(bytes: &[u8]) -> Result<&str, DocumentError> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').next_back().unwrap_or_default();
        let column = String::from_utf8_lossy(line).chars().count() + 1;
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let reason = format!("is not UTF-8: {error}");
        DocumentError { position: Some((lines + 1, column)), path: String::new(), reason }
    })
}

/// The outline of a text behind a line that was put in front of it.
fn shifted(outline: Outline) -> Outline {
    let fields = outline.fields.into_iter().map(|(name, value)| (name, shifted(value)));
    Outline {
        line: outline.line.saturating_sub(1).max(1),
        column: outline.column,
        fields: fields.collect(),
        elements: outline.elements.into_iter().map(shifted).collect(),
    }
}

/// Whether a line begins a message of protobuf's text format: a name without a colon before a brace.
fn begins_message(line: &str) -> bool {
    let name = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(line.len());
    name > 0 && line[name..].trim_start().starts_with(['{', '<'])
}

/// The lines that the format of a content is detected by.
const MAX_LINES: usize = 1_000;

/// The path of the standard input.
pub(crate) const STDIN: &str = "-";

/// The maximum size of a file in bytes.
const MAX_SIZE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_the_extension_or_of_the_content() {
        for (path, content, expected) in [
            ("a.json", "", Format::Json),
            ("a.YML", "", Format::Yaml),
            ("a.textproto", "", Format::Text),
            ("a.pb", "", Format::Binary),
            ("-", "\n{\"a\": 1}", Format::Json),
            ("-", "[{}]", Format::Json),
            ("-", "# x\nresources {\n}", Format::Text),
            ("-", "version_info: '1'\nresources {\n}", Format::Text),
            ("-", "[type.googleapis.com/x] {}", Format::Text),
            ("-", "resources:\n- a: 1", Format::Yaml),
            ("-", "- a: 1", Format::Yaml),
            ("a.conf", "\n\u{5}a{", Format::Binary),
            ("-", "", Format::Json),
        ] {
            assert_eq!(Format::detect(Path::new(path), content.as_bytes()), expected, "{path} {content:?}");
        }
        assert_eq!(Format::of_content(b"\xff"), Format::Binary);
    }

    #[test]
    fn what_is_no_text_has_its_position() {
        let error = Document::read(Format::Json, b"{\n \"\xff\"}".to_vec()).unwrap_err();
        assert_eq!(error.position, Some((2, 3)));
        assert!(error.reason.starts_with("is not UTF-8"), "{}", error.reason);
        let error = Document::read(Format::Json, b"{\n,}".to_vec()).unwrap_err();
        assert_eq!(error.position, Some((2, 1)));
    }
}
