//! Consumers with stores of their own: they get the changes of resources in batches, and decide on them before the server is answered.
//!
//! ```text
//!   a response of the type ─▶ ingest: Review ─▶ propose ─▶ batches ─▶ consumers
//!                                       │                                │ answer, or the limit of time
//!                                     Held ◀──────── decided ◀───────────┘
//!                                       │
//!                                     Apply ─▶ store ─▶ collections ─▶ on_observed ─▶ a batch without an answer, if the
//!                                                                                     consumer has something else
//! ```
//!
//! A consumer has a watch of the engine's own for each of its subscriptions, whose latest value is what the cache holds; and it remembers what the consumer was
//! given. What differs is the next batch. So whatever changes the cache (fallback, expiry, errors, another consumer's rejection),
//! and however slow the consumer is, its batches lead to the state of the cache; the memory for it is bounded by the names.
//!
//! A response is held for at most [`limit`](Batches::new). A consumer has one batch at a time, and the next one when it has answered.

mod consumer;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{debug, warn};

pub(crate) use self::consumer::BatchAnswer;
pub use self::consumer::BatchOutcome;
pub(super) use self::consumer::Consumer;
#[cfg(any(test, feature = "client"))]
pub(crate) use self::consumer::ErasedBatch;
use super::{
    authorities::{Authorities, StoredResource, TakenResource},
    delivery::{Delivery, WatchTarget},
    ingest::{Decision, Proposal, ProposedChange},
    store::Store,
};
use crate::{
    base::WatchId,
    engine::Selection,
    invariant,
    protocol::{TypeId, TypeInGroup},
    resource::{Erased, Version},
};

/// All consumers, and the responses that wait for them. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Batches {
    /// The time for which a response is held.
    limit: Duration,
    /// The consumers, by the application's watch.
    consumers: BTreeMap<WatchId, Consumer>,
    /// The consumer that a watch of the engine's own is for.
    owners: BTreeMap<WatchId, WatchId>,
    /// The responses that wait for consumers: at most one of a type.
    held: BTreeMap<TypeId, HeldResponse>,
    /// The consumers that may have a next batch.
    touched: BTreeSet<WatchId>,
    /// The responses that were decided on, until they are taken.
    decided: Vec<(TypeId, Decision)>,
    /// The number of the last held response.
    last_response: u64,
}

/// What a consumer has in its store of a subscription that begins.
#[derive(Debug)]
pub(super) struct StoredVersions {
    consumer: WatchId,
    pub(super) ty: TypeId,
    is_pushed: bool,
    versions: BTreeMap<Arc<str>, Version>,
}

/// A response that waits for consumers.
#[derive(Debug)]
struct HeldResponse {
    /// Distinguishes it from the others of its type.
    number: u64,
    /// The type URL on the wire, for logs.
    type_url: &'static str,
    changes: Vec<ProposedChange>,
    /// The consumers that have not decided.
    waits_for: BTreeSet<WatchId>,
    /// When it is taken as accepted.
    deadline: Instant,
    decision: Decision,
}

