//! Metadata that each call to a server carries.

use std::{error::Error, fmt};

use bytes::Bytes;

use crate::escape::debug_as_message;

/// The metadata of the calls to a management server, such as a token: HTTP headers with keys in lower case, each of which may be there
/// several times.
///
/// `Debug` and errors have the keys alone, since values may be secret.
///
/// ```
/// use xdskit::config::{Metadata, Server};
///
/// let token = Metadata::default().with_entry("x-consul-token", "5f1b7a04")?;
/// let server = Server::new("http://127.0.0.1:8502").initial_metadata(token).build()?;
/// assert_eq!(format!("{:?}", server.initial_metadata), r#"{"x-consul-token"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The entries in their order; a key may be there several times.
    entries: Vec<Entry>,
}

/// An entry, which was checked when it was added.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Entry {
    /// The key, in lower case.
    key: Box<str>,
    /// The value; bytes if the key ends with `-bin`.
    value: Bytes,
}

/// The reason why a key or a value cannot be metadata. The value is not part of it.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidMetadata {
    /// The key, cut if it is long.
    key: String,
    /// The invalid field of the entry.
    field: &'static str,
    /// What is wrong.
    reason: &'static str,
}

impl Metadata {
    /// Adds an entry. Letters of the key become lower case. The value is printable ASCII text, without spaces at its ends; with a key that
    /// ends with `-bin` it is any bytes, which are sent in base64.
    ///
    /// # Errors
    /// The key is none of metadata, or reserved for the protocol (`grpc-…`, `content-type`, `host`, `te`, `user-agent`, and headers of
    /// connections), or the value is not text, or there are more than 64 entries or 16 KiB.
    pub fn with_entry(
        mut self,
        key: impl AsRef<str>,
        value: impl Into<Bytes>,
    ) -> Result<Self, InvalidMetadata> {
        // HTTP/2 has no upper case in the names of headers (RFC 9113, section 8.2.1).
        let entry = Entry { key: key.as_ref().to_ascii_lowercase().into(), value: value.into() };
        let invalid = |(field, reason)| InvalidMetadata { key: shortened(&entry.key), field, reason };
        entry.check().map_err(invalid)?;
        // Counted anew for each entry, of which there are 64 at most.
        let size = self.entries.iter().map(Entry::size).sum::<usize>() + entry.size();
        if self.entries.len() >= MAX_ENTRIES {
            return Err(invalid(("key", "there are more than 64 entries")));
        }
        if size > MAX_SIZE {
            return Err(invalid(("value", "all metadata is larger than 16 KiB")));
        }
        self.entries.push(entry);
        Ok(self)
    }

    /// The keys and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|entry| (&*entry.key, &*entry.value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Entry {
    /// The size in the header list of HTTP/2.
    /// Each entry has an overhead of 32 bytes there (RFC 7541, section 4.1).
    fn size(&self) -> usize {
        self.key.len() + self.value.len() + 32
    }

    /// Returns the invalid part and the reason.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let is_key = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
        if self.key.is_empty() || !self.key.bytes().all(is_key) {
            return Err(("key", "must consist of letters, digits and `_`, `-`, `.`"));
        }
        if self.key.starts_with("grpc-") || RESERVED.contains(&&*self.key) {
            return Err(("key", "is reserved for the protocol"));
        }
        let is_text = self.value.iter().all(|c| matches!(c, b' '..=b'~'));
        let has_space = self.value.starts_with(b" ") || self.value.ends_with(b" ");
        if !self.key.ends_with("-bin") && (!is_text || has_space) {
            return Err(("value", "must be printable ASCII text without spaces at its ends"));
        }
        Ok(())
    }
}

/// The keys alone.
impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|entry| &entry.key)).finish()
    }
}

impl InvalidMetadata {
    /// The invalid part: `key` or `value`.
    pub(crate) fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong.
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, field, reason } = self;
        write!(f, "metadata {key:?}: {field} {reason}")
    }
}

impl Error for InvalidMetadata {}

debug_as_message!(InvalidMetadata);

/// The head of a key, for errors.
fn shortened(key: &str) -> String {
    key.chars().take(MAX_SHOWN_KEY).collect()
}

/// The maximum number of entries.
const MAX_ENTRIES: usize = 64;
/// The maximum size of all entries in bytes, as that of a header list that servers commonly accept.
const MAX_SIZE: usize = 16 << 10;
/// The maximum number of characters of a key in an error.
const MAX_SHOWN_KEY: usize = 60;
/// Headers of HTTP and of gRPC.
/// Headers of connections are malformed in HTTP/2 (RFC 9113, section 8.2.2); the transport sets the others.
const RESERVED: [&str; 13] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bootstrap, Server};

    fn error(key: &str, value: &'static str) -> String {
        Metadata::default().with_entry(key, value).unwrap_err().to_string()
    }

    #[test]
    fn keys_and_values_are_those_of_headers() {
        let metadata = Metadata::default().with_entry("X-Consul-Token", "a b").unwrap();
        let metadata =
            metadata.with_entry("x-bin", &b"\0\xff"[..]).unwrap().with_entry("x-empty", "").unwrap();
        let all: Vec<_> = metadata.iter().collect();
        assert_eq!(all, [("x-consul-token", &b"a b"[..]), ("x-bin", b"\0\xff"), ("x-empty", b"")]);
        for key in ["", "a b", ":path", "ä", "a\n"] {
            let expected = format!("metadata {key:?}: key must consist of letters, digits and `_`, `-`, `.`");
            assert_eq!(error(key, "secret"), expected);
        }
        for key in ["grpc-timeout", "Host", "te", "content-type", "connection"] {
            assert!(error(key, "secret").ends_with("key is reserved for the protocol"), "{key}");
        }
        for value in ["secret\n", "sécret", " secret", "secret ", "\0"] {
            let expected = "metadata \"x\": value must be printable ASCII text without spaces at its ends";
            assert_eq!(error("x", value), expected);
        }
        assert!(error(&"ä".repeat(1000), "").len() < 300);
    }

    #[test]
    fn number_and_size_are_limited() {
        let fill = |metadata: Metadata, count| {
            (0..count).try_fold(metadata, |metadata, _| metadata.with_entry("x", "y"))
        };
        let full = fill(Metadata::default(), 64).unwrap();
        assert_eq!(full.len(), 64);
        let error = fill(full, 1).unwrap_err().to_string();
        assert_eq!(error, "metadata \"x\": key there are more than 64 entries");
        let room = MAX_SIZE - 32 - 1;
        assert!(Metadata::default().with_entry("x", "y".repeat(room)).is_ok());
        let error = Metadata::default().with_entry("x", "y".repeat(room + 1)).unwrap_err().to_string();
        assert_eq!(error, "metadata \"x\": value all metadata is larger than 16 KiB");
    }

    #[test]
    fn values_are_in_no_debug_output() {
        let metadata = Metadata::default().with_entry("x-token", "MARKER").unwrap();
        let server = Server::new("http://a:1").initial_metadata(metadata);
        assert!(!format!("{server:?}").contains("MARKER"));
        let bootstrap = Bootstrap::builder().server(server.clone()).build().unwrap();
        let text = format!("{:?}{bootstrap:?}", server.build());
        assert!(text.contains("x-token") && !text.contains("MARKER"), "{text}");
    }
}
