//! The authorities: the servers of each, the active one, and the entries that are requested from them.
//!
//! It owns the protocol machines. Events of a machine are handled as soon as it is settled
//! ([`settle`](Authorities::settle)); changes for watches are recorded in the [`Store`].
//!
//! | file | contents |
//! |---|---|
//! | `groups` | the sources of an authority in their order, and the lowest open one |
//! | `servers` | the machines, and their deadlines |
//! | `placement` | the subscriptions of entries at servers |
//! | `watches` | the subscriptions that a watch of a name or a wildcard needs |
//! | `membership`, `globs` | members of wildcards and globs at each server |
//! | `fallback` | fallback from one server to the next, and reversion (A71) |
//! | `events`, `silence`, `absence` | events of servers, and missing responses |
//! | `versions` | the versions of resources at a server |
//! | `unused` | servers and groups without subscriptions |

mod absence;
mod events;
mod fallback;
mod globs;
mod groups;
mod membership;
mod placement;
mod servers;
mod silence;
mod unused;
mod versions;
mod watches;

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use self::unused::Unused;
pub(super) use self::{
    globs::GlobPattern,
    groups::{AuthorityState, Groups},
    membership::By,
    servers::{ServerState, Servers},
    watches::RequestedName,
};
use super::{Refusal, Selection, counts::ConnectionCounts, store::Store};
use crate::{
    cache::Entry,
    config::{ApiType, Authority, Bootstrap, ConfigSource},
    engine::Settings,
    error::Code,
    name::ResourceName,
    protocol::{
        self, Envelope, Event, GroupId, Machine, ServerId, SourceKey, StreamEvent, Subscriptions, Timer,
        TypeId, encode_node,
    },
    resource::config_source::ResourceConfigSource,
};

/// The servers of all authorities. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Authorities {
    bootstrap: Arc<Bootstrap>,
    settings: Arc<Settings>,
    /// A part of the settings, which the machines share.
    protocol: Arc<protocol::Settings>,
    node: Bytes,
    random: fastrand::Rng,
    /// By [`ServerId`].
    servers: Servers,
    groups: Groups,
    unused: Unused,
    connections: ConnectionCounts,
}

