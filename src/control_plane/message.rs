//! Requests and responses of both variants.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::type_url;
use crate::{
    config::TransportApiVersion,
    pb::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
            },
        },
        google::{protobuf::Any, rpc::Status},
    },
};

/// The two variants of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// State of the world: each request lists all names, and a response may list all resources.
    Sotw,
    /// Incremental: requests and responses contain changes.
    Delta,
}

/// A request of a client. A clone shares the message.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A request of the state-of-the-world variant.
    Sotw(Arc<DiscoveryRequest>),
    /// A request of the incremental variant.
    Delta(Arc<DeltaDiscoveryRequest>),
}

/// A response to a client. A clone shares the message.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// A response of the state-of-the-world variant.
    Sotw(Arc<DiscoveryResponse>),
    /// A response of the incremental variant.
    Delta(Arc<DeltaDiscoveryResponse>),
}

impl Request {
    /// The type URL.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// The node of the client, if the request contains it.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }

    /// The names as written: all subscribed ones, or in the incremental variant the newly subscribed ones.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Sotw(request) => &request.resource_names,
            Self::Delta(request) => &request.resource_names_subscribe,
        }
    }

    /// The nonce of the response that the request acknowledges; in the state-of-the-world variant always that of the
    /// last response.
    pub fn nonce(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.response_nonce,
            Self::Delta(request) => &request.response_nonce,
        }
    }

    /// The reason for the rejection of a response (NACK).
    pub fn error(&self) -> Option<&Status> {
        match self {
            Self::Sotw(request) => request.error_detail.as_ref(),
            Self::Delta(request) => request.error_detail.as_ref(),
        }
    }

    /// The message, if it is of the state-of-the-world variant.
    pub fn sotw(&self) -> Option<&DiscoveryRequest> {
        match self {
            Self::Sotw(request) => Some(request),
            Self::Delta(_) => None,
        }
    }

    /// The message, if it is of the incremental variant.
    pub fn delta(&self) -> Option<&DeltaDiscoveryRequest> {
        match self {
            Self::Sotw(_) => None,
            Self::Delta(request) => Some(request),
        }
    }

    /// The variant.
    pub fn variant(&self) -> Variant {
        match self {
            Self::Sotw(_) => Variant::Sotw,
            Self::Delta(_) => Variant::Delta,
        }
    }
}

impl Response {
    /// The variant.
    pub fn variant(&self) -> Variant {
        match self {
            Self::Sotw(_) => Variant::Sotw,
            Self::Delta(_) => Variant::Delta,
        }
    }

    /// The type URL.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    /// Encodes the message for a version. Types inside resources are extensions, whose names are the same in both.
    pub(super) fn encode(&self, api_version: TransportApiVersion) -> Bytes {
        match (api_version, self) {
            (TransportApiVersion::V3, Self::Sotw(response)) => response.encode_to_vec(),
            (TransportApiVersion::V3, Self::Delta(response)) => response.encode_to_vec(),
            (TransportApiVersion::V2, Self::Sotw(response)) => {
                // A copy: observers, and streams of v3, share the message.
                let mut response = DiscoveryResponse::clone(response);
                respell(&mut response.type_url);
                response.resources.iter_mut().for_each(respell_any);
                response.encode_to_vec()
            }
            (TransportApiVersion::V2, Self::Delta(response)) => {
                let mut response = DeltaDiscoveryResponse::clone(response);
                respell(&mut response.type_url);
                response
                    .resources
                    .iter_mut()
                    .filter_map(|resource| resource.resource.as_mut())
                    .for_each(respell_any);
                response.encode_to_vec()
            }
        }
        .into()
    }
}

/// Replaces a type URL by that of v2.
fn respell(type_url: &mut String) {
    *type_url = TransportApiVersion::V2.spell(type_url).to_owned();
}

/// Replaces the type URLs of a resource by those of v2.
fn respell_any(any: &mut Any) {
    if any.type_url == type_url::WRAPPER
        && let Ok(mut wrapper) = Resource::decode(any.value.clone())
    {
        wrapper.resource.iter_mut().for_each(|body| respell(&mut body.type_url));
        any.value = wrapper.encode_to_vec().into();
    }
    respell(&mut any.type_url);
}

impl From<DiscoveryResponse> for Response {
    fn from(response: DiscoveryResponse) -> Self {
        Self::Sotw(Arc::new(response))
    }
}

impl From<DeltaDiscoveryResponse> for Response {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        Self::Delta(Arc::new(response))
    }
}
