//! The client without I/O: one machine for each management server, the cache, and who watches what.
//!
//! The contract is that of every state machine here. What happened goes in by [`handle_input`](Engine::handle_input) and
//! [`handle_timeout`](Engine::handle_timeout), what is wanted by [`subscribe`](Engine::subscribe) and
//! [`unsubscribe`](Engine::unsubscribe). After each of them [`poll_output`](Engine::poll_output) is called until it
//! yields `None`; [`poll_timeout`](Engine::poll_timeout) then says when to come back. Time comes with each call, and
//! randomness from a seed, so that whatever happens can be made to happen again.

mod absence;
mod alternatives;
mod authority_state;
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody asks for what is counted"))]
mod counters;
mod failure;
mod fallback;
mod globs;
mod incremental;
mod indirections;
mod lists;
mod members;
mod news;
mod order_predictor;
mod origin;
mod pending_response;
mod publish;
mod selection;
mod servers;
mod silence;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::disallowed_methods, reason = "the simulated clock begins some time")]
#[cfg_attr(
    not(feature = "fuzzing"),
    allow(unreachable_pub, reason = "it is public for the fuzz targets alone")
)]
pub(crate) mod simulation;
mod status;
mod ttl;
mod unchanged;
mod unused;
mod walk;
mod work;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use tracing::debug;

#[cfg(any(test, feature = "metrics"))]
pub(crate) use self::counters::Metric;
pub(crate) use self::selection::{Selection, Wanted};
#[cfg(any(test, feature = "client"))]
pub(crate) use self::status::{ResourceReport, ServerReport, Status};
use self::{
    authority_state::Groups,
    counters::Counters,
    indirections::Indirections,
    members::{Collections, Key},
    pending_response::PendingResponse,
    servers::{Peer, Servers},
    ttl::Ttls,
    unused::Unused,
    walk::Resolutions,
};
use crate::{
    cache::{Entry, Table},
    capacity::Shrink,
    config::Bootstrap,
    error::{Blame, Code, Subject, WatchError},
    escape::Escaped,
    name::{Additions, ResourceName},
    observed::{ErasedMembers, ErasedObserved},
    protocol::{
        ByView, EntryId, Event, GroupId, Input, Output, ServerId, Settings, StreamId, Timer, TypeId, ViewId,
        encode_node,
    },
    resolve::DnsResolver,
    resource::{Context, ResourceType},
};

/// The whole client without I/O. See the [module's](self) documentation for how to drive it.
#[derive(Debug)]
pub(crate) struct Engine {
    bootstrap: Arc<Bootstrap>,
    /// Certificate provider instances that resources may name.
    providers: BTreeSet<String>,
    settings: Arc<Settings>,
    node_id: Arc<str>,
    node: Bytes,
    /// What goes to servers with each name.
    additions: Additions,
    random: fastrand::Rng,
    /// By [`TypeId`].
    types: Vec<ResourceType>,
    /// By [`ServerId`].
    servers: Servers,
    groups: Groups,
    /// What may be needed by nobody any more.
    unused: Unused,
    collections: Collections,
    table: Table,
    ttls: Ttls,
    views: ByView<View>,
    walks: Resolutions,
    follows: Indirections,
    hosts: DnsResolver,
    jobs: VecDeque<PendingResponse>,
    outputs: VecDeque<Output>,
    work: WorkCounters,
    counters: Counters,
}

/// What an application watches.
#[derive(Debug)]
enum View {
    /// A resource, or the members of a glob.
    One(EntryId),
    All(GroupId, TypeId),
    /// What a target resolves to.
    Walk,
    /// The members of a list.
    List(Box<Key>),
    /// One entry of a list.
    Inline,
    /// A name that has an alternative.
    Alternative,
    /// Something that nobody can be asked for, and the reason, which was published.
    Refused(WatchError),
}

/// What was done so far, for tests and benches of the work per response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkCounters {
    /// Responses that were worked off.
    pub(crate) responses: u64,
    /// Resources that were parsed.
    pub(crate) parsed: u64,
    /// Resources whose bytes were those that are held, so that they were not parsed.
    pub(crate) unchanged: u64,
}

