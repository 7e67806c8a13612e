//! Subsets of the endpoints of a cluster (A68).

use std::num::NonZeroU32;

use twox_hash::XxHash64;

use crate::balance::locality_config::{EndpointConfig, LocalityConfig};

/// How many endpoints are used at most, if not all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubsetSizes {
    /// Of a priority.
    pub(crate) priority: Option<NonZeroU32>,
    /// Of each locality.
    pub(crate) locality: Option<NonZeroU32>,
}

/// An endpoint with the place of its locality.
type Listed<'a> = (usize, &'a EndpointConfig);

impl SubsetSizes {
    /// Whether all endpoints are used.
    pub(in crate::balance) fn is_all(self) -> bool {
        self == Self::default()
    }

    /// The endpoints of a priority that are used, with their localities: each once if `by_locality`, and otherwise as the order of
    /// the endpoints has them.
    ///
    /// With the same seed, an endpoint that is added or removed changes one member at most (CH3.61).
    pub(in crate::balance) fn choose(
        self,
        localities: &[LocalityConfig],
        by_locality: bool,
        seed: u64,
    ) -> Vec<LocalityConfig> {
        let all = localities
            .iter()
            .enumerate()
            .flat_map(|(at, locality)| locality.endpoints.iter().map(move |endpoint| (at, endpoint)));
        let mut chosen = smallest(all.collect(), self.priority, seed);
        if by_locality {
            // A stable sort, so that the endpoints of a locality stay in the order of their hashes.
            chosen.sort_by_key(|(locality, _)| *locality);
            let each = chosen.chunk_by(is_beside).flat_map(|its| smallest(its.to_vec(), self.locality, seed));
            chosen = each.collect();
        }
        // The order of the hashes mixes localities, so one of them may be in the result several times.
        let runs = chosen.chunk_by(is_beside).map(|run| {
            let whole = &localities[run[0].0];
            let endpoints = run.iter().map(|(_, endpoint)| (*endpoint).clone()).collect();
            LocalityConfig { locality: whole.locality.clone(), endpoints, ..*whole }
        });
        runs.collect()
    }
}

/// Whether two endpoints that follow each other are in one locality.
fn is_beside(one: &Listed<'_>, next: &Listed<'_>) -> bool {
    one.0 == next.0
}

