//! The first phase: all names of a response are read and located, which finds duplicates before anything is applied.
//!
//! Nothing is applied before all names are known, since a name that occurs twice rejects the response as a whole (B1.14,
//! B2.12), and since a resource of a server above the active one may make that server the active one for the whole response.

use std::collections::BTreeSet;

use super::{
    super::{selection::WILDCARD, store::Store},
    aliases,
    feed::Feed,
    globs,
    located::{LocatedResource, ResourceOp},
    pending_response::{PendingResponse, Stage, canonical, name_of},
    unchanged,
};
use crate::{
    cache::Entry,
    protocol::{Body, Envelope, GroupId, Item, Span, SubId},
};

/// The first phase of one response. It marks subscriptions as mentioned and records aliases; entries stay as they are.
pub(super) struct Locator<'a, 'f> {
    pub(super) response: &'a mut PendingResponse,
    pub(super) feed: &'a mut Feed<'f>,
    pub(super) store: &'a Store,
}

impl Locator<'_, '_> {
    /// Reads the names of some resources, and finds their subscriptions.
    ///
    /// Aliases come behind all names, since a name belongs to the resource that has it for its own.
    pub(super) fn locate(&mut self, from: usize) {
        let envelope = self.response.envelope.clone();
        let all = envelope.len() + envelope.removed().len();
        let to = all.min(from + NAMES_PER_STEP);
        let mut index = self.pass_unchanged(from, to);
        while index < to {
            match index.checked_sub(envelope.len()) {
                None => self.locate_item(index, &envelope),
                Some(removed) => self.locate_removed(index, envelope.removed()[removed]),
            }
            index = self.pass_unchanged(index + 1, to);
        }
        if to == all {
            // Behind the last name, as a name of this response goes before an alias.
            aliases::locate(self.response, self.feed);
            aliases::locate_removed(self.response, self.feed);
        }
        self.response.stage = match to == all {
            true if self.response.verdict.is_duplicate() => Stage::Finish,
            true => Stage::Apply(0),
            false => Stage::Locate(to),
        };
    }

    /// Records unchanged elements from one on; returns the index of the first that may not be.
    fn pass_unchanged(&mut self, from: usize, to: usize) -> usize {
        unchanged::locate(self.response, self.feed, self.store, from..to)
    }

    /// Reads the name of one element, and what the response does with it. An element without a name is recorded as a problem: it
    /// may be what some name waits for.
    fn locate_item(&mut self, index: usize, envelope: &Envelope) {
        let item = envelope.item(index);
        let (value, op) = match item.body {
            Body::Resource(value) => (value, ResourceOp::Resource),
            // It contains no name.
            Body::Redirect(_) if item.wrapper_name.is_empty() => {
                return self.response.add_nameless(index, &"a redirect without a name");
            }
            Body::Redirect(value) => (value, ResourceOp::Redirect),
            Body::Unset if envelope.is_delta() => return self.locate_unset(index, &item),
            Body::Unset => {
                self.response.heartbeats += 1;
                (Span::default(), ResourceOp::Heartbeat)
            }
            Body::Unusable(_) if item.wrapper_name.is_empty() => {
                let reason = self.response.unusable_reason(index).unwrap_or_default();
                return self.response.add_nameless(index, &reason);
            }
            Body::Unusable(_) => (Span::default(), ResourceOp::Unusable),
        };
        let found = LocatedResource { value, is_wrapped: item.is_wrapped, ..LocatedResource::new(index, op) };
        match name_of(self.store.ty(self.response.ty), envelope, item.wrapper_name, value) {
            // A server without support for `*` considers it a name, of which it has nothing (MS4).
            Ok(name) if *name == *WILDCARD && op == ResourceOp::Heartbeat => self.note_wildcard_absent(),
            // On the wire that name would stand for all resources. The absence of other resources is not affected.
            Ok(name) if *name == *WILDCARD => {
                self.response.lacks_wildcard |= self.feed.channel().is_wildcard_spelled();
                let place = format!("resources[{index}].name");
                self.response.verdict.reject(&place, &"`*` is the wildcard and not a name");
            }
            Ok(name) => {
                self.locate_name(&name, found);
                if envelope.is_delta() {
                    aliases::on_own_name(self.feed, &name);
                }
                if item.has_aliases {
                    self.response.aliases.add(&name, found);
                }
            }
            Err(invalid) => self.response.add_nameless(index, &invalid),
        }
    }

    /// Finds the subscription of a name in a response, and records the operation on it.
    ///
    /// The prediction is tried first; then the name is searched for. A name that was mentioned by the same response before is a
    /// duplicate.
    fn locate_name(&mut self, name: &str, found: LocatedResource) {
        let (subscriptions, order) = self.feed.subscriptions_and_order();
        let is_it = |sub: &SubId| subscriptions.get(*sub).is_some_and(|sub| **sub.name() == *name);
        let guessed = self.response.predictor.next(order).filter(is_it);
        let sub = guessed.or_else(|| subscriptions.find(name));
        let twice = match sub.and_then(|id| Some((id, subscriptions.get_mut(id)?))) {
            Some((id, sub)) => {
                match guessed {
                    Some(_) => self.response.predictor.on_right(),
                    None => self.response.predictor.on_found(id, sub.last_position(), order),
                }
                sub.on_mentioned(self.response.number, self.response.located.len())
            }
            None => self.response.unknown.is_seen(
                name,
                found.index as usize,
                &self.response.envelope,
                self.store.ty(self.response.ty),
            ),
        };
        if twice {
            self.response.verdict.reject_duplicate(name);
        }
        let known = sub.and_then(|sub| subscriptions.get(sub));
        self.response.of_all |=
            found.op != ResourceOp::Heartbeat && known.is_none_or(|sub| !sub.precedes_wildcard());
        self.response.located.push(LocatedResource { sub, ..found });
    }

