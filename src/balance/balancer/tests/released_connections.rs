//! Connections outlive changes of priorities, localities and policies.

use super::*;

#[test]
fn ch3_7_endpoints_that_move_between_priorities_and_localities_keep_their_connections() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    let priorities = vec![vec![locality("b", 3, &[2])], vec![locality("a", 1, &[1])]];
    it.update(configs(&[("shop", leaf(ROUND_ROBIN, priorities))], &[("shop", &["shop"])]));
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    assert_eq!(it.drained, [], "the second priority is kept, although it is not needed");
    it.update(shop(ROUND_ROBIN, &[&[3], &[2, 4]]));
    assert_eq!(
        (it.drained.as_slice(), it.attempted()),
        (&[address(1)][..], vec![3]),
        "2 is kept, 4 is not needed"
    );
    assert!(matches!(it.pick("shop"), Pick::Queue), "the first priority connects");
    it.fail(3);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]), "the second one is ready already");
    assert_eq!(it.attempted(), [4], "its other endpoints are needed now");
    it.wait(15 * 60);
    assert_eq!(it.drained, [address(1)]);
}

#[test]
fn ch3_56_a_priority_that_was_kept_for_a_moved_connection_ends_after_15_min() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.update(shop(ROUND_ROBIN, &[&[2], &[1, 3]]));
    it.wait(899);
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[][..], vec![]));
    it.wait(1);
    assert_eq!(it.drained, [address(1)]);
}

#[test]
fn ch3_7_connections_outlive_a_change_of_the_policy() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.update(shop(PICK_FIRST, &[&[3, 2, 1]]));
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]), "the first address with a connection");
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(1)][..], vec![]));
    it.update(shop(ROUND_ROBIN, &[&[3, 2, 1]]));
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    assert_eq!((it.drained.len(), it.attempted()), (1, vec![1, 3]));
}

#[test]
fn ch3_7_pick_first_keeps_its_connection_when_its_priority_moves() {
    let mut it = Fixture::new(shop(PICK_FIRST, &[&[1], &[2]]));
    it.connect(1);
    it.update(shop(PICK_FIRST, &[&[3], &[1]]));
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[][..], vec![3]));
    it.fail(3);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]));
}

#[test]
fn ch3_13_another_type_of_policy_is_used_when_it_has_connected_or_failed() {
    for connects in [true, false] {
        let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
        it.connect_all();
        it.update(shop(PICK_FIRST, &[&[3]]));
        assert_eq!(it.ports(), BTreeMap::from([(1, 20), (2, 20)]), "while the next one connects");
        assert_eq!((it.drained.as_slice(), it.attempted()), (&[][..], vec![3]));
        it.lose(1);
        assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
        if connects {
            it.connect(3);
            assert_eq!(it.ports(), BTreeMap::from([(3, 40)]));
        } else {
            it.fail(3);
            assert!(matches!(it.pick("shop"), Pick::Fail(_)));
        }
        assert_eq!(it.drained, [address(2)]);
    }
}

#[test]
fn ch3_13_the_policy_before_ends_with_its_last_connection() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1]]));
    it.connect(1);
    it.update(shop(PICK_FIRST, &[&[2]]));
    it.update(shop(PICK_FIRST, &[&[3]]));
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]), "another list does not end it");
    it.lose(1);
    assert!(matches!(it.pick("shop"), Pick::Queue));
    it.connect(3);
    assert_eq!((it.ports(), it.drained.as_slice()), (BTreeMap::from([(3, 40)]), &[][..]));
}

#[test]
fn ch3_13_of_two_endpoints_with_one_address_the_one_whose_connection_is_lost_is_not_picked() {
    let mut both = locality("a", 1, &[7, 6]);
    both.endpoints[1].addresses = vec![address(6), address(7)];
    let leaves = [("shop", leaf(ROUND_ROBIN, vec![vec![both]]))];
    let mut it = Fixture::new(configs(&leaves, &[("shop", &["shop"])]));
    it.connect(7);
    let first = it.connections.remove(&address(7)).expect("it is connected");
    it.fail(6);
    it.connect(7);
    it.update(shop(PICK_FIRST, &[&[3]]));
    it.balancer.on_lost(first, it.now);
    it.drain();
    let second = it.connections[&address(7)];
    for _ in 0..10 {
        let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
        assert_eq!(attempt.endpoint.connection, second);
    }
}

#[test]
fn ch3_7_an_endpoint_that_is_connecting_takes_over_the_connection_to_its_address() {
    let with = |endpoints: &[&[u16]]| {
        let ports: Vec<_> = endpoints.iter().map(|addresses| addresses[0]).collect();
        let mut list = locality("a", 1, &ports);
        for (endpoint, addresses) in list.endpoints.iter_mut().zip(endpoints) {
            endpoint.addresses = addresses.iter().copied().map(address).collect();
        }
        configs(&[("shop", leaf(ROUND_ROBIN, vec![vec![list]]))], &[("shop", &["shop"])])
    };
    let mut it = Fixture::new(with(&[&[7, 8], &[6, 7]]));
    it.connect(7);
    it.update(with(&[&[6, 7]]));
    assert_eq!((it.ports(), it.attempted()), (BTreeMap::from([(7, 40)]), vec![]));
    assert_eq!(it.drained, []);
}
