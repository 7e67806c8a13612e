//! The endpoints that the cookies of calls lead to (A55), while calls may have sessions.

use std::{net::SocketAddr, time::Instant};

use super::{cluster::Cluster, endpoints::EndpointTable};
use crate::balance::{
    cluster_endpoint::ClusterEndpoint,
    command::{Commands, ConnectionId, EndpointIndex, Holder},
    connection_event::ConnectionEvent,
    identity::Destination,
    load::Loads,
    outlier::Outliers,
    released_connections::ReleasedConnections,
    rotation::Rotated,
    scope::LeafScope,
    session_endpoints::{ClusterContext, Connector, HostPicker, SessionEndpoints},
};

/// The session endpoints of a cluster, if routes have sessions (CH8.16). What changes them returns whether the picker is outdated by that.
#[derive(Debug)]
pub(super) struct Sessions<H> {
    /// The endpoints by address; `None` while no route has sessions.
    endpoints: Option<SessionEndpoints<H>>,
    /// The counters of attempts on connections that no endpoint of the policy has.
    loads: Loads,
}

impl<H: Clone> Sessions<H> {
    /// Without sessions.
    pub(super) fn none() -> Self {
        Self { endpoints: None, loads: Loads::default() }
    }

    /// What picks of calls with cookies see.
    pub(super) fn picker(&self) -> Option<HostPicker<H>> {
        self.endpoints.as_ref().map(SessionEndpoints::picker)
    }

    /// When [`sweep`](Self::sweep) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.endpoints.as_ref().and_then(SessionEndpoints::poll_timeout)
    }

    /// Calls may have sessions from now on. True if they could not before, so that the endpoints have to be [listed](Self::list).
    pub(super) fn begin(&mut self, cluster: &Cluster, now: Instant) -> bool {
        let begins = self.endpoints.is_none();
        self.endpoints.get_or_insert_with(|| SessionEndpoints::new(cluster.settings.clone(), now));
        begins
    }

    /// Calls have no sessions any more, or the cluster is closed: the connections that no endpoint of the policy has are ended.
    pub(super) fn end(&mut self, commands: &mut Commands) -> bool {
        let endpoints = self.endpoints.take();
        let had_sessions = endpoints.is_some();
        if let Some(endpoints) = endpoints {
            endpoints.close(commands);
        }
        had_sessions
    }

    /// The cluster has another configuration, or other endpoints. [`refresh_all`](Self::refresh_all) follows.
    pub(super) fn list(
        &mut self,
        cluster: &Cluster,
        endpoints: &EndpointTable<H>,
        outliers: &Outliers,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let Some(sessions) = &mut self.endpoints else { return false };
        sessions.configure(&cluster.config, outliers, scope.commands);
        // `configure` has forgotten which subchannels the policy has.
        for (index, endpoint) in endpoints.iter() {
            sessions.set_subchannels(index, endpoint.host_states());
        }
        // Addresses may be gone.
        true
    }

    /// Keeps those of the released connections that calls with sessions need.
    pub(super) fn keep(
        &mut self,
        cluster: &Cluster,
        released: &mut ReleasedConnections<H>,
        scope: &mut LeafScope<'_>,
    ) {
        let Some(sessions) = &mut self.endpoints else { return };
        let kept = sessions.keep(released, &mut scope.of(Holder::SessionEndpoints));
        // Nobody weighs what they report.
        let has_reports = cluster.policy().weights().is_some();
        for connection in kept.into_iter().filter(|_| has_reports) {
            scope.commands.watch_load(connection, None);
        }
    }

    /// Gives the connections of some destinations to the endpoints that the policy has for them from now on.
    pub(super) fn release<'a>(
        &mut self,
        destinations: impl IntoIterator<Item = &'a Destination>,
        released: &mut ReleasedConnections<H>,
    ) {
        if let Some(sessions) = &mut self.endpoints {
            sessions.release_connections(destinations, released);
        }
    }

    /// An endpoint of the policy has changed.
    pub(super) fn on_endpoint(
        &mut self,
        index: EndpointIndex,
        endpoint: &ClusterEndpoint<H>,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let Some(sessions) = &mut self.endpoints else { return false };
        let subchannels = endpoint.host_states();
        let addresses: Vec<_> = subchannels.iter().map(|(destination, _)| destination.address).collect();
        sessions.set_subchannels(index, subchannels);
        self.refresh(addresses, cluster, scope)
    }

    /// Outlier detection has decided on an endpoint.
    pub(super) fn on_ejected(
        &mut self,
        addresses: &[SocketAddr],
        outliers: &Outliers,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let Some(sessions) = &mut self.endpoints else { return false };
        sessions.set_tracked(addresses, outliers.tracked(addresses).as_ref());
        self.refresh(addresses.iter().copied(), cluster, scope)
    }

    /// What connects an address that a pick has requested; `None` if there is a newer picker.
    pub(super) fn connector(&self, address: SocketAddr, now: Instant) -> Option<Connector> {
        self.endpoints.as_ref()?.connector(address, now)
    }

    /// Connects an address that the policy does not connect.
    pub(super) fn connect(
        &mut self,
        address: SocketAddr,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        if let Some(sessions) = &mut self.endpoints {
            sessions.connect(address, &mut scope.of(Holder::SessionEndpoints));
        }
        self.refresh([address], cluster, scope)
    }

    /// Something became of a connection that no endpoint of the policy has.
    pub(super) fn on_event(
        &mut self,
        connection: ConnectionId,
        event: ConnectionEvent<H>,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let sessions = self.endpoints.as_mut();
        let on_event = |sessions: &mut SessionEndpoints<H>| {
            sessions.on_event(connection, event, scope.now, scope.commands)
        };
        let address = sessions.and_then(on_event);
        self.refresh(address, cluster, scope)
    }

    /// Delays after failures are over (CH3.3).
    pub(super) fn reset_backoff(&mut self, cluster: &Cluster, scope: &mut LeafScope<'_>) -> bool {
        if let Some(sessions) = &mut self.endpoints {
            sessions.reset_backoff(scope.now);
        }
        self.refresh_all(cluster, scope)
    }

    /// Certificates were replaced (CH7.7).
    pub(super) fn on_rotation(
        &mut self,
        rotation: &Rotated<'_>,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let sessions = self.endpoints.as_mut();
        let addresses = sessions.map(|sessions| sessions.on_rotation(rotation, scope.now));
        self.refresh(addresses.unwrap_or_default(), cluster, scope)
    }

    /// Ends connections that calls have not used for long (CH8.15).
    pub(super) fn sweep(&mut self, cluster: &Cluster, scope: &mut LeafScope<'_>) -> bool {
        let sessions = self.endpoints.as_mut();
        let addresses = sessions.map(|sessions| sessions.sweep(scope.now, scope.commands));
        self.refresh(addresses.unwrap_or_default(), cluster, scope)
    }

    /// Updates what pickers have of all addresses.
    pub(super) fn refresh_all(&mut self, cluster: &Cluster, scope: &mut LeafScope<'_>) -> bool {
        let addresses = self.endpoints.as_ref().map(SessionEndpoints::addresses);
        self.refresh(addresses.unwrap_or_default(), cluster, scope)
    }

    /// Updates what pickers have of some addresses.
    fn refresh(
        &mut self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let Self { endpoints: Some(sessions), loads } = self else { return false };
        let scope = &mut scope.of(Holder::SessionEndpoints);
        let mut is_outdated = false;
        for address in addresses {
            let context = ClusterContext { breaker: &cluster.breaker, loads: &mut *loads };
            is_outdated |= sessions.refresh(address, context, scope);
        }
        is_outdated
    }
}
