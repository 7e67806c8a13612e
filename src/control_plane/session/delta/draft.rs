//! A response of the incremental variant under construction.

use std::borrow::Cow;

use super::super::super::store::{Store, Type, canonical};
use crate::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;

/// A response under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The response as it is so far.
    pub(super) response: DeltaDiscoveryResponse,
    /// The names of resources in it with a time to live.
    pub(super) perishable: Vec<String>,
}

/// What the states of names are read from.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateSource<'a> {
    /// The type URL of the response.
    pub(super) type_url: &'a str,
    /// The current resources of the type.
    pub(super) now: &'a Type,
    /// The store that they are of.
    pub(super) store: &'a Store,
}

impl Draft {
    /// Returns the number of resources, removals and errors.
    pub(super) fn len(&self) -> usize {
        let DeltaDiscoveryResponse { resources, removed_resources, resource_errors, .. } = &self.response;
        resources.len() + removed_resources.len() + resource_errors.len()
    }
}

/// The canonical names of the resources in a response.
pub(super) fn names_of(response: &DeltaDiscoveryResponse) -> Vec<String> {
    let whole = response.resources.iter().filter(|resource| resource.resource.is_some());
    whole.map(|resource| to_canonical(resource.name.clone())).collect()
}

/// Returns the canonical form of a name, without a copy if it has that form.
pub(super) fn to_canonical(name: String) -> String {
    match canonical(&name) {
        Cow::Borrowed(_) => name,
        Cow::Owned(canonical) => canonical,
    }
}
