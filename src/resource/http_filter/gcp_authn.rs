//! Identity tokens of Google Cloud (A83).

use prost::Message;
use serde::Serialize;

use super::{
    extension::{HttpFilterExtension, Sides},
    kinds::BuiltIn,
};
use crate::{
    pb::envoy::extensions::filters::http::gcp_authn::v3 as pb,
    resource::{Context, Extension, Invalid, Payload, remarks, unexecuted},
};

/// Settings of [`HttpFilterConfig::GcpAuthn`](crate::resource::http_filter::HttpFilterConfig::GcpAuthn). For what service tokens are is in the metadata of the cluster, under the
/// filter's name: [`MetadataValue::Audience`](crate::resource::metadata::MetadataValue::Audience).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GcpAuthn {
    /// For how many services tokens are held at a time: at least 1, 10 by default.
    pub cache_size: u64,
}

impl Extension for GcpAuthn {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig";

    /// Rule H13.
    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let bytes = payload.message()?;
        let message = pb::GcpAuthnFilterConfig::decode(bytes.clone())?;
        remarks::scan(&unexecuted::GCP_AUTHN, &bytes);
        let cache_size = message.cache_config.and_then(|cache| cache.cache_size);
        match cache_size.map_or(DEFAULT_CACHE_SIZE, |size| size.value) {
            0 => Err(Invalid::field("cache_config.cache_size", "must not be 0")),
            cache_size => Ok(Self { cache_size }),
        }
    }
}

impl HttpFilterExtension for GcpAuthn {
    const SIDES: Sides = Sides::Client;
    /// An override is validated, and has no effect (A83-2).
    type Override = Self;
}

impl BuiltIn for GcpAuthn {
    type Effective = Self;

    fn effective(&self) -> Option<&Self> {
        Some(self)
    }

    /// An override changes nothing (A83-2).
    fn overridden<'a>(&'a self, _: &'a Self) -> Option<&'a Self> {
        Some(self)
    }
}

/// In services (A83).
const DEFAULT_CACHE_SIZE: u64 = 10;
