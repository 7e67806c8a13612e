//! The client without I/O: the servers of each authority, the cache, and the watches.
//!
//! The contract is that of every state machine here. Inputs go in by [`handle_input`](Engine::handle_input) and
//! [`handle_timeout`](Engine::handle_timeout), watches by [`subscribe`](Engine::subscribe) and [`unsubscribe`](Engine::unsubscribe). After
//! each of them [`poll_output`](Engine::poll_output) is called until it yields `None`; [`poll_timeout`](Engine::poll_timeout) then returns
//! the next deadline. Time comes with each call, and randomness from a seed, so that every run is reproducible.
//!
//! The engine keeps the contract, and the routes between its components, which have private fields, take at most two others as arguments,
//! and record the consequences of a call as an [`Effect`] or an order.

mod authorities;
pub(crate) mod batches;
mod collections;
mod counts;
mod delivery;
mod failure;
mod ingest;
mod initial_resources;
mod io;
mod load_sources;
mod observability;
mod resolutions;
mod selection;
mod settings;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::disallowed_methods, reason = "the simulated clock begins some time")]
#[cfg_attr(
    not(feature = "fuzzing"),
    allow(unreachable_pub, reason = "it is public for the fuzz targets alone")
)]
pub(crate) mod simulation;
mod store;

use std::{sync::Arc, time::Instant};

use tracing::debug;

#[cfg(any(test, feature = "client"))]
pub(crate) use self::ingest::check_initial_resources;
#[cfg(any(test, feature = "client", feature = "fuzzing"))]
pub(crate) use self::observability::Status;
#[cfg(any(test, feature = "client"))]
pub(crate) use self::observability::{Metric, ResourceReport, ServerReport};
use self::{
    authorities::{AllWatch, Authorities, RequestedName},
    batches::{Batches, Consumer},
    collections::{Indirections, WatchOrder, list_type},
    delivery::{Delivery, WatchTarget},
    ingest::Ingest,
    load_sources::LoadSources,
    resolutions::{ResolutionOrder, Resolutions},
    selection::{NOTHING, Refusal, TypedName, accept_collection, accept_one},
    store::{Change, CollectionKey, Effect, Store, Which},
};
pub(crate) use self::{
    batches::BatchAnswer,
    io::{Input, Output, Timer},
    resolutions::ResolutionChange,
    selection::{SelectedBatches, SelectedName, Selection},
    settings::Settings,
};
pub use self::{batches::BatchOutcome, initial_resources::InitialResources, settings::OnDeletion};
use crate::{
    base::WatchId,
    config::{Bootstrap, Server, Target},
    escape::Escaped,
    protocol::{EntryId, StreamEvent, TypeAtServer, TypeInGroup},
    resource::ResourceType,
};

/// The whole client without I/O. See the [module's](self) documentation for how to drive it.
#[derive(Debug)]
pub(crate) struct Engine {
    bootstrap: Arc<Bootstrap>,
    store: Store,
    authorities: Authorities,
    ingest: Ingest,
    indirections: Indirections,
    delivery: Delivery,
    batches: Batches,
    resolutions: Resolutions,
    load_sources: LoadSources,
}

impl Engine {
    /// A client without watches: nothing is connected to until the first one. `seed` determines the jitter of all timers.
    pub(crate) fn new(bootstrap: Arc<Bootstrap>, settings: impl Into<Settings>, seed: u64) -> Self {
        let settings = Arc::new(settings.into().bounded());
        Self {
            store: settings.initial_resources.store(&bootstrap),
            authorities: Authorities::new(bootstrap.clone(), settings.clone(), seed),
            ingest: Ingest::new(bootstrap.clone(), settings.clone()),
            indirections: Indirections::default(),
            delivery: Delivery::default(),
            batches: Batches::new(settings.batch_timeout),
            resolutions: Resolutions::new(&settings, seed),
            load_sources: LoadSources::new(&settings),
            bootstrap,
        }
    }

    /// Begins a watch. A known state is published at once.
    pub(crate) fn subscribe(&mut self, watch_id: WatchId, ty: ResourceType, names: Selection, now: Instant) {
        self.begin(watch_id, ty, names, now);
        self.proceed(now);
    }

