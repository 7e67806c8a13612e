//! The descriptors of messages.

use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::config::TransportApiVersion;

/// The messages of `proto/`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Types {
    /// The descriptors, which are decoded once.
    pool: &'static DescriptorPool,
}

impl Types {
    /// Returns the messages; decodes their descriptors at the first call.
    pub(super) fn load() -> Self {
        static POOL: OnceLock<DescriptorPool> = OnceLock::new();
        let decode = || DescriptorPool::decode(DESCRIPTORS).expect("the build has compiled and linked them");
        Self { pool: POOL.get_or_init(decode) }
    }

    /// A message by its full name.
    /// `None` if `proto/` does not have it.
    pub(super) fn message(self, name: &str) -> Option<MessageDescriptor> {
        // The entries of maps have descriptors, and are no messages by themselves.
        self.pool.get_message_by_name(name).filter(|found| !found.is_map_entry())
    }

    /// The message of a type URL; resources of v2 have the messages of v3.
    pub(super) fn of_url(self, type_url: &str) -> Option<MessageDescriptor> {
        let (_, name) = TransportApiVersion::V2.unspell(type_url).rsplit_once('/')?;
        self.message(name)
    }
}

/// The messages with special JSON forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WellKnown {
    /// A message of any type.
    Any,
    /// A duration, as a text in seconds.
    Duration,
    /// A time, as a text of RFC 3339.
    Timestamp,
    /// A JSON object.
    Struct,
    /// A JSON value.
    Value,
    /// A JSON list.
    List,
    /// A scalar in a message, which is its field 1.
    Wrapper,
}

impl WellKnown {
    /// The special form of a message, if it has one.
    pub(super) fn of(message: &MessageDescriptor) -> Option<Self> {
        match message.full_name().strip_prefix("google.protobuf.")? {
            "Any" => Some(Self::Any),
            "Duration" => Some(Self::Duration),
            "Timestamp" => Some(Self::Timestamp),
            "Struct" => Some(Self::Struct),
            "Value" => Some(Self::Value),
            "ListValue" => Some(Self::List),
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => Some(Self::Wrapper),
            _ => None,
        }
    }
}

/// Whether a message is a list collection, which has its entries in field 1.
pub(super) fn is_collection(message: &MessageDescriptor) -> bool {
    let Some(first) = message.get_field(1) else { return false };
    let of_entries = |entry: &MessageDescriptor| entry.full_name() == "xds.core.v3.CollectionEntry";
    first.is_list() && first.kind().as_message().is_some_and(of_entries)
}

/// The descriptors of all messages, beside their generated code.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/generated/descriptors.bin");
