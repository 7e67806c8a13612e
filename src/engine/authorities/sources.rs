//! The sources of names: the groups and the servers that the bootstrap, or a resource, has for them.
//!
//! | name | source |
//! |---|---|
//! | of the older form | the servers of the bootstrap, or those of its type |
//! | `xdstp:` with a configured authority | the servers of the authority |
//! | in a resource with a `ConfigSource`, if that is for the name's authority | that source |
//! | anything else | none: the watch is refused |

use std::sync::Arc;

use super::{
    super::{
        selection::{Refusal, TypedName},
        store::Store,
    },
    AuthorityState, Groups, Servers,
    unused::Unused,
};
use crate::{
    config::{ApiType, Authority, Bootstrap, ConfigSource, TransportApiVersion},
    engine::Settings,
    error::Code,
    protocol::{self, GroupId, Machine, ServerId, SourceKey, TypeId, encode_node},
    resource::{config_source::ResourceConfigSource, services::Service},
};

/// The configuration that groups and servers are made from.
#[derive(Debug)]
pub(super) struct Registry {
    /// The sources of authorities and types.
    bootstrap: Arc<Bootstrap>,
    /// The settings of the client, of which each server has its policy for deletions.
    settings: Arc<Settings>,
    /// What all machines share.
    client: protocol::Client,
    /// The seeds of machines, which have jitter of their own.
    random: fastrand::Rng,
}

/// Finds the group of a name, or makes it, and its servers with it.
#[derive(Debug)]
pub(in crate::engine) struct Sources<'a> {
    registry: &'a mut Registry,
    /// The machines, for adding new ones.
    pub(super) servers: &'a mut Servers,
    pub(super) groups: &'a mut Groups,
    pub(super) unused: &'a mut Unused,
}

impl Registry {
    pub(super) fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>, seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            client: protocol::Client {
                node: encode_node(bootstrap.node()),
                settings: Arc::new(settings.protocol.clone()),
            },
            bootstrap,
            settings,
        }
    }
}

