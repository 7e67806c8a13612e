use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Instant};

use bytes::Bytes;
use tracing::trace;

use super::{
    Engine, Peer,
    members::{By, Which},
    pending_response::{Aliased, LocatedResource, PendingResponse, ResourceOp, Stage, name_of},
    selection::WILDCARD,
};
use crate::{
    cache::{Entry, News, Redirect, Update},
    error::{Blame, Code, WatchError, short_type},
    name::ResourceName,
    protocol::{
        Body, Digests, EntryId, Envelope, GroupId, ResponseOutcome, ServerId, Span, SubId, TypeId, Unusable,
    },
    resource::{Erased, Version},
};

impl Engine {
    /// Works on the oldest response for a while.
    pub(crate) fn work(&mut self, now: Instant) {
        let Some(mut job) = self.jobs.pop_front() else { return };
        if job.number == 0 {
            self.work.responses += 1;
            job.number = self.work.responses;
            job.span = self.span_of(&job);
            self.expect_order(&job);
        }
        let _within = job.span.clone().entered();
        match job.stage {
            Stage::Locate(from) => {
                self.locate(&mut job, from);
                if job.stage == Stage::Apply(0) {
                    for group in self.returning(&mut job) {
                        self.take_over(group, job.server(), job.number, now);
                    }
                }
            }
            Stage::Apply(from) => self.apply(&mut job, from, now),
            Stage::Finish => {}
        }
        if job.stage != Stage::Finish {
            self.jobs.push_front(job);
            return;
        }
        if !job.duplicate {
            self.apply_errors(&mut job);
            self.apply_absence(&mut job, now);
            self.complete(&job);
        }
        self.conclude(job, now);
    }

    /// Reads the names of some resources, and finds their places.
    fn locate(&mut self, job: &mut PendingResponse, from: usize) {
        let envelope = job.envelope.clone();
        let all = envelope.len() + envelope.removed().len();
        let to = all.min(from + NAMES_PER_STEP);
        let mut index = self.locate_unchanged(job, from, to);
        while index < to {
            match index.checked_sub(envelope.len()) {
                None => self.locate_item(job, index, &envelope),
                Some(removed) => self.locate_removed(job, index, envelope.removed()[removed]),
            }
            index = self.locate_unchanged(job, index + 1, to);
        }
        if to == all {
            self.locate_aliases(job);
            self.locate_removed_aliases(job);
        }
        job.stage = match to == all {
            true if job.duplicate => Stage::Finish,
            true => Stage::Apply(0),
            false => Stage::Locate(to),
        };
    }

    fn locate_item(&mut self, job: &mut PendingResponse, index: usize, envelope: &Envelope) {
        let item = envelope.item(index);
        let (value, said) = match item.body {
            Body::Resource(value) => (value, ResourceOp::Resource),
            // There is no name in it.
            Body::Redirect(_) if item.wrapper_name.is_empty() => {
                return job.add_nameless(index, &"a redirect without a name");
            }
            Body::Redirect(value) => (value, ResourceOp::Redirect),
            Body::Unset if envelope.is_delta() => return self.locate_unset(job, index, &item),
            Body::Unset => {
                job.heartbeats += 1;
                (Span::default(), ResourceOp::Heartbeat)
            }
            Body::Unusable(unusable) => {
                return job.add_nameless(index, &unusable_reason(unusable, envelope));
            }
        };
        let found =
            LocatedResource { value, is_wrapped: item.is_wrapped, ..LocatedResource::new(index, said) };
        match name_of(self.types[job.ty.index()], envelope, (item.wrapper_name, value)) {
            // On the wire that name would stand for all resources. Other resources that are missing are missing still.
            Ok(name) if *name == *WILDCARD => {
                job.invalid += 1;
                job.problems
                    .add(&format_args!("resources[{index}].name"), &"`*` is the wildcard and not a name");
            }
            Ok(name) => {
                self.find_place(job, &name, found);
                if envelope.is_delta() {
                    self.note_own_name(job, &name);
                }
                if item.has_aliases {
                    job.aliased.push(Aliased { own: (*name).into(), found });
                }
            }
            Err(invalid) => job.add_nameless(index, &invalid),
        }
    }

