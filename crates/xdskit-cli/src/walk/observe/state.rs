//! What is known of the selected listeners and of all that they lead to.

use std::{collections::BTreeSet, mem, sync::Arc};

use xdskit::WatchError;

use crate::{
    json::Problem,
    proxy_tree::{Demand, Entry, Listener, Mesh},
    watch::Target,
};

/// The resources, and the listeners of each target.
pub(super) struct ObservedMesh {
    /// The resources.
    pub(super) mesh: Mesh,
    /// The targets.
    selections: Vec<Selection>,
}

/// The listeners of a target.
pub(super) struct Selection {
    /// The target as it was written.
    label: String,
    /// What it selects.
    target: Target,
    /// The names of the listeners.
    names: BTreeSet<Arc<str>>,
    /// The listeners that were removed since the last drawing.
    removed: BTreeSet<Arc<str>>,
    /// Whether all of them are known.
    status: Status,
}

/// The state of a selection as a whole.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Status {
    /// Some may be unknown.
    Waiting,
    /// All listeners of the selection are known.
    Complete,
    /// There are none, with the reason.
    Absent(WatchError),
}

impl ObservedMesh {
    /// The state before anything was received.
    pub(super) fn new(selections: Vec<Selection>) -> Self {
        Self { mesh: Mesh::default(), selections }
    }

    /// The targets, in the order of the command line.
    pub(super) fn selections(&self) -> &[Selection] {
        &self.selections
    }

    /// Sets the state of a listener of a selection.
    pub(super) fn set_listener(&mut self, index: usize, name: &Arc<str>, entry: Entry<Listener>) {
        let selection = &mut self.selections[index];
        if selection.target.matches(name) {
            selection.names.insert(name.clone());
            selection.removed.remove(name);
            self.mesh.listeners.set(name, Some(entry));
        }
    }

    /// Removes a listener from a selection.
    pub(super) fn remove_listener(&mut self, index: usize, name: &Arc<str>) {
        if self.selections[index].names.remove(name) {
            self.selections[index].removed.insert(name.clone());
        }
        if !self.selections.iter().any(|selection| selection.names.contains(name)) {
            self.mesh.listeners.set(name, None);
        }
    }

    /// Sets the state of a selection as a whole.
    pub(super) fn set_status(&mut self, index: usize, status: Status) {
        self.selections[index].status = status;
    }

    /// All that the listeners lead to.
    pub(super) fn demand(&self) -> Demand {
        self.mesh.demand(self.selections.iter().flat_map(|selection| &selection.names))
    }

    /// Whether all trees are known.
    pub(super) fn is_settled(&self) -> bool {
        self.selections.iter().all(|selection| {
            selection.status != Status::Waiting && selection.names.iter().all(|name| self.mesh.knows(name))
        })
    }

    /// The clusters that no listener leads to, with the index of the selection that has all listeners, once all is known.
    pub(super) fn unused_clusters(&self) -> Option<(usize, Vec<Arc<str>>)> {
        let index = self.selections.iter().position(|selection| &*selection.target.name == "*")?;
        let is_settled = self.selections[index].absence().is_none() && self.is_settled();
        is_settled.then(|| (index, self.mesh.clusters_beside(&self.demand())))
    }

    /// Whether something is missing in a tree, or a whole tree.
    pub(super) fn is_incomplete(&self) -> bool {
        self.selections.iter().any(|selection| {
            selection.names.is_empty() || selection.names.iter().any(|name| self.mesh.is_incomplete(name))
        })
    }

    /// The listeners that were removed since the last call, with the indexes of their selections.
    pub(super) fn take_removed(&mut self) -> Vec<(usize, Arc<str>)> {
        let all = self.selections.iter_mut().enumerate().flat_map(|(index, selection)| {
            mem::take(&mut selection.removed).into_iter().map(move |name| (index, name))
        });
        all.collect()
    }
}

impl Selection {
    /// A target whose listeners are unknown.
    pub(super) fn new(label: &str, target: Target) -> Self {
        Self {
            label: label.to_owned(),
            target,
            names: BTreeSet::new(),
            removed: BTreeSet::new(),
            status: Status::Waiting,
        }
    }

    /// The target as it was written.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// What it selects.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The names of its listeners.
    pub(super) fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }

    /// The reason why there are no listeners; `None` if there are, and while nothing is known.
    pub(super) fn absence(&self) -> Option<Problem> {
        match &self.status {
            Status::Complete if self.names.is_empty() => Some(Problem::not_found("nothing matches")),
            Status::Absent(reason) if self.names.is_empty() => Some(reason.into()),
            Status::Waiting | Status::Complete | Status::Absent(_) => None,
        }
    }
}
