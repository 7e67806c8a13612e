//! The execution of route lookup (RLS): a router for each plugin of the routes, with its lookups and a channel to the lookup service.

mod request;
mod router;

use std::{collections::BTreeMap, fmt, sync::Arc};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::mpsc::WeakUnboundedSender};

pub(super) use self::router::{LookupRouter, RouterState, Routing};
use super::{
    Channel,
    task::Control,
    telemetry::{CacheUsage, ChannelObserver},
};
use crate::balance::{route_lookup::LookupLimits, routes::LookupPlugin};

/// The routers of a channel, by the names of the plugins.
#[derive(Debug, Default)]
pub(super) struct LookupRouters {
    /// The task of the channel replaces them with the routes; calls load them without a lock.
    routers: ArcSwap<BTreeMap<Arc<str>, FoundPlugin>>,
    /// What routers are made with; `None` for the channel of a router, which executes no plugins: a service that is looked up by itself
    /// would be a channel within a channel without an end (RL12).
    source: Option<Arc<LookupSource>>,
}

/// A plugin of the routes.
#[derive(Debug, Clone)]
pub(super) enum FoundPlugin {
    /// The plugin is executed.
    Router(Arc<LookupRouter>),
    /// The routes have more plugins than the channel executes, which is this number.
    BeyondLimit(usize),
}

/// What routers are made with.
pub(super) struct LookupSource {
    /// Makes the channel to a lookup service, or says why there is none.
    pub(super) connect: Box<Connect>,
    /// The queue to the task of the channel whose calls look up clusters.
    pub(super) control: WeakUnboundedSender<Control>,
    /// The runtime of lookups.
    pub(super) runtime: Handle,
    pub(super) limits: LookupLimits,
    /// Records the sizes of caches.
    pub(super) observer: Option<Arc<dyn ChannelObserver>>,
}

/// A function from the target of a lookup service to a channel.
pub(super) type Connect = dyn Fn(&str) -> Result<Channel, String> + Send + Sync;

impl LookupRouters {
    /// Without routers.
    pub(super) fn new(source: Option<LookupSource>) -> Arc<Self> {
        Arc::new(Self { routers: ArcSwap::default(), source: source.map(Arc::new) })
    }

    /// Whether plugins are executed.
    pub(super) fn are_executed(&self) -> bool {
        self.source.is_some()
    }

    /// The plugins of the newest routes, in the order of their names.
    pub(super) fn all(&self) -> Vec<(Arc<str>, FoundPlugin)> {
        self.routers.load().iter().map(|(name, found)| (name.clone(), found.clone())).collect()
    }

    /// A plugin of the newest routes.
    pub(super) fn find(&self, plugin: &str) -> Option<FoundPlugin> {
        self.routers.load().get(plugin).cloned()
    }

    /// Replaces the plugins. A router stays while routes have a plugin of its name: plugins beyond the limit are new ones.
    pub(super) fn update(&self, plugins: Vec<LookupPlugin>) {
        let Some(source) = &self.source else { return };
        let before = self.routers.load();
        let router = |plugin: &LookupPlugin| match before.get(&plugin.name) {
            Some(FoundPlugin::Router(router)) => {
                Some(router).filter(|router| router.is_for_host(&plugin.host))
            }
            Some(FoundPlugin::BeyondLimit(_)) | None => None,
        };
        let limit = source.limits.plugins;
        let mut room = limit.saturating_sub(plugins.iter().filter(|plugin| router(plugin).is_some()).count());
        let routers = plugins.into_iter().map(|plugin| {
            let name = plugin.name.clone();
            let found = match router(&plugin) {
                Some(router) => {
                    router.update(plugin.config);
                    FoundPlugin::Router(router.clone())
                }
                None if room == 0 => FoundPlugin::BeyondLimit(limit),
                None => {
                    room -= 1;
                    FoundPlugin::Router(LookupRouter::start(plugin, source.clone()))
                }
            };
            (name, found)
        });
        self.routers.store(Arc::new(routers.collect()));
    }
}

impl LookupSource {
    /// Has the size of the cache of a service recorded.
    fn observe_cache(&self, service: &Arc<str>) -> Arc<CacheUsage> {
        let usage = Arc::default();
        if let Some(observer) = &self.observer {
            observer.on_lookup_cache(service, &usage);
        }
        usage
    }
}

impl fmt::Debug for LookupSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupSource").finish_non_exhaustive()
    }
}