    /// Finds the place of a name that a response speaks of, and notes what is said of it.
    pub(super) fn find_place(&mut self, job: &mut PendingResponse, name: &str, found: LocatedResource) {
        let Peer { machine, types, .. } = &mut self.servers[job.stream.server];
        let order = types.get(job.ty.index()).map_or(&[][..], |known| &known.order);
        let Some(interest) = machine.interest(job.ty) else { return };
        let is_it = |sub: &SubId| interest.get(*sub).is_some_and(|sub| *sub.name == *name);
        let guessed = job.guess.next(order).filter(is_it);
        let sub = guessed.or_else(|| interest.find(name));
        let twice = match sub.and_then(|id| Some((id, interest.get_mut(id)?))) {
            Some((id, sub)) => {
                match guessed {
                    Some(_) => job.guess.on_right(),
                    None => job.guess.on_found(id, sub.stood, order),
                }
                sub.stood = job.located.len() as u32;
                std::mem::replace(&mut sub.seen, job.number) == job.number
            }
            None => {
                job.unknown.is_seen(name, found.index as usize, &job.envelope, self.types[job.ty.index()])
            }
        };
        if twice {
            job.duplicate = true;
            job.invalid += 1;
            job.problems.add(&format_args!("{name:?}"), &"the name is in the response twice");
        }
        let known = sub.and_then(|sub| interest.get(sub));
        job.of_all |= found.said != ResourceOp::Heartbeat && known.is_none_or(|sub| !sub.before_all);
        job.located.push(LocatedResource { sub, ..found });
    }

    /// The groups that use a lower server at the moment, and find in a response what they want.
    fn returning(&mut self, job: &mut PendingResponse) -> BTreeSet<GroupId> {
        let server = job.server();
        if !self.groups.is_higher(server) {
            return BTreeSet::new();
        }
        let all = self.wildcard_group(server, job.ty);
        let Self { groups, servers, table, .. } = self;
        let Some(interest) = servers[server].machine.interest(job.ty) else {
            return BTreeSet::new();
        };
        let all = all.filter(|_| interest.takes_all());
        let wants = |located: &LocatedResource| match located.sub.and_then(|sub| interest.get(sub)) {
            Some(sub) => table.get(sub.entry).map(|entry| entry.group),
            None => all,
        };
        let wanting = job.located.iter().filter(|located| located.said.is_there()).filter_map(wants);
        let mut found: BTreeSet<_> = wanting.filter(|group| groups.get(*group).is_higher(server)).collect();
        if self.may_have_members(job.ty) {
            found.extend(self.returning_members(job));
        }
        found
    }

    /// The same of those that find new members of their globs.
    fn returning_members(&mut self, job: &mut PendingResponse) -> BTreeSet<GroupId> {
        let mut found = BTreeSet::new();
        for next in 0..job.located.len() {
            let Some(name) = self.unknown_name(job, next) else { continue };
            let glob = self.enclosing(job, &name).and_then(|glob| self.table.get(glob));
            found.extend(
                glob.map(|glob| glob.group).filter(|group| self.groups.get(*group).is_higher(job.server())),
            );
        }
        found
    }

    /// The name of a resource that nobody asked for by that.
    fn unknown_name(&self, job: &PendingResponse, next: usize) -> Option<Arc<str>> {
        let LocatedResource { value, index, said, sub, .. } = job.located[next];
        if sub.is_some() || !said.is_there() {
            return None;
        }
        let wrapper_name = job.envelope.item(index as usize).wrapper_name;
        name_of(self.types[job.ty.index()], &job.envelope, (wrapper_name, value)).ok().map(Into::into)
    }

