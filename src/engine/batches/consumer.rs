//! One consumer: what it was given, and its next batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use tracing::warn;

use super::ProposedChange;
use crate::{
    base::WatchId,
    error::WatchError,
    escape::Escaped,
    observed::{Erase, ErasedMembers, ErasedObserved, Member},
    protocol::TypeId,
    resource::{Erased, Version},
};

/// The changes for a consumer, with their type erased.
#[derive(Debug, Clone)]
pub(crate) struct ErasedBatch {
    /// Numbered from 1 for each consumer. The answer has it.
    pub(crate) number: u64,
    /// Resources that are new, or have changed.
    pub(crate) added: Vec<ErasedResource>,
    /// The names of those that are gone.
    pub(crate) removed: Vec<Arc<str>>,
    /// Set when a response waits for the answer.
    pub(crate) is_held: bool,
    /// The server has sent everything that the consumer has subscribed to.
    pub(crate) is_complete: bool,
    /// Why all of it may be stale, or why there is nothing.
    pub(crate) warning: Option<WatchError>,
}

/// A resource in a batch.
#[derive(Debug, Clone)]
pub(crate) struct ErasedResource {
    pub(crate) name: Arc<str>,
    pub(crate) version: Version,
    pub(crate) resource: Erased,
}

/// The answer to a batch. What is not rejected is accepted.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchAnswer {
    /// The number of the batch.
    pub(crate) number: u64,
    /// The reasons for rejecting resources, by their names.
    pub(crate) rejected: BTreeMap<Arc<str>, String>,
    /// Warnings about accepted resources.
    pub(crate) warnings: BTreeMap<Arc<str>, String>,
}

/// What an answer to a batch has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// It is part of the answer to the server.
    Counted,
    /// The server was answered without it, since the limit of time had passed, or the client was shut down. The resources are in
    /// use in the client.
    TooLate,
    /// No response waited for it: the batch had the state of the cache, which is in use already.
    NothingToAnswer,
}

/// A consumer of the batches of a type.
#[derive(Debug)]
pub(super) struct Consumer {
    ty: TypeId,
    /// The watch of the engine's own that shows what the cache holds.
    source: WatchId,
    /// The name of a single resource; `None` for a collection.
    name: Option<Arc<str>>,
    erase: Erase,
    /// What the consumer has: what it was given, and has not rejected.
    given: OrdMap<Arc<str>, Erased>,
    /// The latest value of the watch; `None` before the first one.
    latest: Option<Arc<ErasedMembers>>,
    /// The members that were compared with `given` last. What is equal in these and the latest ones need not be compared again.
    compared: OrdMap<Arc<str>, Member>,
    /// The names that were given out of responses since, and may differ from the members.
    unconfirmed: BTreeSet<Arc<str>>,
    /// Whether the last batch was complete, and its warning; `None` before the first one.
    told: Option<(bool, Option<WatchError>)>,
    /// The batch that is not answered.
    batch: Option<Unanswered>,
    /// The number of the last batch.
    last_batch: u64,
    /// The number of the last response that it was given.
    last_response: u64,
}

/// A batch that is not answered.
#[derive(Debug)]
enum Unanswered {
    /// It has the state of the cache.
    OfCache,
    /// It has the changes of a response, which is held. `before` is what the consumer had.
    OfResponse { before: OrdMap<Arc<str>, Erased> },
    /// The response was taken as accepted.
    Expired,
}

impl Consumer {
    /// A consumer that has nothing.
    pub(super) fn new(ty: TypeId, source: WatchId, name: Option<Arc<str>>, erase: Erase) -> Self {
        Self {
            ty,
            source,
            name,
            erase,
            given: OrdMap::new(),
            latest: None,
            compared: OrdMap::new(),
            unconfirmed: BTreeSet::new(),
            told: None,
            batch: None,
            last_batch: 0,
            last_response: 0,
        }
    }

    pub(super) fn ty(&self) -> TypeId {
        self.ty
    }

    pub(super) fn source(&self) -> WatchId {
        self.source
    }

    /// Whether it has a batch that it has not answered.
    pub(super) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether it has a batch of a held response, or has answered that.
    pub(super) fn was_given(&self, response: u64) -> bool {
        self.last_response == response
    }

    #[cfg(test)]
    pub(super) fn given_names(&self) -> usize {
        self.given.len() + self.unconfirmed.len()
    }

    /// What the cache holds has changed.
    pub(super) fn on_observed(&mut self, observed: &Erased) {
        self.latest = match observed.clone().downcast::<ErasedMembers>() {
            Ok(members) => Some(members),
            Err(one) => self.members_of_one(one).map(Arc::new),
        };
    }