    /// Begins a watch whose application decides on each response, by [`answer_batch`](Self::answer_batch).
    pub(crate) fn subscribe_batches(
        &mut self,
        watch_id: WatchId,
        mut selected: SelectedBatches,
        now: Instant,
    ) {
        let ty = self.store.type_id(selected.ty);
        self.batches.begin(&mut self.delivery, watch_id, Consumer::new(ty, &mut selected));
        self.ingest.set_reviewed(ty, true);
        self.subscribe_consumer(watch_id, selected.names, now);
    }

    /// Adds a subscription to a consumer, unless it has it.
    pub(crate) fn subscribe_consumer(&mut self, watch_id: WatchId, names: Selection, now: Instant) {
        if let Some((source, stored)) = self.batches.subscribe(&mut self.delivery, watch_id, &names) {
            let ty = self.store.ty(stored.ty);
            self.batches.restore(&mut self.authorities, &mut self.store, stored, now);
            self.begin(source, ty, names, now);
        }
        self.proceed(now);
    }

    /// Ends a subscription of a consumer.
    pub(crate) fn unsubscribe_consumer(&mut self, watch_id: WatchId, names: &Selection, now: Instant) {
        if let Some(source) = self.batches.unsubscribe(watch_id, names) {
            self.end(source, now);
        }
        self.proceed(now);
    }

    /// The answer to a batch.
    pub(crate) fn answer_batch(&mut self, id: WatchId, answer: BatchAnswer, now: Instant) -> BatchOutcome {
        let outcome = self.batches.answer(id, answer);
        self.proceed(now);
        outcome
    }

    /// Ends a watch. Names without a watch are unsubscribed.
    pub(crate) fn unsubscribe(&mut self, watch_id: WatchId, now: Instant) {
        self.end(watch_id, now);
        self.proceed(now);
    }

    /// Begins a resolution. It ends as a watch does, by [`unsubscribe`](Self::unsubscribe).
    pub(crate) fn resolve(&mut self, watch_id: WatchId, target: &Target, now: Instant) {
        debug!(%watch_id, target = target.as_str(), "resolution started");
        let about = resolutions::about(&self.bootstrap, self.load_sources.loads(), target);
        let target = self.resolutions.start(&mut self.delivery, watch_id, about);
        self.delivery.insert(watch_id, target);
        self.proceed(now);
    }

    /// Changes a resolution.
    pub(crate) fn change_resolution(&mut self, id: WatchId, change: ResolutionChange<'_>, now: Instant) {
        self.resolutions.change(id, change, now);
        self.proceed(now);
    }

    /// Handles an input.
    pub(crate) fn handle_input(&mut self, input: impl Into<Input>, now: Instant) {
        debug_assert!(self.delivery.is_drained(), "outputs are polled until there is none");
        match input.into() {
            Input::Transport(event) => self.on_stream(event, now),
            Input::Resolved { lookup, result } => self.resolutions.on_resolved(lookup, result, now),
        }
        self.proceed(now);
    }

    /// Passes an event to the machine of its server. A small response is published at once, if no other is in progress.
    fn on_stream(&mut self, event: StreamEvent, now: Instant) {
        let stream = event.stream();
        let response = self.authorities.handle_event(&mut self.store, event, now);
        if let Some((ty, envelope)) = response
            && self.ingest.push(stream, ty, envelope, now)
        {
            self.work(now);
        }
        self.batches.on_overfull(self.authorities.take_overfull(stream.server));
    }

    /// Works on the oldest response for a while. What is logged of its effects is found in its span.
    fn work(&mut self, now: Instant) {
        if let Some(span) = self.ingest.work(&mut self.authorities, &mut self.store, now) {
            let _within = span.entered();
            self.batches.propose(&self.delivery, self.ingest.take_proposal(), now);
            self.route_effects(now);
        }
    }

