use std::fmt;

use bytes::Bytes;

use super::{Context, Invalid, Resource};

/// A resource of a type that is known at run time alone: its type URL and its bytes, as in a `google.protobuf.Any`.
///
/// It is what `Client::watch_any` yields. Everything is accepted: whether the bytes are a message of the type
/// is found out by who decodes them.
#[derive(Clone, PartialEq, Eq)]
pub struct AnyMessage {
    type_url: &'static str,
    bytes: Bytes,
}

impl AnyMessage {
    /// The type URL of the resource.
    pub fn type_url(&self) -> &str {
        self.type_url
    }

    /// The encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// The bytes are no message of this type.
    pub fn decode<M: prost::Message + Default>(&self) -> Result<M, prost::DecodeError> {
        M::decode(self.bytes.clone())
    }
}

/// Its type URL is that of each watch; the one here is not requested.
impl Resource for AnyMessage {
    const TYPE_URL: &'static str = "type.googleapis.com/google.protobuf.Any";

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self { type_url: cx.type_url.unwrap_or(Self::TYPE_URL), bytes: bytes.clone() })
    }
}

impl fmt::Debug for AnyMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyMessage")
            .field("type_url", &self.type_url)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
