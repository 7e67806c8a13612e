//! What only the incremental variant says: that there is something no longer, or never was, and in which versions things are.

use std::{collections::BTreeSet, time::Instant};

use super::{
    Engine,
    failure::no_such,
    pending_response::{Aliased, LocatedResource, PendingResponse, ResourceOp, canonical},
    selection::WILDCARD,
};
use crate::{
    cache::{Entry, Update},
    error::{Blame, Code, WatchError},
    protocol::{EntryId, GroupId, Item, ServerId, Span, SubId, TypeId},
    resource::Version,
};

impl Engine {
    /// Finds the place of a name in `removed_resources`.
    pub(super) fn locate_removed(&mut self, job: &mut PendingResponse, index: usize, name: Span) {
        let envelope = job.envelope.clone();
        match canonical(envelope.text(name)) {
            // A server that knows no `*` takes it for a name, of which it has nothing (MS4).
            Ok(name) if *name == *WILDCARD => {
                let interest = self.peer(job.server()).machine.interest(job.ty());
                job.lacks_wildcard |= interest.is_some_and(|interest| interest.wildcard);
            }
            Ok(name) => self.find_place(job, &name, LocatedResource::new(index, ResourceOp::Removed)),
            Err(invalid) => {
                job.invalid += 1;
                let place = index - envelope.len();
                job.problems.add(&format_args!("removed_resources[{place}]"), &invalid);
            }
        }
    }

    /// An element without a resource: the heartbeat of the version that is held (B2.16), an alias that was not found (B2.18),
    /// or what older servers say of what does not exist (B2.17).
    pub(super) fn locate_unset(&mut self, job: &mut PendingResponse, index: usize, item: &Item) {
        let envelope = job.envelope.clone();
        let name = match canonical(envelope.text(item.wrapper_name)) {
            Ok(name) => name,
            Err(invalid) => return job.add_nameless(index, &invalid),
        };
        let removed = LocatedResource::new(index, ResourceOp::Removed);
        if item.has_aliases {
            return job.aliased.push(Aliased { own: "".into(), found: removed });
        }
        let interest = self.peer(job.server()).machine.interest(job.ty());
        let sub = interest.and_then(|interest| interest.get(interest.find(&name)?));
        let held = sub.filter(|sub| sub.held && sub.version.as_str() == envelope.text(item.version));
        // Versions that are not told do not tell heartbeats from removals.
        let held = held.filter(|sub| !sub.version.is_empty() || item.ttl.is_some());
        let (held, id) = (held.map(|sub| sub.entry), sub.map(|sub| sub.entry));
        // What was rejected in this version is not held, and not removed either: the last good one stays.
        let rejected = id.and_then(|id| self.table.get(id)).and_then(Entry::rejected_version);
        let is_rejected = rejected.is_some_and(|version| version.as_str() == envelope.text(item.version));
        // A glob has members, but nothing of its own that could be confirmed.
        let is_held = held.is_some_and(|id| self.table.get(id).is_some_and(|entry| !entry.is_glob));
        let is_held = is_held || is_rejected;
        // Old servers know no time to live: what has one is confirmed, be it something that is not held.
        let found = match is_held || item.ttl.is_some() {
            true => {
                LocatedResource { is_wrapped: true, ..LocatedResource::new(index, ResourceOp::Heartbeat) }
            }
            false => removed,
        };
        self.find_place(job, &name, found);
        if item.ttl.is_some() {
            job.confirmed.push(Aliased { own: (*name).into(), found });
        }
    }

    /// Finds the places of the aliases in a response, as far as somebody asks for them (B2.19). They are looked for behind all names:
    /// a name belongs to the resource that has it for its own, and otherwise to the first that has it for an alias. Another one
    /// cannot have it, and only that claim is rejected (A46); an alias twice on one resource means no more than once.
    pub(super) fn locate_aliases(&mut self, job: &mut PendingResponse) {
        let envelope = job.envelope.clone();
        for Aliased { own, found } in std::mem::take(&mut job.aliased) {
            for alias in envelope.aliases(found.index as usize) {
                let Ok(alias) = canonical(envelope.text(alias)) else { continue };
                if *alias != *own {
                    self.locate_alias(job, (&own, &alias), found);
                }
            }
        }
        for Aliased { own, found } in std::mem::take(&mut job.confirmed) {
            self.find_known_aliases(job, &own, found);
        }
    }

    /// Finds the place of one alias. `own` is the name of the element; empty if there is none, so that it stands for nothing.
    fn locate_alias(
        &mut self,
        job: &mut PendingResponse,
        (own, alias): (&str, &str),
        found: LocatedResource,
    ) {
        let (server, ty) = (job.server(), job.ty());
        let Some(interest) = self.peer(server).machine.interest(ty) else { return };
        let Some(id) = interest.find(alias) else { return };
        let Some(sub) = interest.get_mut(id) else { return };
        if sub.seen == job.number {
            let first = job.located[sub.stood as usize];
            let are_removed = first.said == ResourceOp::Removed && found.said == ResourceOp::Removed;
            if first.index != found.index && !are_removed {
                job.reject_alias(alias, (&first, &found));
            }
            return;
        }
        job.of_all |= found.said != ResourceOp::Heartbeat && !sub.before_all;
        (sub.seen, sub.stood) = (job.number, job.located.len() as u32);
        job.located.push(LocatedResource { sub: Some(id), ..found });
        match own.is_empty() {
            true => interest.aliases.forget(alias),
            false => interest.aliases.note(alias, own),
        }
    }

    /// A resource came by its own name: that is no alias of another one, if it was.
    pub(super) fn note_own_name(&mut self, job: &PendingResponse, name: &str) {
        let interest = self.peer(job.server()).machine.interest(job.ty);
        if let Some(interest) = interest.filter(|interest| !interest.aliases.is_empty()) {
            interest.aliases.forget(name);
        }
    }

