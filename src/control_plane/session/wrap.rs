//! Resources, heartbeats and errors as messages.

use std::time::Duration;

use super::{
    super::store::{Store, Stored, StoredError},
    features,
};
use crate::pb::{
    envoy::service::discovery::v3::{Resource, ResourceError, ResourceName},
    google::{protobuf, rpc::Status},
};

/// A resource with all fields of its wrapper.
pub(super) fn whole(type_url: &str, stored: &Stored, store: &Store) -> Resource {
    let body = protobuf::Any {
        type_url: stored.body_type().unwrap_or(type_url).to_owned(),
        value: stored.bytes().clone(),
    };
    Resource {
        aliases: stored.aliases().map(str::to_owned).collect(),
        resource: Some(body),
        ..heartbeat(stored, store, 1)
    }
}

/// A heartbeat, which confirms that a resource is unchanged (B1.18, B2.16), for its time to live times `factor`.
pub(super) fn heartbeat(stored: &Stored, store: &Store, factor: u32) -> Resource {
    Resource {
        name: stored.name().to_owned(),
        version: store.version_of(stored),
        ttl: stored.ttl().map(|ttl| duration(ttl.saturating_mul(factor))),
        ..Resource::default()
    }
}

/// A wrapper without a resource for a requested name that is unknown (B2.18).
pub(super) fn unknown_alias(name: String) -> Resource {
    Resource { aliases: vec![name.clone()], name, ..Resource::default() }
}

/// Returns an error in place of a resource.
pub(super) fn error(stored: &StoredError) -> ResourceError {
    let detail = Status { code: stored.code(), message: stored.message().to_owned(), details: Vec::new() };
    ResourceError {
        resource_name: Some(ResourceName { name: stored.name().to_owned(), ..ResourceName::default() }),
        error_detail: Some(detail),
    }
}

/// An error in place of a resource that cannot be sent to a client without the wrapper.
pub(super) fn needs_wrapper(stored: &Stored) -> ResourceError {
    let message = format!(
        "the resource can only be sent in a Resource message, which client_features of the node does not announce ({})",
        features::WRAPPER[0]
    );
    let detail = Status { code: FAILED_PRECONDITION, message, details: Vec::new() };
    ResourceError {
        resource_name: Some(ResourceName { name: stored.name().to_owned(), ..ResourceName::default() }),
        error_detail: Some(detail),
    }
}

/// The message of a duration that the caller keeps within its range.
pub(super) fn duration(span: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

/// The number of the gRPC status code.
const FAILED_PRECONDITION: i32 = 9;