impl Authorities {
    pub(super) fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>, seed: u64) -> Self {
        Self {
            node: encode_node(bootstrap.node()),
            random: fastrand::Rng::with_seed(seed),
            servers: Servers::default(),
            groups: Groups::new(&bootstrap, &settings),
            unused: Unused::default(),
            connections: ConnectionCounts::default(),
            protocol: Arc::new(settings.protocol.clone()),
            bootstrap,
            settings,
        }
    }

    /// Handles the events of a server's machine.
    pub(in crate::engine) fn settle(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        while let Some(event) = self.servers[server].machine.poll_event() {
            match event {
                Event::Failed(reason) => self.on_failed(store, server, &reason, now),
                Event::Recovered => self.on_answered(store, server, now),
                Event::Rested => self.on_rested(store, server),
                Event::TimedOut(entry) => self.on_timed_out(store, server, entry, now),
                Event::AllTimedOut(ty) => self.on_all_timed_out(store, server, ty),
                Event::Unanswered(ty) => self.on_unanswered(store, (server, ty), now),
                Event::HeldBack(entry) => self.on_held_back(store, (server, entry), now),
                Event::Released(entry) => self.on_released(store, server, entry),
                Event::ReleasedAll(ty) => self.on_released_all(store, server, ty),
                Event::Quiet(ty) => self.on_quiet(store, server, ty, now),
            }
        }
        while let Some(command) = self.servers[server].machine.poll_command() {
            store.push_command(command);
        }
        let state = &self.servers[server];
        self.connections.note(server, state.machine.stream().connection(), state.failure.is_some());
    }

    /// The servers to request a name from. They are registered at the first use.
    pub(super) fn group_for(
        &mut self,
        store: &Store,
        (ty, name): (TypeId, &ResourceName),
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(name.authority(), ty) {
            return Ok(known);
        }
        let bootstrap = self.bootstrap.clone();
        let sources = bootstrap.sources_for(name, store.type_url(ty));
        let sources = sources.map_err(|unknown| refuse(unknown.to_string()))?;
        self.add_group(store, (name.authority(), ty), sources, now)
    }

    /// The source of a resource whose name came with one. A group with the same source and fetch mode is shared.
    pub(super) fn source_group(
        &mut self,
        store: &Store,
        (ty, name): (TypeId, &ResourceName),
        source: &ResourceConfigSource,
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let source_keys = self.source_keys(store, ty, source.sources())?;
        let first = source_keys.first().and_then(|first| self.servers.find(first));
        if let Some(known) = first.and_then(|first| self.groups.like(name.authority(), &source_keys, first)) {
            return Ok(known);
        }
        let group = self.new_group(name.authority(), source_keys, now)?;
        let id = self.groups.push(group);
        // The name may belong to another group already.
        self.unused.note_group(id);
        Ok(id)
    }

    /// The servers of names of the older form.
    pub(super) fn default_group(
        &mut self,
        store: &Store,
        ty: TypeId,
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(None, ty) {
            return Ok(known);
        }
        let bootstrap = self.bootstrap.clone();
        self.add_group(store, (None, ty), bootstrap.sources_of(store.type_url(ty)), now)
    }

    fn add_group(
        &mut self,
        store: &Store,
        (authority, ty): (Option<&str>, TypeId),
        sources: &[ConfigSource],
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let source_keys = self.source_keys(store, ty, sources)?;
        let group = self.new_group(authority, source_keys, now)?;
        self.servers.keep(group.active());
        Ok(self.groups.add(AuthorityState { is_configured: true, ..group }, ty))
    }

    fn source_keys(
        &self,
        store: &Store,
        ty: TypeId,
        sources: &[ConfigSource],
    ) -> Result<Vec<SourceKey>, Refusal> {
        let type_url = store.type_url(ty);
        let mut source_keys = Vec::with_capacity(sources.len());
        for source in sources {
            let source_key = SourceKey::new(source, type_url, &self.protocol);
            let source_key = source_key.map_err(|message| Refusal { code: Code::Unimplemented, message })?;
            if !source_keys.contains(&source_key) {
                source_keys.push(source_key);
            }
        }
        Ok(source_keys)
    }

    fn new_group(
        &mut self,
        authority: Option<&str>,
        source_keys: Vec<SourceKey>,
        now: Instant,
    ) -> Result<AuthorityState, Refusal> {
        let nobody = || refuse("no source of the type is configured".into());
        let open = vec![self.server_id(source_keys.first().ok_or_else(nobody)?, now)];
        let entry = authority.and_then(|name| self.bootstrap.authority(name).ok());
        let on_reachability_only = entry.is_some_and(Authority::fallback_on_reachability_only);
        let authority = authority.map(Into::into);
        Ok(AuthorityState {
            authority,
            source_keys,
            open,
            on_reachability_only,
            watches: 0,
            is_configured: false,
        })
    }

    /// The slot of a source, which is added at the first use; nothing is requested from it yet.
    pub(super) fn server_id(&mut self, source_key: &SourceKey, now: Instant) -> ServerId {
        if let Some(known) = self.servers.find(source_key) {
            return known;
        }
        let seed = (self.random.u64(..), now);
        let Self { servers, node, settings, protocol, .. } = self;
        servers
            .insert(settings, |id| Machine::new(id, source_key.clone(), node.clone(), protocol.clone(), seed))
    }

    /// Opens the next server of a group.
    pub(super) fn open_next(&mut self, id: GroupId, server: ServerId) {
        self.groups.open_next(id, server);
        if self.groups.get(id).is_configured {
            self.servers.keep(server);
        }
    }

    /// The active server of an entry, whose answers count.
    pub(in crate::engine) fn active_for(&self, entry: &Entry) -> ServerId {
        self.groups.get(entry.group).active()
    }

    /// Handles an event of a stream; returns its response, if it is to be applied.
    pub(super) fn handle_event(
        &mut self,
        store: &mut Store,
        event: StreamEvent,
        now: Instant,
    ) -> Option<(TypeId, Envelope)> {
        let id = event.stream().server;
        // The server may have been removed as unused.
        let response = self.servers.get_mut(id)?.machine.handle_event(event, now);
        self.settle(store, id, now);
        response
    }

    /// Handles the due timers of servers, but for those that are busy.
    pub(super) fn handle_timeout(
        &mut self,
        store: &mut Store,
        is_busy: impl Fn(ServerId) -> bool,
        now: Instant,
    ) {
        self.servers.settle_deadlines();
        for server in self.servers.due(now) {
            if !is_busy(server) {
                self.servers[server].machine.handle_timeout(now);
                self.settle(store, server, now);
            }
        }
    }

    /// The earliest deadline of a server that is not busy, and its timer.
    pub(super) fn next_timeout(&self, is_busy: impl Fn(ServerId) -> bool) -> Option<(Instant, Timer)> {
        let mut idle = self.servers.deadlines().filter(|(server, _)| !is_busy(*server));
        idle.next().map(|(_, deadline)| deadline)
    }

    /// Drops the resources whose TTL has expired.
    pub(super) fn expire(&mut self, store: &mut Store, now: Instant) {
        while let Some(id) = store.pop_expired(now) {
            self.on_expired(store, id, now);
        }
    }

    /// Virtual hosts on demand exist in the incremental variant alone (B3.5).
    pub(super) fn check_on_demand(
        &mut self,
        store: &Store,
        (ty, names): (TypeId, &Selection),
        now: Instant,
    ) -> Result<(), Refusal> {
        let name = ResourceName::parse(&names.text()).map_err(|error| Refusal::invalid(error.to_string()))?;
        let group = self.group_for(store, (ty, &name), now)?;
        let sources = &self.groups.get(group).source_keys;
        match sources.first() {
            Some(first) if !sources.iter().any(|source| source.capabilities().incremental) => Err(Refusal {
                code: Code::Unimplemented,
                message: format!(
                    "virtual hosts on demand (VHDS) need an api_type of {} or {}, which that of xDS server {} is not",
                    ApiType::AggregatedDeltaGrpc,
                    ApiType::DeltaGrpc,
                    first,
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The active server of a group, whose answers count.
    pub(super) fn active(&self, group: GroupId) -> ServerId {
        self.groups.get(group).active()
    }

    pub(super) fn server(&self, id: ServerId) -> &ServerState {
        &self.servers[id]
    }

    pub(super) fn server_mut(&mut self, id: ServerId) -> &mut ServerState {
        &mut self.servers[id]
    }

    /// The names of a type that are requested from a server, or sent by it.
    pub(super) fn subscriptions(&mut self, server: ServerId, ty: TypeId) -> Option<&mut Subscriptions> {
        self.servers[server].machine.subscriptions_mut(ty)
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Both at once.
    pub(super) fn servers_and_groups(&mut self) -> (&mut Servers, &Groups) {
        (&mut self.servers, &self.groups)
    }

    pub(super) fn connections(&mut self) -> &mut ConnectionCounts {
        &mut self.connections
    }

    /// Brings the deadlines of the servers up to date.
    pub(super) fn settle_deadlines(&mut self) {
        self.servers.settle_deadlines();
    }
}

fn refuse(message: String) -> Refusal {
    Refusal { code: Code::FailedPrecondition, message }
}
