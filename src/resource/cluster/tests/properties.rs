//! Clusters in encodings that no encoder produces.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::resource::shapes::{
    Field,
    Shape::{Message, Number, Text},
    is_read_as_decoded, message,
};

const SOURCE: &[Field] = &[
    (1, 1, Text(&["", "/path"])),
    (2, 1, Message(&[(1, 1, Number(&[1, 9]))])),
    (3, 20, Message(&[])),
    (4, 1, Message(SPAN)),
    (5, 10, Message(&[(1, 1, Number(&[2]))])),
    (6, 5, Number(&[0, 2, 99])),
];
const SPAN: &[Field] = &[(1, 1, Number(&[0, 1, 90, u64::MAX])), (2, 1, Number(&[0, 9, u64::MAX]))];
const WRAPPED: &[Field] = &[(1, 9, Number(&[0, 1, 2, 100, 101, 1 << 32]))];
const ANY: &[Field] = &[
    (
        1,
        9,
        Text(&[
            "t/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
            "t/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
            "t/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "t/else",
        ]),
    ),
    (2, 9, Message(&[(1, 9, Text(&["shop", "cart"]))])),
];
const EXTENSION: &[Field] = &[(1, 1, Text(&["x"])), (2, 9, Message(ANY))];
const SOCKET: &[Field] = &[(2, 9, Text(&["db", ""])), (3, 9, Number(&[80])), (5, 1, Text(&["dns"]))];
const HOST: &[Field] = &[(1, 9, Message(&[(1, 9, Message(&[(1, 9, Message(SOCKET))]))]))];
const CLUSTER: &[Field] = &[
    (1, 30, Text(&["shop", "xdstp:shop", ""])),
    (2, 30, Number(&[3, 3, 3, 2, 0, 9, u64::MAX])),
    (3, 30, Message(&[(1, 20, Message(SOURCE)), (2, 9, Text(&["", "shop", "cart"]))])),
    (6, 9, Number(&[0, 0, 1, 2, 3, 6, 99, u64::MAX])),
    (10, 2, Message(&[(1, 1, Message(&[(1, 1, Number(&[0, 1])), (4, 9, Message(WRAPPED))]))])),
    (19, 2, Message(&[(2, 1, Message(SPAN)), (5, 1, Message(WRAPPED))])),
    (23, 2, Message(&[(1, 1, Message(WRAPPED)), (3, 1, Number(&[0, 1])), (4, 1, Message(WRAPPED))])),
    (24, 1, Message(&[(3, 1, Message(ANY))])),
    (25, 2, Message(&[(1, 1, Message(&[(1, 1, Text(&["a", "b"])), (2, 1, Message(&[]))]))])),
    (27, 2, Message(&[(8, 1, Message(&[(1, 1, Number(&[0, 1, 3]))]))])),
    (29, 1, Message(&[(1, 1, Message(SPAN))])),
    (33, 2, Message(&[(2, 9, Message(&[(2, 9, Message(HOST))]))])),
    (37, 2, Message(&[(1, 1, Message(WRAPPED))])),
    (38, 2, Message(&[(1, 1, Text(&["x"])), (2, 9, Message(ANY))])),
    (41, 2, Message(&[(1, 9, Message(&[(4, 9, Message(EXTENSION))]))])),
    (42, 2, Message(SOURCE)),
    (43, 1, Message(&[(1, 1, Text(&["x"]))])),
    (48, 2, Message(EXTENSION)),
    (57, 2, Text(&["cpu_utilization", "named_metrics.a", "named_metrics.*"])),
];

#[test]
fn clusters_are_read_as_they_are_decoded() {
    let accepted = Cell::new(0);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::with_cases(1000), rng);
    // Half of them begin with a valid cluster, which the following bytes change.
    let before = proptest::sample::select(vec![vec![], prost::Message::encode_to_vec(&eds())]);
    runner
        .run(&(before, message(CLUSTER)), |(before, fields)| {
            let bytes = [before, fields].concat();
            let parsed =
                is_read_as_decoded::<Cluster, cluster::Cluster>(bytes, &Context::new(), |cluster| Cluster {
                    remarks: Remarks::default(),
                    ..cluster
                })?;
            accepted.set(accepted.get() + u32::from(parsed.is_ok()));
            Ok(())
        })
        .unwrap();
    assert!(accepted.get() > 50, "only {} were accepted", accepted.get());
}
