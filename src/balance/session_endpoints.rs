//! The endpoints of a cluster by their addresses, for calls whose cookies name one (A55, A75).
//!
//! Most of them have the connection of an endpoint of the policy. The others, which drain or are of a priority that is not in use,
//! get subchannels of their own when a call needs them, and keep those that the policy lets go of as long as calls use them.

mod host;
pub(super) mod picker;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) use self::host::ClusterContext;
use self::host::{Endpoint, Host, Own};
pub(crate) use self::picker::HostOverride;
use self::picker::{HostEntry, Hosts};
pub(super) use self::picker::{HostPick, HostPicker, HostState};
use super::{
    command::{Commands, ConnectionId, EndpointIndex},
    connection_event::ConnectionEvent,
    identity::Destination,
    outlier::{Outliers, Tracked},
    pick_first::PickFirstSettings,
    policy::LeafConfig,
    released_connections::ReleasedConnections,
    rotation::Rotated,
    scope::Scope,
    subchannel::Subchannel,
};

/// The endpoints of a cluster over all its priorities, and those that drain (CH8.10).
///
/// [`configure`](Self::configure), [`set_subchannels`](Self::set_subchannels) and events of connections are followed by
/// [`refresh`](Self::refresh).
#[derive(Debug)]
pub(super) struct SessionEndpoints<H> {
    /// The addresses of all endpoints that are usable or drain.
    hosts: BTreeMap<SocketAddr, Host<H>>,
    /// Addresses with a subchannel that no endpoint of the policy has.
    owned: BTreeSet<SocketAddr>,
    /// The addresses of the connections and attempts of own subchannels.
    connections: BTreeMap<ConnectionId, SocketAddr>,
    /// What pickers have.
    published: Hosts<H>,
    /// The time from which the uses by calls are counted.
    epoch: Instant,
    settings: PickFirstSettings,
    max_connections: usize,
    /// How long an own subchannel is kept after the last call that used it.
    idle_timeout: Duration,
    swept_at: Option<Instant>,
    /// When the next sweep is due; `None` without own subchannels that a sweep may end.
    sweep_at: Option<Instant>,
}

/// What connects an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connector {
    /// An endpoint of the policy.
    Endpoint(EndpointIndex),
    /// A subchannel that no endpoint of the policy has.
    Own,
}

impl<H: Clone> SessionEndpoints<H> {
    /// Without endpoints.
    pub(super) fn new(settings: PickFirstSettings, now: Instant) -> Self {
        Self {
            hosts: BTreeMap::new(),
            owned: BTreeSet::new(),
            connections: BTreeMap::new(),
            published: Hosts::new(),
            epoch: now,
            settings,
            max_connections: 1,
            idle_timeout: Duration::ZERO,
            swept_at: None,
            sweep_at: None,
        }
    }

    /// What picks see.
    pub(super) fn picker(&self) -> HostPicker<H> {
        HostPicker { hosts: self.published.clone(), epoch: self.epoch }
    }

    /// The endpoints of the next configuration, without the subchannels of the policy. An address that is there no more, or that
    /// cookies may not lead to any more, gives up its own subchannel, and so does one with another identity (CH7.20).
    pub(super) fn configure(&mut self, config: &LeafConfig, outliers: &Outliers, commands: &mut Commands) {
        let mut before = std::mem::take(&mut self.hosts);
        // Cookies lead to endpoints outside of a subset, too (CH3.62).
        let usable = config.listed().iter().flatten().flat_map(|locality| &locality.endpoints);
        let draining = config.hosts.draining.iter().map(|endpoint| (endpoint, true));
        let listed = usable.map(|endpoint| (endpoint, false)).chain(draining);
        for (endpoint, is_draining) in listed {
            let endpoint = Arc::new(Endpoint::of(endpoint, is_draining, config));
            for address in &endpoint.addresses {
                // An address that is listed twice is that of the first endpoint.
                self.hosts.entry(*address).or_insert_with(|| {
                    let known = before.remove(address);
                    let tracked = outliers.tracked(&endpoint.addresses);
                    Host::new(endpoint.clone(), tracked, known)
                });
            }
        }
        before.keys().for_each(|address| drop(self.published.remove(address)));
        before.into_values().filter_map(|host| host.own).for_each(|own| self.release(own, commands));
        let is_over = |address: &SocketAddr| !self.is_allowed(*address) || self.has_other_identity(*address);
        let forbidden: Vec<_> = self.owned.iter().copied().filter(is_over).collect();
        for address in forbidden {
            self.owned.remove(&address);
            if let Some(own) = self.hosts.get_mut(&address).and_then(|host| host.own.take()) {
                self.release(own, commands);
            }
        }
        (self.idle_timeout, self.max_connections) = (config.hosts.idle_timeout, config.max_connections);
        self.schedule();
    }