/// Returns the endpoints with the smallest hashes, in the order of these; all of them, in their own order, if there are not more.
fn smallest(mut endpoints: Vec<Listed<'_>>, size: Option<NonZeroU32>, seed: u64) -> Vec<Listed<'_>> {
    let size = size.and_then(|size| usize::try_from(size.get()).ok()).unwrap_or(usize::MAX);
    if endpoints.len() > size {
        endpoints.sort_by_cached_key(|(_, endpoint)| hash(endpoint, seed));
        endpoints.truncate(size);
    }
    endpoints
}

/// The hash of an endpoint's first address.
fn hash(endpoint: &EndpointConfig, seed: u64) -> u64 {
    let address = endpoint.addresses.first().map(ToString::to_string).unwrap_or_default();
    XxHash64::oneshot(seed, address.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::SocketAddr};

    use super::*;
    use crate::{balance::lists::config::EndpointList, resource::Locality};

    fn locality(name: &str, ports: impl IntoIterator<Item = u16>) -> LocalityConfig {
        let endpoint = |port| EndpointConfig {
            addresses: vec![SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([10, 0, 0, 2], 80))],
            identity: crate::balance::identity::Identity::default(),
            weight: 1,
            hostname: None,
            hash_key: None,
        };
        let endpoints = ports.into_iter().map(endpoint).collect();
        LocalityConfig::new(Locality::new(name, "", ""), 1, endpoints)
    }

    fn sizes(priority: u32, locality: u32) -> SubsetSizes {
        SubsetSizes { priority: NonZeroU32::new(priority), locality: NonZeroU32::new(locality) }
    }

    /// The ports of each locality.
    fn ports(localities: &[LocalityConfig]) -> Vec<(String, Vec<u16>)> {
        let ports = |locality: &LocalityConfig| {
            locality.endpoints.iter().map(|endpoint| endpoint.addresses[0].port()).collect()
        };
        localities.iter().map(|locality| (locality.locality.region().to_owned(), ports(locality))).collect()
    }

    fn chosen(count: u32, of: impl IntoIterator<Item = u16>, seed: u64) -> BTreeSet<u16> {
        let chosen = sizes(count, 0).choose(&[locality("a", of)], false, seed);
        ports(&chosen).into_iter().flat_map(|(_, ports)| ports).collect()
    }

    #[test]
    fn ch3_61_those_with_the_smallest_hashes_of_the_first_address_are_used_in_their_order() {
        let seed = 7;
        let mut expected: Vec<u16> = (1..=100).collect();
        expected.sort_by_key(|port| XxHash64::oneshot(seed, format!("10.0.0.1:{port}").as_bytes()));
        let chosen = sizes(10, 0).choose(&[locality("a", 1..=100)], false, seed);
        assert_eq!(ports(&chosen), [("a".to_owned(), expected[..10].to_vec())]);
        assert_eq!(chosen[0].endpoints[0].addresses.len(), 2, "an endpoint is chosen with all its addresses");
    }

    #[test]
    fn ch3_61_no_more_endpoints_than_the_size_are_all_used_in_their_order() {
        for size in [5, 6, u32::MAX] {
            let chosen = sizes(size, 0).choose(&[locality("a", [5, 1, 4, 2, 3])], false, 7);
            assert_eq!(ports(&chosen), [("a".to_owned(), vec![5, 1, 4, 2, 3])], "{size}");
        }
        let chosen = sizes(4, 0).choose(&[locality("a", [5, 1, 4, 2, 3])], false, 7);
        assert_eq!(ports(&chosen)[0].1.len(), 4);
    }

    #[test]
    fn ch3_61_an_endpoint_that_comes_or_goes_changes_one_member_at_most() {
        let mut changes = 0;
        for seed in 0..200 {
            let before = chosen(5, 1..=30, seed);
            for after in [chosen(5, 1..=31, seed), chosen(5, 2..=30, seed)] {
                let replaced = before.difference(&after).count();
                assert!(replaced <= 1, "{seed}: {before:?}, {after:?}");
                changes += replaced;
            }
        }
        assert!(changes > 20, "{changes} of 400, where 65 are likely");
    }

    #[test]
    fn ch3_61_clients_with_other_seeds_use_other_endpoints_evenly() {
        let mut counts = [0; 20];
        for seed in 0..2_000 {
            for port in chosen(5, 0..20, seed) {
                counts[usize::from(port)] += 1;
            }
        }
        // The standard deviation is 19.4.
        assert!(counts.iter().all(|count| (400..=600).contains(count)), "{counts:?}");
    }

    /// The order of the hashes mixes the localities, and more of one may be chosen than of the other.
    #[test]
    fn ch3_50_ch3_61_endpoints_of_a_subset_keep_their_weights() {
        let localities = [locality("a", 1..=10), locality("b", 11..=20)];
        for seed in 0..20 {
            let chosen = sizes(5, 0).choose(&localities, false, seed);
            let list = EndpointList::all(0, &chosen, false);
            let shares: Vec<_> = list[0].weighted().into_iter().map(|(_, share)| share).collect();
            assert_eq!(shares, [shares[0]; 5], "{seed}: {:?}", ports(&chosen));
        }
    }

    #[test]
    fn ch3_62_a_subset_is_of_the_priority_outside_of_wrr_locality_and_of_each_locality_inside() {
        let localities = [locality("a", 1..=10), locality("b", 11..=20), locality("c", [21])];
        let count = |sizes: SubsetSizes, by_locality| {
            let chosen = ports(&sizes.choose(&localities, by_locality, 3));
            (chosen.len(), chosen.iter().map(|(_, ports)| ports.len()).sum::<usize>())
        };
        assert_eq!(count(sizes(0, 4), true), (3, 9));
        let (runs, all) = count(sizes(12, 0), false);
        assert_eq!(all, 12);
        assert!(runs > 3, "in the order of the hashes: {runs} runs");
        let (runs, all) = count(sizes(12, 0), true);
        assert!(runs <= 3 && all == 12, "{runs} localities with {all} endpoints");
        let both = ports(&sizes(12, 4).choose(&localities, true, 3));
        assert!(both.iter().all(|(_, ports)| ports.len() <= 4), "{both:?}");
    }
}
