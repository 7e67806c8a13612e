use std::{mem, sync::Arc, time::Instant};

use imbl::OrdMap;

use super::{Engine, Refusal, View};
use crate::{
    error::Subject,
    observed::{ErasedMembers, Member},
    protocol::{EntryId, GroupId, Output, ServerId, TypeId, ViewId},
    resource::Erased,
};

/// Everything that the server of a group has of one type: the members of a wildcard.
#[derive(Debug, Default)]
pub(crate) struct All {
    pub(super) views: Vec<ViewId>,
    members: OrdMap<Arc<str>, Member>,
    pub(super) complete: bool,
    /// There is something to publish.
    touched: bool,
}

impl All {
    pub(crate) fn insert(&mut self, name: Arc<str>, observed: Erased) {
        self.members.insert(name, Member(observed));
        self.touched = true;
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.touched |= self.members.remove(name).is_some();
    }

    /// The server has told all it has.
    pub(crate) fn complete(&mut self) {
        self.touched |= !mem::replace(&mut self.complete, true);
    }

    /// Something else is to be published with it.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }
}

impl Engine {
    pub(super) fn subscribe_all(&mut self, view: ViewId, ty: TypeId, now: Instant) -> Result<View, Refusal> {
        let group = self.default_group(now)?;
        if !self.alls.contains_key(&(group, ty)) {
            let members = self.members_of(group, ty);
            self.alls.insert((group, ty), All { members, ..All::default() });
        }
        self.groups.get_mut(group).views += 1;
        if let Some(all) = self.alls.get_mut(&(group, ty)) {
            all.views.push(view);
        }
        for server in self.groups.get(group).open.clone() {
            self.ask_all_at((group, ty), server, now);
            self.settle(server, now);
        }
        self.fall_back(group, now);
        self.judge(group);
        let failed = self.groups.get(group).trouble.is_some();
        if let Some(all) = self.alls.get_mut(&(group, ty)) {
            all.touched |= !all.members.is_empty() || all.complete || failed;
        }
        self.flush();
        Ok(View::All(group, ty))
    }

    pub(super) fn unsubscribe_all(&mut self, view: ViewId, (group, ty): (GroupId, TypeId), now: Instant) {
        let Some(all) = self.alls.get_mut(&(group, ty)) else { return };
        all.views.retain(|other| *other != view);
        let last = all.views.is_empty();
        for server in self.groups.get(group).open.clone().into_iter().filter(|_| last) {
            self.peer(server).machine.unsubscribe_all(ty, now);
            self.settle(server, now);
        }
        self.groups.get_mut(group).views -= 1;
    }

    /// Asks one server for everything of a type. What others sent has a place there, too, so that its absence is seen.
    pub(super) fn ask_all_at(&mut self, (group, ty): (GroupId, TypeId), server: ServerId, now: Instant) {
        let type_url = self.types[ty.index()].type_url();
        let names: Vec<_> =
            self.alls.get(&(group, ty)).map(|all| all.members.keys().cloned().collect()).unwrap_or_default();
        for name in names {
            if let Some(id) = self.find_entry((group, ty), &name) {
                self.join(id, server);
            }
        }
        if self.peer(server).machine.api_type().is_delta() {
            self.join_held((group, ty), server);
        }
        self.peer(server).machine.subscribe_all((ty, type_url), now);
    }

    /// What a server has sent by name it need not send again when it is asked for everything: it counts as a member until
    /// the server says otherwise (B2.20).
    fn join_held(&mut self, (group, ty): (GroupId, TypeId), server: ServerId) {
        let Some(interest) = self.peer(server).machine.interest(ty).filter(|interest| !interest.takes_all())
        else {
            return;
        };
        let held = interest.iter().filter(|(_, sub)| sub.has_version());
        let held: Vec<_> = held.map(|(_, sub)| sub.entry).collect();
        for id in held {
            if self.table.get(id).is_some_and(|entry| entry.group == group) {
                self.join(id, server);
                self.publish_if(id, false, true);
            }
        }
    }

    /// A member that the active server has sent is one at those above it, too.
    pub(super) fn join_higher(&mut self, id: EntryId) {
        let Some(group) = self.table.get(id).map(|entry| entry.group) else { return };
        for rank in 0..self.groups.get(group).open.len() - 1 {
            self.join(id, self.groups.get(group).open[rank]);
        }
    }

    /// A resource is a member of the wildcard at a server also if another one has sent it.
    pub(super) fn join(&mut self, id: EntryId, server: ServerId) {
        let (Some(sub), Some(entry)) = (self.place(id, server), self.table.get(id)) else { return };
        let ty = entry.ty;
        let interest = self.peer(server).machine.interest(ty);
        if let Some(sub) = interest.and_then(|interest| interest.get_mut(sub)) {
            sub.member = true;
        }
    }

    /// Nobody takes everything of a type from a server any more, and it knows.
    pub(super) fn on_released_all(&mut self, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            if self.alls.get(&(group, ty)).is_some_and(|all| all.views.is_empty()) {
                self.alls.remove(&(group, ty));
            }
        }
    }

    /// A resource was deleted: what is not held is no member any more, and forgotten when nobody asks for it by name.
    pub(super) fn dismiss(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id).filter(|entry| !entry.is_held()) else { return };
        let (group, ty) = (entry.group, entry.ty);
        if let Some(all) = self.alls.get_mut(&(group, ty)) {
            all.remove(&entry.name);
        }
        for (server, sub) in entry.places.iter().collect::<Vec<_>>() {
            let machine = &mut self.peer(server).machine;
            if let Some(sub) = machine.interest(ty).and_then(|interest| interest.get_mut(sub)) {
                sub.member = false;
            }
            machine.release(ty, &[sub]);
        }
    }

    /// Publishes the sets of members that have changed, but none that a response is still filling.
    pub(crate) fn flush(&mut self) {
        for ((group, ty), all) in &mut self.alls {
            let group = self.groups.get(*group);
            let active = group.active();
            if !all.touched || self.jobs.iter().any(|job| job.server() == active && job.ty() == *ty) {
                continue;
            }
            all.touched = false;
            let type_url = self.types[ty.index()].type_url();
            let about = Subject { type_url, name: "*".into(), node: self.node_id.clone() };
            let members: Erased = Arc::new(ErasedMembers {
                map: all.members.clone(),
                complete: all.complete,
                warning: group.trouble.as_ref().map(|trouble| trouble.about(about)),
                type_url,
                node: self.node_id.clone(),
            });
            let notify = |view: &ViewId| Output::Notify { view: *view, observed: members.clone() };
            self.outputs.extend(all.views.iter().map(notify));
        }
    }

    /// What the active server has sent under a wildcard that nobody watched for a while.
    fn members_of(&mut self, group: GroupId, ty: TypeId) -> OrdMap<Arc<str>, Member> {
        let active = self.groups.get(group).active();
        let Some(interest) = self.peer(active).machine.interest(ty) else { return OrdMap::new() };
        let members: Vec<_> =
            interest.iter().filter(|(_, sub)| sub.member).map(|(_, sub)| sub.entry).collect();
        let seen = members
            .into_iter()
            .filter_map(|id| Some((self.table.get(id)?.name.clone(), Member(self.observed(id)?))));
        seen.collect()
    }
}
