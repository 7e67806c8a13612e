//! HTTP filters and their settings for parts of the routes.
//!
//! The filters of a listener are typed ([`HttpFilterConfig`]), and so are the overrides of virtual hosts, routes and splits
//! ([`FilterOverride`]). The most specific override of a filter wins and replaces all others (A39-6), but those of
//! [`HeaderMutation`], which are all executed;
//! [`HttpFilter::effective`] returns what remains of a filter then. An application handles more types of filters with
//! [`HttpFilterExtension`]s, and has channels execute those that are a `ClientFilter` as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;

use self::{kinds::BuiltIn, table::http_filters};
use super::{Context, Custom, Extension, Invalid, parts, remarks};
use crate::pb::{
    envoy::{
        config::route::v3::FilterConfig,
        extensions::filters::network::http_connection_manager::v3::{self as hcm, http_filter::ConfigType},
    },
    google::protobuf::Any,
};

#[cfg(feature = "channel")]
mod client_filter;
mod discovered;
mod effective;
mod ext_authz;
mod ext_proc;
mod extension;
mod fault;
mod gcp_authn;
pub(super) mod header_mutation;
mod headers;
mod kinds;
mod router;
mod stateful_session;
mod table;

pub mod rbac;

pub(super) use kinds::{FilterType, Side};

#[cfg(feature = "channel")]
pub use client_filter::{CallFilter, ClientFilter, FilterBody, FilterError, FilterFuture, Next};
#[cfg(feature = "channel")]
pub(crate) use client_filter::{Proceed, ProceedFuture};
pub use discovered::DiscoveredFilter;
pub use ext_authz::{ExtAuthz, ExtAuthzPerRoute};
pub use ext_proc::{ExtProc, ExtProcPerRoute, ProcessingMode};
pub use extension::{HttpFilterExtension, NoOverride, Sides};
pub use fault::{AbortKind, DelayKind, Fault, FaultAbort, FaultDelay};
pub use gcp_authn::GcpAuthn;
pub use header_mutation::{
    AppendAction, HeaderAction, HeaderAppend, HeaderMutation, HeaderMutationPerRoute, HeaderMutations,
};
pub use headers::{HeaderForwardingRules, HeaderMutationRules};
pub use kinds::CustomFilter;
pub use rbac::{Rbac, RbacPerRoute, RbacRules};
pub use router::Router;
pub use stateful_session::{SessionCookie, StatefulSession, StatefulSessionPerRoute};

http_filters! {
    /// Delays and aborts requests (A33); for clients.
    Fault(Fault),
    /// For [`HttpFilterConfig::Fault`].
    override(Fault),
    /// Delays and aborts requests.
    effective(Fault);

    /// Allows or denies requests (A41); for servers.
    Rbac(Rbac),
    /// For [`HttpFilterConfig::Rbac`].
    override(RbacPerRoute),
    /// Allows or denies requests by these rules.
    effective(RbacRules);

    /// Keeps the requests of a session on one endpoint (A55); for clients.
    StatefulSession(StatefulSession),
    /// For [`HttpFilterConfig::StatefulSession`].
    override(StatefulSessionPerRoute),
    /// Keeps the requests of a session on one endpoint, by this cookie.
    effective(SessionCookie);

    /// Adds identity tokens of a Google Cloud service account to requests (A83); for clients.
    GcpAuthn(GcpAuthn),
    /// For [`HttpFilterConfig::GcpAuthn`], which is not changed by it (A83-2).
    override(GcpAuthn),
    /// Adds identity tokens to requests.
    effective(GcpAuthn);

    /// Changes headers of requests and responses, as Envoy does; for clients.
    HeaderMutation(HeaderMutation),
    /// For [`HttpFilterConfig::HeaderMutation`], which is executed beside it. Those of all levels are.
    override(HeaderMutationPerRoute),
    /// Changes headers by these mutations, and then by those of the overrides of all levels.
    effective(HeaderMutation);
}

/// A step of handling a request, in the order of the listener.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HttpFilter {
    /// The filter's name, unique in its listener; overrides refer to it.
    pub name: Box<str>,
    /// What it does.
    pub config: HttpFilterConfig,
    /// Whether it does nothing unless an override enables it.
    pub disabled: bool,
}

/// A filter's setting for a part of the routes.
///
/// The most specific one wins and replaces the others: that of a split over that of its route, and that over the virtual
/// host's. Those for [`HeaderMutation`] are all executed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FilterOverride {
    /// The name of the filter; the listener need not have it, and it may be of another kind there.
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
    /// The filter has another configuration, and is not disabled.
    Config(HttpFilterOverride),
}

/// Parses the filters of a listener: rules L11 to L20, and S13 for a server's.
pub(super) fn parse_filters(
    filters: Vec<hcm::HttpFilter>,
    side: Side,
    cx: &Context<'_>,
) -> Result<Box<[HttpFilter]>, Invalid> {
    let mut names = BTreeSet::new();
    let mut parsed = Vec::new();
    let mut ends = Vec::new();
    for (i, filter) in filters.into_iter().enumerate() {
        let name = &filter.name;
        if name.is_empty() {
            return Err(Invalid::field("name", "must not be empty").at_index("http_filters", i));
        }
        if !names.insert(name.clone()) {
            let reason = format!("{name:?} is the name of an earlier filter too");
            return Err(Invalid::field("name", reason).at_index("http_filters", i));
        }
        let filter = remarks::within("http_filters", i, || parse_filter(filter, side, cx));
        let filter = filter.map_err(|e| e.at_index("http_filters", i))?;
        if let Some((filter, is_terminal)) = filter {
            parsed.push(filter);
            ends.push((i, is_terminal));
        }
    }
    check_end(&parsed, &ends)?;
    Ok(parsed.into())
}