    /// The state of a single resource as that of a collection with one member.
    fn members_of_one(&self, observed: Erased) -> Option<ErasedMembers> {
        let name = self.name.clone()?;
        let warning = match (self.erase)(&observed)? {
            ErasedObserved::Present { warning, .. } => warning,
            ErasedObserved::Absent { reason } => Some(reason),
        };
        Some(ErasedMembers {
            map: OrdMap::unit(name.clone(), Member(observed)),
            complete: true,
            warning,
            type_url: "",
            name,
            node: "".into(),
        })
    }

    /// The batch that leads from what the consumer has to what the cache holds; `None` if that is the same.
    pub(super) fn catch_up(&mut self) -> Option<ErasedBatch> {
        let latest = self.latest.clone()?;
        let mut names = mem::take(&mut self.unconfirmed);
        names.extend(self.compared.diff(&latest.map).map(|item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) => name.clone(),
            DiffItem::Update { new: (name, _), .. } => name.clone(),
        }));
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for name in names {
            let member = latest.map.get(&name).and_then(|member| (self.erase)(&member.0));
            match member {
                Some(ErasedObserved::Present { resource, version, .. }) => {
                    if !self.given.get(&name).is_some_and(|given| Arc::ptr_eq(given, &resource)) {
                        self.given.insert(name.clone(), resource.clone());
                        added.push(ErasedResource { name, version, resource });
                    }
                }
                Some(ErasedObserved::Absent { .. }) | None => {
                    if self.given.remove(&name).is_some() {
                        removed.push(name);
                    }
                }
            }
        }
        self.compared = latest.map.clone();
        let state = (latest.complete, latest.warning.clone());
        if added.is_empty() && removed.is_empty() && self.told.as_ref() == Some(&state) {
            return None;
        }
        self.told = Some(state);
        self.batch = Some(Unanswered::OfCache);
        Some(self.next_batch(added, removed, false))
    }

    /// The batch of a held response; `None` if it changes nothing for the consumer.
    pub(super) fn consider<'a>(
        &mut self,
        response: u64,
        changes: impl Iterator<Item = &'a ProposedChange>,
    ) -> Option<ErasedBatch> {
        let before = self.given.clone();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for ProposedChange { name, version, resource, .. } in changes {
            match resource {
                Some(resource) => {
                    self.given.insert(name.clone(), resource.clone());
                    let (name, version, resource) = (name.clone(), version.clone(), resource.clone());
                    added.push(ErasedResource { name, version, resource });
                }
                None if self.given.remove(name).is_some() => removed.push(name.clone()),
                None => continue,
            }
            self.unconfirmed.insert(name.clone());
        }
        if added.is_empty() && removed.is_empty() {
            return None;
        }
        self.last_response = response;
        self.batch = Some(Unanswered::OfResponse { before });
        Some(self.next_batch(added, removed, true))
    }

    fn next_batch(
        &mut self,
        added: Vec<ErasedResource>,
        removed: Vec<Arc<str>>,
        is_held: bool,
    ) -> ErasedBatch {
        self.last_batch += 1;
        let (is_complete, warning) = self.told.clone().unwrap_or_default();
        ErasedBatch { number: self.last_batch, added, removed, is_held, is_complete, warning }
    }

    /// The consumer has answered. It keeps what it had of the resources that it rejects.
    pub(super) fn on_answered(&mut self, answer: &BatchAnswer) -> BatchOutcome {
        if answer.number != self.last_batch {
            return BatchOutcome::TooLate;
        }
        log_warnings(answer);
        match self.batch.take() {
            None | Some(Unanswered::Expired) => BatchOutcome::TooLate,
            Some(Unanswered::OfCache) => BatchOutcome::NothingToAnswer,
            Some(Unanswered::OfResponse { before }) => {
                for name in answer.rejected.keys() {
                    match before.get(name) {
                        Some(known) if self.given.contains_key(name) => {
                            self.given.insert(name.clone(), known.clone());
                        }
                        // A removal is in effect whether or not it is rejected.
                        Some(_) => {}
                        None => drop(self.given.remove(name)),
                    }
                }
                BatchOutcome::Counted
            }
        }
    }

    /// A response was taken as accepted that the consumer has not answered.
    pub(super) fn on_expired(&mut self, response: u64) {
        if self.was_given(response) && self.batch.is_some() {
            self.batch = Some(Unanswered::Expired);
        }
    }
}

/// The warnings of a consumer about resources that it accepts go to the log: no field of the protocol has them.
fn log_warnings(answer: &BatchAnswer) {
    for (name, warning) in &answer.warnings {
        warn!(name = %Escaped(name), warning = %Escaped(warning), "resource accepted with a warning");
    }
}
