//! What a response would change, for the consumers that decide on it before it is applied.
//!
//! ```text
//!   located ──▶ subscribed or a member, answers count ──▶ same bytes? ── yes ──▶ nothing to decide
//!                                                            └─ no ──▶ parse ──▶ a change, or rejected when it is applied
//!   removed, or missing from a complete response ──▶ held, dropped by the policy, not in doubt ──▶ a removal
//! ```
//!
//! Nothing is changed here: what is proposed is applied once the consumers have decided, and with what is known then. A resource is
//! parsed once; the result is kept in the response.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    super::store::Store,
    apply::{Applier, BYTES_PER_STEP},
    finish, globs,
    located::{LocatedResource, ResourceOp},
    pending_response::Stage,
    review::{ProposedChange, Subjects},
};
use crate::{
    cache::Entry,
    protocol::{EntryId, Extent, SubId, Subscription},
};

/// The review of one response, which uses what the second phase has.
pub(super) struct Reviewer<'a, 'f> {
    pub(super) applier: Applier<'a, 'f>,
}

impl Reviewer<'_, '_> {
    /// Reviews some elements, as many as one step may have. Behind the last one, absences are found.
    pub(super) fn review(&mut self, from: usize) {
        let (mut spent, mut next) = (0, from);
        while next < self.applier.response.located.len() && spent < BYTES_PER_STEP {
            let located = self.applier.response.located[next];
            spent += match located.op {
                ResourceOp::Resource => self.propose(next, located),
                ResourceOp::Removed => self.propose_removal(located),
                // What is held, or what no consumer is shown.
                ResourceOp::Same | ResourceOp::Redirect | ResourceOp::Heartbeat | ResourceOp::Unusable => 1,
            };
            next += 1;
        }
        let is_last = next == self.applier.response.located.len();
        if is_last {
            self.propose_absences();
        }
        let response = &mut self.applier.response;
        response.stage = match is_last {
            true if response.review.changes.is_empty() => Stage::Apply(0),
            true => Stage::Held,
            false => Stage::Review(next),
        };
    }

    /// Proposes a resource that is not held as it is. Returns the cost.
    fn propose(&mut self, next: usize, located: LocatedResource) -> usize {
        let (response, store) = (&mut *self.applier.response, &*self.applier.store);
        let sub = located.sub.and_then(|sub| self.applier.feed.sub(sub));
        let known = sub.map(|sub| (sub.entry(), sub.name().clone(), sub.version().clone()));
        let name = match &known {
            Some((_, name, _)) => name.clone(),
            None => match response.unknown_name(next, store.ty(response.ty)) {
                Some(name) => name,
                None => return 1,
            },
        };
        let entry = known.as_ref().and_then(|(id, ..)| store.get(*id));
        let bytes = response.envelope.bytes(located.value);
        if entry.is_some_and(|entry| entry.is_glob || entry.raw().is_some_and(|held| held.is(bytes))) {
            return bytes.len() / 16 + 16;
        }
        let cost = bytes.len() + 64;
        if known.is_none() {
            // It is rejected when it is applied.
            if self.applier.refusal_of_pushed(&name, self.applier.response.review.unknown).is_some() {
                return 64;
            }
            self.applier.response.review.unknown += 1;
        }
        let subjects = self.subjects(known.as_ref().map(|(id, ..)| *id), &name);
        if subjects == Subjects::default() {
            return 64;
        }
        let response = &mut *self.applier.response;
        let held_version = known.map(|(.., version)| version).unwrap_or_default();
        let version = response.update_of(&located, &held_version).version;
        let bytes = Bytes::copy_from_slice(response.envelope.bytes(located.value));
        // What cannot be parsed is rejected when it is applied.
        if let Ok(resource) = self.applier.parse_resource(&name, &located, &bytes) {
            let shown = self.store().additions().take_from(&name);
            let change = ProposedChange { name: shown, version, resource: Some(resource.clone()), subjects };
            self.applier.response.review.propose(change, Some((name, resource, bytes)));
        }
        cost
    }

    /// The subjects of a name for which what the server sends counts.
    fn subjects(&mut self, id: Option<EntryId>, name: &str) -> Subjects {
        let Applier { response, feed, store, .. } = &mut self.applier;
        let entry = id.filter(|id| feed.counts(store, *id));
        let glob = globs::enclosing(response, feed, store, name).filter(|glob| feed.counts(store, *glob));
        let (server, ty) = (feed.server(), feed.ty());
        let subscriptions = feed.subscriptions();
        let is_admitted = match subscriptions.takes_pushed_alone() {
            true => subscriptions.admits(subscriptions.find(name).and_then(|id| subscriptions.get(id))),
            false => subscriptions.takes_all(),
        };
        let wildcard = match is_admitted {
            true => feed.memberships().wildcard_group(store, server, ty),
            false => None,
        };
        Subjects { entry, glob, wildcard: wildcard.filter(|group| feed.is_active_in(*group)) }
    }

    /// Proposes the removal of a resource that the server has removed (B2.14).
    fn propose_removal(&mut self, located: LocatedResource) -> usize {
        let now = self.applier.feed.now();
        let sub = located.sub.and_then(|sub| self.applier.feed.sub(sub));
        if let Some(sub) = sub.filter(|sub| !sub.is_absence_doubtful(now)) {
            let (id, name) = (sub.entry(), sub.name().clone());
            self.propose_end(id, name);
        }
        64
    }

    /// Proposes the removals that follow from a response with all resources of the type (B1.10).
    fn propose_absences(&mut self) {
        let Applier { response, feed, store, .. } = &mut self.applier;
        let full_state = store.ty(feed.ty()).full_state() && !response.envelope.is_delta();
        if !full_state || response.is_heartbeat() || response.verdict.is_nameless() {
            return;
        }
        let extent = match finish::is_narrow(response, feed, store) {
            true => Extent::Narrow,
            false => feed.channel().extent(),
        };
        let (now, number) = (feed.now(), response.number);
        // As in `absence::apply`: the absence of a name that the server has never sent is in doubt.
        let is_known = |sub: &Subscription| sub.was_ever_mentioned() || (sub.is_member() && !sub.is_named());
        let is_lost = |(_, sub): &(SubId, &Subscription)| {
            sub.lacks(number, extent) && is_known(sub) && sub.was_there() && !sub.is_absence_doubtful(now)
        };
        let lost: Vec<_> = feed
            .subscriptions()
            .iter()
            .filter(is_lost)
            .map(|(_, sub)| (sub.entry(), sub.name().clone()))
            .collect();
        for (id, name) in lost {
            self.propose_end(id, name);
        }
    }

    /// Proposes that a held resource ends, if the policy of the server lets it.
    fn propose_end(&mut self, id: EntryId, name: Arc<str>) {
        let policy = self.applier.feed.state().policy;
        let is_held =
            self.applier.store.get(id).is_some_and(|entry: &Entry| entry.is_held() && !entry.is_glob);
        let is_kept = policy.keep_deleted && !policy.fail_on_data_errors;
        if !is_held || is_kept || !self.applier.feed.counts(self.store(), id) {
            return;
        }
        let subjects = self.subjects(Some(id), &name);
        let name = self.store().additions().take_from(&name);
        let response = &mut self.applier.response;
        let version = response.version.clone();
        response.review.propose(ProposedChange { name, version, resource: None, subjects }, None);
    }

    fn store(&self) -> &Store {
        self.applier.store
    }
}
