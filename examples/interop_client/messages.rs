//! The messages of `grpc/testing/messages.proto` in grpc-proto that the client needs, with the fields that it needs. Those of other
//! projects are on the other side of all of them in the tests of `tests/interop`.

use std::collections::BTreeMap;

use prost::{Enumeration, Message};

/// `grpc.testing.Empty`, and all other messages whose content does not matter.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleRequest {
    #[prost(int32, tag = "2")]
    pub(crate) response_size: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) payload: Option<Payload>,
    #[prost(bool, tag = "9")]
    pub(crate) fill_server_id: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
    #[prost(string, tag = "4")]
    pub(crate) server_id: String,
    #[prost(string, tag = "6")]
    pub(crate) hostname: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadBalancerStatsRequest {
    /// The number of calls from now on.
    #[prost(int32, tag = "1")]
    pub(crate) num_rpcs: i32,
    #[prost(int32, tag = "2")]
    pub(crate) timeout_sec: i32,
    /// The metadata of responses to be returned; `*` is all of it.
    #[prost(string, repeated, tag = "3")]
    pub(crate) metadata_keys: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadBalancerStatsResponse {
    #[prost(btree_map = "string, int32", tag = "1")]
    pub(crate) rpcs_by_peer: BTreeMap<String, i32>,
    /// The calls without a known peer.
    #[prost(int32, tag = "2")]
    pub(crate) num_failures: i32,
    /// By the name of the method, such as `UnaryCall`.
    #[prost(btree_map = "string, message", tag = "3")]
    pub(crate) rpcs_by_method: BTreeMap<String, RpcsByPeer>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub(crate) metadatas_by_peer: BTreeMap<String, MetadataByPeer>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcsByPeer {
    #[prost(btree_map = "string, int32", tag = "1")]
    pub(crate) rpcs_by_peer: BTreeMap<String, i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetadataByPeer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rpc_metadata: Vec<RpcMetadata>,
}

/// The metadata of one call.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcMetadata {
    #[prost(message, repeated, tag = "1")]
    pub(crate) metadata: Vec<MetadataEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetadataEntry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(enumeration = "MetadataType", tag = "3")]
    pub(crate) r#type: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum MetadataType {
    Unknown = 0,
    Initial = 1,
    Trailing = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadBalancerAccumulatedStatsResponse {
    /// By the name of the type, such as `UNARY_CALL`, as in all others.
    #[prost(btree_map = "string, int32", tag = "1")]
    pub(crate) num_rpcs_started_by_method: BTreeMap<String, i32>,
    #[prost(btree_map = "string, int32", tag = "2")]
    pub(crate) num_rpcs_succeeded_by_method: BTreeMap<String, i32>,
    #[prost(btree_map = "string, int32", tag = "3")]
    pub(crate) num_rpcs_failed_by_method: BTreeMap<String, i32>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub(crate) stats_per_method: BTreeMap<String, MethodStats>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MethodStats {
    #[prost(int32, tag = "1")]
    pub(crate) rpcs_started: i32,
    /// The calls by their status.
    #[prost(btree_map = "int32, int32", tag = "2")]
    pub(crate) result: BTreeMap<i32, i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClientConfigureRequest {
    #[prost(enumeration = "RpcType", repeated, tag = "1")]
    pub(crate) types: Vec<i32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) metadata: Vec<Metadata>,
    /// 0 is the default of the command line.
    #[prost(int32, tag = "3")]
    pub(crate) timeout_sec: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(enumeration = "RpcType", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(string, tag = "2")]
    pub(crate) key: String,
    #[prost(string, tag = "3")]
    pub(crate) value: String,
}

/// A kind of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum RpcType {
    EmptyCall = 0,
    UnaryCall = 1,
}

impl RpcType {
    /// The name of the method, which is that of the type in the distribution of calls.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::EmptyCall => "EmptyCall",
            Self::UnaryCall => "UnaryCall",
        }
    }

    /// The name of the type in the accumulated counts.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::EmptyCall => "EMPTY_CALL",
            Self::UnaryCall => "UNARY_CALL",
        }
    }
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct HealthCheckResponse {
    /// 1 is `SERVING`.
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}
