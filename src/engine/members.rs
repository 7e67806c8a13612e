use std::{mem, sync::Arc, time::Instant};

use imbl::OrdMap;

use super::{Engine, Refusal, View, check_variant};
use crate::{
    error::{Code, Subject},
    observed::{ErasedMembers, Member},
    protocol::{EntryId, Output, ServerId, TypeId, ViewId},
    resource::Erased,
};

/// Everything that one server has of one type: the members of a wildcard.
#[derive(Debug, Default)]
pub(crate) struct All {
    views: Vec<ViewId>,
    members: OrdMap<Arc<str>, Member>,
    complete: bool,
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
        let source = self.bootstrap.sources().first().map(|source| source.server().clone());
        let none =
            || Refusal { code: Code::FailedPrecondition, message: "the bootstrap has no servers".into() };
        let source = source.ok_or_else(none)?;
        check_variant(&source)?;
        let server = self.server_id(&source, now);
        let type_url = self.types[ty.index()].type_url();
        let peer = self.peer(server);
        let failed = peer.failure.is_some();
        let all = peer.of_type(ty).all.get_or_insert_default();
        all.views.push(view);
        all.touched = !all.members.is_empty() || all.complete || failed;
        peer.machine.subscribe_all((ty, type_url), now);
        self.settle(server);
        Ok(View::All(server, ty))
    }

    pub(super) fn unsubscribe_all(&mut self, view: ViewId, (server, ty): (ServerId, TypeId), now: Instant) {
        let peer = self.peer(server);
        let Some(all) = peer.of_type(ty).all.as_mut() else { return };
        all.views.retain(|other| *other != view);
        if all.views.is_empty() {
            peer.machine.unsubscribe_all(ty, now);
            self.settle(server);
        }
    }

    /// A resource was deleted: what is not held is no member any more, and forgotten when nobody asks for it by name.
    pub(super) fn dismiss(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id).filter(|entry| !entry.is_held()) else { return };
        let (server, ty, sub) = (entry.server, entry.ty, entry.sub);
        let peer = &mut self.servers[server.0 as usize];
        if let Some(sub) = peer.machine.interest(ty).and_then(|interest| interest.get_mut(sub)) {
            sub.member = false;
        }
        if let Some(all) = peer.of_type(ty).all.as_mut() {
            all.remove(&entry.name);
        }
        peer.machine.release(ty, &[sub]);
    }

    /// Publishes the sets of members that have changed, but none that a response is still filling.
    pub(crate) fn flush(&mut self, server: ServerId) {
        for index in 0..self.peer(server).types.len() {
            let ty = TypeId(index as u16);
            let filling = self.jobs.iter().any(|job| job.server() == server && job.ty() == ty);
            let peer = &mut self.servers[server.0 as usize];
            let Some(all) = peer.types[index].all.as_mut().filter(|all| all.touched && !filling) else {
                continue;
            };
            all.touched = false;
            let type_url = self.types[index].type_url();
            let about = Subject { type_url, name: "*".into(), node: self.node_id.clone() };
            let members: Erased = Arc::new(ErasedMembers {
                map: all.members.clone(),
                complete: all.complete,
                warning: peer.failure.as_ref().map(|failure| failure.about(about)),
                type_url,
                node: self.node_id.clone(),
            });
            let notify = |view: &ViewId| Output::Notify { view: *view, observed: members.clone() };
            self.outputs.extend(all.views.iter().map(notify));
        }
    }
}
