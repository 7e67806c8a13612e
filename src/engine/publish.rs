use super::Engine;
use crate::{
    cache::Entry,
    error::Subject,
    protocol::{EntryId, Output, ViewId},
    resource::Erased,
};

impl Engine {
    /// Publishes what there is to see of a resource to everybody who watches it.
    pub(crate) fn publish(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id) else { return };
        let peer = &mut self.servers[entry.server.0 as usize];
        let interest = peer.machine.interest(entry.ty);
        let is_member = interest.and_then(|interest| interest.get(entry.sub)).is_some_and(|sub| sub.member);
        if entry.views.is_empty() && !is_member {
            return;
        }
        let (Some(observed), Some(entry)) = (self.observed(id), self.table.get(id)) else { return };
        let notify = |view: &ViewId| Output::Notify { view: *view, observed: observed.clone() };
        self.outputs.extend(entry.views.iter().map(notify));
        let peer = &mut self.servers[entry.server.0 as usize];
        if is_member && let Some(all) = peer.of_type(entry.ty).all.as_mut() {
            all.insert(entry.name.clone(), observed);
        }
    }

    /// Publishes what there is to see of a resource, if there is anything, to some.
    pub(crate) fn publish_to(&mut self, id: EntryId, views: &[ViewId]) {
        if let Some(observed) = self.observed(id) {
            let notify = |view: &ViewId| Output::Notify { view: *view, observed: observed.clone() };
            self.outputs.extend(views.iter().map(notify));
        }
    }

    /// What an error about a resource names.
    pub(crate) fn subject(&self, entry: &Entry) -> Subject {
        let type_url = self.types[entry.ty.index()].type_url();
        Subject { type_url, name: entry.name.clone(), node: self.node_id.clone() }
    }

    fn observed(&self, id: EntryId) -> Option<Erased> {
        let entry = self.table.get(id)?;
        let failure = &self.servers[entry.server.0 as usize].failure;
        let observed =
            entry.observe(|| failure.as_ref().map(|failure| failure.about(self.subject(entry))))?;
        Some(self.types[entry.ty.index()].observe(observed))
    }
}
