//! Globs among the entries of lists: the members of a glob are members of the list (X12).
//!
//! Two globs of a list, or a glob and a locator, may have the same member. It stays until the last one of them loses it; the
//! locator goes first while it is there.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use crate::{
    error::WatchError,
    observed::{ErasedMembers, Member},
};

/// The members of all globs of a list.
#[derive(Debug, Default)]
pub(super) struct GlobMembers {
    /// The members of each glob as it was seen last, which the next state is compared with.
    globs: BTreeMap<Arc<str>, OrdMap<Arc<str>, Member>>,
    /// The members, each with the number of globs that have it: globs may have the same alternative.
    members: BTreeMap<Arc<str>, (usize, Member)>,
    /// The warnings of globs.
    warnings: BTreeMap<Arc<str>, WatchError>,
}

/// A member of which the state has changed; `None` when no glob has it any more.
pub(super) type MemberChange = (Arc<str>, Option<Member>);

impl GlobMembers {
    /// Handles the state of a glob.
    pub(super) fn update(&mut self, glob: &Arc<str>, seen: &ErasedMembers) -> Vec<MemberChange> {
        match &seen.warning {
            Some(warning) => self.warnings.insert(glob.clone(), warning.clone()),
            None => self.warnings.remove(glob),
        };
        let before = self.globs.insert(glob.clone(), seen.map.clone()).unwrap_or_default();
        self.replace(&before, &seen.map)
    }

    /// The list has the glob no more.
    pub(super) fn remove(&mut self, glob: &str) -> Vec<MemberChange> {
        self.warnings.remove(glob);
        let before = self.globs.remove(glob).unwrap_or_default();
        self.replace(&before, &OrdMap::new())
    }

    /// The state of a member.
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name).map(|(_, member)| member)
    }

    /// The warning of the first glob that has one.
    pub(super) fn warning(&self) -> Option<&WatchError> {
        self.warnings.first_key_value().map(|(_, warning)| warning)
    }

    /// Replaces the members of one glob. The work is that of their difference.
    fn replace(
        &mut self,
        before: &OrdMap<Arc<str>, Member>,
        after: &OrdMap<Arc<str>, Member>,
    ) -> Vec<MemberChange> {
        before.diff(after).filter_map(|difference| self.apply(difference)).collect()
    }

    /// Applies a difference of one glob; `None` when the state of the member is the same as before.
    fn apply(&mut self, difference: DiffItem<'_, '_, Arc<str>, Member>) -> Option<MemberChange> {
        match difference {
            DiffItem::Add(name, member) => self.set(name, member, 1),
            DiffItem::Update { new: (name, member), .. } => self.set(name, member, 0),
            DiffItem::Remove(name, _) => self.release(name),
        }
    }

    /// Sets the state of a member, which `more` globs have in addition.
    fn set(&mut self, name: &Arc<str>, member: &Member, more: usize) -> Option<MemberChange> {
        match self.members.entry(name.clone()) {
            Entry::Occupied(mut known) => {
                let (globs, before) = known.get_mut();
                *globs += more;
                let is_same = before == member;
                *before = member.clone();
                (!is_same).then(|| (name.clone(), Some(member.clone())))
            }
            Entry::Vacant(unknown) => {
                unknown.insert((more, member.clone()));
                Some((name.clone(), Some(member.clone())))
            }
        }
    }

    /// One glob fewer has the member.
    fn release(&mut self, name: &Arc<str>) -> Option<MemberChange> {
        let (globs, _) = self.members.get_mut(name)?;
        *globs -= 1;
        if *globs > 0 {
            return None;
        }
        self.members.remove(name);
        Some((name.clone(), None))
    }
}
