//! Globs: on the wire one more name that is asked for; what comes under names that it matches are its members (X15 to
//! X19).
//!
//! A glob has an entry of its own, which says how it fares as a whole: nothing is known (`Waiting`), the server has sent a
//! member (`Held`, of nothing), or there is no such collection (`Gone`). A name has at most one glob that encloses it, so
//! whether a resource is a member is one bit of its place at a server.

use std::{sync::Arc, time::Instant};

use super::{
    Engine,
    members::{By, Collection, Key, Which},
    pending_response::PendingResponse,
};
use crate::{
    cache::Update,
    name::glob_of,
    protocol::{EntryId, ServerId, SubId, Subscription, TypeId},
    resource::Version,
};

/// The glob that matched last: the names of a response mostly have the same one.
#[derive(Debug)]
pub(super) struct Glob {
    prefix: String,
    params: String,
    sub: SubId,
    entry: EntryId,
    /// It was noted that the response speaks of it.
    answered: bool,
    /// It is to be requested once more.
    asked_again: bool,
}

impl Glob {
    fn new(name: &str, sub: SubId, entry: EntryId) -> Option<Self> {
        let (path, params) = name.split_at(name.find('?').unwrap_or(name.len()));
        let prefix = path.strip_suffix('*')?.to_owned();
        Some(Self { prefix, params: params.to_owned(), sub, entry, answered: false, asked_again: false })
    }

    /// Whether a canonical name is a member: one segment in the place of `*`, all else equal (X16).
    fn matches(&self, name: &str) -> bool {
        let member = name.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.params));
        member.is_some_and(|member| !matches!(member, "" | "*") && !member.contains(['/', '?']))
    }
}

impl Engine {
    /// An entry is that of a glob, which somebody watches. What is known of it is not published before its servers are asked.
    pub(super) fn begin_glob(&mut self, id: EntryId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.is_glob = true;
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        self.collections.begin(key.clone(), || Collection { entry: Some(id), ..Collection::default() });
        self.collections.filling = Some(key);
    }

    /// The glob at a server that a resource which came from there is a member of. What is found is kept in the job.
    pub(super) fn enclosing(&mut self, job: &mut PendingResponse, name: &str) -> Option<EntryId> {
        if !self.collections.has_globs() || !name.starts_with("xdstp:") {
            return None;
        }
        if !job.glob.as_ref().is_some_and(|glob| glob.matches(name)) {
            let glob = glob_of(name)?;
            let interest = self.peer(job.server()).machine.interest(job.ty())?;
            let sub = interest.find(&glob)?;
            let entry = interest.get(sub)?.entry;
            if !self.table.get(entry).is_some_and(|entry| entry.is_glob) {
                return None;
            }
            job.glob = Glob::new(&glob, sub, entry);
        }
        job.glob.as_ref().map(|glob| glob.entry)
    }

    /// Takes note that a response speaks of a glob: some of its members. True when the resource is a new member.
    pub(super) fn on_member(&mut self, job: &mut PendingResponse, id: SubId) -> bool {
        if !self.collections.has_globs() {
            return false;
        }
        let server = job.server();
        let interest = self.peer(server).machine.interest(job.ty());
        let Some(name) = interest.and_then(|interest| interest.get(id)).map(|sub| sub.name.clone()) else {
            return false;
        };
        if self.enclosing(job, &name).is_none() {
            return false;
        }
        self.on_glob_answered(job);
        let interest = self.peer(server).machine.interest(job.ty());
        let sub = interest.and_then(|interest| interest.get_mut(id));
        sub.is_some_and(|sub| !std::mem::replace(&mut sub.of_glob, true))
    }

    /// The server confirms a member of a glob that has expired: the glob is requested once more, since its members are not.
    pub(super) fn ask_glob_again(&mut self, job: &mut PendingResponse, name: &str, now: Instant) {
        if !self.enclosing(job, name).is_some_and(|glob| self.counts(glob, job.server())) {
            return;
        }
        job.outdated = true;
        if let Some(glob) = job.glob.as_mut().filter(|glob| !glob.asked_again) {
            glob.asked_again = true;
            let (ty, sub) = (job.ty, glob.sub);
            self.peer(job.server()).machine.ask_again(ty, sub, now);
        }
    }

    /// The server has sent something of a glob, so there is such a collection.
    fn on_glob_answered(&mut self, job: &mut PendingResponse) {
        let Some(glob) = job.glob.as_mut().filter(|glob| !glob.answered) else { return };
        glob.answered = true;
        let (sub, entry) = (glob.sub, glob.entry);
        let interest = self.peer(job.server()).machine.interest(job.ty());
        let Some(sub) = interest.and_then(|interest| interest.get_mut(sub)) else { return };
        sub.seen = job.number;
        sub.on_answered();
        if !self.counts(entry, job.server()) {
            return;
        }
        let nothing = Arc::new(());
        self.tell(entry, |entry| match entry.is_held() {
            true => entry.on_unchanged(&job.version, job.since()),
            false => entry.on_accepted(nothing, [][..].into(), job.update()),
        });
    }