impl Engine {
    pub(crate) fn new(bootstrap: Arc<Bootstrap>, settings: Settings, seed: u64) -> Self {
        let usable = bootstrap
            .certificate_providers()
            .iter()
            .filter(|(_, provider)| provider.is_known())
            .map(|(name, _)| name.clone());
        let settings = settings.bounded();
        let groups = Groups::new(&bootstrap, &settings);
        Self {
            providers: usable.collect(),
            node_id: bootstrap.node().id.as_str().into(),
            node: encode_node(bootstrap.node()),
            additions: bootstrap.additions(),
            hosts: DnsResolver::new(&settings),
            bootstrap,
            settings: Arc::new(settings),
            random: fastrand::Rng::with_seed(seed),
            types: Vec::new(),
            servers: Servers::default(),
            unused: Unused::default(),
            groups,
            collections: Collections::default(),
            table: Table::default(),
            ttls: Ttls::default(),
            views: ByView::default(),
            walks: Resolutions::default(),
            follows: Indirections::default(),
            jobs: VecDeque::new(),
            outputs: VecDeque::new(),
            work: WorkCounters::default(),
            counters: Counters::default(),
        }
    }

    /// What was done so far.
    #[cfg(test)]
    pub(crate) fn work_counters(&self) -> WorkCounters {
        self.work
    }

    /// How many resources are held, waited for or known to be missing.
    #[cfg(test)]
    pub(crate) fn resources(&self) -> usize {
        self.table.len()
    }

