//! When the endpoints of a policy go on serving calls while that which replaces it connects (CH3.13).

use std::collections::BTreeMap;

use crate::balance::{picker::Localities, policy::LeafConfig, ready_endpoint::ReadyEndpoint};

/// Whether any of these endpoints has another identity in the next configuration: no call may be sent by another one (CH7.20). What
/// became of one that is not listed any more, the security of its cluster says.
pub(super) fn has_conflict<H>(endpoints: &Localities<H>, before: &LeafConfig, next: &LeafConfig) -> bool {
    let mut identities: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let listed = next.listed().iter().flatten().flat_map(|locality| &locality.endpoints);
    // Endpoints that drain still have an identity, although no policy lists them.
    for endpoint in listed.chain(&next.hosts.draining) {
        let addresses = endpoint.addresses.iter();
        addresses.for_each(|address| identities.entry(*address).or_default().push(&endpoint.identity));
    }
    let is_alike = before.security == next.security;
    let is_other = |endpoint: &ReadyEndpoint<H>| match identities.get(&endpoint.address) {
        Some(identities) => !identities.contains(&endpoint.identity()),
        None => !is_alike,
    };
    endpoints.iter().flat_map(|(_, picker)| picker.ready.iter()).any(|endpoint| is_other(endpoint))
}
