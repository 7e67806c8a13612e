//! HTTP filters and their settings for parts of the routes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{Invalid, parts};
use crate::pb::{
    envoy::{
        config::{rbac::v3::rbac::Action, route::v3::FilterConfig},
        extensions::{
            filters::{
                http::{
                    fault::v3::HttpFault,
                    rbac::v3::{Rbac, RbacPerRoute},
                    router::v3::Router,
                    stateful_session::v3::{
                        StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
                    },
                },
                network::http_connection_manager::v3::{self as hcm, http_filter::ConfigType},
            },
            http::stateful_session::cookie::v3::CookieBasedSessionState,
        },
    },
    google::protobuf::Any,
};

/// A step of handling a request, in the order of the listener.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HttpFilter {
    /// The filter's name, unique in its listener; overrides refer to it.
    pub name: Box<str>,
    /// What it does.
    pub kind: HttpFilterKind,
    /// Its configuration: a valid message of the type that [`HttpFilterKind::config_type`] names.
    #[serde(skip)]
    pub config: Bytes,
    /// Whether it does nothing where no override says otherwise.
    pub disabled: bool,
}

/// The HTTP filters that are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HttpFilterKind {
    /// Sends the request along the route; the last filter of every listener (A39-7).
    Router,
    /// Delays and aborts requests on purpose (A33); for clients.
    Fault,
    /// Lets only some requests pass (A41); for servers.
    Rbac,
    /// Keeps the requests of a session on one endpoint (A55); for clients.
    StatefulSession,
}

/// A filter's setting for a part of the routes. The most specific one wins and replaces the others (A39-6).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FilterOverride {
    /// The name of the filter; the listener need not have it.
    pub filter: Box<str>,
    /// What changes.
    pub setting: OverrideSetting,
}

/// What a [`FilterOverride`] changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OverrideSetting {
    /// The filter does nothing.
    Disabled,
    /// The filter has another configuration.
    #[non_exhaustive]
    Config {
        /// What the filter does, or the override is of no use to it.
        kind: HttpFilterKind,
        /// A valid message of the type that [`HttpFilterKind::override_type`] names.
        #[serde(skip)]
        config: Bytes,
    },
}

/// Whose requests a filter handles (A39-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl HttpFilterKind {
    /// The full name of the message that configures the filter.
    pub const fn config_type(self) -> &'static str {
        match self {
            Self::Router => "envoy.extensions.filters.http.router.v3.Router",
            Self::Fault => "envoy.extensions.filters.http.fault.v3.HTTPFault",
            Self::Rbac => "envoy.extensions.filters.http.rbac.v3.RBAC",
            Self::StatefulSession => "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
        }
    }

    /// The full name of the message that overrides the filter's configuration, if there is one.
    pub const fn override_type(self) -> Option<&'static str> {
        match self {
            Self::Router => None,
            Self::Fault => Some("envoy.extensions.filters.http.fault.v3.HTTPFault"),
            Self::Rbac => Some("envoy.extensions.filters.http.rbac.v3.RBACPerRoute"),
            Self::StatefulSession => {
                Some("envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute")
            }
        }
    }

    /// Whether the filter ends the chain of filters.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Router => true,
            Self::Fault | Self::Rbac | Self::StatefulSession => false,
        }
    }

    const ALL: [Self; 4] = [Self::Router, Self::Fault, Self::Rbac, Self::StatefulSession];

    const fn works_for(self, side: Side) -> bool {
        match self {
            Self::Router => true,
            Self::Fault | Self::StatefulSession => matches!(side, Side::Client),
            Self::Rbac => matches!(side, Side::Server),
        }
    }

    fn check(self, config: Bytes) -> Result<(), Invalid> {
        match self {
            Self::Router => Router::decode(config).map(drop)?,
            Self::Fault => HttpFault::decode(config).map(drop)?,
            Self::Rbac => check_rbac(&Rbac::decode(config)?)?,
            Self::StatefulSession => check_session(&StatefulSession::decode(config)?)?,
        }
        Ok(())
    }

    fn check_override(self, config: Bytes) -> Result<(), Invalid> {
        match self {
            Self::Router => return Err(Invalid::new("a router filter cannot be overridden")),
            Self::Fault => HttpFault::decode(config).map(drop)?,
            Self::Rbac => {
                let rules = RbacPerRoute::decode(config)?.rbac;
                rules.as_ref().map_or(Ok(()), check_rbac).map_err(|e| e.at("rbac"))?;
            }
            Self::StatefulSession => match StatefulSessionPerRoute::decode(config)?.r#override {
                Some(Override::StatefulSession(session)) => {
                    check_session(&session).map_err(|e| e.at("stateful_session"))?;
                }
                Some(Override::Disabled(_)) | None => {}
            },
        }
        Ok(())
    }
}

/// Parses the filters of a listener: rules L11 to L20, and S13 for a server's.
pub(super) fn parse_filters(filters: Vec<hcm::HttpFilter>, side: Side) -> Result<Box<[HttpFilter]>, Invalid> {
    let mut names = BTreeSet::new();
    let mut parsed = Vec::new();
    let mut positions = Vec::new();
    for (i, filter) in filters.into_iter().enumerate() {
        let name = &filter.name;
        if name.is_empty() {
            return Err(Invalid::field("name", "must not be empty").at_index("http_filters", i));
        }
        if !names.insert(name.clone()) {
            let reason = format!("{name:?} is the name of an earlier filter too");
            return Err(Invalid::field("name", reason).at_index("http_filters", i));
        }
        let filter = parse_filter(filter, side).map_err(|e| e.at_index("http_filters", i))?;
        if let Some(filter) = filter {
            parsed.push(filter);
            positions.push(i);
        }
    }
    let Some((last, before)) = parsed.split_last() else {
        return Err(Invalid::field(
            "http_filters",
            "there is no filter that is supported; at least a router is needed",
        ));
    };
    if let Some(early) = before.iter().position(|filter| filter.kind.is_terminal()) {
        let reason = format!("{:?} ends the chain but is not the last filter", parsed[early].name);
        return Err(Invalid::new(reason).at_index("http_filters", positions[early]));
    }
    if !last.kind.is_terminal() {
        let reason = format!("the last filter, {:?}, does not end the chain as a router does", last.name);
        return Err(Invalid::new(reason).at_index("http_filters", positions[before.len()]));
    }
    Ok(parsed.into())
}

