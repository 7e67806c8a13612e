//! Metadata that a server attaches to clusters, localities and endpoints (A83, A86).

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use bytes::Bytes;
use prost::Message;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Context, Custom, Extension, Invalid, parts};
use crate::pb::{
    envoy::{config::core::v3 as core, extensions::filters::http::gcp_authn::v3 as gcp_authn},
    google::protobuf as google,
};

/// Metadata by key.
///
/// A key in `typed_filter_metadata` of a supported type takes precedence over the same key in `filter_metadata`;
/// values of other types are skipped.
#[derive(Clone, Default, PartialEq)]
// One word: most endpoints have no metadata.
pub struct Metadata(Option<Box<Entries>>);

/// Sorted by key; at least one.
#[derive(Clone, PartialEq)]
struct Entries(Box<[(Box<str>, MetadataValue)]>);

/// A value of [`Metadata`]; in JSON an object, or `ip:port` for an address. Applications can add types:
/// [`Registry::with_metadata`](super::Registry::with_metadata).
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
    /// A value of a type that the application has registered.
    Custom(Custom),
    /// A value of `filter_metadata`.
    Struct(Map<String, Value>),
}

impl Metadata {
    /// Metadata without keys.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        let entries = self.entries();
        let found = entries.binary_search_by(|(at, _)| (**at).cmp(key)).ok()?;
        Some(&entries[found].1)
    }

    /// Iterates over all keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.entries().iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the value of a key, if it is of a type `T` that the application has registered.
    pub fn custom<T: Extension>(&self, key: &str) -> Option<&T> {
        match self.get(key)? {
            MetadataValue::Custom(custom) => custom.get(),
            MetadataValue::Audience { .. } | MetadataValue::Address(_) | MetadataValue::Struct(_) => None,
        }
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the address of the HTTP proxy to connect through (A86).
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        match self.get(PROXY_ADDRESS) {
            Some(MetadataValue::Address(address)) => Some(*address),
            Some(MetadataValue::Audience { .. } | MetadataValue::Custom(_) | MetadataValue::Struct(_))
            | None => None,
        }
    }

    /// Returns a text field of the object at `key`.
    pub(super) fn text(&self, key: &str, field: &str) -> Option<&str> {
        match self.get(key) {
            Some(MetadataValue::Struct(object)) => object.get(field)?.as_str(),
            Some(MetadataValue::Audience { .. } | MetadataValue::Address(_) | MetadataValue::Custom(_))
            | None => None,
        }
    }

    /// The entries, sorted by key for `get`.
    fn entries(&self) -> &[(Box<str>, MetadataValue)] {
        self.0.as_ref().map_or(&[], |entries| &entries.0)
    }

    /// Metadata of entries that are sorted by key already. Without entries nothing is allocated.
    fn of(sorted: impl Iterator<Item = (Box<str>, MetadataValue)>) -> Self {
        let entries: Box<[_]> = sorted.collect();
        Self((!entries.is_empty()).then(|| Box::new(Entries(entries))))
    }

    /// Parses the bytes of a `Metadata`, which are a part of `whole`.
    pub(super) fn read(bytes: Option<&[u8]>, whole: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        match bytes {
            Some(bytes) => Self::parse(Some(core::Metadata::decode(whole.slice_ref(bytes))?), cx),
            None => Ok(Self::none()),
        }
    }

    /// Rules C32 and E15.
    pub(super) fn parse(from: Option<core::Metadata>, cx: &Context<'_>) -> Result<Self, Invalid> {
        let Some(core::Metadata { filter_metadata, typed_filter_metadata }) = from else {
            return Ok(Self::default());
        };
        let plain = |object| MetadataValue::Struct(parts::json_object(object));
        if typed_filter_metadata.is_empty() {
            // The keys are sorted already.
            return Ok(Self::of(filter_metadata.into_iter().map(|(key, of)| (key.into(), plain(of)))));
        }
        let mut all = BTreeMap::new();
        for (key, any) in typed_filter_metadata {
            if let Some(value) = typed(&any, cx).map_err(|e| e.at_key("typed_filter_metadata", &key))? {
                all.insert(key, value);
            }
        }
        for (key, object) in filter_metadata {
            // A83: the typed value of a key takes precedence, if its type is supported.
            all.entry(key).or_insert_with(|| plain(object));
        }
        Ok(Self::of(all.into_iter().map(|(key, value)| (key.into(), value))))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

/// Returns the value, if its type is supported.
fn typed(any: &google::Any, cx: &Context<'_>) -> Result<Option<MetadataValue>, Invalid> {
    // A type URL that cannot be parsed is of no supported type.
    // Types of the application first, since they replace the crate's own of the same name.
    if let Ok((name, payload)) = parts::extension(any)
        && let Ok(custom) = cx.registry.metadata().parse(&name, payload, cx)
    {
        return custom.map(|custom| Some(MetadataValue::Custom(custom)));
    }
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

/// The types that need no registration: this one and the next.
const AUDIENCE: &str = "envoy.extensions.filters.http.gcp_authn.v3.Audience";
const ADDRESS: &str = "envoy.config.core.v3.Address";
/// The key of the address of an HTTP proxy, in the metadata of endpoints and of localities (A86).
const PROXY_ADDRESS: &str = "envoy.http11_proxy_transport_socket.proxy_address";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pb::xds,
        resource::{Payload, Registry},
    };

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

    type Typed<'a> = &'a [(&'a str, google::Any)];

    fn message(typed: Typed<'_>, plain: &[(&str, google::Struct)]) -> Option<core::Metadata> {
        Some(core::Metadata {
            typed_filter_metadata: typed.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
            filter_metadata: plain.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        })
    }

    fn parse(typed: Typed<'_>, plain: &[(&str, google::Struct)]) -> Result<Metadata, Invalid> {
        Metadata::parse(message(typed, plain), &Context::new())
    }

    fn audience(url: &str) -> google::Any {
        any(AUDIENCE, &gcp_authn::Audience { url: url.into() })
    }

    #[test]
    fn c32_a83_accepts_types_that_are_known_before_others_of_the_same_key() {
        let parsed = parse(
            &[("b", audience("https://a")), ("c", any("a.B", &gcp_authn::Audience { url: "x".into() }))],
            &[("a", text("1")), ("b", text("2")), ("c", text("3"))],
        );
        let parsed = parsed.unwrap();
        assert_eq!(
            serde_json::to_string(&parsed).unwrap(),
            r#"{"a":{"key":"1"},"b":{"url":"https://a"},"c":{"key":"3"}}"#
        );
        assert_eq!(parsed.text("c", "key"), Some("3"));
        assert!(parsed.get("d").is_none() && Metadata::parse(None, &Context::new()).unwrap().is_empty());
    }

    #[test]
    fn c32_e15_ignores_types_that_are_not_known() {
        let broken = |name: &str| google::Any { type_url: name.into(), value: b"\xff"[..].into() };
        let typed = [("a", broken("a.B")), ("b", broken("x/xds.type.v3.TypedStruct")), ("c", broken(""))];
        assert!(parse(&typed, &[]).unwrap().is_empty());
    }

    #[test]
    fn c32_a83_rejects_an_audience_without_url_or_undecodable() {
        let e = parse(&[("x", audience(""))], &[]).unwrap_err();
        assert_eq!(e.to_string(), "typed_filter_metadata[\"x\"].url: must not be empty");
        let broken = google::Any { type_url: AUDIENCE.into(), value: b"\xff"[..].into() };
        assert_eq!(parse(&[("x", broken)], &[]).unwrap_err().path(), "typed_filter_metadata[\"x\"].value");
    }

    #[test]
    fn e15_a86_accepts_proxies_at_an_ip_address_with_a_port() {
        let proxy = any(ADDRESS, &address("10.0.0.9", 3128));
        let parsed = parse(&[(PROXY_ADDRESS, proxy.clone())], &[(PROXY_ADDRESS, text("x"))]).unwrap();
        assert_eq!(parsed.proxy_address(), Some("10.0.0.9:3128".parse().unwrap()));
        assert_eq!(parse(&[("other", proxy)], &[]).unwrap().proxy_address(), None);
        assert_eq!(parse(&[(PROXY_ADDRESS, audience("u"))], &[]).unwrap().proxy_address(), None);
    }

    #[test]
    fn e15_a86_rejects_proxies_elsewhere() {
        for (bad, expected) in [
            (core::Address::default(), ": must be a socket_address, is not set"),
            (address("proxy.local", 3128), ".socket_address.address: \"proxy.local\" is no IP address"),
            (address("10.0.0.9", 0), ".socket_address.port_value: must not be 0"),
            (address("10.0.0.9", 65_536), ".socket_address.port_value: must be at most 65535, is 65536"),
        ] {
            let e = parse(&[(PROXY_ADDRESS, any(ADDRESS, &bad))], &[]).unwrap_err();
            assert_eq!(e.to_string(), format!("typed_filter_metadata[{PROXY_ADDRESS:?}]{expected}"));
        }
        let broken = google::Any { type_url: ADDRESS.into(), value: b"\xff"[..].into() };
        let e = parse(&[(PROXY_ADDRESS, broken)], &[]).unwrap_err();
        assert_eq!(e.path(), format!("typed_filter_metadata[{PROXY_ADDRESS:?}].value"));
    }

    /// An application's type, which replaces the crate's.
    #[derive(Debug, PartialEq, Serialize)]
    struct Mine {
        bytes: usize,
    }

    impl Extension for Mine {
        const TYPE_NAME: &'static str = AUDIENCE;

        fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
            let bytes = payload.message()?.len();
            if bytes == 0 { Err(Invalid::field("url", "missing")) } else { Ok(Self { bytes }) }
        }
    }

    #[test]
    fn c32_e15_accepts_types_of_the_application() {
        let registry = Registry::new().with_metadata::<Mine>();
        let cx = Context::new().with_registry(&registry);
        let parsed = Metadata::parse(message(&[("a", audience("u"))], &[("a", text("1"))]), &cx).unwrap();
        assert_eq!(parsed.custom::<Mine>("a"), Some(&Mine { bytes: 3 }));
        assert_eq!(
            serde_json::to_string(&parsed).unwrap(),
            format!(r#"{{"a":{{{AUDIENCE:?}:{{"bytes":3}}}}}}"#)
        );
        assert!(parsed.custom::<Mine>("b").is_none() && parsed.text("a", "url").is_none());
        assert!(parse(&[("a", audience("u"))], &[]).unwrap().custom::<Mine>("a").is_none());
    }

    #[test]
    fn c32_e15_rejects_types_of_the_application_that_cannot_be_parsed() {
        let registry = Registry::new().with_metadata::<Mine>();
        let cx = Context::new().with_registry(&registry);
        let e = Metadata::parse(message(&[("a", audience(""))], &[("a", text("1"))]), &cx).unwrap_err();
        assert_eq!(e.to_string(), "typed_filter_metadata[\"a\"].url: missing");
        let wrapped = xds::r#type::v3::TypedStruct { type_url: format!("t/{AUDIENCE}"), value: None };
        let wrapped = any("xds.type.v3.TypedStruct", &wrapped);
        let e = Metadata::parse(message(&[("a", wrapped)], &[]), &cx).unwrap_err();
        let reason = "a TypedStruct is not supported for this type";
        assert_eq!(e.to_string(), format!("typed_filter_metadata[\"a\"]: {reason}"));
    }
}