    /// Takes over some resources.
    fn apply(&mut self, job: &mut PendingResponse, from: usize, now: Instant) {
        let mut spent = 0;
        let mut next = from;
        while next < job.located.len() && spent < BYTES_PER_STEP {
            let until = job.located.len().min(next + (BYTES_PER_STEP - spent) / UNCHANGED);
            let quick = self.apply_unchanged(job, next, until);
            spent += (quick - next) * UNCHANGED;
            next = quick;
            let Some(located) = job.located.get(next).copied() else { break };
            spent += match located.sub {
                // It may have gone between two steps, and another one may have taken its place.
                Some(sub) if !self.is_there(job, sub) => 1,
                Some(sub) => match located.said {
                    ResourceOp::Resource | ResourceOp::Redirect => self.apply_to(job, sub, located),
                    ResourceOp::Same => self.apply_to(job, sub, job.again(located)),
                    ResourceOp::Removed => self.apply_removed(job, sub, now),
                    ResourceOp::Heartbeat => self.apply_heartbeat(job, sub, (located, now)),
                },
                None => match located.said {
                    ResourceOp::Resource | ResourceOp::Redirect => self.apply_unknown(job, next, located),
                    ResourceOp::Heartbeat => self.apply_unknown_heartbeat(job, next, now),
                    // What nobody has cannot be removed (B2.13).
                    ResourceOp::Removed | ResourceOp::Same => 1,
                },
            };
            next += 1;
        }
        job.stage = if next == job.located.len() { Stage::Finish } else { Stage::Apply(next) };
    }

    fn is_there(&mut self, job: &PendingResponse, sub: SubId) -> bool {
        let interest = self.peer(job.server()).machine.interest(job.ty);
        interest.and_then(|interest| interest.get(sub)).is_some_and(|sub| sub.seen == job.number)
    }

    /// Takes over a resource that somebody asked for, or that is a member already. Returns what it cost, in bytes parsed.
    fn apply_to(&mut self, job: &mut PendingResponse, place: SubId, located: LocatedResource) -> usize {
        let peer = &mut self.servers[job.stream.server];
        let Some(interest) = peer.machine.interest(job.ty) else { return 1 };
        let wildcard = interest.takes_all();
        // It may have gone between two steps.
        let Some(sub) = interest.get_mut(place).filter(|sub| sub.seen == job.number) else { return 1 };
        sub.on_answered();
        let joins_all = wildcard && !std::mem::replace(&mut sub.member, wildcard);
        let id = sub.entry;
        let update = job.update_of(&located, &sub.version);
        let joins_glob = self.on_member(job, place);
        if !self.counts(id, job.server()) {
            self.publish_if(id, false, joins_all);
            return 1;
        }
        for (_, by) in
            [(joins_all, By::Wildcard), (joins_glob, By::Glob)].into_iter().filter(|(joins, _)| *joins)
        {
            self.join_higher(id, by, job.since());
        }
        let joins = joins_all || joins_glob;
        let Some(entry) = self.table.get(id).filter(|entry| !entry.is_glob) else { return 1 };
        let bytes = job.envelope.bytes(located.value);
        let is_redirect = located.said == ResourceOp::Redirect;
        let is_same = entry.raw().is_some_and(|held| **held == *bytes);
        if is_same && entry.redirect().is_some() == is_redirect {
            self.work.unchanged += 1;
            job.valid += 1;
            let changed = self.give_news(id, |entry| entry.on_unchanged(&update.version, update.at));
            self.note_version(job, id, &update.version);
            self.set_ttl(id, update.at, job.ttl_of(&located));
            self.publish_if(id, changed, joins);
            return bytes.len() / 16 + 16;
        }
        let cost = bytes.len() + 64;
        let changed = self.parse(job, (id, located), update);
        self.publish_if(id, changed, joins);
        cost
    }

    /// Takes over a resource that nobody asked for by name: a new member, or nothing of ours (B0.12).
    fn apply_unknown(&mut self, job: &mut PendingResponse, next: usize, located: LocatedResource) -> usize {
        let Some(group) = self.group_of_unknown(job, next) else {
            trace!(resource = located.index, "resource without subscription skipped");
            self.servers[job.stream.server].machine.on_skipped((job.stream, job.ty));
            return 1;
        };
        let Some(name) = self.unknown_name(job, next) else { return 1 };
        let server = job.server();
        let id = self.entry_for((group, job.ty), name);
        let Some(sub) = self.place(id, server) else { return 1 };
        if let Some(sub) =
            self.peer(server).machine.interest(job.ty).and_then(|interest| interest.get_mut(sub))
        {
            (sub.seen, sub.stood) = (job.number, next as u32);
        }
        job.located[next].sub = Some(sub);
        self.apply_to(job, sub, located)
    }

