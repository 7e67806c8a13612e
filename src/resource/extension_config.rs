//! Configurations of extensions that are resources of their own (ECDS).

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Remarks, Resource,
    http_filter::{FilterType, HttpFilterConfig},
    parts, remarks,
};
use crate::{base::type_url, pb::envoy::config::core::v3::TypedExtensionConfig};

/// The configuration of an HTTP filter, for listeners that name it with
/// [`config_discovery`](super::http_filter::DiscoveredFilter).
///
/// Configurations of other extensions than the supported HTTP filters, and those of the application, are rejected.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExtensionConfig {
    /// The name, which is that of the filter; not empty.
    pub name: Arc<str>,
    /// The full name of the message that configures the filter.
    pub type_name: Box<str>,
    /// The configuration.
    pub config: HttpFilterConfig,
    /// What is not used of it.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

impl Resource for ExtensionConfig {
    const TYPE_URL: &'static str = type_url::EXTENSION_CONFIG;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let TypedExtensionConfig { name, typed_config } = Message::decode(bytes.clone())?;
        if name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let any = typed_config.ok_or_else(|| Invalid::field("typed_config", "must be set"))?;
        let (type_name, payload) = parts::extension(&any).map_err(|e| e.at("typed_config"))?;
        // EX1: an unknown filter cannot be skipped here, since a listener may need it.
        let known = FilterType::of_config(&type_name, cx).ok_or_else(|| {
            Invalid::field("typed_config", format!("extension type {type_name:?} is not supported"))
        })?;
        // For either side: the listener decides whether it takes the type (EX2).
        let (config, remarks) =
            remarks::collect(|| known.parse(payload, cx).map_err(|e| e.at("typed_config")))?;
        Ok(Self { name: name.into(), type_name: known.config_type().into(), config, remarks })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::google::protobuf::Any;

    const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

    fn parse(name: &str, typed_config: Option<Any>) -> Result<ExtensionConfig, String> {
        let message = TypedExtensionConfig { name: name.into(), typed_config };
        ExtensionConfig::parse(&message.encode_to_vec().into(), &Context::new()).map_err(|e| e.to_string())
    }

    fn any(type_url: &str, value: &'static [u8]) -> Option<Any> {
        Some(Any { type_url: type_url.into(), value: value.into() })
    }

    #[test]
    fn ex1_accepts_the_configuration_of_a_supported_filter() {
        let parsed = parse("end", any(ROUTER, b"")).unwrap();
        assert_eq!((&*parsed.name, parsed.config), ("end", HttpFilterConfig::Router));
        assert_eq!(&*parsed.type_name, "envoy.extensions.filters.http.router.v3.Router");
    }

    #[test]
    fn ex1_rejects_what_no_filter_can_be_configured_with() {
        assert_eq!(parse("", any(ROUTER, b"")).unwrap_err(), "name: must not be empty");
        assert_eq!(parse("a", None).unwrap_err(), "typed_config: must be set");
        let unknown = parse("a", any("type.googleapis.com/T", b"")).unwrap_err();
        assert_eq!(unknown, "typed_config: extension type \"T\" is not supported");
        let fault = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";
        assert!(parse("a", any(fault, b"\xff")).unwrap_err().starts_with("typed_config: "));
    }
}
