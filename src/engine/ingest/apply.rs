//! The second phase: the resources are compared with the held ones, and parsed where they differ.
//!
//! ```text
//!   located ──▶ unchanged in a run?  ── yes ──▶ confirmed, nothing else
//!                  │ no
//!                  ├── subscribed, answers count ──▶ same bytes? ── yes ──▶ new version and time to live alone
//!                  │                                     └─ no ──▶ parse ──▶ accepted, or rejected with a problem
//!                  ├── subscribed, another server is active ──▶ marked as answered, nothing else
//!                  └── not subscribed ──▶ a member of a wildcard or glob: gets an entry; otherwise ignored (B0.12)
//! ```

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use tracing::trace;

use super::{
    super::{authorities::By, failure::no_such, selection::WILDCARD, store::Store},
    ParserSettings, WorkCounters,
    feed::Feed,
    globs, heartbeats, left_out,
    located::{LocatedResource, ResourceOp},
    pending_response::{PendingResponse, Stage},
    rejected::{self, NO_ERROR},
    unchanged,
};
use crate::{
    cache::{Entry, Raw, Redirect, Update},
    error::{Blame, Code, WatchError, short_type},
    invariant,
    name::ResourceName,
    protocol::{EntryId, GroupId, ServerError, SubId, TypeInGroup},
    resource::{Erased, Invalid},
    wire::Malformed,
};

/// The second phase of one response.
pub(super) struct Applier<'a, 'f> {
    pub(super) response: &'a mut PendingResponse,
    pub(super) feed: &'a mut Feed<'f>,
    pub(super) store: &'a mut Store,
    /// The context of parsing, which is the same for all responses.
    pub(super) parser: &'a ParserSettings,
    /// Counts for tests and benches.
    pub(super) work: &'a mut WorkCounters,
}

impl Applier<'_, '_> {
    /// Applies some resources.
    ///
    /// A step ends after some milliseconds of work, wherever it is; the next one continues there. Unchanged resources are
    /// passed in runs by the fast path.
    pub(super) fn apply(&mut self, from: usize) {
        let mut spent = 0;
        let mut next = from;
        while next < self.response.located.len() && spent < BYTES_PER_STEP {
            let until = self.response.located.len().min(next + (BYTES_PER_STEP - spent) / UNCHANGED);
            let quick = unchanged::confirm(self.response, self.feed, self.store, next..until);
            self.work.unchanged += (quick - next) as u64;
            spent += (quick - next) * UNCHANGED;
            next = quick;
            let Some(located) = self.response.located.get(next).copied() else { break };
            spent += match located.sub {
                // It may have been removed between two steps, and another one may have taken its slot.
                Some(sub) if !self.is_there(sub, next) => 1,
                Some(sub) => match located.op {
                    ResourceOp::Resource | ResourceOp::Redirect | ResourceOp::Unusable => {
                        self.apply_to(sub, located)
                    }
                    ResourceOp::Same => self.apply_to(sub, self.response.again(located)),
                    ResourceOp::Removed => self.apply_removed(sub),
                    ResourceOp::Heartbeat => {
                        heartbeats::apply(self.response, self.feed, self.store, sub, located);
                        1
                    }
                },
                None => match located.op {
                    ResourceOp::Resource | ResourceOp::Redirect | ResourceOp::Unusable => {
                        self.apply_unknown(next, located)
                    }
                    ResourceOp::Heartbeat => {
                        heartbeats::apply_unknown(self.response, self.feed, self.store, located);
                        1
                    }
                    // A resource that is not held cannot be removed (B2.13).
                    ResourceOp::Removed | ResourceOp::Same => 1,
                },
            };
            next += 1;
        }
        self.response.stage =
            if next == self.response.located.len() { Stage::Finish } else { Stage::Apply(next) };
    }

    /// Whether a subscription is still the one that was located: others may have taken its slot since.
    fn is_there(&mut self, sub: SubId, position: usize) -> bool {
        self.feed.sub(sub).is_some_and(|sub| sub.is_mentioned_at(self.response.number, position))
    }