    /// The servers of the wildcard or glob that a resource without a place is a member of.
    fn group_of_unknown(&mut self, job: &mut PendingResponse, next: usize) -> Option<GroupId> {
        let server = job.server();
        let takes_all =
            self.peer(server).machine.interest(job.ty).is_some_and(|interest| interest.takes_all());
        let mut group = if takes_all { self.wildcard_group(server, job.ty) } else { None };
        if group.is_none() && self.may_have_members(job.ty) {
            let name = self.unknown_name(job, next)?;
            let glob = self.enclosing(job, &name)?;
            group = self.table.get(glob).map(|glob| glob.group);
        }
        group.filter(|group| self.groups.get(*group).active() == server)
    }

    /// Parses a resource that differs from what is held. True when there is something new to see.
    fn parse(
        &mut self,
        job: &mut PendingResponse,
        (id, located): (EntryId, LocatedResource),
        update: Update,
    ) -> bool {
        self.work.parsed += 1;
        let Some(name) = self.table.get(id).map(|entry| entry.name.clone()) else { return false };
        let ty = self.types[job.ty.index()];
        let peer = &self.servers[job.stream.server];
        let (policy, trusted) = (peer.policy, peer.machine.source().features().trusted_xds_server);
        let cx = self.context(trusted).with_name(&name).with_ttl(job.ttl_of(&located));
        let bytes = Bytes::copy_from_slice(job.envelope.bytes(located.value));
        let parsed = match located.said {
            ResourceOp::Redirect => Redirect::parse(&bytes, ty).map(|redirect| Arc::new(redirect) as Erased),
            ResourceOp::Resource | ResourceOp::Same | ResourceOp::Removed | ResourceOp::Heartbeat => {
                ty.parse(&bytes, &cx)
            }
        };
        let changed = match parsed {
            Ok(resource) => {
                job.valid += 1;
                self.note_version(job, id, &update.version);
                self.set_ttl(id, update.at, job.ttl_of(&located));
                let raw = self.raw(job, (id, &located), bytes).with_bare(job.is_bare(&located));
                self.give_news(id, |entry| entry.on_accepted(resource, raw, update))
            }
            Err(invalid) => {
                let Some(about) = self.table.get(id).map(|entry| self.subject(entry)) else { return false };
                job.invalid += 1;
                job.problems.add(&format_args!("{} {:?}", short_type(about.type_url), about.name), &invalid);
                let error = WatchError::rejected(about, invalid);
                self.note_dropped(id, |engine| {
                    engine.give_news(id, |entry| entry.on_rejected(error, policy, update))
                })
            }
        };
        self.note_held(id);
        changed
    }

    /// Takes over what the server says of resources that it does not send (TP3).
    fn apply_errors(&mut self, job: &mut PendingResponse) {
        let errors: Vec<_> = job.envelope.errors().collect();
        for (index, error) in errors.into_iter().enumerate() {
            let place = format_args!("resource_errors[{index}]");
            let error = match error {
                Err(malformed) => {
                    job.problems.add(&place, &malformed);
                    continue;
                }
                Ok(error) if error.name.is_empty() => {
                    job.problems.add(&place, &"resource_name: unset");
                    continue;
                }
                Ok(error) if error.code == 0 => {
                    job.problems.add(&place, &"error_detail: must be non-OK");
                    continue;
                }
                Ok(error) => error,
            };
            let name = job.envelope.text(error.name);
            let name = ResourceName::canonicalize(name).unwrap_or(Cow::Borrowed(name));
            let peer = &mut self.servers[job.stream.server];
            let policy = peer.policy;
            let Some(interest) = peer.machine.interest(job.ty) else { continue };
            let Some(sub) = interest.find(&name).and_then(|sub| interest.get_mut(sub)) else { continue };
            sub.seen = job.number;
            sub.on_answered();
            // That the trouble is over is seen by its being sent again, so the next stream asks for that.
            sub.version = Version::default();
            let id = sub.entry;
            peer.machine.on_dropped(job.ty);
            self.forget_member_versions(id, job.server());
            let Some(entry) = self.table.get(id).filter(|entry| self.active_for(entry) == job.server())
            else {
                continue;
            };
            let code = Code::from_i32(error.code);
            let data = matches!(code, Code::NotFound | Code::PermissionDenied).then_some(policy);
            let error =
                WatchError::new(code, Blame::Peer, self.subject(entry), job.envelope.text(error.message));
            self.note_dropped(id, |engine| {
                engine.tell(id, |entry| entry.on_server_error(error, data, job.update()));
            });
        }
    }

