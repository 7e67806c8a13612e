//! Scoped route configurations.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{Context, Invalid, Resource, RouteConfiguration};
use crate::base::type_url;
use crate::pb::envoy::config::route::v3::{self as pb, scoped_route_configuration::key::fragment};

/// A route configuration with the key that chooses it; keys are built from requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScopedRouteConfiguration {
    /// The name.
    pub name: Arc<str>,
    /// The parts of the key, in order; at least one.
    pub key: Box<[Box<str>]>,
    /// The routes of requests with the key.
    #[serde(flatten)]
    pub routes: ScopedRouteSource,
    /// Whether the routes are only needed once a request has the key. Resolutions request only the routes of their
    /// own scope, whatever the value.
    pub on_demand: bool,
}

/// The source of a scope's routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScopedRouteSource {
    /// A route configuration resource of this name, from the server of the scope.
    #[serde(rename = "route_config_name")]
    Rds(Arc<str>),
    /// A route configuration in the scope itself.
    #[serde(rename = "route_config")]
    Inline(Arc<RouteConfiguration>),
}

impl ScopedRouteConfiguration {
    /// Rules SC1 and SC2, for a resource as well as for a scope in a listener (SC3).
    pub(super) fn parse_message(
        message: pb::ScopedRouteConfiguration,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let fragments = message.key.map(|key| key.fragments).unwrap_or_default();
        if fragments.is_empty() {
            return Err(Invalid::field("key.fragments", "must not be empty"));
        }
        let key = fragments.into_iter().enumerate().map(|(i, fragment)| match fragment.r#type {
            Some(fragment::Type::StringKey(text)) => Ok(text.into_boxed_str()),
            None => Err(Invalid::new("no type that is supported").at_index("fragments", i).at("key")),
        });
        let key = key.collect::<Result<_, _>>()?;
        let routes = match (message.route_configuration, message.route_configuration_name) {
            (Some(_), name) if !name.is_empty() => {
                let reason = "must be empty where route_configuration is set";
                return Err(Invalid::field("route_configuration_name", reason));
            }
            (Some(inline), _) => RouteConfiguration::parse_message(inline, cx)
                .map(|inline| ScopedRouteSource::Inline(Arc::new(inline)))
                .map_err(|e| e.at("route_configuration"))?,
            (None, name) if name.is_empty() => {
                return Err(Invalid::new("neither route_configuration nor route_configuration_name is set"));
            }
            (None, name) => ScopedRouteSource::Rds(name.into()),
        };
        Ok(Self { name: message.name.into(), key, routes, on_demand: message.on_demand })
    }
}

impl Resource for ScopedRouteConfiguration {
    const TYPE_URL: &'static str = type_url::SCOPED_ROUTE_CONFIGURATION;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        Self::parse_message(pb::ScopedRouteConfiguration::decode(bytes.clone())?, cx)
    }
}

#[cfg(test)]
mod tests {
    use pb::scoped_route_configuration::{Key, key::Fragment};
    use serde_json::json;

    use super::*;

    fn message() -> pb::ScopedRouteConfiguration {
        let fragment = |text: &str| Fragment { r#type: Some(fragment::Type::StringKey(text.into())) };
        pb::ScopedRouteConfiguration {
            name: "scope".into(),
            route_configuration_name: "routes".into(),
            key: Some(Key { fragments: vec![fragment("vip"), fragment("eu")] }),
            ..Default::default()
        }
    }

    fn parse(message: pb::ScopedRouteConfiguration) -> Result<ScopedRouteConfiguration, Invalid> {
        ScopedRouteConfiguration::parse(&message.encode_to_vec().into(), &Context::new())
    }

    #[test]
    fn g5_rejects_bytes_that_are_no_message() {
        let e = ScopedRouteConfiguration::parse(&Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
        assert!(e.path().is_empty() && e.reason().starts_with("not a valid message"), "{e}");
    }

    #[test]
    fn the_inline_routes_are_checked_like_others() {
        let host = pb::VirtualHost { name: "h".into(), ..Default::default() };
        let inline = pb::RouteConfiguration { virtual_hosts: vec![host], ..Default::default() };
        let scope = pb::ScopedRouteConfiguration {
            route_configuration: Some(inline),
            route_configuration_name: String::new(),
            on_demand: true,
            ..message()
        };
        let e = parse(scope).unwrap_err();
        assert_eq!(e.to_string(), "route_configuration.virtual_hosts[0].domains: must not be empty");
    }

    #[test]
    fn a_scope_has_a_key_and_routes() {
        let json = json!({
            "name": "scope", "key": ["vip", "eu"], "route_config_name": "routes", "on_demand": false,
        });
        assert_eq!(serde_json::to_value(parse(message()).unwrap()).unwrap(), json);
        let inline = pb::RouteConfiguration { name: "own".into(), ..Default::default() };
        let inline = pb::ScopedRouteConfiguration {
            route_configuration: Some(inline),
            route_configuration_name: String::new(),
            ..message()
        };
        assert!(
            matches!(parse(inline).unwrap().routes, ScopedRouteSource::Inline(own) if &*own.name == "own")
        );
    }

    #[test]
    fn g6_rejects_an_empty_name_and_names_what_else_is_missing() {
        let unnamed = pb::ScopedRouteConfiguration { name: String::new(), ..message() };
        let keyless = pb::ScopedRouteConfiguration { key: None, ..message() };
        let untyped = Key { fragments: vec![Fragment { r#type: None }] };
        let untyped = pb::ScopedRouteConfiguration { key: Some(untyped), ..message() };
        let both = pb::ScopedRouteConfiguration {
            route_configuration: Some(pb::RouteConfiguration::default()),
            ..message()
        };
        let neither = pb::ScopedRouteConfiguration { route_configuration_name: String::new(), ..message() };
        for (message, path) in [
            (unnamed, "name"),
            (keyless, "key.fragments"),
            (untyped, "key.fragments[0]"),
            (both, "route_configuration_name"),
            (neither, ""),
        ] {
            assert_eq!(parse(message).unwrap_err().path(), path);
        }
    }
}
