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
    /// State of the world: each request lists all names, and a response may stand for everything there is.
    Sotw,
    /// Incremental: requests and responses say what changes.
    Delta,
}

/// A request of a client. A clone shares the message.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Of the state-of-the-world variant.
    Sotw(Arc<DiscoveryRequest>),
    /// Of the incremental variant.
    Delta(Arc<DeltaDiscoveryRequest>),
}

/// A response to a client. A clone shares the message.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// Of the state-of-the-world variant.
    Sotw(Arc<DiscoveryResponse>),
    /// Of the incremental variant.
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

    /// Who the client is, if it says so.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }

    /// The names as they are written: all that are wanted, or in the incremental variant those that are subscribed to.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Sotw(request) => &request.resource_names,
            Self::Delta(request) => &request.resource_names_subscribe,
        }
    }

    /// The nonce of the response that it answers; in the state-of-the-world variant that of the last one in any case.
    pub fn nonce(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.response_nonce,
            Self::Delta(request) => &request.response_nonce,
        }
    }

    /// What is wrong with the response that it answers (NACK).
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

    /// The message as it is written in a version. Types within resources are extensions, whose names are the same in both.
    pub(super) fn encode(&self, api_version: TransportApiVersion) -> Bytes {
        match (api_version, self) {
            (TransportApiVersion::V3, Self::Sotw(response)) => response.encode_to_vec(),
            (TransportApiVersion::V3, Self::Delta(response)) => response.encode_to_vec(),
            (TransportApiVersion::V2, Self::Sotw(response)) => {
                let mut response = DiscoveryResponse::clone(response);
                respell(&mut response.type_url);
                response.resources.iter_mut().for_each(respell_any);
                response.encode_to_vec()
            }
            (TransportApiVersion::V2, Self::Delta(response)) => {
                let mut response = DeltaDiscoveryResponse::clone(response);
                respell(&mut response.type_url);
                response.resources.iter_mut().filter_map(|it| it.resource.as_mut()).for_each(respell_any);
                response.encode_to_vec()
            }
        }
        .into()
    }
}

fn respell(type_url: &mut String) {
    *type_url = TransportApiVersion::V2.spell(type_url).to_owned();
}

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
