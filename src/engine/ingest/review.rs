//! What consumers are asked about a response, and what they have decided.

use std::{collections::BTreeMap, mem, sync::Arc};

use bytes::Bytes;

use crate::{
    protocol::{EntryId, GroupId, TypeId},
    resource::{Erased, Version},
};

/// What the consumers of a type are asked about one response.
#[derive(Debug)]
pub(in crate::engine) struct Proposal {
    pub(in crate::engine) ty: TypeId,
    /// The type URL on the wire, for logs.
    pub(in crate::engine) type_url: &'static str,
    /// In the order of the response; removals by absence come last.
    pub(in crate::engine) changes: Vec<ProposedChange>,
}

/// One resource that a response would add, change or remove.
#[derive(Debug, Clone)]
pub(in crate::engine) struct ProposedChange {
    /// The name as applications write it, without what the bootstrap adds.
    pub(in crate::engine) name: Arc<str>,
    /// The version of the resource, or of the response.
    pub(in crate::engine) version: Version,
    /// The resource, parsed and valid; `None` for a removal.
    pub(in crate::engine) resource: Option<Erased>,
    /// The watched subjects that it belongs to.
    pub(in crate::engine) subjects: Subjects,
}

/// The watched subjects that a resource of a response belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) struct Subjects {
    /// The entry of its name, if there is one.
    pub(in crate::engine) entry: Option<EntryId>,
    /// The entry of the glob that matches its name.
    pub(in crate::engine) glob: Option<EntryId>,
    /// The group whose wildcard it is a member of.
    pub(in crate::engine) wildcard: Option<GroupId>,
}

/// The decisions on a response.
#[derive(Debug, Default)]
pub(in crate::engine) struct Decision {
    /// The reasons for rejecting resources, by their names.
    pub(in crate::engine) rejected: BTreeMap<Arc<str>, String>,
}

/// The review of one response: what it would change, and afterwards what was decided.
#[derive(Debug, Default)]
pub(super) struct Review {
    /// The changes so far, until they are taken.
    pub(super) changes: Vec<ProposedChange>,
    /// The parsed resources by name, each with the bytes that it was parsed from.
    parsed: BTreeMap<Arc<str>, (Erased, Bytes)>,
    decision: Decision,
    /// The number of resources so far whose names were unknown.
    pub(super) unknown: usize,
}

impl Review {
    /// Adds a change. A resource comes with its name on the wire and the bytes that it was parsed from.
    pub(super) fn propose(&mut self, change: ProposedChange, parsed: Option<(Arc<str>, Erased, Bytes)>) {
        self.parsed.extend(parsed.map(|(name, resource, bytes)| (name, (resource, bytes))));
        self.changes.push(change);
    }

    /// Takes the decision of the consumers.
    pub(super) fn decide(&mut self, decision: Decision) {
        self.decision = decision;
    }

    /// The resource that was parsed for the consumers, with its bytes.
    pub(super) fn take_parsed(&mut self, name: &str) -> Option<(Erased, Bytes)> {
        self.parsed.remove(name)
    }

    /// The reason why the consumers have rejected a resource.
    pub(super) fn take_rejection(&mut self, name: &str) -> Option<String> {
        self.decision.rejected.remove(name)
    }

    /// The rejections that were not taken: of removals, and of resources that do not count any more.
    pub(super) fn take_rejections(&mut self) -> BTreeMap<Arc<str>, String> {
        mem::take(&mut self.decision.rejected)
    }
}