    /// An endpoint of the policy has these subchannels, which are all that it has or those that it had before.
    pub(super) fn set_subchannels(
        &mut self,
        endpoint: EndpointIndex,
        subchannels: impl IntoIterator<Item = (Destination, HostState<H>)>,
    ) {
        for (Destination { address, identity }, state) in subchannels {
            // The same address may be listed with another identity, which is none of the host's (CH7.20).
            let host = self.hosts.get_mut(&address).filter(|host| host.endpoint.identity == identity);
            let Some(host) = host else { continue };
            host.subchannels.retain(|(other, _)| *other != endpoint);
            if !matches!(state, HostState::Absent) {
                host.subchannels.push((endpoint, state));
            }
        }
    }

    /// Outlier detection has decided on an endpoint.
    pub(super) fn set_tracked(&mut self, addresses: &[SocketAddr], tracked: Option<&Tracked>) {
        for address in addresses {
            let host = self.hosts.get_mut(address).filter(|host| host.endpoint.addresses == addresses);
            if let Some(host) = host {
                host.tracked = tracked.cloned();
            }
        }
    }

    /// Whether pickers see another state of an address from now on.
    pub(super) fn refresh(
        &mut self,
        address: SocketAddr,
        of: ClusterContext<'_>,
        scope: &mut Scope<'_>,
    ) -> bool {
        let Some(host) = self.hosts.get_mut(&address) else { return false };
        let is_connected = |(_, state): &(_, HostState<H>)| matches!(state, HostState::Ready(_));
        // The policy's connection serves calls with cookies, too.
        if host.subchannels.iter().any(is_connected)
            && let Some(own) = host.own.take()
        {
            self.owned.remove(&address);
            self.release(own, scope.commands);
        }
        let Some(host) = self.hosts.get_mut(&address) else { return false };
        if let Some(own) = &mut host.own {
            let subchannel = &mut own.subchannel;
            subchannel.scale(self.max_connections, scope);
            // The further attempt of `scale` has an id that its events have to find.
            self.connections.extend(subchannel.ids().map(|connection| (connection, address)));
        }
        host.refresh_own(address, of);
        let Endpoint { list, is_allowed, .. } = &*host.endpoint;
        let (state, is_allowed) = (host.state(), *is_allowed);
        let is_same = |entry: &Arc<HostEntry<H>>| {
            entry.state.is_same(&state) && entry.is_allowed == is_allowed && entry.list == *list
        };
        if self.published.get(&address).is_some_and(is_same) {
            return false;
        }
        let last_used = host.last_used.clone();
        let entry = HostEntry { list: list.clone(), is_allowed, last_used, state };
        self.published.insert(address, Arc::new(entry));
        true
    }

