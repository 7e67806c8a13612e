//! Metadata that a server attaches to clusters, localities and endpoints (A83, A86).

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Invalid, parts};
use crate::pb::{
    envoy::{config::core::v3 as core, extensions::filters::http::gcp_authn::v3 as gcp_authn},
    google::protobuf as google,
};

/// Metadata by key.
///
/// A key of `typed_filter_metadata` whose type is known wins over the same key of `filter_metadata`; values of other
/// types are skipped (rule C32).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata(Box<[(Box<str>, MetadataValue)]>);

/// One value of [`Metadata`]; in JSON an object, or `ip:port` for an address.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum MetadataValue {
    /// The audience of a service account's identity token (`gcp_authn.v3.Audience`, A83); not empty.
    Audience {
        /// The URL that the token is for.
        url: Box<str>,
    },
    /// An address, such as that of an HTTP proxy (`core.v3.Address`, A86).
    Address(SocketAddr),
    /// Anything that `filter_metadata` holds.
    Struct(Map<String, Value>),
}

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        let found = self.0.binary_search_by(|(at, _)| (**at).cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    /// All keys, sorted, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of the HTTP proxy to connect through (A86).
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        match self.get(PROXY_ADDRESS) {
            Some(MetadataValue::Address(address)) => Some(*address),
            Some(MetadataValue::Audience { .. } | MetadataValue::Struct(_)) | None => None,
        }
    }

    /// A text in the object that `key` holds.
    pub(super) fn text(&self, key: &str, field: &str) -> Option<&str> {
        match self.get(key) {
            Some(MetadataValue::Struct(object)) => object.get(field)?.as_str(),
            Some(MetadataValue::Audience { .. } | MetadataValue::Address(_)) | None => None,
        }
    }

    /// Rules C32 and E15.
    pub(super) fn parse(from: Option<core::Metadata>) -> Result<Self, Invalid> {
        let Some(core::Metadata { filter_metadata, typed_filter_metadata }) = from else {
            return Ok(Self::default());
        };
        let mut all = BTreeMap::new();
        for (key, any) in typed_filter_metadata {
            if let Some(value) = typed(&any).map_err(|e| e.at_key("typed_filter_metadata", &key))? {
                all.insert(key, value);
            }
        }
        for (key, object) in filter_metadata {
            all.entry(key).or_insert_with(|| MetadataValue::Struct(parts::json_object(object)));
        }
        Ok(Self(all.into_iter().map(|(key, value)| (key.into(), value)).collect()))
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

fn typed(any: &google::Any) -> Result<Option<MetadataValue>, Invalid> {
    Ok(Some(match parts::message_name(&any.type_url) {
        AUDIENCE => {
            let gcp_authn::Audience { url } = parts::decode(any)?;
            if url.is_empty() {
                return Err(Invalid::field("url", "must not be empty"));
            }
            MetadataValue::Audience { url: url.into() }
        }
        ADDRESS => {
            let address: core::Address = parts::decode(any)?;
            let address = parts::socket_addr(Some(&address))?;
            if address.port() == 0 {
                return Err(Invalid::field("socket_address.port_value", "must not be 0"));
            }
            MetadataValue::Address(address)
        }
        _ => return Ok(None),
    }))
}

const AUDIENCE: &str = "envoy.extensions.filters.http.gcp_authn.v3.Audience";
const ADDRESS: &str = "envoy.config.core.v3.Address";
const PROXY_ADDRESS: &str = "envoy.http11_proxy_transport_socket.proxy_address";

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn any(name: &str, message: &impl Message) -> google::Any {
        google::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() }
    }

    fn address(ip: &str, port: u32) -> core::Address {
        core::Address {
            address: Some(core::address::Address::SocketAddress(core::SocketAddress {
                address: ip.into(),
                port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
                ..Default::default()
            })),
        }
    }

    fn text(text: &str) -> google::Struct {
        let kind = Some(google::value::Kind::StringValue(text.into()));
        google::Struct { fields: [("key".to_owned(), google::Value { kind })].into() }
    }

    fn parse(typed: &[(&str, google::Any)], plain: &[(&str, google::Struct)]) -> Result<Metadata, Invalid> {
        Metadata::parse(Some(core::Metadata {
            typed_filter_metadata: typed.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
            filter_metadata: plain.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        }))
    }

    #[test]
    fn c32_known_types_win_and_unknown_types_are_ignored() {
        let audience = any(AUDIENCE, &gcp_authn::Audience { url: "https://a".into() });
        let unknown = any("a.B", &gcp_authn::Audience { url: "x".into() });
        let parsed = parse(
            &[("b", audience), ("c", unknown)],
            &[("a", text("1")), ("b", text("2")), ("c", text("3"))],
        );
        let parsed = parsed.unwrap();
        assert_eq!(
            serde_json::to_string(&parsed).unwrap(),
            r#"{"a":{"key":"1"},"b":{"url":"https://a"},"c":{"key":"3"}}"#
        );
        assert_eq!(parsed.text("c", "key"), Some("3"));
        assert!(parsed.get("d").is_none() && Metadata::parse(None).unwrap().is_empty());
    }

    #[test]
    fn c32_an_audience_without_url_or_undecodable_is_rejected() {
        let e = parse(&[("x", any(AUDIENCE, &gcp_authn::Audience::default()))], &[]).unwrap_err();
        assert_eq!(e.to_string(), "typed_filter_metadata[\"x\"].url: must not be empty");
        let broken = google::Any { type_url: AUDIENCE.into(), value: b"\xff"[..].into() };
        assert_eq!(parse(&[("x", broken)], &[]).unwrap_err().path(), "typed_filter_metadata[\"x\"].value");
    }

    #[test]
    fn e15_proxy_addresses_are_ip_addresses_with_a_port() {
        let proxy = |address: core::Address| parse(&[(PROXY_ADDRESS, any(ADDRESS, &address))], &[]);
        let parsed = proxy(address("10.0.0.9", 3128)).unwrap();
        assert_eq!(parsed.proxy_address(), Some("10.0.0.9:3128".parse().unwrap()));
        for (bad, path) in [
            (core::Address::default(), ""),
            (address("proxy.local", 3128), ".socket_address.address"),
            (address("10.0.0.9", 0), ".socket_address.port_value"),
        ] {
            let expected = format!("typed_filter_metadata[{PROXY_ADDRESS:?}]{path}");
            assert_eq!(proxy(bad).unwrap_err().path(), expected);
        }
    }
}
