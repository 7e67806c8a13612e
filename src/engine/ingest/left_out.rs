//! The log of what validation leaves out of accepted resources.
//!
//! Validation rejects what cannot be executed at all. What can be executed in part is accepted, and the rest is reported
//! here, once for each difference to the version before.

use tracing::warn;

use super::super::store::Store;
use crate::{
    escape::Escaped,
    protocol::{EntryId, TypeId},
    resource::{Erased, LeftOut},
};

/// Logs the parts of a resource that are left out, unless the resource that it replaces lacked the same ones.
pub(super) fn log(store: &Store, ty: TypeId, id: EntryId, resource: &Erased) {
    let left_out = |resource| store.ty(ty).remarks(resource).map_or(&[][..], |remarks| remarks.left_out());
    let parts: &[LeftOut] = left_out(resource);
    let Some(entry) = store.get(id).filter(|_| !parts.is_empty()) else { return };
    if entry.resource().is_some_and(|before| left_out(before) == parts) {
        return;
    }
    let shown: Vec<_> = parts.iter().take(SHOWN).map(ToString::to_string).collect();
    warn!(
        type_url = store.type_url(ty),
        name = %Escaped(&entry.name),
        parts = parts.len(),
        "a resource is accepted without a part of it: {}", shown.join("; ")
    );
}

/// The most parts in a line of the log; the status of the client has all.
const SHOWN: usize = 3;