    /// All addresses.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.hosts.keys().copied().collect()
    }

    /// What is to connect an address that a pick found idle or without a subchannel. `None` if it is neither any more: there is a
    /// newer picker then.
    pub(super) fn connector(&self, address: SocketAddr, now: Instant) -> Option<Connector> {
        let host = self.hosts.get(&address).filter(|host| host.endpoint.is_allowed)?;
        let state = host.state();
        if !state.is_idle(Some(now)) && !matches!(state, HostState::Absent) {
            return None;
        }
        let mut idle = host.subchannels.iter().filter(|(_, state)| state.is_idle(Some(now)));
        Some(idle.next().map_or(Connector::Own, |(endpoint, _)| Connector::Endpoint(*endpoint)))
    }

    /// Connects an address by a subchannel of its own.
    pub(super) fn connect(&mut self, address: SocketAddr, scope: &mut Scope<'_>) {
        let Some(host) = self.hosts.get_mut(&address) else { return };
        host.last_used.set(scope.now.saturating_duration_since(self.epoch));
        let destination = || Destination::new(address, host.endpoint.identity.clone());
        let new = || Own::new(Subchannel::new(destination(), self.settings.backoff.clone()));
        let own = host.own.get_or_insert_with(new);
        own.subchannel.on_timeout(scope.now);
        own.subchannel.connect(scope);
        self.connections.extend(own.subchannel.ids().map(|connection| (connection, address)));
        self.owned.insert(address);
        self.schedule();
    }

    /// Something became of a connection of an own subchannel; returns its address.
    pub(super) fn on_event(
        &mut self,
        connection: ConnectionId,
        event: ConnectionEvent<H>,
        now: Instant,
        commands: &mut Commands,
    ) -> Option<SocketAddr> {
        let address = *self.connections.get(&connection)?;
        let own = self.hosts.get_mut(&address)?.own.as_mut()?;
        // Also the connection that a new one replaces ends here, and not only that of the event.
        let before: Vec<_> = own.subchannel.ids().collect();
        match event {
            ConnectionEvent::Connected(streams) => {
                own.subchannel.on_connected(streams, now, &self.settings.on_full, commands);
            }
            ConnectionEvent::Failed(error) => own.subchannel.on_failed(error.cause),
            ConnectionEvent::Lost => own.subchannel.on_lost(connection, now),
            // A further connection is attempted when the address is refreshed.
            ConnectionEvent::Full => {}
        }
        for ended in before.iter().filter(|connection| !own.subchannel.has(**connection)) {
            self.connections.remove(ended);
        }
        if own.subchannel.ids().next().is_none() {
            // Without a connection, there is nothing of a draining endpoint to keep: the next sweep may end the subchannel.
            own.is_drained = false;
            self.schedule();
        }
        Some(address)
    }

    /// Certificates were replaced; returns the addresses whose own subchannels were connected with those before. An attempt to replace a
    /// connection that fails here is repeated at the next rotation.
    pub(super) fn on_rotation(&mut self, rotation: &Rotated<'_>, now: Instant) -> Vec<SocketAddr> {
        let mut rotated = Vec::new();
        for address in &self.owned {
            let own = self.hosts.get_mut(address).and_then(|host| host.own.as_mut());
            if let Some(own) = own.filter(|own| own.subchannel.destination().identity.is_of(rotation.of)) {
                own.subchannel.on_rotation(rotation.running, now);
                // A delay that the rotation has ended is over now, so that `refresh` can replace the connection.
                own.subchannel.on_timeout(now);
                rotated.push(*address);
            }
        }
        rotated
    }

    /// Delays after failures are over.
    pub(super) fn reset_backoff(&mut self, now: Instant) {
        for address in &self.owned {
            if let Some(own) = self.hosts.get_mut(address).and_then(|host| host.own.as_mut()) {
                own.subchannel.reset_backoff(now);
            }
        }
    }

    /// Gives the subchannels of some destinations to the endpoints that the policy has for them from now on.
    pub(super) fn release_connections<'a>(
        &mut self,
        destinations: impl IntoIterator<Item = &'a Destination>,
        released: &mut ReleasedConnections<H>,
    ) {
        for destination in destinations {
            let Some(host) = self.hosts.get_mut(&destination.address) else { continue };
            if let Some(own) = host.own.take_if(|own| own.subchannel.destination() == destination) {
                let address = &destination.address;
                self.owned.remove(address);
                self.connections.retain(|_, other| other != address);
                released.offer(own.subchannel);
            }
        }
        self.schedule();
    }

    /// Keeps the subchannels that nobody has taken over, if calls with sessions have used them lately (CH8.15) or their endpoints
    /// begin to drain (CH8.14). They are of the scope's owner from now on. Returns the first connection of each.
    pub(super) fn keep(
        &mut self,
        released: &mut ReleasedConnections<H>,
        scope: &mut Scope<'_>,
    ) -> Vec<ConnectionId> {
        let mut kept = Vec::new();
        for destination in released.destinations() {
            let address = destination.address;
            let host = self.hosts.get_mut(&address);
            let is_same = |host: &&mut Host<H>| host.endpoint.identity == destination.identity;
            let Some(host) = host.filter(is_same) else { continue };
            let is_used = is_recent(self.idle_timeout, host.last_used.get(), self.epoch, scope.now);
            let is_drained = host.endpoint.is_draining && released.has_ready(&destination);
            // One subchannel is enough for an address.
            let has_any = host.own.is_some() || !host.subchannels.is_empty();
            if has_any || !host.endpoint.is_allowed || !(is_used || is_drained) {
                continue;
            }
            let Some(subchannel) = released.take(&destination) else { continue };
            for connection in subchannel.ids() {
                scope.adopt(connection);
                self.connections.insert(connection, address);
            }
            kept.extend(subchannel.ids().next());
            host.own = Some(Own { is_drained, ..Own::new(subchannel) });
            self.owned.insert(address);
        }
        self.schedule();
        kept
    }

    /// When [`sweep`](Self::sweep) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Gives up the own subchannels that no call has used for long; returns their addresses (CH8.15).
    pub(super) fn sweep(&mut self, now: Instant, commands: &mut Commands) -> Vec<SocketAddr> {
        if self.sweep_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.swept_at = Some(now);
        let (epoch, timeout, hosts) = (self.epoch, self.idle_timeout, &self.hosts);
        let is_over = |address: &&SocketAddr| {
            let host = &hosts[*address];
            let is_drained = host.own.as_ref().is_some_and(|own| own.is_drained);
            !is_drained && !is_recent(timeout, host.last_used.get(), epoch, now)
        };
        let over: Vec<_> = self.owned.iter().filter(is_over).copied().collect();
        for address in &over {
            self.owned.remove(address);
            if let Some(own) = self.hosts.get_mut(address).and_then(|host| host.own.take()) {
                self.release(own, commands);
            }
        }
        self.schedule();
        over
    }

    /// Ends all own subchannels.
    pub(super) fn close(mut self, commands: &mut Commands) {
        let hosts = std::mem::take(&mut self.hosts);
        hosts.into_values().filter_map(|host| host.own).for_each(|own| self.release(own, commands));
    }

    /// Ends a subchannel: its attempt is cancelled, and its connections are drained.
    fn release(&mut self, mut own: Own<H>, commands: &mut Commands) {
        self.owned.remove(&own.subchannel.address());
        for connection in own.subchannel.ids() {
            self.connections.remove(&connection);
        }
        own.subchannel.release(commands);
    }

    /// Whether cookies may lead to an address, by the health of its endpoint.
    fn is_allowed(&self, address: SocketAddr) -> bool {
        self.hosts.get(&address).is_some_and(|host| host.endpoint.is_allowed)
    }

    /// Whether its own subchannel is that of another identity.
    fn has_other_identity(&self, address: SocketAddr) -> bool {
        let host = self.hosts.get(&address).and_then(|host| Some((host, host.own.as_ref()?)));
        host.is_some_and(|(host, own)| own.subchannel.destination().identity != host.endpoint.identity)
    }

    /// One sweep, for the subchannel that was used longest ago.
    fn schedule(&mut self) {
        let own = self.owned.iter().filter_map(|address| self.hosts.get(address));
        let swept = own.filter(|host| host.own.as_ref().is_some_and(|own| !own.is_drained));
        // A subchannel that no call has used counts from the epoch.
        let oldest = swept.map(|host| host.last_used.get().unwrap_or_default()).min();
        let at = oldest.and_then(|used| (self.epoch + used).checked_add(self.idle_timeout));
        let earliest = self.swept_at.map(|swept| swept + SWEEP_INTERVAL);
        self.sweep_at = at.map(|at| earliest.map_or(at, |earliest| at.max(earliest)));
    }
}

/// Whether a call has used an endpoint within the idle timeout.
fn is_recent(timeout: Duration, last_used: Option<Duration>, epoch: Instant, now: Instant) -> bool {
    last_used.is_some_and(|used| now.saturating_duration_since(epoch + used) < timeout)
}

/// Sweeps are no closer to each other.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