    /// The server had its time to send something of a glob. If members are known already, there was nothing to send. True
    /// when that is all that there is to be said.
    pub(super) fn is_glob_known(&mut self, id: EntryId, now: Instant) -> bool {
        let Some(entry) = self.table.get(id).filter(|entry| entry.is_glob && entry.is_waiting()) else {
            return false;
        };
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        if self.collections.get(&key).is_none_or(|collection| collection.members.is_empty()) {
            return false;
        }
        let update = Update { version: Version::default(), at: now };
        self.tell(id, |entry| entry.on_accepted(Arc::new(()), [][..].into(), update));
        true
    }

    /// Something has changed about a glob as a whole.
    pub(super) fn publish_glob(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id) else { return };
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        let (is_held, is_waiting) = (entry.is_held(), entry.is_waiting());
        let servers: Vec<_> = entry.places.iter().map(|(server, _)| server).collect();
        if !is_waiting {
            self.collections.complete(&key);
            if !is_held {
                // There is no such collection any more, and so it has no members.
                servers.into_iter().for_each(|server| self.release_members(id, server));
                self.collections.clear(&key);
            }
        }
        self.collections.touch(&key);
    }

    /// Publishes a glob to who has just come, if there is anything to see.
    pub(super) fn publish_glob_to(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id) else { return };
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        let known = |glob: &Collection| !glob.members.is_empty() || glob.complete;
        let is_known = !entry.is_waiting() || self.collections.get(&key).is_some_and(known);
        if is_known || self.groups.get(entry.group).trouble.is_some() {
            self.collections.touch(&key);
            self.flush();
        }
    }

    /// The members that a server has sent are members no longer, and forgotten unless something else asks for them.
    pub(super) fn release_members(&mut self, id: EntryId, server: ServerId) {
        let Some(entry) = self.table.get(id) else { return };
        let (ty, glob) = (entry.ty, Glob::new(&entry.name, SubId(0), id));
        let (Some(glob), Some(interest)) = (glob, self.peer(server).machine.interest(ty)) else { return };
        let mut members = Vec::new();
        for (id, sub) in interest.iter_mut().filter(|(_, sub)| sub.of_glob && glob.matches(&sub.name)) {
            sub.of_glob = false;
            members.push(id);
        }
        self.peer(server).machine.release(ty, &members);
    }

    /// A glob is asked for at one more server: what others have sent of it has a place there, too, so that its absence is
    /// seen.
    pub(super) fn join_members(&mut self, id: EntryId, server: ServerId, now: Instant) {
        let Some(entry) = self.table.get(id) else { return };
        let (group, ty, glob) = (entry.group, entry.ty, Glob::new(&entry.name, SubId(0), id));
        let Some(glob) = glob else { return };
        let active = self.groups.get(group).active();
        // The lowest server may have been opened just now, and then the one above it knows the members.
        let above = self.groups.get(group).open.iter().rev().nth(1).copied();
        if let Some(other) = if server == active { above } else { Some(active) } {
            for member in self.members_at(other, ty, &glob, |sub| sub.of_glob) {
                self.join(member, server, By::Glob, now);
            }
        }
        // What a server has sent by name it need not send again when it is asked for a glob (B2.20): it counts as a member
        // until the server says otherwise.
        if server == active && self.peer(server).machine.is_delta() {
            for member in self.members_at(active, ty, &glob, |sub| sub.has_version() && !sub.of_glob) {
                self.join(member, server, By::Glob, now);
                self.join_higher(member, By::Glob, now);
                self.publish_if(member, false, true);
            }
        }
    }

    fn members_at(
        &mut self,
        server: ServerId,
        ty: TypeId,
        glob: &Glob,
        is_meant: impl Fn(&Subscription) -> bool,
    ) -> Vec<EntryId> {
        let Some(interest) = self.peer(server).machine.interest(ty) else { return Vec::new() };
        let members = interest.iter().filter(|(_, sub)| is_meant(sub) && glob.matches(&sub.name));
        members.map(|(_, sub)| sub.entry).collect()
    }

    /// The server does not give a glob. That the trouble is over is seen by its members being sent again, so the next
    /// stream asks for them all.
    pub(super) fn forget_member_versions(&mut self, id: EntryId, server: ServerId) {
        let Some(entry) = self.table.get(id).filter(|entry| entry.is_glob) else { return };
        let (ty, glob) = (entry.ty, Glob::new(&entry.name, SubId(0), id));
        let (Some(glob), Some(interest)) = (glob, self.peer(server).machine.interest(ty)) else { return };
        for (_, sub) in interest.iter_mut().filter(|(_, sub)| sub.of_glob && glob.matches(&sub.name)) {
            sub.version = Version::default();
        }
    }

    /// The collection of the glob that encloses a resource's name, if there is one.
    pub(super) fn glob_key(&mut self, id: EntryId) -> Option<Key> {
        let entry = self.table.get(id).filter(|_| self.collections.has_globs())?;
        let (ty, active, glob) = (entry.ty, self.active_for(entry), glob_of(&entry.name)?);
        let interest = self.peer(active).machine.interest(ty)?;
        let glob = interest.get(interest.find(&glob)?)?.entry;
        let glob = self.table.get(glob).filter(|entry| entry.is_glob)?;
        Some((glob.group, ty, Which::Glob(glob.name.clone())))
    }

    /// Whether a response may hold new members of a type's globs.
    pub(super) fn may_have_members(&self, ty: TypeId) -> bool {
        self.collections.has_globs()
            && self
                .collections
                .iter()
                .any(|((_, other, which), _)| *other == ty && matches!(which, Which::Glob(_)))
    }
}