/// `None` for an optional filter that is not known or not for this side.
fn parse_filter(message: hcm::HttpFilter, side: Side) -> Result<Option<HttpFilter>, Invalid> {
    let ignored_or = |reason: String| if message.is_optional { Ok(None) } else { Err(Invalid::new(reason)) };
    let any = match message.config_type {
        Some(ConfigType::TypedConfig(any)) => any,
        Some(ConfigType::ConfigDiscovery(_)) => {
            return ignored_or("config_discovery is not supported".into());
        }
        None => return ignored_or("typed_config must be set".into()),
    };
    let (type_name, payload) = parts::extension(&any).map_err(|e| e.at("typed_config"))?;
    let Some(kind) = HttpFilterKind::ALL.into_iter().find(|kind| kind.config_type() == type_name) else {
        return ignored_or(format!("filter type {type_name:?} is not supported"));
    };
    if !kind.works_for(side) {
        return ignored_or(match side {
            Side::Client => format!("filter type {type_name:?} is for servers only"),
            Side::Server => format!("filter type {type_name:?} is for clients only"),
        });
    }
    let config = payload.message().map_err(|e| e.at("typed_config"))?;
    kind.check(config.clone()).map_err(|e| e.at("typed_config"))?;
    Ok(Some(HttpFilter { name: message.name.into(), kind, config, disabled: message.disabled }))
}

/// Parses what is overridden for a part of the routes: rules FO1 to FO6. Sorted by the filter's name.
pub(super) fn parse_overrides(configs: BTreeMap<String, Any>) -> Result<Box<[FilterOverride]>, Invalid> {
    let mut overrides = Vec::with_capacity(configs.len());
    for (filter, any) in configs {
        let setting =
            parse_override(&filter, any).map_err(|e| e.at_key("typed_per_filter_config", &filter))?;
        if let Some(setting) = setting {
            overrides.push(FilterOverride { filter: filter.into(), setting });
        }
    }
    Ok(overrides.into())
}

/// `None` for an optional setting of a type that is not known.
fn parse_override(filter: &str, any: Any) -> Result<Option<OverrideSetting>, Invalid> {
    if filter.is_empty() {
        return Err(Invalid::new("the name of the filter is empty"));
    }
    let (any, is_optional) = match parts::message_name(&any.type_url) {
        FILTER_CONFIG => {
            let wrapper: FilterConfig = parts::decode(&any)?;
            if wrapper.disabled {
                return Ok(Some(OverrideSetting::Disabled));
            }
            (wrapper.config.unwrap_or_default(), wrapper.is_optional)
        }
        _ => (any, false),
    };
    let (type_name, payload) = parts::extension(&any)?;
    let of = |name: fn(HttpFilterKind) -> Option<&'static str>| {
        HttpFilterKind::ALL.into_iter().find(|kind| name(*kind) == Some(&*type_name))
    };
    let Some(kind) = of(HttpFilterKind::override_type) else {
        return match of(|kind| Some(kind.config_type())) {
            Some(_) => Err(Invalid::new(format!("{type_name:?} configures a filter but overrides none"))),
            None if is_optional => Ok(None),
            None if type_name.is_empty() => Err(Invalid::new("there is no configuration")),
            None => Err(Invalid::new(format!("type {type_name:?} is not supported"))),
        };
    };
    let config = payload.message()?;
    kind.check_override(config.clone())?;
    Ok(Some(OverrideSetting::Config { kind, config }))
}

/// Rule H5; the policies are looked at where they are applied.
fn check_rbac(rbac: &Rbac) -> Result<(), Invalid> {
    match &rbac.rules {
        Some(rules) if Action::try_from(rules.action).is_err() => {
            let reason = format!("{} is no known action", rules.action);
            Err(Invalid::field("action", reason).at("rules"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Rule A55-2.
fn check_session(session: &StatefulSession) -> Result<(), Invalid> {
    let Some(state) = session.session_state.as_ref() else { return Ok(()) };
    let at = |e: Invalid| e.at("typed_config").at("session_state");
    let any = state.typed_config.as_ref().ok_or_else(|| at(Invalid::new("must be set")))?;
    match parts::message_name(&any.type_url) {
        COOKIE_STATE => {}
        other => return Err(at(Invalid::new(format!("session state of type {other:?} is not supported")))),
    }
    let state: CookieBasedSessionState = parts::decode(any).map_err(at)?;
    match state.cookie {
        Some(cookie) if !cookie.name.is_empty() => {
            let ttl = cookie.ttl.as_ref().map(parts::duration).transpose();
            ttl.map_err(|e| at(e.at("ttl").at("cookie")))?;
            Ok(())
        }
        Some(_) | None => Err(at(Invalid::field("cookie.name", "must not be empty"))),
    }
}

const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";
const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";

#[cfg(test)]
mod tests;
