//! The configurations of HTTP filters that a listener only names.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    dependency::{Dependency, End},
    orders::{Order, WatchKey},
    reference::{Reference, ResourceId},
};
use crate::{
    error::{Blame, Code, WatchError},
    observed::Observed,
    resource::{
        ExtensionConfig, Listener,
        http_filter::{DiscoveredFilter, HttpFilter, HttpFilterConfig},
        listener::ListenerKind,
    },
};

/// The configurations that HTTP filters of a listener have as resources of their own (ECDS). A resolution sees the listener with
/// each of them in its place.
///
/// A configuration of a type that the listener does not permit is not used: the last one that was, or else the default, serves on.
#[derive(Debug)]
pub(super) struct ExtensionConfigs {
    /// The configurations that the listener names. Two filters may name one configuration, which is watched once.
    configs: BTreeMap<Reference, Config>,
    /// The last listener that was completed, to return the same one as long as nothing changes. `None` for a listener without
    /// discovered filters.
    completed: Option<Completed>,
    /// The id of the node, for errors.
    node_id: Arc<str>,
    /// The time for which a deleted configuration stays in use.
    grace: Duration,
}

#[derive(Debug)]
struct Config {
    /// The watched resource.
    dependency: Dependency<ExtensionConfig>,
    /// The last one of a permitted type, until it is known to be deleted. It serves on while a newer one is of a type that the
    /// listener does not permit.
    accepted: Option<Arc<ExtensionConfig>>,
}

/// The listener with its configurations. It is kept, so that a listener that has not changed is the same.
#[derive(Debug)]
struct Completed {
    /// The listener as it was sent.
    sent: Arc<Listener>,
    /// The configurations that were put into it.
    chosen: Vec<Choice>,
    /// The result.
    listener: Arc<Listener>,
}

/// The configuration of one filter.
///
/// Compared by address, so that a pass in which nothing has changed yields the same listener, and thus the same routing
/// configuration.
#[derive(Debug, Clone)]
enum Choice {
    /// The configuration that was received.
    Discovered(Arc<ExtensionConfig>),
    /// The default in the listener. It is a part of the listener, and has no version of its own.
    Default,
}

/// The choice for a filter, and the reason why it may be stale.
type Chosen = (Choice, Option<WatchError>);

impl ExtensionConfigs {
    /// No configurations.
    pub(super) fn new(node_id: Arc<str>, grace: Duration) -> Self {
        Self { configs: BTreeMap::new(), completed: None, node_id, grace }
    }

    /// Handles the state of a configuration.
    pub(super) fn on_seen(&mut self, what: &Reference, seen: Arc<Observed<ExtensionConfig>>) {
        if let Some(config) = self.configs.get_mut(what) {
            config.dependency.on_seen(seen);
        }
    }

    /// The route configuration is about to be resolved again.
    pub(super) fn start_pass(&mut self) {
        self.configs.values_mut().for_each(|config| config.dependency.start_pass());
    }

    /// The configurations that a listener names are watched, and no others.
    pub(super) fn require(&mut self, listener: &Listener, orders: &mut Vec<Order>) {
        for (filter, discovered) in discovered(listener) {
            let what = reference(filter, discovered);
            let config = self.configs.entry(what.clone()).or_insert_with(|| Config {
                dependency: Dependency::new(WatchKey::ExtensionConfig),
                accepted: None,
            });
            config.dependency.require(&what, orders);
        }
    }

    /// The route configuration was resolved: configurations that the listener does not name are not watched any more.
    pub(super) fn release_unrequired(&mut self, orders: &mut Vec<Order>) {
        self.configs.retain(|_, config| {
            config.dependency.release_unrequired(orders);
            config.dependency.is_required()
        });
    }

    /// The time until which a deleted configuration in use serves on.
    pub(super) fn grace(&self) -> Option<Instant> {
        let in_use = self.configs.values().filter(|config| config.accepted.is_some());
        in_use.filter_map(|config| config.dependency.grace()).min()
    }

    /// The listener with its configurations, and the reasons why these may be stale. `in_use` is whether a tree is in use.
    ///
    /// The first configuration that is missing ends the pass: a listener is used with all of its filters or not at all.
    pub(super) fn complete(
        &mut self,
        listener: &Arc<Listener>,
        in_use: bool,
        now: Instant,
    ) -> Result<(Arc<Listener>, Vec<WatchError>), End> {
        let (mut chosen, mut warnings) = (Vec::new(), Vec::new());
        for (filter, discovered) in discovered(listener) {
            let (choice, warning) = self.choose(filter, discovered, in_use, now)?;
            chosen.push(choice);
            warnings.extend(warning);
        }
        // Most listeners discover nothing, and are passed on as they are.
        if chosen.is_empty() {
            self.completed = None;
            return Ok((listener.clone(), warnings));
        }
        let known = self.completed.as_ref().filter(|known| known.is_of(listener, &chosen));
        let completed = match known {
            Some(known) => known.listener.clone(),
            None => Arc::new(with_configs(listener, &chosen)),
        };
        self.completed = Some(Completed { sent: listener.clone(), chosen, listener: completed.clone() });
        Ok((completed, warnings))
    }