    /// The groups on a lower server at the moment whose subscribed resources are in a response.
    ///
    /// It is determined before anything is applied: resources of a server above the active one count only once it is active.
    pub(super) fn returning(&mut self) -> BTreeSet<GroupId> {
        let server = self.feed.server();
        if !self.feed.groups().is_higher(server) {
            return BTreeSet::new();
        }
        let all = self.feed.memberships().wildcard_group(self.store, server, self.response.ty);
        let store = self.store;
        let (subscriptions, groups) = self.feed.subscriptions_and_groups();
        let all = all.filter(|_| subscriptions.takes_all());
        let group_of = |located: &LocatedResource| match located.sub.and_then(|sub| subscriptions.get(sub)) {
            Some(sub) => store.get(sub.entry()).map(|entry| entry.group),
            None => all,
        };
        let sent = self.response.located.iter().filter(|located| located.op.is_there()).filter_map(group_of);
        let mut found: BTreeSet<_> = sent.filter(|group| groups.get(*group).is_higher(server)).collect();
        if self.store.members.has_globs_of(self.response.ty) {
            found.extend(self.returning_members());
        }
        found
    }

    /// The groups on a lower server with new members of their globs in the response.
    fn returning_members(&mut self) -> BTreeSet<GroupId> {
        let mut found = BTreeSet::new();
        for next in 0..self.response.located.len() {
            // Its name is subscribed to, or it contains no resource.
            let Some(name) = self.response.unknown_name(next, self.store.ty(self.response.ty)) else {
                continue;
            };
            let glob = globs::enclosing(self.response, self.feed, self.store, &name);
            let group = glob.and_then(|glob| self.store.get(glob)).map(|glob| glob.group);
            let server = self.feed.server();
            found.extend(group.filter(|group| self.feed.groups().get(*group).is_higher(server)));
        }
        found
    }

    /// Finds the subscription of a name in `removed_resources`.
    fn locate_removed(&mut self, index: usize, name: Span) {
        let envelope = self.response.envelope.clone();
        match canonical(envelope.text(name)) {
            // A server without support for `*` considers it a name, of which it has nothing (MS4).
            Ok(name) if *name == *WILDCARD => self.note_wildcard_absent(),
            Ok(name) => self.locate_name(&name, LocatedResource::new(index, ResourceOp::Removed)),
            Err(invalid) => {
                let removed = index - envelope.len();
                self.response.verdict.reject(&format_args!("removed_resources[{removed}]"), &invalid);
            }
        }
    }

    /// The server reports that it has nothing by the name `*`: it takes the wildcard for a name (B1.23, MS4).
    /// Another stream is opened for it when the response is concluded, on which the wildcard begins as an empty list.
    fn note_wildcard_absent(&mut self) {
        self.response.lacks_wildcard |= self.feed.subscriptions().wildcard;
    }

    /// An element without a resource: the heartbeat of the version that is held (B2.16), an alias that was not found
    /// (B2.18), or the form in which older servers report that a resource does not exist (B2.17).
    ///
    /// The three cannot be told apart by the element alone; versions, times to live and what is held decide.
    fn locate_unset(&mut self, index: usize, item: &Item) {
        let envelope = self.response.envelope.clone();
        let name = match canonical(envelope.text(item.wrapper_name)) {
            Ok(name) => name,
            Err(invalid) => return self.response.add_nameless(index, &invalid),
        };
        if *name == *WILDCARD {
            return self.note_wildcard_absent();
        }
        let removed = LocatedResource::new(index, ResourceOp::Removed);
        if item.has_aliases {
            return self.response.aliases.add("", removed);
        }
        let subscriptions = self.feed.subscriptions();
        let sub = subscriptions.find(&name).and_then(|id| subscriptions.get(id));
        let held = sub.filter(|sub| sub.is_held() && sub.version().as_str() == envelope.text(item.version));
        // Without versions in requests, heartbeats cannot be distinguished from removals.
        let held = held.filter(|sub| !sub.version().is_empty() || item.ttl.is_some());
        let (held, id) = (held.map(|sub| sub.entry()), sub.map(|sub| sub.entry()));
        // A resource that was rejected in this version is not held, and not removed either: the last known good one is kept.
        let rejected = id.and_then(|id| self.store.get(id)).and_then(Entry::rejected_version);
        let is_rejected = rejected.is_some_and(|version| version.as_str() == envelope.text(item.version));
        // A glob has members, but no resource of its own to confirm.
        let is_held = held.is_some_and(|id| self.store.get(id).is_some_and(|entry| !entry.is_glob));
        let is_held = is_held || is_rejected;
        // Old servers have no TTL: an element with one is a confirmation, even of a resource that is not held.
        let found = match is_held || item.ttl.is_some() {
            true => {
                LocatedResource { is_wrapped: true, ..LocatedResource::new(index, ResourceOp::Heartbeat) }
            }
            false => removed,
        };
        self.locate_name(&name, found);
        if item.ttl.is_some() {
            self.response.aliases.confirm(&name, found);
        }
    }
}

/// The number of names in one step: some milliseconds.
const NAMES_PER_STEP: usize = 16_384;
