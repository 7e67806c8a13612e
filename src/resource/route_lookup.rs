//! The cluster specifier plugin of the route lookup service (RLS).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use prost::Message;
use serde::Serialize;
use url::{ParseError, Url};

use super::{Context, Extension, Invalid, Payload, parts};
use crate::pb::{google::protobuf as google, grpc::lookup::v1 as pb};

/// The configuration of a lookup service that chooses the cluster of a request.
///
/// With the feature `channel` it is accepted, and channels do the lookups, as `docs/channel/lookup.md` describes. Without the feature, an
/// application that does them itself registers the type by `Registry::new().with_cluster_specifier::<RouteLookup>()`, and reads the
/// configuration from [`ClusterChoice::Plugin`](super::route_action::ClusterChoice::Plugin).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteLookup {
    /// The construction of keys from requests; at least one. No two have a method in common.
    pub key_builders: Box<[KeyBuilder]>,
    /// The lookup service, as a gRPC target; not empty.
    pub lookup_service: Box<str>,
    /// The timeout of a lookup, longer than 0; 10 s by default. In JSON as seconds.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub lookup_service_timeout: Duration,
    /// The maximum age of a cached response: longer than 0, at most 5 min, which is also the default. In JSON as
    /// seconds.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub max_age: Duration,
    /// The age from which a cached response is refreshed while it is used, shorter than `max_age`; `None` disables
    /// early refreshes. In JSON as seconds.
    #[serde(serialize_with = "parts::serialize_some_seconds")]
    pub stale_age: Option<Duration>,
    /// The maximum size of the cache, in bytes: 1 to 5 MiB.
    pub cache_size_bytes: u32,
    /// The cluster for requests whose lookup fails; `None` fails the request.
    pub default_target: Option<Box<str>>,
}

/// The construction of keys from the requests of some methods.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KeyBuilder {
    /// The methods; at least one.
    pub methods: Box<[MethodName]>,
    /// Keys with values from headers.
    pub headers: Box<[HeaderKey]>,
    /// The key for the host of the request, if any.
    pub host: Option<Box<str>>,
    /// The key for the service of the request, if any.
    pub service: Option<Box<str>>,
    /// The key for the method of the request, if any.
    pub method: Option<Box<str>>,
    /// Keys with constant values.
    pub constants: BTreeMap<Box<str>, Box<str>>,
}

/// A gRPC method, or all methods of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct MethodName {
    /// The full name of the service, not empty.
    pub service: Box<str>,
    /// The method, without a slash; `None` for all methods of the service.
    pub method: Option<Box<str>>,
}

/// A key with a value from a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeaderKey {
    /// The key, not empty.
    pub key: Box<str>,
    /// The header names; the first header that is present gives the value.
    pub names: Box<[Box<str>]>,
}

impl RouteLookup {
    /// Returns the key builder of a method by its path (`/service/method`): that of the method, or else that of its
    /// service.
    pub fn key_builder(&self, path: &str) -> Option<&KeyBuilder> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let of = |method: Option<&str>| {
            let fits = |name: &MethodName| &*name.service == service && name.method.as_deref() == method;
            // At most one fits, since no two have a method in common (H10).
            self.key_builders.iter().find(|builder| builder.methods.iter().any(fits))
        };
        of(Some(method)).or_else(|| of(None))
    }
}

impl Extension for RouteLookup {
    const TYPE_NAME: &'static str = "grpc.lookup.v1.RouteLookupClusterSpecifier";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::RouteLookupClusterSpecifier::decode(payload.message()?)?;
        let config = message.route_lookup_config.ok_or(Invalid::new("must be set"));
        config.and_then(parse_config).map_err(|e| e.at("route_lookup_config"))
    }
}

/// Parses the configuration of route lookup.
fn parse_config(from: pb::RouteLookupConfig) -> Result<RouteLookup, Invalid> {
    // H10: the checks of gRPC's RLS policy. An application that does lookups can rely on them.
    if from.grpc_keybuilders.is_empty() {
        return Err(Invalid::field("grpc_keybuilders", "must not be empty"));
    }
    let mut taken = BTreeSet::new();
    let key_builders = parts::each("grpc_keybuilders", from.grpc_keybuilders, |builder| {
        KeyBuilder::parse(builder, &mut taken)
    })?;
    check_target(&from.lookup_service).map_err(|e| e.at("lookup_service"))?;
    // Zero counts as unset.
    let duration = |from: Option<google::Duration>, field| {
        let duration = from.as_ref().map(parts::duration).transpose();
        duration.map(|duration| duration.filter(|duration| !duration.is_zero())).map_err(|e| e.at(field))
    };
    let timeout = duration(from.lookup_service_timeout, "lookup_service_timeout")?;
    let max_age = duration(from.max_age, "max_age")?;
    let stale_age = duration(from.stale_age, "stale_age")?;
    if stale_age.is_some() && max_age.is_none() {
        return Err(Invalid::field("stale_age", "needs max_age, which is not set"));
    }
    let max_age = max_age.map_or(LONGEST_AGE, |age| age.min(LONGEST_AGE));
    let cache_size_bytes = match from.cache_size_bytes {
        size @ 1.. => u32::try_from(size).map_or(LARGEST_CACHE, |size| size.min(LARGEST_CACHE)),
        size => {
            return Err(Invalid::field("cache_size_bytes", format!("must be greater than 0, is {size}")));
        }
    };
    Ok(RouteLookup {
        key_builders,
        lookup_service: from.lookup_service.into(),
        lookup_service_timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        max_age,
        // An age that is not shorter would never be reached.
        stale_age: stale_age.filter(|age| *age < max_age),
        cache_size_bytes,
        default_target: non_empty(from.default_target),
    })
}