/// A name to request.
#[derive(Debug)]
pub(in crate::engine) struct RequestedName<'a> {
    /// The name and its type.
    pub(in crate::engine) typed: TypedName<'a>,
    /// The source that a resource names for it; `None` for that of the bootstrap.
    pub(in crate::engine) source: Option<&'a ResourceConfigSource>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        registry: &'a mut Registry,
        servers: &'a mut Servers,
        groups: &'a mut Groups,
        unused: &'a mut Unused,
    ) -> Self {
        Self { registry, servers, groups, unused }
    }

    /// The servers to request a name from. They are registered at the first use.
    ///
    /// A refusal is final for the watch: the bootstrap does not change while the client runs.
    pub(in crate::engine) fn group_for(
        &mut self,
        store: &Store,
        TypedName { ty, name }: TypedName<'_>,
    ) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(name.authority(), ty) {
            return Ok(known);
        }
        let bootstrap = self.registry.bootstrap.clone();
        let sources = bootstrap.sources_for(name, store.type_url(ty));
        let sources = sources.map_err(|unknown| refuse(unknown.to_string()))?;
        let source_keys = self.source_keys(store, ty, sources)?;
        self.add_group(name.authority(), ty, source_keys)
    }

    /// The source of a resource whose name came with one. A group with the same source and fetch mode is shared.
    ///
    /// It is removed with its last watch, unlike those of the bootstrap.
    pub(super) fn source_group(
        &mut self,
        store: &Store,
        TypedName { ty, name }: TypedName<'_>,
        source: &ResourceConfigSource,
    ) -> Result<GroupId, Refusal> {
        let source_keys = self.source_keys(store, ty, source.sources())?;
        let first = source_keys.first().and_then(|first| self.servers.find(first));
        if let Some(known) = first.and_then(|first| self.groups.like(name.authority(), &source_keys, first)) {
            return Ok(known);
        }
        let group = self.new_group(name.authority(), source_keys)?;
        let id = self.groups.push(group);
        // The name may belong to another group already.
        self.unused.note_group(id);
        Ok(id)
    }

    /// Whether all resources of a type are a collection with a name.
    pub(super) fn has_collection(&self, type_url: &str) -> bool {
        self.registry.bootstrap.collection_of(type_url).is_some()
    }

    /// The servers of names of the older form.
    pub(super) fn default_group(&mut self, store: &Store, ty: TypeId) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(None, ty) {
            return Ok(known);
        }
        let bootstrap = self.registry.bootstrap.clone();
        let sources = bootstrap.sources_of(store.type_url(ty));
        let source_keys = self.source_keys(store, ty, sources)?;
        self.add_group(None, ty, source_keys)
    }

    /// Adds the group of an authority of the bootstrap, which is never removed, nor is its first server.
    fn add_group(
        &mut self,
        authority: Option<&str>,
        ty: TypeId,
        source_keys: Vec<SourceKey>,
    ) -> Result<GroupId, Refusal> {
        let group = self.new_group(authority, source_keys)?;
        self.servers.keep(group.active());
        Ok(self.groups.add(AuthorityState { is_configured: true, ..group }, ty))
    }

    /// The keys of sources for a type, without duplicates: two sources that differ only in defaults are one.
    fn source_keys(
        &self,
        store: &Store,
        ty: TypeId,
        sources: &[ConfigSource],
    ) -> Result<Vec<SourceKey>, Refusal> {
        let type_url = store.type_url(ty);
        let mut source_keys = Vec::with_capacity(sources.len());
        for source in sources {
            let source_key = SourceKey::new(source, type_url, &self.registry.client.settings);
            let source_key = source_key.map_err(|message| Refusal { code: Code::Unimplemented, message })?;
            if !source_keys.contains(&source_key) {
                source_keys.push(source_key);
            }
        }
        Ok(source_keys)
    }

    /// A group with its first source open; refused if there is no source at all.
    fn new_group(
        &mut self,
        authority: Option<&str>,
        source_keys: Vec<SourceKey>,
    ) -> Result<AuthorityState, Refusal> {
        let nobody = || refuse("no source of the type is configured".into());
        // One is open from the beginning: which one is active must be defined before anything is requested.
        let open = vec![self.server_id(source_keys.first().ok_or_else(nobody)?)];
        let entry = authority.and_then(|name| self.registry.bootstrap.authority(name).ok());
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
    /// A machine connects with its first subscription, and not before.
    pub(super) fn server_id(&mut self, source_key: &SourceKey) -> ServerId {
        if let Some(known) = self.servers.find(source_key) {
            return known;
        }
        // Streams that a server has ended together must not come back together: each machine has jitter of its own.
        let seed = self.registry.random.u64(..);
        let Registry { settings, client, .. } = &*self.registry;
        self.servers.insert(settings, |id| Machine::new(id, source_key.clone(), client.clone(), seed))
    }

    /// Opens the next server of a group.
    ///
    /// The servers of the bootstrap are kept once they were opened: a later outage opens them again.
    pub(super) fn open_next(&mut self, id: GroupId, server: ServerId) {
        self.groups.open_next(id, server);
        if self.groups.get(id).is_configured {
            self.servers.keep(server);
        }
    }

    /// Refuses a type that exists in the incremental variant alone, if no source of the group has that (B3.5).
    pub(super) fn check_variant(&self, store: &Store, group: GroupId, ty: TypeId) -> Result<(), Refusal> {
        let methods =
            Service::of(store.type_url(ty)).and_then(|service| service.spelling(TransportApiVersion::V3));
        if methods.is_none_or(|spelling| spelling.methods.of_variant(false).is_some()) {
            return Ok(());
        }
        let sources = &self.groups.get(group).source_keys;
        let has_type =
            |source: &SourceKey| source.capabilities().incremental || !source.capabilities().remote;
        match sources.first() {
            Some(first) if !sources.iter().any(has_type) => Err(Refusal {
                code: Code::Unimplemented,
                message: format!(
                    "the type needs an api_type of {} or {}, which that of xDS server {} is not",
                    ApiType::AggregatedDeltaGrpc,
                    ApiType::DeltaGrpc,
                    first,
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// A refusal because of the configuration, not of the name.
fn refuse(message: String) -> Refusal {
    Refusal { code: Code::FailedPrecondition, message }
}
