//! A resource of the client's own that serves until a server has answered its name.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    base::{Erased, Version},
    error::{Blame, Code, Subject, WatchError},
    observed::{ErasedObserved, ResourceSource},
};

/// The initial resource of an entry.
///
/// It is beside the state of the entry, which stays as if there were none: the protocol requests the name, claims no version, runs the
/// does-not-exist timer and falls back to other servers. Watches alone see the difference.
#[derive(Debug)]
pub(crate) struct InitialResource {
    /// The typed resource.
    resource: Erased,
    /// The bytes that it was parsed from.
    bytes: Bytes,
    /// What watches see beside it, unless there is an error.
    warning: WatchError,
}

impl InitialResource {
    /// An initial resource of a name.
    pub(crate) fn new(resource: Erased, bytes: Bytes, about: Subject) -> Self {
        let text = format!("no management server has sent it yet{IN_USE}");
        Self { resource, bytes, warning: WatchError::new(Code::Unavailable, Blame::Local, about, text) }
    }

    /// What watches see, beside the error of the name or of its servers if there is one.
    pub(super) fn observe(&self, error: Option<WatchError>) -> ErasedObserved {
        ErasedObserved::Present {
            resource: self.resource.clone(),
            version: Version::default(),
            warning: Some(error.map_or_else(|| self.warning.clone(), |error| error.and(IN_USE))),
            source: Some(Arc::new(ResourceSource::Initial)),
        }
    }

    /// The bytes that it was parsed from.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// The end of the text of each warning.
const IN_USE: &str = "; the initial resource is in use";