    /// What is removed by its own name is so for those as well who ask for it by another. They are looked for behind all
    /// others, since the response may say what else they stand for.
    pub(super) fn locate_removed_aliases(&mut self, job: &mut PendingResponse) {
        let interest = self.peer(job.server()).machine.interest(job.ty);
        if interest.is_none_or(|interest| interest.aliases.is_empty()) {
            return;
        }
        let envelope = job.envelope.clone();
        for (place, name) in envelope.removed().iter().enumerate() {
            let Ok(name) = canonical(envelope.text(*name)) else { continue };
            self.find_known_aliases(
                job,
                &name,
                LocatedResource::new(envelope.len() + place, ResourceOp::Removed),
            );
        }
    }

    /// Finds the places of the names that a resource came for before, unless the response has spoken of them.
    fn find_known_aliases(&mut self, job: &mut PendingResponse, own: &str, found: LocatedResource) {
        let Some(interest) = self.peer(job.server()).machine.interest(job.ty) else { return };
        let subs: Vec<_> = interest.aliases.of(own).filter_map(|alias| interest.find(alias)).collect();
        for id in subs {
            let Some(sub) = interest.get_mut(id).filter(|sub| sub.seen != job.number) else { continue };
            (sub.seen, sub.stood) = (job.number, job.located.len() as u32);
            job.located.push(LocatedResource { sub: Some(id), ..found });
        }
    }

    /// There is no such resource (any more): known at once, without a timer (B2.14). Returns what it cost.
    pub(super) fn apply_removed(&mut self, job: &mut PendingResponse, id: SubId, now: Instant) -> usize {
        let (server, ty) = (job.server(), job.ty());
        let peer = self.peer(server);
        let policy = peer.policy;
        let Some(sub) = peer.machine.interest(ty).and_then(|interest| interest.get_mut(id)) else { return 1 };
        sub.version = Version::default();
        let entry_id = sub.entry;
        // It may be said because it was not wanted for a while (GO12).
        if !self.peer(server).machine.is_gone(ty, id, now) {
            return 1;
        }
        let counts = self.table.get(entry_id).is_some_and(|entry| self.active_for(entry) == server);
        if let Some(sub) = self.peer(server).machine.interest(ty).and_then(|interest| interest.get_mut(id)) {
            sub.on_answered();
            // It matters when the server takes over.
            sub.missed = !counts;
        }
        let Some(entry) = self.table.get(entry_id).filter(|_| counts) else { return 1 };
        let uri = self.servers[server].machine.source();
        let message = match entry.is_held() {
            true => format!("xDS server {uri} has deleted it"),
            false => no_such(uri),
        };
        let error = WatchError::new(Code::NotFound, Blame::Peer, self.subject(entry), message);
        self.tell(entry_id, |entry| entry.on_removed(error, policy, job.update()));
        self.dismiss(entry_id);
        64
    }

    /// Remembers what a server calls the state of a resource that is held now. What other servers called theirs does not
    /// matter any more.
    pub(super) fn note_version(&mut self, job: &PendingResponse, id: EntryId, version: &Version) {
        let is_delta = job.envelope.is_delta();
        // Most resources have one place, and in the state of the world that needs no version.
        let Some(entry) = self.table.get(id).filter(|entry| is_delta || entry.places.are_several()) else {
            return;
        };
        for (server, place) in entry.places.iter() {
            let interest = self.servers[server].machine.interest(entry.ty);
            if let Some(sub) = interest.and_then(|interest| interest.get_mut(place)) {
                let of_this = server == job.server() && is_delta;
                sub.is_own = of_this;
                sub.version = if of_this { version.clone() } else { Version::default() };
            }
        }
    }

    /// Another server takes over, so that those above it have to send everything when they are back: that is how they
    /// are known to be. One that was told versions, but has not answered yet, may have nothing to say to them, and is asked
    /// anew on another stream.
    pub(super) fn forget_versions(&mut self, group: GroupId, now: Instant) {
        let types: Vec<_> = self.types_wanted_whole(group);
        let Self { table, servers, groups, .. } = self;
        let mut types: BTreeSet<_> = types.into_iter().collect();
        let mut told = BTreeSet::new();
        for (_, entry) in table.iter().filter(|(_, entry)| entry.group == group) {
            types.insert(entry.ty);
            for (server, place) in entry.places.iter() {
                let machine = &mut servers[server].machine;
                if machine.take_back_version(entry.ty, place) {
                    told.insert(server);
                }
            }
        }
        for server in &groups.get(group).open {
            let machine = &mut servers[*server].machine;
            // All of them, whether or not one was told.
            if types.iter().filter(|ty| machine.forget_type_version(**ty)).count() > 0 {
                told.insert(*server);
            }
        }
        for server in told {
            self.peer(server).machine.reopen("resubscribing to detect recovery of the primary", now);
            self.settle(server, now);
        }
    }

    /// A server was quiet for a while. What was held since an earlier stream, in a version that the server was not told, and
    /// was not sent again, is gone; and nothing is missing from what it has said when it was asked for everything.
    pub(super) fn on_quiet(&mut self, server: ServerId, ty: TypeId, now: Instant) {
        if let Some(interest) = self.peer(server).machine.interest(ty).filter(|interest| !interest.told_all) {
            interest.told_all = interest.wildcard && interest.sends_all;
            if interest.told_all {
                self.complete_all(server, ty);
            }
        }
        let update = Update { version: Version::default(), at: now };
        self.on_missed((server, ty), "did not send it again", (&update, now));
    }
}
