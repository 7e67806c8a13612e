//! Assignments in encodings that no encoder produces.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::resource::shapes::{
    Field,
    Shape::{Message, Number, Text},
    is_read_as_decoded, message,
};

const WRAPPED: &[Field] = &[(1, 9, Number(&[0, 1, 2, 9, u32::MAX as u64, 1 << 32]))];
const SOCKET: &[Field] = &[
    (1, 1, Number(&[0, 1])),
    (2, 20, Text(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "::1", "x"])),
    (3, 20, Number(&[80, 81, 82, 65_536, 1 << 32])),
    (4, 1, Text(&["http"])),
    (5, 1, Text(&["dns"])),
    (6, 1, Number(&[1])),
];
const ADDRESS: &[Field] = &[(1, 20, Message(SOCKET)), (2, 1, Message(&[(1, 1, Text(&["/s"]))]))];
const ENDPOINT: &[Field] =
    &[(1, 9, Message(ADDRESS)), (3, 1, Text(&["", "a.shop"])), (4, 1, Message(&[(1, 9, Message(ADDRESS))]))];
const METADATA: &[Field] = &[(
    1,
    1,
    Message(&[
        (1, 1, Text(&["envoy.lb", "b"])),
        (
            2,
            1,
            Message(&[(
                1,
                1,
                Message(&[(1, 1, Text(&["hash_key", "a"])), (2, 1, Message(&[(3, 1, Text(&["k", ""]))]))]),
            )]),
        ),
    ]),
)];
const LB_ENDPOINT: &[Field] = &[
    (1, 30, Message(ENDPOINT)),
    (2, 5, Number(&[0, 1, 2, 3, 9, u64::MAX])),
    (3, 2, Message(METADATA)),
    (4, 5, Message(WRAPPED)),
    (5, 1, Text(&["", "name"])),
];
const PLACE: &[Field] =
    &[(1, 2, Text(&["", "r", "s"])), (2, 2, Text(&["", "z", "y"])), (3, 1, Text(&["", "s"]))];
const LOCALITY: &[Field] = &[
    (1, 9, Message(PLACE)),
    (2, 9, Message(LB_ENDPOINT)),
    (3, 9, Message(WRAPPED)),
    (5, 2, Number(&[0, 1, 1 << 32])),
    (7, 1, Message(&[(1, 1, Message(LB_ENDPOINT))])),
    (8, 1, Message(&[(2, 1, Text(&["leds"]))])),
    (9, 1, Message(METADATA)),
];
const POLICY: &[Field] = &[
    (
        2,
        1,
        Message(&[
            (1, 9, Text(&["lb", ""])),
            (2, 9, Message(&[(1, 1, Number(&[1, 7])), (2, 1, Number(&[0, 1, 9]))])),
        ]),
    ),
    (3, 1, Message(WRAPPED)),
];
const ASSIGNMENT: &[Field] =
    &[(1, 9, Text(&["shop", "cart", ""])), (2, 9, Message(LOCALITY)), (4, 1, Message(POLICY))];

/// Parses many messages; returns the number of accepted ones, and of the endpoints in them.
fn try_all<T: Resource + PartialEq + Clone, M: prost::Message + Default>(
    fields: &'static [Field],
    without_remarks: fn(T) -> T,
    count: impl Fn(&T) -> usize,
) -> (usize, usize) {
    let seen = Cell::new((0, 0));
    let mut runner =
        TestRunner::new_with_rng(Config::with_cases(1500), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    runner
        .run(&message(fields), |bytes| {
            if let Ok(parsed) = is_read_as_decoded::<T, M>(bytes, &Context::new(), without_remarks)? {
                let (accepted, endpoints) = seen.get();
                seen.set((accepted + 1, endpoints + count(&parsed)));
            }
            Ok(())
        })
        .unwrap();
    seen.get()
}

#[test]
fn assignments_are_read_as_they_are_decoded() {
    let count = |assignment: &ClusterLoadAssignment| assignment.endpoints().count();
    let without_remarks = |assignment| ClusterLoadAssignment { remarks: Remarks::default(), ..assignment };
    let seen =
        try_all::<ClusterLoadAssignment, endpoint::ClusterLoadAssignment>(ASSIGNMENT, without_remarks, count);
    assert!(seen.0 > 40 && seen.1 > 4, "too few were accepted, with too few endpoints: {seen:?}");
}

#[test]
fn endpoints_are_read_as_they_are_decoded() {
    let count =
        |endpoint: &Endpoint| endpoint.additional_addresses().len() + endpoint.metadata().iter().count();
    let seen = try_all::<Endpoint, LbEndpoint>(LB_ENDPOINT, |endpoint| endpoint, count);
    assert!(seen.0 > 40 && seen.1 > 4, "too few were accepted, with too little in them: {seen:?}");
}