    /// Applies a resource that is subscribed by name, or is a member already. Returns the cost, in bytes parsed.
    ///
    /// A step ends when the sum of the costs reaches [`BYTES_PER_STEP`].
    fn apply_to(&mut self, sub_id: SubId, located: LocatedResource) -> usize {
        let subscriptions = self.feed.subscriptions();
        let admits = subscriptions.admits(subscriptions.get(sub_id));
        // It may have been removed between two steps.
        let Some(sub) = subscriptions.get_mut(sub_id).filter(|sub| sub.is_mentioned_in(self.response.number))
        else {
            return 1;
        };
        // What an earlier stream has brought confirms nothing on this one.
        if !self.response.is_late {
            sub.on_answered();
        }
        let joins_all = admits && sub.join_wildcard();
        let id = sub.entry();
        let update = self.response.update_of(&located, sub.version());
        let joins_glob = globs::on_member(self.response, self.feed, self.store, sub_id);
        if !self.feed.counts(self.store, id) {
            // It is not parsed, so that only what cannot be a resource of the type is rejected.
            self.reject_unusable(located);
            self.store.note_change(id, false, joins_all);
            return 1;
        }
        for (_, by) in
            [(joins_all, By::Wildcard), (joins_glob, By::Glob)].into_iter().filter(|(joins, _)| *joins)
        {
            self.feed.members().join_higher(self.store, id, by, self.response.since());
        }
        let joins = joins_all || joins_glob;
        let Some(entry) = self.store.get(id) else { return 1 };
        if entry.is_glob {
            rejected::reject_glob(self.response, self.feed, self.store, id);
            return REJECTED;
        }
        let bytes = self.response.envelope.bytes(located.value);
        let is_redirect = located.op == ResourceOp::Redirect;
        let is_same = located.op != ResourceOp::Unusable && entry.raw().is_some_and(|held| held.is(bytes));
        if is_same && entry.redirect().is_some() == is_redirect {
            self.work.unchanged += 1;
            self.response.verdict.on_valid();
            let changed = self.store.apply(id, |entry| entry.on_unchanged(&update.version, update.at));
            let (sender, version) = (self.response.server(), self.response.requested_version(&update));
            self.feed.placement().note_version(self.store, id, sender, version);
            self.store.set_ttl(id, update.at, self.response.ttl_of(&located));
            self.store.note_change(id, changed, joins);
            return bytes.len() / 16 + 16;
        }
        let cost = bytes.len() + 64;
        let changed = self.parse(id, located, update);
        self.store.note_change(id, changed, joins);
        cost
    }

    /// Applies a resource that was not requested by name: a new member, or one to ignore (B0.12).
    ///
    /// A member gets an entry and a subscription, as if it had been requested by name; from then on it is found as others are.
    fn apply_unknown(&mut self, next: usize, located: LocatedResource) -> usize {
        let Some(group) = self.group_of_unknown(next) else {
            self.reject_unusable(located);
            trace!(resource = located.index, "resource without subscription skipped");
            self.note_skipped(next);
            return 1;
        };
        let Some(name) = self.response.written_name(next, self.store.ty(self.response.ty)) else {
            invariant::broken("a resource of a collection has a name");
            return 1;
        };
        if let Some(reason) = self.refusal_of_pushed(name.as_str(), 0) {
            self.response.verdict.reject(&format_args!("resources[{}]", located.index), &reason);
            return REJECTED;
        }
        let server = self.response.server();
        let id =
            self.feed.placement().entry_for(self.store, TypeInGroup { group, ty: self.response.ty }, &name);
        // The name may be requested there for the watches of another group.
        let Some(sub) = self.feed.placement().place(self.store, id, server) else { return 1 };
        if let Some(sub) = self.feed.sub(sub) {
            sub.on_mentioned(self.response.number, next);
        }
        self.response.located[next].sub = Some(sub);
        self.apply_to(sub, located)
    }