    /// Handles the due timers.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        debug_assert!(self.delivery.is_drained(), "outputs are polled until there is none");
        self.work(now);
        // A response that is in progress may contain what a timer would take for missing.
        let ingest = &self.ingest;
        self.authorities.handle_timeout(&mut self.store, |server| ingest.has_response_of(server), now);
        if ingest.is_empty() {
            self.authorities.expire(&mut self.store, |ty| ingest.is_held(ty), now);
        }
        self.batches.handle_timeout(now);
        self.resolutions.handle_timeout(now);
        self.proceed(now);
    }

    /// The next order; to be called until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.delivery.poll_output()
    }

    /// The next time to call [`handle_timeout`](Self::handle_timeout), and its timer. In the past when there is work left.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let work = self.ingest.next_timeout().map(|at| (at, Timer::Work));
        let server = self.authorities.next_timeout(|server| self.ingest.has_response_of(server));
        let server = server.map(|(at, timer)| (at, Timer::Server(timer)));
        // A response in progress may confirm a resource that would expire.
        let expiry = self.store.next_expiry().filter(|_| self.ingest.is_empty());
        let expiry = expiry.map(|at| (at, Timer::Expiry));
        let lookup = self.resolutions.next_lookup().map(|at| (at, Timer::Lookup));
        let grace = self.resolutions.next_timeout().map(|at| (at, Timer::Grace));
        let batch = self.batches.next_timeout().map(|at| (at, Timer::Batch));
        [work, server, expiry, lookup, grace, batch].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The loads of clusters, for those who count and report them.
    pub(crate) fn loads(&self) -> &Arc<crate::lrs::Loads> {
        self.load_sources.loads()
    }

    /// Whether there is a stream of resources to a server, or there will be one.
    pub(crate) fn uses(&self, server: &Server) -> bool {
        self.authorities.servers().iter().any(|state| state.is_connecting_to(server))
    }

    /// The current state. It costs an iteration over the cache.
    #[cfg(any(test, feature = "client", feature = "fuzzing"))]
    pub(crate) fn status(&self) -> Status {
        Status::of(&self.authorities, &self.store)
    }

    /// The next change of a counter; `None` when there was none since the last time.
    #[cfg(any(test, feature = "client"))]
    pub(crate) fn poll_metric(&mut self) -> Option<Metric> {
        Metric::poll(&mut self.authorities, &mut self.store, self.ingest.updates())
    }

    /// What keeps the latest state of the resources out of a resolution's published one; `None` if nothing does.
    pub(crate) fn unapplied(&self, watch_id: WatchId) -> Option<String> {
        self.ingest.unapplied().or_else(|| self.resolutions.unapplied(watch_id))
    }

    /// Handles the effects of a call, until there are none. While a response is in progress, resolutions wait for its end.
    /// Effects of rooms precede new values, which may be outdated by them, and redirects precede resolutions, which see the target.
    fn proceed(&mut self, now: Instant) {
        loop {
            self.route_effects(now);
            if self.ingest.is_in_progress() {
                self.publish_collections();
                break;
            }
            self.resolutions.drive_lookups(&mut self.delivery);
            if let Some((watch_id, observed)) = self.delivery.pop_inbox() {
                let Self { store, delivery, indirections, .. } = self;
                if !self.batches.on_observed(watch_id, &observed)
                    && !indirections.on_observed(store, delivery, watch_id, &observed)
                {
                    self.resolutions.on_observed(watch_id, &observed);
                }
            } else if self.indirections.follow_redirect(&mut self.store, &mut self.delivery) {
                // Its effects are routed first.
            } else if let Some(watch_id) = self.resolutions.pop_touched() {
                for order in self.resolutions.drive(watch_id, now) {
                    self.follow_order(watch_id, order, now);
                    self.route_effects(now);
                }
            } else if !self.publish_collections() {
                break;
            }
        }
        self.batches.drive(&mut self.delivery, |ty| self.ingest.is_busy_with_type(ty));
        self.authorities.fetch_again(&mut self.store, self.batches.take_taken(&self.delivery), now);
        self.route_effects(now);
        self.ingest.resume(self.batches.take_decided(), now);
        for server in self.authorities.sweep(&mut self.store, |server| self.ingest.is_busy_with(server)) {
            self.ingest.updates().forget(server);
        }
        self.load_sources.refresh(&mut self.store, &self.authorities);
        self.authorities.refresh_deadlines();
    }

    /// Publishes changes, forwards the orders of servers' machines, and begins and ends the watches of indirections. Publications and
    /// commands are in one queue, so that an application which is notified of a fallback, and the transport, see the same order.
    fn route_effects(&mut self, now: Instant) {
        loop {
            match self.store.poll_effect() {
                Some(Effect::Publish(id, change)) => self.publish(id, change),
                Some(Effect::Command(command)) => self.delivery.push_output(Output::Transport(command)),
                None => {
                    let orders = self.indirections.take_orders();
                    if orders.is_empty() {
                        return;
                    }
                    self.follow_watch_orders(orders, now);
                }
            }
        }
    }

    /// Executes the orders of indirections, each with its consequences: a watch may be of a name with another indirection.
    fn follow_watch_orders(&mut self, orders: Vec<WatchOrder>, now: Instant) {
        for order in orders {
            match order {
                WatchOrder::Subscribe { watch_id, ty, names } => {
                    self.begin(watch_id, ty, names, now);
                    let nested = self.indirections.take_orders();
                    self.follow_watch_orders(nested, now);
                    self.indirections.on_subscribed(&mut self.store, &mut self.delivery, watch_id);
                }
                WatchOrder::Unsubscribe(watch_id) => self.end(watch_id, now),
            }
        }
    }

    fn follow_order(&mut self, resolution: WatchId, order: crate::resolve::Order, now: Instant) {
        match self.resolutions.follow_order(&mut self.delivery, resolution, order, now) {
            Some(ResolutionOrder::Publish(watch_id, resolved)) => {
                self.delivery.deliver(watch_id, Arc::new(resolved))
            }
            Some(ResolutionOrder::Subscribe { watch_id, ty, names }) => self.begin(watch_id, ty, names, now),
            Some(ResolutionOrder::Unsubscribe(watch_id)) => self.end(watch_id, now),
            None => {}
        }
    }

    /// Publishes a changed entry to its watches, and as a member of collections. Both see the resource behind a redirect.
    fn publish(&mut self, id: EntryId, change: Change) {
        // It may have been removed since.
        let Some(entry) = self.store.get(id) else { return };
        if entry.is_glob {
            let key = CollectionKey::of_glob(entry);
            let is_known =
                change.changed || !entry.is_waiting() || self.store.server_error(entry.group).is_some();
            return self.store.members.publish_glob(&key, is_known);
        }
        self.load_sources.on_changed(&self.store, &self.authorities, id, change);
        let has_watches = !entry.watches.is_empty();
        let collections = match change.changed || change.joins {
            true => self.authorities.memberships().collections_of(&self.store, id),
            false => [None, None],
        };
        if !has_watches && collections.iter().all(Option::is_none) {
            return;
        }
        // It may have no state yet.
        let Some(observed) = self.indirections.observe(&self.store, &self.delivery, id) else { return };
        self.delivery.publish(&mut self.store, id, change, &observed);
        for (key, name) in collections.into_iter().flatten() {
            self.store.members.insert(key, name, observed.clone());
        }
    }

    /// Publishes the collections that have changed, but none that a response is still filling. True when there was one.
    fn publish_collections(&mut self) -> bool {
        let (authorities, ingest) = (&self.authorities, &self.ingest);
        let changed = self.store.members.take_touched(|key| {
            let server = authorities.groups().active(key.group);
            ingest.has_response_of_type(TypeAtServer { server, ty: key.ty })
        });
        for key in &changed {
            self.delivery.publish_collection(&self.store, key);
        }
        !changed.is_empty()
    }

    /// Begins a watch of the application, or of the engine's own.
    fn begin(&mut self, watch_id: WatchId, ty: ResourceType, names: Selection, now: Instant) {
        let ty = self.store.type_id(ty);
        let type_url = self.store.type_url(ty);
        // The bootstrap may define which collection all resources of the type are.
        let all = self.bootstrap.collection_of(type_url).filter(|_| names == Selection::All).cloned();
        let names = all.map_or(names, |name| Selection::Collection(SelectedName::Name(Box::new(name))));
        debug!(%watch_id, type_url, names = %Escaped(&names), "watch started");
        let begun = match &names {
            Selection::All | Selection::Pushed => {
                let is_pushed = names == Selection::Pushed;
                let watch = AllWatch { watch_id, is_pushed };
                let group = self.authorities.subscribe_all(&mut self.store, watch, ty, now);
                group.map(|group| WatchTarget::all(TypeInGroup { group, ty }, is_pushed))
            }
            Selection::Nothing => Err(Refusal::invalid(NOTHING)),
            Selection::One(selected) => accept_one(self.store.ty(ty), selected)
                .and_then(|name| self.begin_one(watch_id, TypedName { ty, name: &name }, now)),
            Selection::Collection(selected) => accept_collection(self.store.ty(ty), selected)
                .and_then(|name| self.begin_collection(watch_id, TypedName { ty, name: &name }, now)),
        };
        let target = begun.unwrap_or_else(|refusal| {
            let reason = refusal.about(self.store.subject_of(ty, names.text()));
            self.delivery.refuse(watch_id, names.refused(self.store.ty(ty), reason.clone()), reason)
        });
        self.delivery.insert(watch_id, target);
    }

    /// Begins a watch of one name, whose directives define its source.
    fn begin_one(&mut self, watch_id: WatchId, typed: TypedName<'_>, now: Instant) -> Begun {
        let Self { store, delivery, indirections, .. } = self;
        match indirections.begin_one(store, delivery, watch_id, typed)? {
            Some(target) => Ok(target),
            None => self.begin_name(watch_id, typed, now),
        }
    }

    /// Begins a watch of the members of a glob or a list.
    fn begin_collection(&mut self, watch_id: WatchId, typed: TypedName<'_>, now: Instant) -> Begun {
        if typed.name.directives().is_some_and(|directives| directives.alt().is_some()) {
            let Self { store, delivery, indirections, .. } = self;
            indirections.begin_collection_alternative(store, delivery, watch_id, typed);
            return Ok(WatchTarget::CollectionAlternative);
        }
        if typed.name.is_list() {
            return self.begin_list(watch_id, typed);
        }
        self.begin_name(watch_id, typed, now)
    }

    /// Begins a watch of a resource or of the members of a glob.
    fn begin_name(&mut self, watch_id: WatchId, typed: TypedName<'_>, now: Instant) -> Begun {
        let name = self.store.additions().add_to(typed.name);
        let source =
            self.resolutions.source_of(self.indirections.origin_of(watch_id)).map(|source| &**source);
        let requested = RequestedName { typed: TypedName { name: &name, ..typed }, source };
        let entry = self.authorities.subscribe_name(&mut self.store, watch_id, &requested, now)?;
        self.ingest.begin_initial(&mut self.store, entry);
        if !self.indirections.is_followed(watch_id) {
            // The redirect may have been refused for other watches only.
            self.store.note_redirect(entry);
        }
        Ok(WatchTarget::Entry(entry))
    }

    /// Begins a watch of the members of a list. The list itself is watched once, however many watches its members have.
    fn begin_list(&mut self, watch_id: WatchId, typed: TypedName<'_>) -> Begun {
        let Self { store, delivery, indirections, authorities, .. } = self;
        let TypedName { ty, name } = typed;
        let list = TypedName { ty: list_type(store, ty)?, name };
        let group = authorities.sources().group_for(store, list)?;
        let which = Which::List(store.additions().add_to(name).canonical());
        let key = CollectionKey { group, ty, which };
        store.members.watch_list(&key, watch_id);
        indirections.begin_list(store, delivery, &key, list);
        Ok(WatchTarget::List(Box::new(key)))
    }

    /// Ends a watch. The watches of the engine's own that it needed end with it.
    fn end(&mut self, watch_id: WatchId, now: Instant) {
        debug!(%watch_id, "watch cancelled");
        match self.delivery.remove(watch_id) {
            // It ends once, but may never have begun.
            None | Some(WatchTarget::Refused(_)) => {}
            Some(WatchTarget::Alternative | WatchTarget::CollectionAlternative | WatchTarget::Inline) => {
                self.indirections.end(watch_id);
            }
            Some(WatchTarget::List(key)) => {
                if self.store.members.unwatch_list(&key, watch_id) {
                    self.indirections.end_list(&key);
                }
            }
            Some(WatchTarget::Batches) => {
                if let Some((sources, ty)) = self.batches.end(watch_id) {
                    self.ingest.set_reviewed(ty, self.batches.has_consumers(ty));
                    sources.into_iter().for_each(|source| self.end(source, now));
                }
            }
            Some(WatchTarget::Resolution) => {
                for watch in self.resolutions.end(watch_id) {
                    self.end(watch, now);
                }
            }
            Some(WatchTarget::Wildcard(scope) | WatchTarget::Pushed(scope)) => {
                self.authorities.unsubscribe_all(&mut self.store, watch_id, scope, now);
            }
            Some(WatchTarget::Entry(entry)) => {
                self.authorities.unsubscribe_name(&mut self.store, watch_id, entry, now);
            }
        }
    }
}

/// The target of a watch that has begun, or the reason for refusing it.
type Begun = Result<WatchTarget, Refusal>;

#[cfg(test)]
mod tests;