    /// Does something that may end in a resource not being held any more which the server takes to be held.
    fn note_dropped<T>(&mut self, id: EntryId, act: impl FnOnce(&mut Self) -> T) -> T {
        let was_held = self.table.get(id).is_some_and(Entry::is_held);
        let done = act(self);
        if let Some(entry) = self.table.get(id).filter(|entry| was_held && !entry.is_held()) {
            for (server, _) in entry.places.iter() {
                self.servers[server].machine.on_dropped(entry.ty);
            }
        }
        done
    }

    /// The server has told all it has of a type that is wanted as a whole.
    fn complete(&mut self, job: &PendingResponse) {
        let server = job.server();
        let Some(interest) = self.peer(server).machine.interest(job.ty) else { return };
        if job.lacks_wildcard {
            return self.collections_answered(server, job.ty);
        }
        let told_before = interest.told_all && job.envelope.is_delta();
        // Also while the end of the wildcard is not written: it may be wanted again before.
        interest.told_all = interest.takes_all() && interest.sends_all && (told_before || job.tells_all());
        let undecided = interest.wildcard && interest.sends_all;
        let told_all = undecided && interest.told_all;
        self.collections_answered(server, job.ty);
        if told_all {
            self.complete_all(server, job.ty);
        } else if undecided {
            // It may be all, and may be not: known when nothing follows.
            self.peer(server).machine.await_quiet(job.ty, job.since());
        }
    }

    /// A server has told all it has of a type.
    pub(super) fn complete_all(&mut self, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                self.collections.complete(&(group, ty, Which::All));
            }
        }
    }

    fn conclude(&mut self, mut job: PendingResponse, now: Instant) {
        let server = job.stream.server;
        self.settle_origin(&mut job);
        self.note_updates(&job);
        let is_outdated = job.outdated && job.is_heartbeat();
        let digests = match job.problems.text.is_empty() {
            true => Digests::default(),
            false => Digests::of(&job.envelope),
        };
        let verdict = ResponseOutcome {
            ty: job.ty,
            stream: job.stream,
            nonce: job.envelope.nonce().to_owned(),
            version: job.version,
            error: job.problems.cut(),
            digests,
            is_outdated,
        };
        let peer = self.peer(server);
        if !job.duplicate {
            peer.of_type(job.ty).order =
                job.located.iter().map(|located| located.sub.unwrap_or(NOWHERE)).collect();
        }
        peer.machine.conclude(verdict, now);
        if job.lacks_wildcard {
            peer.machine.ask_for_all_on_another_stream(job.ty, now);
        }
        self.settle(server, now);
    }

    /// Tells news of a resource, and publishes them if there are any.
    pub(super) fn tell(&mut self, id: EntryId, news: impl FnOnce(&mut Entry) -> News) {
        let changed = self.give_news(id, news);
        self.note_held(id);
        if changed {
            self.publish(id);
        }
    }
}

fn unusable_reason(unusable: Unusable, envelope: &Envelope) -> String {
    match unusable {
        Unusable::Malformed(malformed) => format!("not a valid message: {malformed}"),
        Unusable::WrongType(span) => {
            format!("of type {:?} in a response of type {:?}", envelope.text(span), envelope.type_url())
        }
    }
}

/// How many names are read in one step: some milliseconds.
const NAMES_PER_STEP: usize = 16_384;

/// How much is parsed in one step, likewise; what is only compared counts a sixteenth.
const BYTES_PER_STEP: usize = 256 << 10;

/// What it counts to take over something unchanged.
const UNCHANGED: usize = 16;

/// A place that no subscription has.
const NOWHERE: SubId = SubId(u32::MAX);