impl KeyBuilder {
    /// Parses a key builder; `taken` are the methods of the previous ones.
    fn parse(from: pb::GrpcKeyBuilder, taken: &mut BTreeSet<MethodName>) -> Result<Self, Invalid> {
        if from.names.is_empty() {
            return Err(Invalid::field("names", "must not be empty"));
        }
        let mut methods = Vec::with_capacity(from.names.len());
        for (i, name) in from.names.into_iter().enumerate() {
            let method = MethodName::parse(name).map_err(|e| e.at_index("names", i))?;
            if !taken.insert(method.clone()) {
                let reason = "keys of this method are made by it or an earlier one already";
                return Err(Invalid::new(reason).at_index("names", i));
            }
            methods.push(method);
        }
        let mut keys = BTreeSet::new();
        let mut headers = Vec::with_capacity(from.headers.len());
        for (i, header) in from.headers.into_iter().enumerate() {
            let at = |e: Invalid| e.at_index("headers", i);
            if header.required_match {
                return Err(at(Invalid::field("required_match", "not supported; must be false")));
            }
            check_key(&header.key, &mut keys).map_err(|e| at(e.at("key")))?;
            let names = header.names.into_iter().map(Into::into).collect();
            headers.push(HeaderKey { key: header.key.into(), names });
        }
        for key in from.constant_keys.keys() {
            check_key(key, &mut keys).map_err(|e| e.at_key("constant_keys", key))?;
        }
        let extra = from.extra_keys.unwrap_or_default();
        for (field, key) in [("host", &extra.host), ("service", &extra.service), ("method", &extra.method)] {
            if !key.is_empty() {
                check_key(key, &mut keys).map_err(|e| e.at(field).at("extra_keys"))?;
            }
        }
        Ok(Self {
            methods: methods.into(),
            headers: headers.into(),
            host: non_empty(extra.host),
            service: non_empty(extra.service),
            method: non_empty(extra.method),
            constants: from.constant_keys.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        })
    }
}

impl MethodName {
    /// Parses the name of a method, or of all methods of a service.
    fn parse(from: pb::grpc_key_builder::Name) -> Result<Self, Invalid> {
        if from.service.is_empty() {
            return Err(Invalid::field("service", "must not be empty"));
        }
        if from.method.contains('/') {
            return Err(Invalid::field("method", format!("{:?} has a slash", from.method)));
        }
        Ok(Self { service: from.service.into(), method: non_empty(from.method) })
    }
}

/// Checks that a key is not empty and unique.
fn check_key(key: &str, keys: &mut BTreeSet<String>) -> Result<(), Invalid> {
    match key {
        "" => Err(Invalid::new("must not be empty")),
        key if keys.insert(key.to_owned()) => Ok(()),
        key => Err(Invalid::new(format!("{key:?} is a key already"))),
    }
}

/// The supported schemes depend on the application, so they are not checked.
fn check_target(target: &str) -> Result<(), Invalid> {
    if target.is_empty() {
        return Err(Invalid::new("must not be empty"));
    }
    // Without a scheme it is a DNS name, such as `lookup.example:443`.
    let parsed = match Url::parse(target) {
        Err(ParseError::RelativeUrlWithoutBase) => Url::parse(&format!("dns:///{target}")),
        parsed => parsed,
    };
    parsed.map(drop).map_err(|_| Invalid::new(format!("{target:?} is no target")))
}

/// A text, unless it is empty.
fn non_empty(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// The timeout of a lookup.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The greatest age of an answer.
/// Longer ones are reduced to it.
const LONGEST_AGE: Duration = Duration::from_secs(300);
/// In bytes.
const LARGEST_CACHE: u32 = 5 << 20;

#[cfg(test)]
mod tests;
