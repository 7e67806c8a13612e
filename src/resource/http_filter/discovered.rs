//! Filters whose configuration is a resource of its own (ECDS).

use std::sync::Arc;

use serde::Serialize;

use super::{FilterType, HttpFilterConfig, Side};
use crate::{
    pb::{envoy::config::core::v3 as core, google::protobuf::Any},
    resource::{Context, Invalid, config_source::ResourceConfigSource, parts, remarks},
};

/// A filter whose configuration is a resource of its own, an [`ExtensionConfig`](crate::resource::ExtensionConfig) by the name of the
/// filter.
///
/// A watched listener has it as it was sent. The listener of a [`Snapshot`](crate::resolve::Snapshot) has the configuration in its
/// place: a resolution watches it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DiscoveredFilter {
    /// The config source of the configuration, if it is not the server of the listener.
    #[serde(skip)]
    pub source: Option<Arc<ResourceConfigSource>>,
    /// The full names of the messages that the configuration may be: those of `type_urls` that are supported, never empty.
    pub type_names: Box<[Box<str>]>,
    /// The configuration while there is none from the source.
    pub default_config: Option<HttpFilterConfig>,
    /// Whether `default_config` is used until the source has responded. Otherwise requests wait for that.
    pub apply_default_config_without_warming: bool,
}

/// A discovered filter, and whether it is terminal.
pub(super) type Discovered = (DiscoveredFilter, bool);

impl DiscoveredFilter {
    /// Whether the configuration may be a message of this full name.
    pub fn permits(&self, type_name: &str) -> bool {
        self.type_names.iter().any(|permitted| **permitted == *type_name)
    }
}

/// The supported types of a discovered filter; empty if it is for nothing that a client of this side has.
pub(super) fn types_of(
    source: &core::ExtensionConfigSource,
    side: Side,
    cx: &Context<'_>,
) -> Vec<FilterType> {
    let name = |type_url| parts::message_name(type_url);
    let known = source.type_urls.iter().filter_map(|url| FilterType::of_config(name(url), cx));
    known.filter(|known| known.works_for(side)).collect()
}

/// Parses a discovered filter of these types, which are not empty: rule L23.
pub(super) fn parse(
    source: core::ExtensionConfigSource,
    types: &[FilterType],
    cx: &Context<'_>,
) -> Result<Discovered, Invalid> {
    let is_terminal = types.iter().all(|known| known.is_terminal());
    if !is_terminal && types.iter().any(|known| known.is_terminal()) {
        let reason = "has types that end the chain and types that do not";
        return Err(Invalid::field("type_urls", reason));
    }
    let type_names: Box<[Box<str>]> = types.iter().map(|known| known.config_type().into()).collect();
    for type_url in &source.type_urls {
        if !type_names.iter().any(|name| **name == *parts::message_name(type_url)) {
            remarks::leave_out(Invalid::field("type_urls", format!("{type_url:?} is not supported")));
        }
    }
    let default_config = source.default_config.map(|any| default_config(&any, &type_names, cx)).transpose();
    let default_config = default_config.map_err(|e| e.at("default_config"))?;
    let apply_default_config_without_warming = source.apply_default_config_without_warming;
    if apply_default_config_without_warming && default_config.is_none() {
        let reason = "needs a default_config";
        return Err(Invalid::field("apply_default_config_without_warming", reason));
    }
    let source = ResourceConfigSource::parse(source.config_source.as_ref(), cx);
    let source = source.map_err(|e| e.at("config_source"))?;
    let filter =
        DiscoveredFilter { source, type_names, default_config, apply_default_config_without_warming };
    Ok((filter, is_terminal))
}

/// Parses the default configuration, whose type has to be permitted like that of the resource.
fn default_config(any: &Any, permitted: &[Box<str>], cx: &Context<'_>) -> Result<HttpFilterConfig, Invalid> {
    let (type_name, payload) = parts::extension(any)?;
    match FilterType::of_config(&type_name, cx) {
        Some(known) if permitted.iter().any(|name| **name == *type_name) => known.parse(payload, cx),
        Some(_) | None => {
            Err(Invalid::new(format!("type {type_name:?} is not a supported one of type_urls")))
        }
    }
}
