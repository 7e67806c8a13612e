//! The list of addresses that pick_first tries (A61, A62, A113).

use std::collections::HashSet;

use super::identity::Destination;

/// The destinations without repetitions, with the families in turns, beginning with the family of the first (CH3.14; RFC 8305,
/// section 4).
pub(super) fn interleaved(destinations: impl IntoIterator<Item = Destination>) -> Vec<Destination> {
    // By destination, not by address: one address with two identities has connections of both (CH7.20).
    let mut known = HashSet::new();
    let mut unique: Vec<_> =
        destinations.into_iter().filter(|destination| known.insert(destination.clone())).collect();
    let Some(first) = unique.first() else { return unique };
    let is_ipv4 = first.address.is_ipv4();
    // `pop` takes from the end: reversing the list once is cheaper than shifting it at each turn.
    unique.reverse();
    let (mut same, mut other): (Vec<_>, Vec<_>) =
        unique.into_iter().partition(|destination| destination.address.is_ipv4() == is_ipv4);
    let mut turn = false;
    std::iter::from_fn(|| {
        turn = !turn;
        let (preferred, otherwise) = if turn { (&mut same, &mut other) } else { (&mut other, &mut same) };
        // A family that is used up leaves its turns to the other one.
        preferred.pop().or_else(|| otherwise.pop())
    })
    .collect()
}

/// The endpoints in a random order in which the weight of each is its chance to come before the others (CH3.15).
pub(super) fn shuffled<T>(endpoints: Vec<(T, u64)>, random: &mut fastrand::Rng) -> Vec<T> {
    let mut key = |weight: u64| {
        // Above 0, so that the logarithm is finite. Its order is that of u^(1 / weight).
        let uniform = 1.0 - random.f64();
        uniform.ln() / weight.max(1) as f64
    };
    let mut keyed: Vec<_> = endpoints.into_iter().map(|(endpoint, weight)| (key(weight), endpoint)).collect();
    // Descending: the endpoint with the greatest key comes first (A113).
    keyed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    keyed.into_iter().map(|(_, endpoint)| endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interleaved_texts(addresses: &[&str]) -> Vec<String> {
        let parsed = addresses.iter().map(|text| text.parse::<std::net::SocketAddr>().unwrap());
        interleaved(parsed.map(Into::into)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ch3_14_families_take_turns_and_repetitions_are_left_out() {
        let list = ["[::1]:1", "[::2]:1", "[::1]:1", "1.0.0.1:1", "[::3]:1", "1.0.0.2:1", "1.0.0.1:1"];
        assert_eq!(interleaved_texts(&list), ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "[::3]:1"]);
        assert_eq!(interleaved_texts(&["1.0.0.1:1", "1.0.0.2:1"]), ["1.0.0.1:1", "1.0.0.2:1"]);
        assert_eq!(
            interleaved_texts(&["1.0.0.1:1", "[::1]:1", "[::2]:1"]),
            ["1.0.0.1:1", "[::1]:1", "[::2]:1"]
        );
        assert!(interleaved_texts(&[]).is_empty());
    }

    #[test]
    fn ch3_15_an_endpoint_is_first_in_proportion_to_its_weight() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut first = [0_u32; 3];
        for _ in 0..30_000 {
            let order = shuffled(vec![(0, 1), (1, 2), (2, 7)], &mut random);
            first[order[0]] += 1;
            let mut all = order;
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        }
        for (count, share) in first.into_iter().zip([3_000_u32, 6_000, 21_000]) {
            assert!(count.abs_diff(share) < share / 10, "{count} of {share}");
        }
    }

    #[test]
    fn ch3_15_the_largest_weights_stay_apart() {
        let mut random = fastrand::Rng::with_seed(1);
        let first = (0..1_000).filter(|_| shuffled(vec![(0, 1), (1, u64::MAX)], &mut random)[0] == 1).count();
        assert_eq!(first, 1_000);
    }
}