    /// Rules EX2 to EX4.
    fn choose(
        &mut self,
        filter: &HttpFilter,
        discovered: &DiscoveredFilter,
        in_use: bool,
        now: Instant,
    ) -> Result<Chosen, End> {
        let Some(config) = self.configs.get_mut(&reference(filter, discovered)) else {
            debug_assert!(false, "configurations are required before they are chosen");
            return Err(End::Unknown);
        };
        let default = discovered.default_config.is_some().then_some(Choice::Default);
        // The default has no grace: it is used in its place.
        let in_use = in_use && config.accepted.is_some();
        match config.dependency.resolve(in_use, self.grace, now) {
            Ok((found, warning)) if discovered.permits(&found.type_name) => {
                config.accepted = Some(found.clone());
                Ok((Choice::Discovered(found), warning))
            }
            // EX2: no NACK, since the same configuration may be meant for a listener that permits its type.
            Ok((found, _)) => {
                let about = ResourceId::of::<ExtensionConfig>(filter.name.as_ref().into());
                let text = format!("type {:?} is not one of the type_urls of the filter", found.type_name);
                let about = about.subject(&self.node_id);
                let reason = WatchError::new(Code::InvalidArgument, Blame::Peer, about, text);
                let accepted = config.accepted.clone().filter(|last| discovered.permits(&last.type_name));
                let choice = accepted.map(Choice::Discovered).or(default);
                choice.map(|choice| (choice, Some(reason.clone()))).ok_or(End::Blocked(reason))
            }
            // EX4.
            Err(End::Unknown) if discovered.apply_default_config_without_warming => {
                Ok((Choice::Default, None))
            }
            Err(End::Unknown) => Err(End::Unknown),
            // One in use that was deleted serves on for a while.
            Err(End::Blocked(reason)) if reason.is_not_found() => Err(End::Blocked(reason)),
            Err(End::Blocked(reason)) => match default {
                Some(default) => Ok((default, Some(reason))),
                None => Err(End::Blocked(reason)),
            },
            Err(End::Nowhere(reason)) => {
                // It is deleted, and its grace is over: it must not come back with a later configuration of another type.
                config.accepted = None;
                match default {
                    Some(default) => Ok((default, Some(reason))),
                    None => Err(End::Nowhere(reason)),
                }
            }
        }
    }
}

impl Completed {
    /// Whether it was made of the same listener and configurations.
    fn is_of(&self, listener: &Arc<Listener>, chosen: &[Choice]) -> bool {
        Arc::ptr_eq(&self.sent, listener)
            && self.chosen.len() == chosen.len()
            && self.chosen.iter().zip(chosen).all(|(before, now)| before.is_same(now))
    }
}

impl Choice {
    /// Whether it is the same configuration.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Discovered(config), Self::Discovered(other)) => Arc::ptr_eq(config, other),
            (Self::Default, Self::Default) => true,
            (Self::Discovered(_), Self::Default) | (Self::Default, Self::Discovered(_)) => false,
        }
    }
}

/// The discovered filters of a listener, in their order.
fn discovered(listener: &Listener) -> impl Iterator<Item = (&HttpFilter, &DiscoveredFilter)> {
    let filters = listener.api().map_or(&[][..], |api| &api.http_filters);
    filters.iter().filter_map(|filter| {
        let HttpFilterConfig::Discovered(discovered) = &filter.config else { return None };
        Some((filter, &**discovered))
    })
}

/// The configuration that a filter names.
fn reference(filter: &HttpFilter, discovered: &DiscoveredFilter) -> Reference {
    Reference { name: filter.name.as_ref().into(), source: discovered.source.clone() }
}

/// The listener with configurations in the places of its discovered filters.
fn with_configs(listener: &Listener, chosen: &[Choice]) -> Listener {
    let mut completed = listener.clone();
    let ListenerKind::Api(manager) = &mut completed.kind else { return completed };
    let mut chosen = chosen.iter();
    for filter in &mut manager.http_filters {
        let HttpFilterConfig::Discovered(discovered) = &filter.config else { continue };
        let config = match chosen.next() {
            Some(Choice::Discovered(found)) => Some(found.config.clone()),
            Some(Choice::Default) => discovered.default_config.clone(),
            None => None,
        };
        if let Some(config) = config {
            filter.config = config;
        }
    }
    completed
}