    /// Why a resource that was not requested is not accepted beside `others` of its response that are new; `None` if it is.
    pub(super) fn refusal_of_pushed(&mut self, name: &str, others: usize) -> Option<String> {
        let most = self.parser.settings.max_pushed_resources;
        let subscriptions = self.feed.subscriptions();
        if !subscriptions.takes_pushed_alone() {
            return None;
        }
        if name.len() > LONGEST_PUSHED_NAME {
            return Some(format!(
                "the name of a resource that was not requested is longer than {LONGEST_PUSHED_NAME} bytes"
            ));
        }
        (subscriptions.unrequested() + others >= most)
            .then(|| format!("more than {most} resources of the type were sent without a request for them"))
    }

    /// Rejects something that is not held if it is no resource of the type.
    fn reject_unusable(&mut self, located: LocatedResource) {
        if let Some(reason) = self.response.unusable_reason(located.index as usize) {
            self.response.verdict.reject(&format_args!("resources[{}]", located.index), &reason);
        }
    }

    /// The server has sent a resource that is not held, and may take it to be known when its name is subscribed (B1.21).
    fn note_skipped(&mut self, next: usize) {
        let (stream, ty) = (self.response.stream, self.response.ty);
        if !self.feed.machine().notes_skipped(stream, ty) {
            return;
        }
        if let Some(name) = self.response.unknown_name(next, self.store.ty(ty)) {
            self.feed.channel_mut().on_skipped(&name);
        }
    }

    /// The servers of the wildcard or glob that a resource without a subscription is a member of.
    ///
    /// `None` if it is a member of nothing, or if what the server sends does not count for the collection at the moment.
    fn group_of_unknown(&mut self, next: usize) -> Option<GroupId> {
        let ty = self.response.ty;
        let takes_all = self.feed.subscriptions().takes_all();
        let server = self.feed.server();
        let mut group = match takes_all {
            true => self.feed.memberships().wildcard_group(self.store, server, ty),
            false => None,
        };
        if group.is_none() && self.store.members.has_globs_of(ty) {
            let name = self.response.unknown_name(next, self.store.ty(ty))?;
            let glob = globs::enclosing(self.response, self.feed, self.store, &name)?;
            group = self.store.get(glob).map(|glob| glob.group);
        }
        group.filter(|group| self.feed.is_active_in(*group))
    }

    /// Parses a resource that differs from the held one. True when there is a change to publish.
    ///
    /// The versions that other servers have of the resource do not count any more: what they sent is not what is held.
    fn parse(&mut self, id: EntryId, located: LocatedResource, update: Update) -> bool {
        self.work.parsed += 1;
        let Some(name) = self.store.existing(id).map(|entry| entry.name.clone()) else { return false };
        let policy = self.feed.state().policy;
        let (parsed, bytes) = match self.response.review.take_parsed(&name) {
            Some((resource, bytes)) => (Ok(resource), bytes),
            None => {
                // A copy, which a resource may keep slices of: with slices of the message it would keep the whole response.
                let bytes = Bytes::copy_from_slice(self.response.envelope.bytes(located.value));
                (self.parse_resource(&name, &located, &bytes), bytes)
            }
        };
        let parsed = match self.response.review.take_rejection(&self.store.additions().take_from(&name)) {
            Some(reason) => parsed.and(Err(Invalid::new(reason))),
            None => parsed,
        };
        let changed = match parsed {
            Ok(resource) => {
                self.response.verdict.on_valid();
                self.response.is_applied = true;
                let (sender, version) = (self.response.server(), self.response.requested_version(&update));
                self.feed.placement().note_version(self.store, id, sender, version);
                self.store.set_ttl(id, update.at, self.response.ttl_of(&located));
                let raw = self.raw(id, &located, bytes).with_bare(self.response.is_bare(&located));
                left_out::log(self.store, self.response.ty, id, &resource);
                let from = self.feed.machine_mut().as_source();
                self.store.apply(id, |entry| {
                    let changed = entry.on_accepted(resource, raw, update);
                    entry.set_source(&from);
                    changed
                })
            }
            Err(invalid) => {
                let Some(about) = self.store.existing(id).map(|entry| self.store.subject(entry)) else {
                    return false;
                };
                let place = format!("{} {:?}", short_type(about.type_url), about.name);
                self.response.verdict.reject(&place, &invalid);
                let error = WatchError::rejected(about, invalid);
                self.note_dropped(id, |step| {
                    step.store.apply(id, |entry| entry.on_rejected(error, policy, update))
                })
            }
        };
        self.feed.placement().sync_held(self.store, id);
        changed
    }

