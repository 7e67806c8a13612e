//! What became of connections and attempts, by what has them in the cluster.

use std::sync::Arc;

use super::Leaf;
use crate::balance::{
    command::{Commands, ConnectionId, Holder},
    connect_error::ConnectError,
    scope::Scope,
    streams::Streams,
    subchannel::Subchannel,
};

impl<H: Clone> Leaf<H> {
    /// A connection is ready.
    pub(in crate::balance) fn on_connected(
        &mut self,
        holder: Holder,
        connection: ConnectionId,
        streams: Arc<Streams<H>>,
        scope: &mut Scope<'_>,
    ) {
        match holder {
            Holder::Endpoint(member) => self.with_member(member, scope, |endpoint, scope| {
                endpoint.on_connected(connection, streams, scope);
            }),
            Holder::SessionEndpoints => {
                let (now, on_full) = (scope.now, self.settings.on_full.clone());
                let event = |subchannel: &mut Subchannel<H>, commands: &mut Commands| {
                    subchannel.on_connected(streams, now, &on_full, commands);
                };
                self.on_host_event(connection, event, scope);
            }
            // It makes no attempts to connect.
            Holder::ReplacedPolicy => {}
        }
    }

    /// An attempt failed.
    pub(in crate::balance) fn on_failed(
        &mut self,
        holder: Holder,
        connection: ConnectionId,
        error: ConnectError,
        scope: &mut Scope<'_>,
    ) {
        match holder {
            Holder::Endpoint(member) => {
                self.set_error(member, &error.text);
                self.with_member(member, scope, |endpoint, scope| {
                    endpoint.on_failed(connection, error, scope);
                });
            }
            Holder::SessionEndpoints => {
                self.on_host_event(connection, |subchannel, _| subchannel.on_failed(error.cause), scope);
            }
            // It makes no attempts to connect.
            Holder::ReplacedPolicy => {}
        }
    }

    /// A connection takes no more requests.
    pub(in crate::balance) fn on_lost(
        &mut self,
        holder: Holder,
        connection: ConnectionId,
        scope: &mut Scope<'_>,
    ) {
        match holder {
            Holder::Endpoint(member) => {
                self.with_member(member, scope, |endpoint, scope| endpoint.on_lost(connection, scope));
                let error = self.members.get(member).and_then(|endpoint| endpoint.error().cloned());
                if let Some(error) = error {
                    self.set_error(member, &error);
                }
            }
            Holder::SessionEndpoints => {
                let now = scope.now;
                let event = |subchannel: &mut Subchannel<H>, _: &mut Commands| {
                    subchannel.on_lost(connection, now);
                };
                self.on_host_event(connection, event, scope);
            }
            Holder::ReplacedPolicy => {
                if let Some(retiring) = &mut self.retiring {
                    retiring.on_lost(connection, scope.now);
                    self.published = None;
                }
                self.choose(scope);
            }
        }
    }

    /// A further connection of an endpoint is needed, which is found out after each event (CH4.10).
    pub(in crate::balance) fn on_full(
        &mut self,
        holder: Holder,
        connection: ConnectionId,
        scope: &mut Scope<'_>,
    ) {
        match holder {
            Holder::Endpoint(member) => self.with_member(member, scope, |_, _| {}),
            Holder::SessionEndpoints => self.on_host_event(connection, |_, _| {}, scope),
            // It does not grow any more.
            Holder::ReplacedPolicy => {}
        }
    }
}
