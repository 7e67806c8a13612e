//! A response of the incremental variant under construction.

use std::borrow::Cow;

use super::super::super::store::canonical;
use crate::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;

/// A response under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The response as it is so far.
    pub(super) response: DeltaDiscoveryResponse,
    /// The names of resources in it with a time to live.
    pub(super) perishable: Vec<String>,
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