    /// What the resources of a server are parsed with, by whether it is trusted.
    fn context(&self, trusted: bool) -> Context<'_> {
        let named_servers = self.settings.follow_config_sources.then(|| self.bootstrap.named_servers());
        Context::new()
            .with_certificate_providers(&self.providers)
            .with_allowed_grpc_services(self.bootstrap.allowed_grpc_services())
            .with_registry(&self.settings.registry)
            .with_named_servers(named_servers)
            .with_file_root(self.settings.config_source_root.as_ref())
            .with_trusted_server(trusted)
    }

    /// Begins a view. What is known already is published at once.
    pub(crate) fn subscribe(&mut self, view: ViewId, ty: ResourceType, names: Selection, now: Instant) {
        self.begin(view, ty, names, now);
        self.walk_on(now);
    }

    /// Ends a view. What nobody watches any more is let go.
    pub(crate) fn unsubscribe(&mut self, view: ViewId, now: Instant) {
        self.end(view, now);
        self.walk_on(now);
    }

    fn begin(&mut self, view: ViewId, ty: ResourceType, names: Selection, now: Instant) {
        let ty = self.type_id(ty);
        let type_url = self.types[ty.index()].type_url();
        // The bootstrap may say which collection all resources of the type are.
        let all = self.bootstrap.collection_of(type_url).filter(|_| names == Selection::All).cloned();
        let names = all.map_or(names, |name| Selection::Collection(Wanted::Name(Box::new(name))));
        debug!(%view, type_url, names = %Escaped(&names), "watch started");
        let begun = match &names {
            Selection::All => self.subscribe_all(view, ty, now),
            Selection::One(wanted) => {
                self.accept_one(ty, wanted).and_then(|name| self.begin_one(view, ty, &name, now))
            }
            Selection::Collection(wanted) => {
                self.accept_collection(ty, wanted).and_then(|name| match name.is_list() {
                    true => self.begin_list(view, ty, &name, now),
                    false => self.subscribe_name(view, ty, &self.additions.add_to(&name), now),
                })
            }
        };
        let begun = begun.unwrap_or_else(|error| {
            debug!(%view, error = %Escaped(&error), "watch refused");
            View::Refused(self.refuse(view, ty, &names, error))
        });
        let before = self.views.insert(view, begun);
        debug_assert!(before.is_none(), "a view's number is used once");
    }

    fn end(&mut self, view: ViewId, now: Instant) {
        debug!(%view, "watch cancelled");
        let ended = self.views.remove(&view);
        self.views.shrink_if_sparse();
        match ended {
            None | Some(View::Refused(_)) => {}
            Some(View::Alternative) => self.end_alternative(view, now),
            Some(View::Inline) => self.end_inline(view, now),
            Some(View::List(key)) => self.end_list(view, &key, now),
            Some(View::Walk) => self.end_walk(view, now),
            Some(View::All(group, ty)) => self.unsubscribe_all(view, (group, ty), now),
            Some(View::One(entry)) => self.unsubscribe_one(view, entry, now),
        }
    }

    /// Tells what happened.
    pub(crate) fn handle_input(&mut self, input: Input, now: Instant) {
        debug_assert!(self.outputs.is_empty(), "outputs are polled until there is none");
        match input {
            Input::Resolved { lookup, result } => {
                self.hosts.on_resolved(lookup, result, now, &mut self.random);
            }
            Input::Connected { stream }
            | Input::Alive { stream }
            | Input::RequestSent { stream }
            | Input::Received { stream, .. }
            | Input::Unchanged { stream }
            | Input::NotFound { stream }
            | Input::Failed { stream, .. }
            | Input::Disconnected { stream, .. } => self.on_stream(stream, input, now),
        }
        self.walk_on(now);
    }

    fn on_stream(&mut self, stream: StreamId, input: Input, now: Instant) {
        let server = stream.server;
        // It may be gone, as it was needed by nobody any more.
        let Some(peer) = self.servers.get_mut(server) else { return };
        let opened = match input {
            Input::Received { message, .. } => peer.machine.receive(stream, message, now),
            Input::NotFound { .. } => peer.machine.receive_not_found(stream, now),
            Input::Connected { .. }
            | Input::Alive { .. }
            | Input::RequestSent { .. }
            | Input::Unchanged { .. }
            | Input::Failed { .. }
            | Input::Disconnected { .. }
            | Input::Resolved { .. } => {
                peer.machine.handle_input(input, now);
                None
            }
        };
        self.settle(server, now);
        if let Some((ty, envelope)) = opened {
            self.jobs.push_back(PendingResponse::new(stream, ty, envelope, now));
            if self.jobs.len() == 1 {
                self.work(now);
            }
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        debug_assert!(self.outputs.is_empty(), "outputs are polled until there is none");
        self.work(now);
        self.servers.settle_deadlines();
        for server in self.servers.due(now) {
            // A response that is being worked off may hold what a timer would give up.
            if !self.has_job(server) {
                self.peer(server).machine.handle_timeout(now);
                self.settle(server, now);
            }
        }
        self.expire(now);
        self.hosts.handle_timeout(now, &mut self.random);
        self.walk_timeout(now);
        self.walk_on(now);
    }

    /// The next order; to be called until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        self.outputs.shrink_if_sparse();
        output
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and what for. In the past when there is work left.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let work = self.jobs.front().map(|job| (job.since(), Timer::Work));
        let mut idle = self.servers.deadlines().filter(|(server, _)| !self.has_job(*server));
        let timers = idle.next().map(|(_, deadline)| deadline);
        let lookup = self.hosts.next_timeout().map(|at| (at, Timer::Lookup));
        let walk = self.next_walk().map(|at| (at, Timer::Grace));
        let expiry = self.next_expiry().map(|at| (at, Timer::Expiry));
        work.into_iter().chain(timers).chain(expiry).chain(lookup).chain(walk).min_by_key(|(at, _)| *at)
    }

    /// Whether a response of a server is being worked off, or waits for that.
    fn has_job(&self, server: ServerId) -> bool {
        self.jobs.iter().any(|job| job.server() == server)
    }

    /// Asks for a name: a resource, or a glob.
    fn subscribe_name(
        &mut self,
        view: ViewId,
        ty: TypeId,
        name: &ResourceName,
        now: Instant,
    ) -> Result<View, Refusal> {
        let group = match self.walks.source_of(view).cloned() {
            Some(source) if source.is_for(name.authority()) => self.peer_group((ty, name), &source, now)?,
            Some(_) | None => self.group_for((ty, name), now)?,
        };
        let entry = self.watched_entry((group, ty), name.canonical());
        let filling = self.collections.filling.clone();
        if name.is_glob() {
            self.begin_glob(entry);
        }
        // It may be one that is watched as a name of another group with the same server.
        let group = self.table.get(entry).map_or(group, |entry| entry.group);
        self.groups.get_mut(group).views += 1;
        self.ask(entry, now);
        if let Some(entry) = self.table.get_mut(entry) {
            entry.views.push(view);
        }
        let is_waiting = |engine: &Self| engine.table.get(entry).is_some_and(Entry::is_waiting);
        // The fallback may be one that does not request the type.
        let is_refused = is_waiting(self) && {
            self.fall_back(group, now);
            !is_waiting(self)
        };
        self.collections.filling = filling;
        // The view hears of it once, with all else that is known. It stands last still.
        let newest = self.table.get_mut(entry).and_then(|entry| entry.views.pop());
        self.judge(group);
        if let Some(entry) = self.table.get_mut(entry) {
            entry.views.extend(newest);
        }
        if !is_refused {
            self.publish_to(entry, &[view]);
        }
        if !self.follows.edges.contains_key(&view) {
            // It may be that only others could not be led on.
            self.note_turn(entry);
        }
        Ok(View::One(entry))
    }

    fn unsubscribe_one(&mut self, view: ViewId, id: EntryId, now: Instant) {
        self.remove_view(id, view);
        let Some(entry) = self.table.get(id) else { return };
        let (group, ty, last) = (entry.group, entry.ty, entry.views.is_empty());
        let places: Vec<_> = entry.places.iter().filter(|_| last).collect();
        for (server, sub) in places {
            self.peer(server).machine.unsubscribe(ty, sub, now);
            self.settle(server, now);
        }
        self.groups.get_mut(group).views -= 1;
        self.unused.note_group(group);
    }

    fn remove_view(&mut self, id: EntryId, view: ViewId) {
        if let Some(entry) = self.table.get_mut(id) {
            entry.views.retain(|other| *other != view);
            entry.late.retain(|other| *other != view);
        }
    }

    fn type_id(&mut self, ty: ResourceType) -> TypeId {
        let known = self.types.iter().position(|known| known.type_url() == ty.type_url());
        TypeId(known.unwrap_or_else(|| {
            self.types.push(ty);
            self.types.len() - 1
        }) as u16)
    }

    /// Takes over what the machine of a server has to say.
    fn settle(&mut self, server: ServerId, now: Instant) {
        while let Some(event) = self.peer(server).machine.poll_event() {
            match event {
                Event::Failed(reason) => self.on_failed(server, &reason, now),
                Event::Recovered => self.on_answered(server, now),
                Event::Rested => self.on_rested(server),
                Event::TimedOut(entry) => self.on_timed_out(server, entry, now),
                Event::AllTimedOut(ty) => self.on_all_timed_out(server, ty),
                Event::Unanswered(ty) => self.on_unanswered((server, ty), now),
                Event::HeldBack(entry) => self.on_held_back((server, entry), now),
                Event::Released(entry) => self.on_released(server, entry),
                Event::ReleasedAll(ty) => self.on_released_all(server, ty),
                Event::Quiet(ty) => self.on_quiet(server, ty, now),
            }
        }
        while let Some(output) = self.peer(server).machine.poll_output() {
            self.outputs.push_back(output);
        }
        self.note_connection(server);
        self.flush();
    }

    /// A server knows that an entry is not wanted any more. With its last place it is forgotten.
    fn on_released(&mut self, server: ServerId, id: EntryId) {
        let Self { table, servers, .. } = self;
        let Some(entry) = table.get_mut(id) else { return };
        let interest = servers[server].machine.interest(entry.ty);
        let again = interest.zip(entry.places.at(server)).and_then(|(interest, sub)| interest.get(sub));
        if again.is_some_and(|sub| sub.entry == id) {
            // The name has come again before this was heard.
            return;
        }
        entry.places.remove(server);
        let is_last = entry.places.is_empty();
        if entry.is_glob {
            self.release_members(id, server);
        }
        if is_last
            && let Some(entry) = self.remove_entry(id)
            && self.find_entry((entry.group, entry.ty), &entry.name).is_none()
        {
            self.collections.forget(&entry);
            if let Some(key) = self
                .wildcard_key(entry.ty)
                .filter(|key| self.find_entry((key.0, key.1), &entry.name).is_none())
            {
                self.collections.remove(&key, &entry.name);
            }
        }
    }

    fn refuse(&mut self, view: ViewId, ty: TypeId, names: &Selection, refusal: Refusal) -> WatchError {
        let type_url = self.types[ty.index()].type_url();
        let about = Subject { type_url, name: names.text(), node: self.node_id.clone() };
        let reason = WatchError::new(refusal.code, Blame::Local, about, refusal.message);
        let observed = match names {
            Selection::All | Selection::Collection(_) => Arc::new(ErasedMembers::refused(reason.clone())),
            Selection::One(_) => {
                self.types[ty.index()].observe(ErasedObserved::Absent { reason: reason.clone() })
            }
        };
        self.walks.deliver(&mut self.outputs, view, observed);
        reason
    }

    fn peer(&mut self, server: ServerId) -> &mut Peer {
        &mut self.servers[server]
    }
}

/// Why nobody can be asked for a name.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct Refusal {
    code: Code,
    message: String,
}

#[cfg(test)]
mod tests;
