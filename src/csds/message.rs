use std::time::SystemTime;

use prost::Message;

use crate::{
    client::{ClientStatus, ResourceState, ResourceStatus, UpdateError},
    pb::{
        envoy::{
            admin::v3::{ClientResourceStatus, UpdateFailureState},
            config::core::v3::Node,
            service::status::v3::{ClientConfig, client_config::GenericXdsConfig},
        },
        google::protobuf::{Any, Timestamp},
    },
};

/// Converts the status of a client to its message (A40-5); `contents` includes the resources themselves.
pub(super) fn client_config(status: ClientStatus, contents: bool) -> ClientConfig {
    let ClientStatus { scope, resources, node, .. } = status;
    ClientConfig {
        // The encoded node that is sent to the servers (A40-4), which is valid.
        node: Node::decode(node).ok(),
        xds_config: Vec::new(),
        generic_xds_configs: resources.into_iter().map(|resource| generic(resource, contents)).collect(),
        // A71-7: clients of one process may share their node, so that it does not tell them apart.
        client_scope: scope.to_string(),
    }
}

/// The status of a resource, with its message if the request does not exclude contents.
fn generic(resource: ResourceStatus, contents: bool) -> GenericXdsConfig {
    let ResourceStatus {
        type_url,
        name,
        state,
        version,
        last_updated,
        bytes,
        error,
        remarks: _,
        is_initial: _,
    } = resource;
    let bytes = bytes.filter(|_| contents);
    GenericXdsConfig {
        type_url: type_url.into(),
        name: name.to_string(),
        version_info: version.to_string(),
        xds_config: bytes.map(|value| Any { type_url: type_url.into(), value }),
        last_updated: last_updated.map(timestamp),
        client_status: client_status(state).into(),
        error_state: error.map(error_state),
    }
}

/// The state in Envoy's enumeration.
fn client_status(state: ResourceState) -> ClientResourceStatus {
    match state {
        ResourceState::Requested => ClientResourceStatus::Requested,
        ResourceState::DoesNotExist => ClientResourceStatus::DoesNotExist,
        ResourceState::Acked => ClientResourceStatus::Acked,
        ResourceState::Nacked => ClientResourceStatus::Nacked,
        ResourceState::ReceivedError => ClientResourceStatus::ReceivedError,
        ResourceState::Timeout => ClientResourceStatus::Timeout,
    }
}

/// The error of the last rejected update.
fn error_state(error: UpdateError) -> UpdateFailureState {
    let UpdateError { version, at, details } = error;
    UpdateFailureState {
        last_update_attempt: Some(timestamp(at)),
        details: details.to_string(),
        version_info: version.to_string(),
    }
}

/// Times before 1970 only occur with a clock that is not set.
fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: since.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: since.subsec_nanos().try_into().unwrap_or_default(),
    }
}