/// Rules L11 and L18. `ends` has for each filter its place in the message and whether it is terminal.
fn check_end(filters: &[HttpFilter], ends: &[(usize, bool)]) -> Result<(), Invalid> {
    let Some((&(last, last_is_terminal), before)) = ends.split_last() else {
        return Err(Invalid::field(
            "http_filters",
            "there is no filter that is supported; at least a router is needed",
        ));
    };
    if let Some(early) = before.iter().position(|(_, is_terminal)| *is_terminal) {
        let reason = format!("{:?} ends the chain but is not the last filter", filters[early].name);
        return Err(Invalid::new(reason).at_index("http_filters", before[early].0));
    }
    if !last_is_terminal {
        let name = &filters[before.len()].name;
        let reason = format!("the last filter, {name:?}, does not end the chain as a router does");
        return Err(Invalid::new(reason).at_index("http_filters", last));
    }
    Ok(())
}

/// The filter and whether it is terminal; `None` for an optional one that is not known or not for this side.
fn parse_filter(
    message: hcm::HttpFilter,
    side: Side,
    cx: &Context<'_>,
) -> Result<Option<(HttpFilter, bool)>, Invalid> {
    let ignored_or = |reason: String| {
        let unsupported = Invalid::new(reason);
        if !message.is_optional {
            return Err(unsupported);
        }
        remarks::leave_out(unsupported);
        Ok(None)
    };
    let any = match message.config_type {
        Some(ConfigType::TypedConfig(any)) => any,
        Some(ConfigType::ConfigDiscovery(_)) if side == Side::Server => {
            return ignored_or("config_discovery is not supported".into());
        }
        Some(ConfigType::ConfigDiscovery(source)) => {
            let types = discovered::types_of(&source, side, cx);
            if types.is_empty() {
                return ignored_or("no type of config_discovery.type_urls is supported".into());
            }
            let discovered = discovered::parse(source, &types, cx).map_err(|e| e.at("config_discovery"))?;
            let config = HttpFilterConfig::Discovered(Arc::new(discovered.0));
            let filter = HttpFilter { name: message.name.into(), config, disabled: message.disabled };
            return Ok(Some((filter, discovered.1)));
        }
        None => return ignored_or("typed_config must be set".into()),
    };
    let (type_name, payload) = parts::extension(&any).map_err(|e| e.at("typed_config"))?;
    let Some(known) = FilterType::of_config(&type_name, cx) else {
        return ignored_or(format!("filter type {type_name:?} is not supported"));
    };
    if !known.works_for(side) {
        return ignored_or(match side {
            Side::Client => format!("filter type {type_name:?} is for servers only"),
            Side::Server => format!("filter type {type_name:?} is for clients only"),
        });
    }
    let config = known.parse(payload, cx).map_err(|e| e.at("typed_config"))?;
    let filter = HttpFilter { name: message.name.into(), config, disabled: message.disabled };
    Ok(Some((filter, known.is_terminal())))
}

/// Parses what is overridden for a part of the routes: rules FO1 to FO6. Sorted by the filter's name.
pub(super) fn parse_overrides(
    configs: BTreeMap<String, Any>,
    cx: &Context<'_>,
) -> Result<Box<[FilterOverride]>, Invalid> {
    // The map yields the names in order, by which `HttpFilter::overrides` searches.
    let mut overrides = Vec::with_capacity(configs.len());
    for (filter, any) in configs {
        let setting =
            parse_override(&filter, any, cx).map_err(|e| e.at_key("typed_per_filter_config", &filter))?;
        if let Some(setting) = setting {
            overrides.push(FilterOverride { filter: filter.into(), setting });
        }
    }
    Ok(overrides.into())
}

/// `None` for an optional setting of a type that is not known.
fn parse_override(filter: &str, any: Any, cx: &Context<'_>) -> Result<Option<OverrideSetting>, Invalid> {
    if filter.is_empty() {
        return Err(Invalid::new("the name of the filter is empty"));
    }
    let (any, is_optional) = match parts::message_name(&any.type_url) {
        FILTER_CONFIG => {
            let wrapper: FilterConfig = parts::decode(&any)?;
            // FO4: a filter that is switched off needs no configuration.
            if wrapper.disabled {
                return Ok(Some(OverrideSetting::Disabled));
            }
            (wrapper.config.unwrap_or_default(), wrapper.is_optional)
        }
        _ => (any, false),
    };
    let (type_name, payload) = parts::extension(&any)?;
    if let Some(known) = FilterType::of_override(&type_name, cx) {
        return Ok(Some(OverrideSetting::Config(known.parse_override(payload, cx)?)));
    }
    match FilterType::of_config(&type_name, cx) {
        Some(_) => Err(Invalid::new(format!("{type_name:?} configures a filter but overrides none"))),
        None if is_optional => {
            let reason = format!("type {type_name:?} is not supported");
            remarks::leave_out(Invalid::new(reason).at_key("typed_per_filter_config", filter));
            Ok(None)
        }
        None if type_name.is_empty() => Err(Invalid::new("there is no configuration")),
        None => Err(Invalid::new(format!("type {type_name:?} is not supported"))),
    }
}

/// The wrapper of an override, by which it may be optional or switch the filter off.
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

#[cfg(test)]
mod tests;
