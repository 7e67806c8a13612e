//! What the last picker of a cluster was made of, which says whether it needs another one.

use std::{mem, sync::Arc, time::Instant};

use crate::balance::connectivity::Connectivity;

/// The picker that was published last, and what may outdate it.
#[derive(Debug, Default)]
pub(super) struct PublishedPicker {
    /// `None` if something else has changed since.
    inputs: Option<PickerInputs>,
    /// A sweep that is not over has ejected endpoints, or ended ejections.
    has_unpublished_ejections: bool,
    /// When the weights of endpoints may have changed.
    weights_at: Option<Instant>,
}

/// What pickers are made of, apart from configuration and ready endpoints.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PickerInputs {
    /// Index of the priority in use.
    pub(super) chosen: Option<usize>,
    pub(super) connectivity: Connectivity,
    /// Newest error of the failing priority; `None` while the cluster does not fail.
    pub(super) error: Option<Arc<str>>,
}

impl PublishedPicker {
    /// The picker is outdated, if that is so.
    pub(super) fn outdate_if(&mut self, is_outdated: bool) {
        if is_outdated {
            self.inputs = None;
        }
    }

    /// The picker is outdated.
    pub(super) fn outdate(&mut self) {
        self.inputs = None;
    }

    /// A picker of these inputs is published, unless the last one has the same and is not outdated: true if so.
    pub(super) fn publish(&mut self, inputs: PickerInputs) -> bool {
        let is_new = self.inputs.as_ref() != Some(&inputs);
        if is_new {
            (self.inputs, self.has_unpublished_ejections) = (Some(inputs), false);
        }
        is_new
    }

    /// When the weights of endpoints are to be read next, if they are.
    pub(super) fn weights_at(&self) -> Option<Instant> {
        self.weights_at
    }

    /// Sets when the weights of endpoints are to be read next.
    pub(super) fn set_weights_at(&mut self, at: Option<Instant>) {
        self.weights_at = at;
    }

    /// Outlier detection has decided on endpoints in a part of a sweep. A picker is made of all endpoints, so it follows the last part, unless
    /// something else outdates it before. `before` is what was published before the part.
    pub(super) fn on_swept(&mut self, before: Option<PickerInputs>, has_changed: bool, is_sweeping: bool) {
        self.has_unpublished_ejections |= has_changed;
        if is_sweeping {
            self.inputs = before;
        } else if mem::take(&mut self.has_unpublished_ejections) {
            // The text of a failure has the number of ejected endpoints.
            self.inputs = None;
        }
    }

    /// What the picker was made of, unless it is outdated.
    pub(super) fn inputs(&self) -> Option<PickerInputs> {
        self.inputs.clone()
    }
}
