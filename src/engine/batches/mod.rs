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
//! A consumer has a watch of the engine's own, whose latest value is what the cache holds; and it remembers what the consumer was
//! given. What differs is the next batch. So whatever changes the cache (fallback, expiry, errors, another consumer's rejection),
//! and however slow the consumer is, its batches lead to the state of the cache; the memory for it is bounded by the names.
//!
//! A response is held for at most [`limit`](Batches::new). A consumer has one batch at a time, and the next one when it has answered.

mod consumer;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{debug, warn};

pub(crate) use self::consumer::BatchAnswer;
pub use self::consumer::BatchOutcome;
use self::consumer::Consumer;
#[cfg(any(test, feature = "client"))]
pub(crate) use self::consumer::ErasedBatch;
use super::{
    delivery::{Delivery, WatchTarget},
    ingest::{Decision, Proposal, ProposedChange},
    selection::SelectedBatches,
};
use crate::{
    base::WatchId,
    invariant,
    protocol::{TypeId, TypeInGroup},
    resource::Erased,
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

    /// A consumer begins. Returns the watch of the engine's own that shows what the cache holds, which is to begin.
    pub(super) fn begin(
        &mut self,
        delivery: &mut Delivery,
        watch_id: WatchId,
        ty: TypeId,
        selected: &SelectedBatches,
    ) -> WatchId {
        let source = delivery.next_watch_id();
        delivery.insert(watch_id, WatchTarget::Batches);
        self.owners.insert(source, watch_id);
        self.consumers.insert(watch_id, Consumer::new(ty, source, selected.names.name(), selected.erase));
        source
    }

    /// A consumer ends, and takes no part in decisions any more. Returns the watch of the engine's own that ends with it,
    /// and its type.
    pub(super) fn end(&mut self, watch_id: WatchId) -> Option<(WatchId, TypeId)> {
        let Some(consumer) = self.consumers.remove(&watch_id) else {
            invariant::broken("a consumer ends once");
            return None;
        };
        self.owners.remove(&consumer.source());
        self.touched.remove(&watch_id);
        self.on_decided(consumer.ty(), watch_id);
        Some((consumer.source(), consumer.ty()))
    }

    /// Whether a type has consumers.
    pub(super) fn has_consumers(&self, ty: TypeId) -> bool {
        self.consumers.values().any(|consumer| consumer.ty() == ty)
    }

    /// The value of a watch of the engine's own. False if it is not for a consumer.
    pub(super) fn on_observed(&mut self, source: WatchId, observed: &Erased) -> bool {
        let Some(watch_id) = self.owners.get(&source) else { return false };
        if let Some(consumer) = self.consumers.get_mut(watch_id) {
            consumer.on_observed(observed);
            self.touched.insert(*watch_id);
        }
        true
    }

    /// A response is held, whose changes are proposed to the consumers that they concern. Without any it is accepted at once.
    pub(super) fn propose(&mut self, delivery: &Delivery, proposal: Option<Proposal>, now: Instant) {
        let Some(Proposal { ty, type_url, changes }) = proposal else { return };
        let is_concerned = |consumer: &Consumer| {
            let target = delivery.target(consumer.source());
            target.is_some_and(|target| changes.iter().any(|change| is_of(target, ty, change)))
        };
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
            let Some(target) = delivery.target(consumer.source()) else { continue };
            let changes = held.changes.iter().filter(|change| is_of(target, ty, change));
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

/// Whether a change is one of the subject of a watch.
///
/// The entries of lists, inline resources and alternatives are none: their consumers get what the cache holds.
fn is_of(target: &WatchTarget, of: TypeId, change: &ProposedChange) -> bool {
    match target {
        WatchTarget::Entry(entry) => {
            change.subjects.entry == Some(*entry) || change.subjects.glob == Some(*entry)
        }
        WatchTarget::Wildcard(TypeInGroup { group, ty }) => {
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