impl Batches {
    /// No consumers; a response is held for `limit` at most.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            consumers: BTreeMap::new(),
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
            touched: BTreeSet::new(),
            decided: Vec::new(),
            last_response: 0,
        }
    }

    /// A consumer begins, without a subscription.
    pub(super) fn begin(&mut self, delivery: &mut Delivery, watch_id: WatchId, consumer: Consumer) {
        delivery.insert(watch_id, WatchTarget::Batches);
        self.consumers.insert(watch_id, consumer);
    }

    /// A consumer subscribes. Returns the watch of the engine's own that shows what the cache holds, which is to begin, and what the
    /// consumer has of it in its store; `None` if it has that subscription.
    pub(super) fn subscribe(
        &mut self,
        delivery: &mut Delivery,
        watch_id: WatchId,
        names: &Selection,
    ) -> Option<(WatchId, StoredVersions)> {
        let consumer = self.consumers.get_mut(&watch_id)?;
        let source = delivery.next_watch_id();
        consumer.subscribe(names, source).then(|| {
            self.owners.insert(source, watch_id);
            let is_pushed = *names == Selection::Pushed;
            let versions = consumer.take_versions(names);
            (source, StoredVersions { consumer: watch_id, ty: consumer.ty(), is_pushed, versions })
        })
    }

    /// Holds what a consumer has in its store by its versions, before its subscription is requested.
    pub(super) fn restore(
        &mut self,
        authorities: &mut Authorities,
        store: &mut Store,
        stored: StoredVersions,
        now: Instant,
    ) {
        let StoredVersions { consumer, ty, is_pushed, versions } = stored;
        let Some(consumer) = self.consumers.get_mut(&consumer) else { return };
        for (name, version) in versions {
            let stored = StoredResource { ty, name: &name, version, is_pushed };
            if let Some(resource) = authorities.restore(store, stored, now) {
                consumer.on_restored(name, resource);
            }
        }
    }

    /// The resources that have to be sent again, since consumers lack them and the contents are not kept.
    pub(super) fn take_taken(&mut self, delivery: &Delivery) -> Vec<TakenResource> {
        let mut all = Vec::new();
        for consumer in self.consumers.values_mut() {
            for name in consumer.take_taken() {
                let targets =
                    consumer.sources().watches_of(&name).filter_map(|source| delivery.target(source));
                let found = targets.filter_map(|target| TakenResource::of(target, &name));
                all.extend(found);
            }
        }
        all
    }

    /// A consumer unsubscribes. Returns the watch of the engine's own that ends with it.
    pub(super) fn unsubscribe(&mut self, watch_id: WatchId, names: &Selection) -> Option<WatchId> {
        let source = self.consumers.get_mut(&watch_id)?.unsubscribe(names)?;
        self.owners.remove(&source);
        self.touched.insert(watch_id);
        Some(source)
    }

    /// A consumer ends, and takes no part in decisions any more. Returns the watches of the engine's own that end with it,
    /// and its type.
    pub(super) fn end(&mut self, watch_id: WatchId) -> Option<(Vec<WatchId>, TypeId)> {
        let Some(consumer) = self.consumers.remove(&watch_id) else {
            invariant::broken("a consumer ends once");
            return None;
        };
        let sources: Vec<_> = consumer.sources().watches().collect();
        for source in &sources {
            self.owners.remove(source);
        }
        self.touched.remove(&watch_id);
        self.on_decided(consumer.ty(), watch_id);
        Some((sources, consumer.ty()))
    }

    /// Whether a type has consumers.
    pub(super) fn has_consumers(&self, ty: TypeId) -> bool {
        self.consumers.values().any(|consumer| consumer.ty() == ty)
    }

    /// The value of a watch of the engine's own. False if it is not for a consumer.
    pub(super) fn on_observed(&mut self, source: WatchId, observed: &Erased) -> bool {
        let Some(watch_id) = self.owners.get(&source) else { return false };
        if let Some(consumer) = self.consumers.get_mut(watch_id) {
            consumer.on_observed(source, observed);
            self.touched.insert(*watch_id);
        }
        true
    }

    /// A response is held, whose changes are proposed to the consumers that they concern. Without any it is accepted at once.
    pub(super) fn propose(&mut self, delivery: &Delivery, proposal: Option<Proposal>, now: Instant) {
        let Some(Proposal { ty, type_url, changes }) = proposal else { return };
        let is_concerned =
            |consumer: &Consumer| changes.iter().any(|change| concerns(delivery, consumer, change));
        let concerned =
            self.consumers.iter().filter(|(_, consumer)| consumer.ty() == ty && is_concerned(consumer));
        let waits_for: BTreeSet<_> = concerned.map(|(watch_id, _)| *watch_id).collect();
        if waits_for.is_empty() {
            return self.decided.push((ty, Decision::default()));
        }
        self.last_response += 1;
        self.touched.extend(&waits_for);
        let (number, deadline) = (self.last_response, now + self.limit);
        let before = self.held.insert(
            ty,
            HeldResponse { number, type_url, changes, waits_for, deadline, decision: Decision::default() },
        );
        debug_assert!(before.is_none(), "one response of a type is held");
    }

    /// The answer of a consumer to its batch.
    pub(super) fn answer(&mut self, watch_id: WatchId, answer: BatchAnswer) -> BatchOutcome {
        let Some(consumer) = self.consumers.get_mut(&watch_id) else { return BatchOutcome::TooLate };
        self.touched.insert(watch_id);
        let outcome = consumer.on_answered(&answer);
        let ty = consumer.ty();
        if outcome == BatchOutcome::Counted {
            if let Some(held) = self.held.get_mut(&ty) {
                for (name, reason) in answer.rejected {
                    let known = held.decision.rejected.entry(name).or_default();
                    let glue = if known.is_empty() { "" } else { "; " };
                    known.push_str(glue);
                    known.push_str(&reason);
                }
            }
            self.on_decided(ty, watch_id);
        }
        outcome
    }

    /// The responses that have waited for long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<_> =
            self.held.iter().filter(|(_, held)| held.deadline <= now).map(|(ty, _)| *ty).collect();
        for ty in due {
            self.expire(ty, "consumers have not answered in time");
        }
    }

    /// When the next response has waited for long enough.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.held.values().map(|held| held.deadline).min()
    }

    /// More bytes of a type wait than may.
    pub(super) fn on_overfull(&mut self, ty: Option<TypeId>) {
        if let Some(ty) = ty {
            self.expire(ty, "too many bytes wait behind it");
        }
    }

    /// A held response is taken as accepted by the consumers that have not answered.
    fn expire(&mut self, ty: TypeId, why: &'static str) {
        let Some(held) = self.held.remove(&ty) else { return };
        let unanswered = held.waits_for.len();
        warn!(held.type_url, unanswered, resources = held.changes.len(), why, "batch taken as accepted");
        for watch_id in &held.waits_for {
            if let Some(consumer) = self.consumers.get_mut(watch_id) {
                consumer.on_expired(held.number);
            }
        }
        self.touched.extend(held.waits_for);
        self.decided.push((ty, held.decision));
    }

    /// Gives consumers their next batches. `is_busy` is whether a response of a type is being applied: what the cache holds of it is
    /// in flux.
    pub(super) fn drive(&mut self, delivery: &mut Delivery, is_busy: impl Fn(TypeId) -> bool) {
        let mut later = BTreeSet::new();
        while let Some(watch_id) = self.touched.pop_first() {
            let Some(consumer) = self.consumers.get_mut(&watch_id).filter(|consumer| !consumer.has_batch())
            else {
                continue;
            };
            let ty = consumer.ty();
            let held = self.held.get(&ty);
            // What the consumer was given of the response is not in the cache yet.
            let is_decided = self.decided.iter().any(|(decided, _)| *decided == ty);
            if is_busy(ty) || is_decided || held.is_some_and(|held| consumer.was_given(held.number)) {
                later.insert(watch_id);
                continue;
            }
            if let Some(batch) = consumer.catch_up() {
                delivery.deliver(watch_id, Arc::new(batch));
                continue;
            }
            let Some(held) = held.filter(|held| held.waits_for.contains(&watch_id)) else { continue };
            let changes = held.changes.iter().filter(|change| concerns(delivery, consumer, change));
            let changes: Vec<_> = changes.collect();
            match consumer.consider(held.number, changes) {
                Some(batch) => delivery.deliver(watch_id, Arc::new(batch)),
                // It has that already.
                None => self.on_decided(ty, watch_id),
            }
        }
        self.touched = later;
    }

    /// The responses that were decided on since.
    pub(super) fn take_decided(&mut self) -> Vec<(TypeId, Decision)> {
        mem::take(&mut self.decided)
    }

    /// A consumer has decided on the held response of its type, or takes no part in the decision.
    fn on_decided(&mut self, ty: TypeId, watch_id: WatchId) {
        let Some(held) = self.held.get_mut(&ty) else { return };
        held.waits_for.remove(&watch_id);
        if held.waits_for.is_empty()
            && let Some(held) = self.held.remove(&ty)
        {
            debug!(held.type_url, rejected = held.decision.rejected.len(), "batch decided");
            self.decided.push((ty, held.decision));
        }
    }

    /// What is kept for consumers, to find what grows.
    #[cfg(test)]
    pub(super) fn census(&self) -> [usize; 4] {
        let given = self.consumers.values().map(Consumer::given_names).sum();
        [self.consumers.len(), self.owners.len(), self.held.len(), given]
    }
}

