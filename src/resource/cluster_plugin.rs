//! Cluster specifier plugins: the clusters of a route are chosen by route lookup, or by what the application has plugged in.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{Context, Custom, Invalid, parts};
#[cfg(feature = "channel")]
use super::{Extension, route_lookup::RouteLookup};
use crate::pb::envoy::config::route::v3 as pb;

/// A plugin that chooses the cluster of each request of a route. The application handles it: it has registered the type with
/// [`Registry::with_cluster_specifier`](super::Registry::with_cluster_specifier). With the feature `channel` it may also be
/// `route_lookup::RouteLookup`, which channels execute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClusterPlugin {
    /// Its name in the route configuration.
    pub name: Arc<str>,
    /// What it is and how it is set up.
    pub config: Custom,
}

/// The plugins that a route configuration declares, by name; `None` for an optional one that is not supported.
#[derive(Debug, Default)]
pub(super) struct Plugins(BTreeMap<String, Option<Arc<ClusterPlugin>>>);

impl Plugins {
    /// No plugins, as for a virtual host by itself.
    pub(super) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Rules R1 to R3; as in C-core, two of the same name are an error.
    pub(super) fn parse(
        messages: Vec<pb::ClusterSpecifierPlugin>,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        let mut plugins = BTreeMap::new();
        for (i, message) in messages.into_iter().enumerate() {
            let at = |e: Invalid| e.at("extension").at_index("cluster_specifier_plugins", i);
            let extension = message.extension.unwrap_or_default();
            let any = extension.typed_config.unwrap_or_default();
            // R2, R4: parsed even if no route names the plugin.
            let config = parse_config(&any, message.is_optional, cx).map_err(|e| at(e.at("typed_config")))?;
            let name = Arc::from(extension.name.as_str());
            let plugin = config.map(|config| Arc::new(ClusterPlugin { name, config }));
            if plugins.contains_key(&extension.name) {
                let reason = format!("{:?} is the name of an earlier plugin too", extension.name);
                return Err(at(Invalid::field("name", reason)));
            }
            plugins.insert(extension.name, plugin);
        }
        Ok(Self(plugins))
    }

    /// The plugin that a route names; `None` if it is not supported (R20).
    pub(super) fn find(&self, name: &str) -> Result<Option<Arc<ClusterPlugin>>, Invalid> {
        if name.is_empty() {
            return Err(Invalid::new("must not be empty"));
        }
        let undeclared = || Invalid::new(format!("{name:?} is not among the cluster_specifier_plugins"));
        self.0.get(name).cloned().ok_or_else(undeclared)
    }
}

/// `None` for a type that is not supported; a configuration of one that is must be valid even if it is optional (R2).
fn parse_config(
    any: &crate::pb::google::protobuf::Any,
    is_optional: bool,
    cx: &Context<'_>,
) -> Result<Option<Custom>, Invalid> {
    let (type_name, payload) = parts::extension(any)?;
    match cx.registry.cluster_specifiers().parse(&type_name, payload, cx) {
        Ok(config) => config.map(Some),
        // RL14: without a channel nothing in the crate executes it, so that the application has to register it.
        #[cfg(feature = "channel")]
        Err(payload) if type_name == RouteLookup::TYPE_NAME => {
            Custom::parse::<RouteLookup>(payload, cx).map(Some)
        }
        Err(_) if is_optional => Ok(None),
        Err(_) => Err(Invalid::new(format!("plugin type {type_name:?} is not supported"))),
    }
}
