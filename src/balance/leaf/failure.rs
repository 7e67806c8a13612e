//! Why a cluster fails the calls that do not wait.

use std::sync::Arc;

use super::Leaf;
use crate::balance::policy::with_note;

impl<H: Clone> Leaf<H> {
    /// What is wrong with the priority in use.
    pub(super) fn failure(&self) -> Arc<str> {
        let name = &self.name;
        match self.chosen() {
            Some(groups) if groups.is_broken() => {
                format!("cluster {name}: the load balancing policy panicked").into()
            }
            Some(groups) if !groups.is_empty() => match &groups.error {
                Some(error) => {
                    let reason =
                        format!("cluster {name}: no endpoint can be reached, the latest error is: {error}");
                    with_note(reason, self.config.note.as_deref()).into()
                }
                None => self.no_endpoints(),
            },
            Some(_) | None => self.no_endpoints(),
        }
    }

    fn no_endpoints(&self) -> Arc<str> {
        let name = &self.name;
        match &self.config.note {
            Some(note) => format!("cluster {name} has no usable endpoints: {note}").into(),
            None => format!("cluster {name} has no usable endpoints").into(),
        }
    }
}
