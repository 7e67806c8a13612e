//! What the command-line tool `xdskit` needs of this crate beside its API. This is no part of the API, and may change in any
//! release.

use std::{
    fmt::{self, Display},
    future::Future,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use serde_json::Value;
use tokio_rustls::rustls::crypto::CryptoProvider;

pub use crate::format::{Outline, Visited};
use crate::{
    background,
    client::{self, table},
    error::{Blame, Code, Subject, WatchError},
    escape, file_reads,
    format::{self, Format, FormatError},
    redact,
    tls::Crypto,
};

/// Readings of files that must not hang, each within a limit of time.
#[derive(Debug, Default)]
pub struct FileReads(file_reads::FileReads);

impl FileReads {
    /// Reads a file, or several that belong together, of which one is named.
    ///
    /// # Cancel safety
    /// The reading goes on without its result.
    ///
    /// # Errors
    /// The error of the reading, or a text with the field and the path, if it does not end in time.
    pub async fn read<T: Send + 'static>(
        &self,
        field: &str,
        path: &Path,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        self.0.read(field, path, read).await
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// A text with the field, the path and the reason.
pub fn read_file(field: &str, path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    file_reads::read(field, path, limit)
}

/// Formats an error of a file: the field that names it, its path, and the reason.
pub fn in_file(field: &str, path: &Path, reason: &dyn Display) -> String {
    file_reads::in_file(field, path, reason)
}

/// Wraps a background task, whose panic is logged with its name.
pub fn supervise(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    background::supervise(name, task, |_| {})
}

/// Cuts a text after so many characters, with a mark if it is longer.
pub fn cut(text: impl Display, limit: usize) -> String {
    escape::cut(text, limit)
}

/// Makes an error of a resource that does not exist, for tests.
pub fn not_found(type_url: &'static str, name: &str, node: &str, reason: &str) -> WatchError {
    let about = Subject { type_url, name: name.into(), node: node.into() };
    WatchError::new(Code::NotFound, Blame::Peer, about, reason)
}

/// Chooses the cryptography of a client without one of its own.
///
/// # Errors
/// There is none: the process has no default, and the features none either.
pub fn crypto_provider() -> Result<Arc<CryptoProvider>, String> {
    Crypto::choose(None).provider().cloned().map_err(|missing| missing.to_string())
}

/// Converts a message of a known type to canonical JSON.
///
/// # Errors
/// The type is unknown, or the bytes are no such message.
pub fn encode_json(message: &str, bytes: &[u8]) -> Result<String, String> {
    format::encode_json(message, bytes).map_err(|error| error.to_string())
}

/// A message that was read from a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadMessage {
    /// The message in the wire format.
    pub message: Bytes,
    /// Warnings about skipped parts, each with its path in front of `: `; the first 64 alone, and the number of others.
    pub warnings: Vec<String>,
}

/// The reason why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// Line and column, both from 1, if known.
    pub position: Option<(usize, usize)>,
    /// The path of the field; empty if not known.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl From<FormatError> for DocumentError {
    fn from(error: FormatError) -> Self {
        let path = error.path().unwrap_or_default().to_owned();
        Self { position: error.position(), path, reason: error.why().to_owned() }
    }
}

impl From<format::Read> for ReadMessage {
    fn from(read: format::Read) -> Self {
        Self { message: read.message, warnings: read.warnings }
    }
}

/// Reads the JSON form of an `Any`.
///
/// # Errors
/// The value is none, or a field of the message in it has another type.
pub fn read_any(value: &Value) -> Result<ReadMessage, DocumentError> {
    Ok(format::read_any(value)?.into())
}

/// Reads a `DiscoveryResponse` from protobuf's text format.
///
/// # Errors
/// The text is none.
pub fn read_text(text: &[u8]) -> Result<ReadMessage, DocumentError> {
    Ok(format::read(text, Format::Text)?.into())
}

/// Reads a YAML text with one document as a JSON value.
///
/// # Errors
/// The text is none.
pub fn read_yaml(text: &str) -> Result<Value, DocumentError> {
    Ok(format::read_yaml(text)?)
}

/// Returns the positions of the values of a JSON text.
pub fn outline_json(text: &str) -> Outline {
    Outline::of_json(text)
}

/// Returns the positions of the values of a YAML text.
pub fn outline_yaml(text: &str) -> Outline {
    Outline::of_yaml(text)
}

/// Returns the positions of the values of a message in protobuf's text format; an empty outline if it is none.
pub fn outline_text(text: &str) -> Outline {
    format::outline_text(text).unwrap_or_default()
}

/// Converts a resource to the JSON form of an `Any`; what cannot be shown is represented by its bytes.
pub fn show_any(type_url: &str, bytes: &[u8]) -> Value {
    format::show_any(type_url, bytes)
}

/// The messages of a descriptor set, for types that this crate does not know.
#[derive(Debug, Clone)]
pub struct Descriptors(format::Descriptors);

impl Descriptors {
    /// Reads a `google.protobuf.FileDescriptorSet`.
    ///
    /// # Errors
    /// The bytes are none, or one of its files refers to something that is not in it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        format::Descriptors::read(bytes).map(Self)
    }

    /// Whether the message of a type URL is in the set.
    pub fn has(&self, type_url: &str) -> bool {
        self.0.has(type_url)
    }

    /// Converts a message to the JSON form of an `Any`, without its credentials.
    ///
    /// # Errors
    /// The message is not in the set, or the bytes are not of it.
    pub fn show(&self, type_url: &str, bytes: &[u8]) -> Result<Value, String> {
        self.0.show(type_url, bytes).map_err(|error| error.to_string())
    }
}

/// Checks a type URL for [`Client::watch_any`](crate::Client::watch_any).
///
/// # Errors
/// It is none, or one of the protocol's own types.
pub fn check_type_url(type_url: &str) -> Result<(), String> {
    client::check_type_url(type_url)
}

/// Visits all messages in the value of [`show_any`], each before those in it.
pub fn visit_messages(value: &Value, visit: &mut dyn FnMut(Visited<'_>)) {
    format::visit(value, visit);
}

/// Returns a copy of a message without its credentials; `None` if it has none.
pub fn redacted(type_url: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    redact::redacted(type_url, bytes)
}

/// Writes a table of resources, each with its name, status, version and type, and its age.
///
/// # Errors
/// The writer has failed.
pub fn write_table(f: &mut impl fmt::Write, rows: &[[String; 5]]) -> fmt::Result {
    table::write_table(f, rows)
}

/// Writes the version and the age of a failed update, after its error.
///
/// # Errors
/// The writer has failed.
pub fn write_occasion(f: &mut impl fmt::Write, version: &str, age: &str) -> fmt::Result {
    table::write_occasion(f, version, age)
}

/// Returns the name of a type in its type URL.
pub fn type_name(type_url: &str) -> &str {
    table::type_name(type_url)
}

/// Formats the time since an event, such as `3 min ago`.
pub fn age(at: SystemTime, now: SystemTime) -> String {
    table::age(at, now)
}
