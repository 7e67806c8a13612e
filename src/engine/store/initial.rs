//! The initial resources that no server has answered yet.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

/// The initial resources by type URL and canonical name, with the context parameters that the client adds.
///
/// A name leaves it for good with the first answer that the active server of its authority gives; whoever watches the name later waits
/// for a server.
#[derive(Debug, Default)]
pub(in crate::engine) struct InitialTable {
    resources: BTreeMap<&'static str, BTreeMap<Arc<str>, Unanswered>>,
}

/// An initial resource.
#[derive(Debug)]
struct Unanswered {
    /// The authority of the name; `None` for one of the older form.
    authority: Option<Arc<str>>,
    bytes: Bytes,
}

impl InitialTable {
    /// Adds a resource.
    pub(in crate::engine) fn insert(
        &mut self,
        type_url: &'static str,
        name: Arc<str>,
        authority: Option<Arc<str>>,
        bytes: Bytes,
    ) {
        self.resources.entry(type_url).or_default().insert(name, Unanswered { authority, bytes });
    }

    /// The bytes of a resource, if no server has answered it.
    pub(in crate::engine) fn get(&self, type_url: &str, name: &str) -> Option<&Bytes> {
        Some(&self.resources.get(type_url)?.get(name)?.bytes)
    }

    /// A server has answered a name.
    pub(super) fn forget(&mut self, type_url: &str, name: &str) {
        if let Some(of_type) = self.resources.get_mut(type_url) {
            of_type.remove(name);
            if of_type.is_empty() {
                self.resources.remove(type_url);
            }
        }
    }

    /// A server has sent all resources of a type that it has for an authority: those that are not in use are obsolete. What is in use
    /// is missing from the response, or had been requested too late for it, which its does-not-exist timer decides.
    pub(in crate::engine) fn forget_type(
        &mut self,
        type_url: &str,
        authority: Option<&str>,
        is_used: impl Fn(&str) -> bool,
    ) {
        if let Some(of_type) = self.resources.get_mut(type_url) {
            of_type.retain(|name, initial| initial.authority.as_deref() != authority || is_used(name));
        }
    }

    /// Whether there is none, or none any more.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}