    /// Parses the bytes of a resource, or of what is in its place.
    pub(super) fn parse_resource(
        &self,
        name: &Arc<str>,
        located: &LocatedResource,
        bytes: &Bytes,
    ) -> Result<Erased, Invalid> {
        let ty = self.store.ty(self.response.ty);
        match located.op {
            ResourceOp::Redirect => Redirect::parse(bytes, ty).map(|redirect| Arc::new(redirect) as Erased),
            ResourceOp::Unusable => {
                let reason = self.response.unusable_reason(located.index as usize);
                Err(Invalid::new(reason.unwrap_or_default()))
            }
            ResourceOp::Resource | ResourceOp::Same | ResourceOp::Removed | ResourceOp::Heartbeat => {
                let peer = self.feed.state().machine.source();
                let cx = self.parser.context(peer.features().trusted_xds_server).with_peer(&peer);
                ty.parse(bytes, &cx.with_name(name).with_ttl(self.response.ttl_of(located)))
            }
        }
    }

    /// There is no such resource (any more): known at once, without a timer (B2.14). Returns the cost.
    ///
    /// Whether the resource is dropped is up to the policy of the server, as it is with absence.
    fn apply_removed(&mut self, id: SubId) -> usize {
        let (ty, now) = (self.feed.ty(), self.feed.now());
        let policy = self.feed.state().policy;
        let Some(sub) = self.feed.sub(id) else { return 1 };
        sub.forget_version();
        // B2.3: the version is forgotten, whether or not the removal is believed. The next stream must not claim it.
        let entry_id = sub.entry();
        // The removal may be the answer to a recent unsubscription (GO12).
        if !self.feed.machine_mut().is_gone(ty, id, now) {
            return 1;
        }
        let counts = self.feed.counts(self.store, entry_id);
        if let Some(sub) = self.feed.sub(id) {
            sub.on_removed(counts);
        }
        // Another server is active at the moment.
        let Some(entry) = self.store.get(entry_id).filter(|_| counts) else { return 1 };
        let uri = self.feed.machine().source();
        let message = match entry.is_held() {
            true => format!("xDS server {uri} has deleted it"),
            false => no_such(&uri),
        };
        let error = WatchError::new(Code::NotFound, Blame::Peer, self.store.subject(entry), message);
        self.feed
            .placement()
            .update(self.store, entry_id, |entry| entry.on_removed(error, policy, self.response.update()));
        self.feed.members().leave_collections(self.store, entry_id);
        64
    }

