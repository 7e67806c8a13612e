//! The comparison of responses without keeping them.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::envelope::Envelope;
use crate::wire::Fields;

/// Digests of a response that do not depend on the order of its resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Of the resources without their own versions, of removed names and of errors.
    pub(crate) contents: u64,
    /// Of the versions of the single resources.
    pub(crate) versions: u64,
}

impl Digests {
    /// The digests of all parts of a response. Sums do not depend on the order, in which servers iterate over maps.
    pub(crate) fn of(envelope: &Envelope) -> Self {
        let mut digests = Self::default();
        for (kind, bytes) in envelope.contents() {
            // Kind 0 are the resources. A server that answers each NACK with the same resources under new versions of their own
            // would never repeat a response otherwise.
            let is_wrapped = kind == 0 && envelope.is_delta();
            let (contents, versions) = if is_wrapped { of_wrapped(bytes) } else { (of(&(kind, bytes)), 0) };
            // An exclusive or would cancel out parts that occur twice.
            digests.contents = digests.contents.wrapping_add(contents);
            digests.versions = digests.versions.wrapping_add(versions);
        }
        digests
    }
}

/// In the incremental variant the version of a resource is beside it, in field 1 of its wrapper.
fn of_wrapped(bytes: &[u8]) -> (u64, u64) {
    let (mut contents, mut version) = (DefaultHasher::new(), None);
    for field in Fields::of(bytes) {
        match field {
            Ok(field) if field.number == 1 => version = Some(field.value),
            Ok(field) => (field.number, field.value).hash(&mut contents),
            Err(_) => bytes.hash(&mut contents),
        }
    }
    // The version is hashed with the contents: two resources that exchange their versions are a change.
    let contents = contents.finish();
    (contents, of(&(contents, version)))
}

/// The hash of one part.
fn of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
