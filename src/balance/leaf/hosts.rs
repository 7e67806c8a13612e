//! The endpoints that the cookies of calls lead to (A55).

use std::net::SocketAddr;

use super::{Leaf, Rotated, Scope};
use crate::balance::{
    cluster_endpoint::ClusterEndpoint,
    command::{Command, Commands, ConnectionId, Holder, Owner},
    identity::Destination,
    released_connections::ReleasedConnections,
    session_endpoints::{Connector, OfCluster, SessionEndpoints},
    subchannel::Subchannel,
};

impl<H: Clone> Leaf<H> {
    /// Whether calls have sessions. Without any, nothing is kept for them (CH8.16).
    pub(in crate::balance) fn set_sessions(&mut self, has_sessions: bool, scope: &mut Scope<'_>) {
        match (has_sessions, self.hosts.take()) {
            (true, None) => {
                self.hosts = Some(SessionEndpoints::new(self.settings.clone(), scope.now));
                self.relist_hosts(scope);
            }
            (true, known @ Some(_)) => self.hosts = known,
            (false, Some(hosts)) => {
                hosts.close(scope.commands);
                self.published = None;
            }
            (false, None) => {}
        }
    }

    /// A pick requested the connection of an address (CH8.11).
    pub(in crate::balance) fn connect_host(&mut self, address: SocketAddr, scope: &mut Scope<'_>) {
        match self.hosts.as_ref().and_then(|hosts| hosts.connector(address, scope.now)) {
            Some(Connector::Endpoint(member)) => self.with_member(member, scope, ClusterEndpoint::connect),
            Some(Connector::Own) => {
                scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::SessionEndpoints });
                if let Some(hosts) = &mut self.hosts {
                    hosts.connect(address, scope);
                }
                self.refresh_hosts([address], scope);
            }
            None => {}
        }
    }

    /// Something became of a connection that no endpoint of the policy has.
    pub(super) fn on_host_event(
        &mut self,
        connection: ConnectionId,
        event: impl FnOnce(&mut Subchannel<H>, &mut Commands),
        scope: &mut Scope<'_>,
    ) {
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::SessionEndpoints });
        let address = self.hosts.as_mut().and_then(|hosts| hosts.on_event(connection, event, scope.commands));
        self.refresh_hosts(address, scope);
    }

    /// Delays after failures are over (CH3.3).
    pub(super) fn reset_hosts_backoff(&mut self, scope: &mut Scope<'_>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.reset_backoff(scope.now);
            let addresses = hosts.addresses();
            self.refresh_hosts(addresses, scope);
        }
    }

    /// Certificates were replaced (CH7.7).
    pub(super) fn rotate_hosts(&mut self, rotation: &Rotated<'_>, scope: &mut Scope<'_>) {
        if let Some(hosts) = &mut self.hosts {
            let addresses = hosts.on_rotation(rotation, scope.now);
            self.refresh_hosts(addresses, scope);
        }
    }

    /// Ends connections that calls have not used for long (CH8.15).
    pub(super) fn sweep_hosts(&mut self, scope: &mut Scope<'_>) {
        if let Some(hosts) = &mut self.hosts {
            let addresses = hosts.sweep(scope);
            self.refresh_hosts(addresses, scope);
        }
    }

    /// An endpoint has changed.
    pub(super) fn settle_host(&mut self, member: usize, scope: &mut Scope<'_>) {
        if let (Some(hosts), Some(it)) = (&mut self.hosts, self.members.get(member)) {
            let subchannels = it.host_states();
            let addresses: Vec<_> = subchannels.iter().map(|(it, _)| it.address).collect();
            hosts.set_subchannels(member, subchannels);
            self.refresh_hosts(addresses, scope);
        }
    }

    /// Outlier detection has decided on an endpoint.
    pub(super) fn track_host(&mut self, addresses: &[SocketAddr], scope: &mut Scope<'_>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.set_tracked(addresses, self.outliers.tracked(addresses).as_ref());
            self.refresh_hosts(addresses.iter().copied(), scope);
        }
    }

    /// The endpoints that the policy has for these destinations from now on take over what calls with cookies have connected.
    pub(super) fn surrender_hosts<'a>(
        &mut self,
        destinations: impl IntoIterator<Item = &'a Destination>,
        released: &mut ReleasedConnections<H>,
    ) {
        if let Some(hosts) = &mut self.hosts {
            hosts.release_connections(destinations, released);
        }
    }

    /// Takes note of another configuration, or of other endpoints, and keeps those of their connections that calls with sessions
    /// need.
    pub(super) fn keep_hosts(&mut self, released: &mut ReleasedConnections<H>, scope: &mut Scope<'_>) {
        self.list_hosts(scope);
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::SessionEndpoints });
        if let Some(hosts) = &mut self.hosts {
            let kept = hosts.keep(released, scope);
            // Nobody weighs what they report.
            let has_reports = self.config.policy.policy.weights().is_some();
            for connection in kept.into_iter().filter(|_| has_reports) {
                scope.commands.push(Command::UnwatchLoad { connection });
            }
            let addresses = hosts.addresses();
            self.refresh_hosts(addresses, scope);
        }
    }

    /// Ends the connections that no endpoint of the policy has.
    pub(super) fn close_hosts(&mut self, scope: &mut Scope<'_>) {
        if let Some(hosts) = self.hosts.take() {
            hosts.close(scope.commands);
        }
    }

    fn relist_hosts(&mut self, scope: &mut Scope<'_>) {
        self.list_hosts(scope);
        if let Some(hosts) = &self.hosts {
            let addresses = hosts.addresses();
            self.refresh_hosts(addresses, scope);
        }
        self.published = None;
    }

    fn list_hosts(&mut self, scope: &mut Scope<'_>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.configure(&self.config, &self.outliers, scope);
            for (member, it) in &self.members {
                hosts.set_subchannels(member, it.host_states());
            }
            // Addresses may be gone.
            self.published = None;
        }
    }

    fn refresh_hosts(&mut self, addresses: impl IntoIterator<Item = SocketAddr>, scope: &mut Scope<'_>) {
        let Some(hosts) = &mut self.hosts else { return };
        // It may follow from something else that goes on.
        let owner = scope.commands.owner();
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::SessionEndpoints });
        for address in addresses {
            let of = OfCluster { breaker: &self.breaker, loads: &mut self.loads };
            if hosts.refresh(address, of, scope) {
                self.published = None;
            }
        }
        scope.commands.set_owner(owner);
    }
}
