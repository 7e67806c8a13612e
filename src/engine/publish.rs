use super::{Engine, indirections::Looked};
use crate::{
    cache::{Entry, OneOrMany},
    error::{Subject, WatchError},
    protocol::{EntryId, ViewId},
    resource::Erased,
};

impl Engine {
    /// Publishes what there is to see of a resource to everybody who watches it.
    pub(crate) fn publish(&mut self, id: EntryId) {
        self.publish_if(id, true, false);
    }

    /// The same if it has changed; if it only `joins` the members of a wildcard, to those who watch them.
    pub(crate) fn publish_if(&mut self, id: EntryId, changed: bool, joins: bool) {
        let Some(entry) = self.table.get(id).filter(|_| changed || joins) else { return };
        if entry.is_glob {
            return self.publish_glob(id);
        }
        let active = self.groups.get(entry.group).active();
        let interest = self.servers[active].machine.interest(entry.ty);
        let sub = entry.places.at(active);
        let sub = interest.zip(sub).and_then(|(interest, sub)| interest.get(sub));
        let of_glob = sub.is_some_and(|sub| sub.of_glob);
        let Some(entry) = self.table.get(id) else { return };
        let whole = self.wildcard_of(entry);
        if entry.views.is_empty() && whole.is_none() && !of_glob {
            return;
        }
        let (Some(observed), Some(entry)) = (self.observed(id), self.table.get(id)) else { return };
        if changed {
            for view in &*entry.views {
                self.log_told(id, *view);
                self.walks.deliver(&mut self.outputs, *view, observed.clone());
            }
            if let Some(entry) = self.table.get_mut(id) {
                entry.late = OneOrMany::default();
            }
        }
        if whole.is_none() && !of_glob {
            return;
        }
        let Some(entry) = self.table.get(id) else { return };
        let name = entry.name.clone();
        if of_glob && let Some(glob) = self.glob_key(id) {
            self.collections.insert(glob, self.additions.take_from(&name), observed.clone());
        }
        if let Some(whole) = whole {
            self.collections.insert(whole, name, observed);
        }
    }

    /// Publishes what there is to see of a resource, if there is anything, to some.
    pub(crate) fn publish_to(&mut self, id: EntryId, views: &[ViewId]) {
        let failure = self.failure_of(id);
        if let Some(entry) = self.table.get_mut(id).filter(|_| failure.is_some()) {
            // It is about to be told, whether or not others know it.
            let _ = entry.on_failure(failure);
        }
        if self.table.get(id).is_some_and(|entry| entry.is_glob) {
            return self.publish_glob_to(id);
        }
        if let Some(observed) = self.observed(id) {
            for view in views {
                self.log_told(id, *view);
                self.walks.deliver(&mut self.outputs, *view, observed.clone());
            }
        } else if let Some(entry) = self.table.get_mut(id) {
            entry.late.extend(views.iter().copied());
        }
    }

    /// Publishes what is no news to those who came when there was nothing to publish.
    pub(crate) fn publish_to_late(&mut self, id: EntryId) {
        let late = self.table.get_mut(id).map(|entry| std::mem::take(&mut entry.late)).unwrap_or_default();
        if !late.is_empty() {
            self.publish_to(id, &late);
        }
    }

    /// The trouble with the servers of a resource.
    pub(crate) fn failure_of(&self, id: EntryId) -> Option<WatchError> {
        let entry = self.table.get(id)?;
        let trouble = self.groups.get(entry.group).trouble.as_ref()?;
        Some(trouble.about(self.subject(entry)))
    }

    /// What an error about a resource names.
    pub(crate) fn subject(&self, entry: &Entry) -> Subject {
        let type_url = self.types[entry.ty.index()].type_url();
        Subject { type_url, name: entry.name.clone(), node: self.node_id.clone() }
    }

    pub(super) fn observed(&self, id: EntryId) -> Option<Erased> {
        let entry = self.table.get(id)?;
        let observed = self.look_at(id, 0, &mut Looked::default())?;
        Some(self.types[entry.ty.index()].observe(observed))
    }
}