    /// Applies the errors of resources that the server does not send (TP3).
    ///
    /// An error is an answer to the name: its does-not-exist timer ends. `NOT_FOUND` and `PERMISSION_DENIED` are about the
    /// resource, so that the policy decides whether the held one stays; any other code leaves it (A88).
    pub(super) fn apply_errors(&mut self) {
        let errors: Vec<_> = self.response.envelope.errors().collect();
        for (index, error) in errors.into_iter().enumerate() {
            let Some(error) = self.accept_error(index, error) else { continue };
            let is_wildcard = self.response.envelope.text(error.name) == WILDCARD;
            // The server reports that it has nothing by the name `*`: it takes the wildcard for a name (B1.23, MS4).
            if is_wildcard && Code::from_i32(error.code) == Code::NotFound {
                self.response.lacks_wildcard |= self.feed.subscriptions().wildcard;
                continue;
            }
            let name = self.response.envelope.text(error.name);
            let name = ResourceName::canonicalize(name).unwrap_or(Cow::Borrowed(name));
            let policy = self.feed.state().policy;
            let subscriptions = self.feed.subscriptions();
            // The name has no subscription.
            let Some(sub) = subscriptions.find(&name).and_then(|sub| subscriptions.get_mut(sub)) else {
                continue;
            };
            sub.on_answered_in(self.response.number);
            // The recovery is detected by its being sent again, so the next stream requests that.
            sub.forget_version();
            let id = sub.entry();
            let server = self.feed.server();
            self.feed.channel_mut().on_dropped();
            self.feed.globs().forget_member_versions(self.store, id, server);
            let Some(entry) = self.store.get(id).filter(|entry| self.feed.is_active_in(entry.group)) else {
                continue;
            };
            let code = Code::from_i32(error.code);
            let data = matches!(code, Code::NotFound | Code::PermissionDenied).then_some(policy);
            let error = WatchError::new(
                code,
                Blame::Peer,
                self.store.subject(entry),
                self.response.envelope.text(error.message),
            );
            let update = self.response.update();
            self.note_dropped(id, |step| {
                let mut placement = step.feed.placement();
                placement.update(step.store, id, |entry| entry.on_server_error(error, data, update));
            });
        }
    }

    /// One of the errors, unless it is none.
    fn accept_error(&mut self, index: usize, error: Result<ServerError, Malformed>) -> Option<ServerError> {
        let place = format!("resource_errors[{index}]");
        match error {
            Err(malformed) => {
                self.response.verdict.reject_nameless_error(&place, &malformed);
            }
            Ok(error) if error.name.is_empty() => {
                self.response.verdict.reject_nameless_error(&place, &"resource_name: unset");
            }
            Ok(error) if error.code == 0 => {
                self.response.verdict.reject_error(&place, &format_args!("error_detail: {NO_ERROR}"));
                rejected::reject_error_of(self.response, self.feed, self.store, error.name);
            }
            Ok(error) => return Some(error),
        }
        None
    }

    /// Runs an operation after which a resource may not be held any more that the server considers held.
    ///
    /// The servers are those of all its subscriptions: each of them may have sent the resource that is gone.
    fn note_dropped<T>(&mut self, id: EntryId, act: impl FnOnce(&mut Self) -> T) -> T {
        let was_held = self.store.get(id).is_some_and(Entry::is_held);
        let done = act(self);
        if was_held && self.store.get(id).is_some_and(|entry| !entry.is_held()) {
            self.feed.on_dropped(self.store, id);
        }
        done
    }

    /// The bytes that an entry detects changes by. `parsed` is the input of its parser, which may have kept some of it.
    ///
    /// A resource that keeps none of its input is compared with a part of the whole response, which all such resources share;
    /// one that keeps slices of the input already holds a copy of its own.
    fn raw(&mut self, id: EntryId, located: &LocatedResource, parsed: Bytes) -> Raw {
        if !self.store.ty(self.response.ty).is_kept() {
            return Raw::digest(&parsed);
        }
        if !parsed.is_unique() {
            return parsed.into();
        }
        if self.response.buffer.is_none() {
            let buffer = self.store.new_buffer(self.response.envelope.message());
            self.response.buffer = buffer.map(|buffer| (buffer, Vec::new()));
        }
        // The response is too small to be shared.
        let Some((buffer, parts)) = &mut self.response.buffer else {
            return self.response.envelope.bytes(located.value).into();
        };
        parts.push(id);
        buffer.part(located.value)
    }
}

/// The cost of one step: some milliseconds of parsing; a comparison counts a sixteenth.
pub(super) const BYTES_PER_STEP: usize = 256 << 10;

/// The maximum length in bytes of the name of a resource that was not requested.
const LONGEST_PUSHED_NAME: usize = 4096;

/// The cost of an unchanged resource.
const UNCHANGED: usize = 16;

/// The cost of a resource that is rejected or removed without being parsed.
const REJECTED: usize = 64;