impl TakenResource {
    /// The resource of a name, as far as the target of a watch leads to it.
    fn of(target: &WatchTarget, name: &Arc<str>) -> Option<Self> {
        match target {
            WatchTarget::Entry(entry) => Some(Self::Watched(*entry)),
            WatchTarget::Wildcard(scope) | WatchTarget::Pushed(scope) => {
                Some(Self::Member(*scope, name.clone()))
            }
            WatchTarget::Resolution
            | WatchTarget::List(_)
            | WatchTarget::Inline
            | WatchTarget::Alternative
            | WatchTarget::CollectionAlternative
            | WatchTarget::Batches
            | WatchTarget::Refused(_) => None,
        }
    }
}

/// Whether a change is one of what a consumer has subscribed to.
fn concerns(delivery: &Delivery, consumer: &Consumer, change: &ProposedChange) -> bool {
    let mut targets =
        consumer.sources().watches_of(&change.name).filter_map(|source| delivery.target(source));
    targets.any(|target| is_of(target, consumer.ty(), change))
}

/// Whether a change is one of the subject of a watch.
///
/// The entries of lists, inline resources and alternatives are none: their consumers get what the cache holds.
fn is_of(target: &WatchTarget, of: TypeId, change: &ProposedChange) -> bool {
    match target {
        WatchTarget::Entry(entry) => {
            change.subjects.entry == Some(*entry) || change.subjects.glob == Some(*entry)
        }
        WatchTarget::Wildcard(TypeInGroup { group, ty }) | WatchTarget::Pushed(TypeInGroup { group, ty }) => {
            *ty == of && change.subjects.wildcard == Some(*group)
        }
        WatchTarget::Resolution
        | WatchTarget::List(_)
        | WatchTarget::Inline
        | WatchTarget::Alternative
        | WatchTarget::CollectionAlternative
        | WatchTarget::Batches
        | WatchTarget::Refused(_) => false,
    }
}
