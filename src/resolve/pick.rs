//! Weighted picks. They are pure functions of a number, which is uniformly distributed over all of `u64`.

use std::num::NonZeroU32;

use crate::resource::{Endpoint, endpoints::LocalityEndpoints};

/// An endpoint for a new request: a locality by its weight, then an endpoint by its own. Localities without a usable endpoint
/// have no share.
///
/// No allocation, and two passes over the localities of one priority: this is on the path of a call of applications that
/// balance by themselves.
pub(super) fn endpoint(
    localities: &[LocalityEndpoints],
    number: u64,
) -> Option<(&LocalityEndpoints, &Endpoint)> {
    // A locality with unusable endpoints alone would get its share of the picks, and they would fail.
    let usable = localities.iter().filter(|locality| locality.endpoints.iter().any(Endpoint::is_healthy));
    let (locality, number) = weighted(usable, |locality| locality.weight, number)?;
    let usable = locality.endpoints.iter().filter(|endpoint| endpoint.is_healthy());
    let (endpoint, _) = weighted(usable, |endpoint| endpoint.weight, number)?;
    Some((locality, endpoint))
}

/// One of the items in proportion to the weights, which add up to `u32::MAX` at most, and a number for the next pick: its
/// position within the share of the item, so it is uniform for each item.
///
/// The product of a number and the total needs 96 bits, and no division that would prefer some items.
fn weighted<'a, T>(
    items: impl Iterator<Item = &'a T> + Clone,
    weight: impl Fn(&T) -> NonZeroU32,
    number: u64,
) -> Option<(&'a T, u64)> {
    let weight = |item| u128::from(weight(item).get());
    let total: u128 = items.clone().map(&weight).sum();
    // A fixed-point number with 64 bits after the point: below the total.
    let mut position = u128::from(number) * total;
    for item in items {
        let width = weight(item) << 64;
        if position < width {
            return Some((item, (position / weight(item)) as u64));
        }
        position -= width;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        pb::google::protobuf::UInt32Value,
        resolve::fixture::{assignment, eds, locality, snapshot},
        resource::ClusterLoadAssignment,
    };

    /// The localities of one priority, each with a weight and its endpoints: an address, a state of health and a weight.
    fn localities(localities: &[(u32, &[(&str, u32)])]) -> Arc<ClusterLoadAssignment> {
        let zones = ["a", "b", "c"].into_iter().zip(localities);
        let localities = zones.map(|(zone, (weight, endpoints))| {
            let texts: Vec<_> = endpoints.iter().map(|(text, _)| *text).collect();
            let mut message = locality(0, zone, &texts);
            message.load_balancing_weight = Some(UInt32Value { value: *weight });
            for (endpoint, (_, weight)) in message.lb_endpoints.iter_mut().zip(*endpoints) {
                endpoint.load_balancing_weight = Some(UInt32Value { value: *weight });
            }
            message
        });
        assignment("a", localities.collect())
    }

    /// The middles of `count` equal parts of all numbers.
    fn grid(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |i| (((2 * u128::from(i) + 1) << 63) / u128::from(count)) as u64)
    }

    /// The number of picks of each port by the numbers of an even grid.
    fn shares(assignment: &ClusterLoadAssignment, count: u64) -> BTreeMap<u16, u64> {
        let mut shares = BTreeMap::new();
        for number in grid(count) {
            let (_, endpoint) = endpoint(&assignment.priorities[0].localities, number).expect("a usable one");
            *shares.entry(endpoint.address().port()).or_default() += 1;
        }
        shares
    }

    #[test]
    fn shares_are_those_of_the_locality_times_those_of_the_endpoint() {
        let all = localities(&[
            (1, &[("10.0.0.1:1", 1), ("10.0.0.1:2", 3)]),
            (2, &[("10.0.0.1:3", 1), ("10.0.0.1:4", 1)]),
            (3, &[("10.0.0.1:5", 5)]),
        ]);
        // Of 48: a locality has 8, 16, or 24.
        assert_eq!(shares(&all, 48), BTreeMap::from([(1, 2), (2, 6), (3, 8), (4, 8), (5, 24)]));
        assert_eq!(shares(&all, 4800), BTreeMap::from([(1, 200), (2, 600), (3, 800), (4, 800), (5, 2400)]));
    }

    #[test]
    fn unusable_endpoints_and_localities_without_others_have_no_share() {
        let all = localities(&[
            (1, &[("10.0.0.1:1 UNHEALTHY", 9), ("10.0.0.1:2 HEALTHY", 1), ("10.0.0.1:3", 2)]),
            (7, &[("10.0.0.1:4 DRAINING", 1)]),
            (2, &[("10.0.0.1:5", 1)]),
        ]);
        assert_eq!(shares(&all, 9), BTreeMap::from([(2, 1), (3, 2), (5, 6)]));
        let none = localities(&[(1, &[("10.0.0.1:1 UNHEALTHY", 1)]), (1, &[])]);
        assert!(endpoint(&none.priorities[0].localities, 0).is_none());
        assert!(endpoint(&[], u64::MAX).is_none());
    }

    #[test]
    fn the_largest_weights_and_numbers_do_not_overflow() {
        let all =
            localities(&[(u32::MAX - 1, &[("10.0.0.1:1", u32::MAX)]), (1, &[("10.0.0.1:2", u32::MAX)])]);
        let port = |number| {
            endpoint(&all.priorities[0].localities, number).map(|(_, endpoint)| endpoint.address().port())
        };
        // The second locality has the last 2^64 / (2^32 - 1) numbers.
        let first = (((u128::from(u32::MAX) - 1) << 64).div_ceil(u128::from(u32::MAX))) as u64;
        assert_eq!([0, first - 1, first, u64::MAX].map(port), [Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn a_cluster_picks_from_its_first_usable_priority() {
        let snapshot = snapshot("shop")
            .aggregate("all", &["none", "a"])
            .entry(eds("none", &[&["10.0.0.1:1 UNHEALTHY"]]))
            .eds("a", &[&["10.0.0.1:2 DRAINING"], &["10.0.0.1:3", "10.0.0.1:4"], &["10.0.0.1:5"]])
            .build();
        let all = snapshot.cluster("all").unwrap();
        let picked: BTreeMap<_, _> = (0..64)
            .filter_map(|random| all.pick_endpoint(random))
            .map(|endpoint| {
                (endpoint.address().port(), (endpoint.cluster().name(), endpoint.priority().index()))
            })
            .collect();
        assert_eq!(picked, BTreeMap::from([(3, ("a", 1)), (4, ("a", 1))]));
        let again = || all.pick_endpoint(7).map(|endpoint| endpoint.address());
        assert_eq!(again(), again());
        assert!(snapshot.cluster("none").unwrap().pick_endpoint(0).is_none());
    }
}
