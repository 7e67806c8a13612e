//! The effects of a step: what is to be published, and what is to be sent.
//!
//! A response may change an entry twice, such as by a resource and then by the end of a does-not-exist time in the same
//! step. Watches see the last state alone, in the position of the first change, so that one notification is made.

use std::collections::VecDeque;

use crate::{
    capacity::Shrink,
    protocol::{EntryId, StreamCommand},
};

/// The effects of a step, in their order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// An entry is to be published.
    Publish(EntryId, Change),
    /// A command of a server's machine.
    Command(StreamCommand),
}

/// The reason for publishing an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The state that its watches see has changed.
    pub(crate) changed: bool,
    /// The entry is a new member of a collection.
    pub(crate) joins: bool,
    /// The entry has watches that nothing was published to yet.
    pub(crate) unnotified: bool,
}

/// The effects that the engine has not handled yet. Several changes of an entry are one, in the place of the first.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// In the order of the first change of each entry.
    order: VecDeque<Queued>,
    /// The queued change of each entry, by its id: ids are dense, and a map would allocate for each resource of a response.
    changes: Vec<Option<Change>>,
}

/// A position in the queue; the change of an entry is kept beside it, where later ones are merged into it.
#[derive(Debug)]
enum Queued {
    Publish(EntryId),
    Command(StreamCommand),
}

impl Effects {
    /// Queues the publication of an entry, or adds to the one that is queued.
    pub(super) fn push_change(&mut self, id: EntryId, change: Change) {
        let index = id.0 as usize;
        if self.changes.len() <= index {
            self.changes.resize(index + 1, None);
        }
        let order = &mut self.order;
        let known = self.changes[index].get_or_insert_with(|| {
            order.push_back(Queued::Publish(id));
            Change::default()
        });
        known.changed |= change.changed;
        known.joins |= change.joins;
        known.unnotified |= change.unnotified;
    }

    /// Queues a command behind everything that is queued.
    pub(super) fn push_command(&mut self, command: StreamCommand) {
        self.order.push_back(Queued::Command(command));
    }

    /// Takes the first effect. A further change of the entry is queued anew.
    pub(super) fn pop(&mut self) -> Option<Effect> {
        let next = self.order.pop_front()?;
        self.order.shrink_if_sparse();
        Some(match next {
            Queued::Command(command) => Effect::Command(command),
            Queued::Publish(id) => {
                Effect::Publish(id, self.changes[id.0 as usize].take().unwrap_or_default())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_changes_of_an_entry_are_one_in_the_place_of_the_first() {
        let change = |changed, joins| Change { changed, joins, unnotified: false };
        let mut effects = Effects::default();
        effects.push_change(EntryId(2), change(true, false));
        effects.push_change(EntryId(1), change(false, true));
        effects.push_change(EntryId(2), change(false, true));
        let popped: Vec<_> =
            std::iter::from_fn(|| effects.pop()).map(|effect| format!("{effect:?}")).collect();
        let expected = [(EntryId(2), change(true, true)), (EntryId(1), change(false, true))];
        assert_eq!(popped, expected.map(|(id, change)| format!("{:?}", Effect::Publish(id, change))));
    }
}
