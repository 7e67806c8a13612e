//! One consumer: what it was given, and its next batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use imbl::OrdMap;
use tracing::warn;

use super::{ProposedChange, sources::Sources};
use crate::{
    base::WatchId,
    engine::{SelectedBatches, Selection},
    error::WatchError,
    escape::Escaped,
    observed::Erase,
    protocol::TypeId,
    resource::{Erased, ResourceType, Version},
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
    /// The names that are subscribed and not had since the last batch, with the reasons.
    pub(crate) absent: Vec<(Arc<str>, WatchError)>,
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
    /// The batch is part of the answer to the server.
    Counted,
    /// The server was answered without it, since the limit of time had passed, or the client was shut down. The resources are in
    /// use in the client.
    TooLate,
    /// No response waited for it: the batch had the state of the cache, which is in use already.
    NothingToAnswer,
}

/// A consumer of the batches of a type.
#[derive(Debug)]
pub(in crate::engine) struct Consumer {
    ty: TypeId,
    erase: Erase,
    /// Gives away the contents of resources.
    resource_type: ResourceType,
    /// The versions of the consumer's store, until they are used.
    versions: BTreeMap<Arc<str>, Version>,
    /// The names of resources that the consumer lacks, and whose contents were taken before: by a consumer that has ended, or before they
    /// were unsubscribed. They have to be sent again.
    taken: BTreeSet<Arc<str>>,
    /// The names among them that were not sent again so far.
    lacking: BTreeSet<Arc<str>>,
    /// What it has subscribed to.
    sources: Sources,
    /// What the consumer has: what it was given, and has not rejected.
    given: OrdMap<Arc<str>, Erased>,
    /// The names that may differ from what the consumer has: given out of responses, changed or unsubscribed since.
    unconfirmed: BTreeSet<Arc<str>>,
    /// Whether the consumer has everything, as far as it is known, and the warning of its last batch.
    told: (bool, Option<WatchError>),
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
    /// The batch has the state of the cache.
    OfCache,
    /// The batch has the changes of a response, which is held. `before` is what the consumer had.
    OfResponse { before: OrdMap<Arc<str>, Erased> },
    /// The response was taken as accepted.
    Expired,
}

impl Consumer {
    /// A consumer that has nothing.
    pub(in crate::engine) fn new(ty: TypeId, selected: &mut SelectedBatches) -> Self {
        Self {
            ty,
            erase: selected.erase,
            resource_type: selected.ty,
            versions: mem::take(&mut selected.versions),
            taken: BTreeSet::new(),
            sources: Sources::default(),
            given: OrdMap::new(),
            unconfirmed: BTreeSet::new(),
            told: (false, None),
            lacking: BTreeSet::new(),
            batch: None,
            last_batch: 0,
            last_response: 0,
        }
    }

    pub(super) fn ty(&self) -> TypeId {
        self.ty
    }

    /// What it has subscribed to.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Adds a subscription, whose state a watch of the engine's own shows. False if it was there before.
    pub(super) fn subscribe(&mut self, names: &Selection, watch_id: WatchId) -> bool {
        self.sources.insert(names, watch_id)
    }

    /// Ends a subscription. Returns its watch, if there was one. What the consumer has of it is removed by its next batch.
    pub(super) fn unsubscribe(&mut self, names: &Selection) -> Option<WatchId> {
        let (watch_id, left) = self.sources.remove(names)?;
        self.unconfirmed.extend(left);
        Some(watch_id)
    }

    /// The versions of its store that a subscription begins with.
    pub(super) fn take_versions(&mut self, names: &Selection) -> BTreeMap<Arc<str>, Version> {
        match names {
            Selection::All | Selection::Pushed => mem::take(&mut self.versions),
            Selection::One(_) => {
                let known = names.single().and_then(|name| self.versions.remove_entry(&name));
                known.into_iter().collect()
            }
            // Which of the names are members is not known before the server sends them.
            Selection::Collection(_) | Selection::Nothing => BTreeMap::new(),
        }
    }

    /// The consumer has resources in its store that the client holds by their versions.
    pub(super) fn on_restored(&mut self, name: Arc<str>, resource: Erased) {
        self.given.insert(name, resource);
    }

    /// The names whose resources have to be sent again.
    pub(super) fn take_taken(&mut self) -> BTreeSet<Arc<str>> {
        mem::take(&mut self.taken)
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

    /// What the cache holds has changed for one of its subscriptions.
    pub(super) fn on_observed(&mut self, watch_id: WatchId, observed: &Erased) {
        let changed = self.sources.on_observed(watch_id, observed, self.erase);
        self.unconfirmed.extend(changed);
    }

    /// The batch that leads from what the consumer has to what the cache holds; `None` if that is the same.
    pub(super) fn catch_up(&mut self) -> Option<ErasedBatch> {
        if !self.sources.is_any_known() && self.unconfirmed.is_empty() {
            return None;
        }
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for name in mem::take(&mut self.unconfirmed) {
            let Some((resource, version)) = self.sources.get(&name, self.erase) else {
                self.lacking.remove(&name);
                if self.given.remove(&name).is_some() {
                    removed.push(name);
                }
                continue;
            };
            if self.given.get(&name).is_some_and(|given| Arc::ptr_eq(given, &resource)) {
                continue;
            }
            match self.resource_type.take_content(&resource) {
                Some(content) => {
                    self.lacking.remove(&name);
                    self.given.insert(name.clone(), resource);
                    added.push(ErasedResource { name, version, resource: content });
                }
                None => {
                    self.lacking.insert(name.clone());
                    self.taken.insert(name);
                }
            }
        }
        let absent = self.sources.take_absent();
        let is_complete = self.sources.is_complete() && self.lacking.is_empty();
        let told = (is_complete, self.sources.warning());
        let before = mem::replace(&mut self.told, told);
        let is_news = (is_complete && !before.0) || self.told.1 != before.1;
        if added.is_empty() && removed.is_empty() && absent.is_empty() && !is_news {
            return None;
        }
        self.batch = Some(Unanswered::OfCache);
        Some(ErasedBatch { absent, ..self.next_batch(added, removed, false) })
    }

    /// The batch of a held response; `None` if it changes nothing for the consumer.
    pub(super) fn consider<'a>(
        &mut self,
        response: u64,
        changes: impl IntoIterator<Item = &'a ProposedChange>,
    ) -> Option<ErasedBatch> {
        let before = self.given.clone();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for ProposedChange { name, version, resource, .. } in changes {
            match resource {
                Some(resource) => {
                    self.unconfirmed.insert(name.clone());
                    let Some(content) = self.resource_type.take_content(resource) else { continue };
                    self.lacking.remove(name);
                    self.given.insert(name.clone(), resource.clone());
                    let (name, version) = (name.clone(), version.clone());
                    added.push(ErasedResource { name, version, resource: content });
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
        let (is_complete, warning) = self.told.clone();
        let absent = Vec::new();
        ErasedBatch { number: self.last_batch, added, removed, absent, is_held, is_complete, warning }
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
