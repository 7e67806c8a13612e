//! The fields of requests, written without building the message first.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// The parts of a `DiscoveryRequest`.
#[derive(Debug)]
pub(crate) struct SotwRequest<'a> {
    /// The version that is accepted, or claimed; empty for none.
    pub(crate) version: &'a str,
    pub(crate) type_url: &'a str,
    /// The nonce of the last response on the stream; empty before.
    pub(crate) nonce: &'a str,
    /// The encoded node, in the first request of a stream.
    pub(crate) node: Option<&'a Bytes>,
    /// The names as fields of the message.
    pub(crate) names: &'a Bytes,
    /// The text of a NACK.
    pub(crate) error: Option<&'a str>,
}

impl SotwRequest<'_> {
    /// The encoded message. Fields that are not set are left out, as protobuf demands.
    pub(crate) fn encode(&self) -> Bytes {
        let mut request = BytesMut::with_capacity(self.names.len() + 256);
        put_unless_empty(1, self.version, &mut request);
        put_text(4, self.type_url, &mut request);
        put_unless_empty(5, self.nonce, &mut request);
        if let Some(node) = self.node {
            put_bytes(2, node, &mut request);
        }
        request.put_slice(self.names);
        if let Some(error) = self.error {
            put_error(6, error, &mut request);
        }
        request.freeze()
    }
}

/// Writes a string field.
pub(crate) fn put_text(field: u32, text: &str, into: &mut impl BufMut) {
    put_bytes(field, text.as_bytes(), into);
}

/// Writes a string field, unless it is empty.
pub(crate) fn put_unless_empty(field: u32, text: &str, into: &mut impl BufMut) {
    if !text.is_empty() {
        put_text(field, text, into);
    }
}

/// Writes a length-delimited field.
pub(crate) fn put_bytes(field: u32, bytes: &[u8], into: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(bytes.len() as u64, into);
    into.put_slice(bytes);
}

/// Writes the `google.rpc.Status` of a NACK.
pub(crate) fn put_error(field: u32, error: &str, into: &mut impl BufMut) {
    let mut status = BytesMut::with_capacity(error.len() + 8);
    // The code: field 1, a varint.
    status.put_slice(&[0x08, INVALID_ARGUMENT]);
    put_text(2, error, &mut status);
    put_bytes(field, &status, into);
}

/// Writes an entry of a `map<string, string>`.
pub(crate) fn put_pair(field: u32, key: &str, value: &str, into: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint((text_len(key) + text_len(value)) as u64, into);
    put_text(1, key, into);
    put_text(2, value, into);
}

/// The size of [`put_text`], for fields below 16.
pub(crate) fn text_len(text: &str) -> usize {
    1 + encoded_len_varint(text.len() as u64) + text.len()
}

/// The size of [`put_pair`], likewise.
pub(crate) fn pair_len(key: &str, value: &str) -> usize {
    let both = text_len(key) + text_len(value);
    1 + encoded_len_varint(both as u64) + both
}

/// The code of every NACK.
const INVALID_ARGUMENT: u8 = 3;
