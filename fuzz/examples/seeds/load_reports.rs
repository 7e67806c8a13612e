//! Steps of load reporting.

use prost::Message;
use xdskit::pb::{envoy::service::load_stats::v3::LoadStatsResponse, google::protobuf as google};

/// The inputs, by file.
pub(crate) fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let response = |clusters: &[&str], seconds| {
        LoadStatsResponse {
            clusters: clusters.iter().map(ToString::to_string).collect(),
            send_all_clusters: clusters.is_empty(),
            load_reporting_interval: Some(google::Duration { seconds, nanos: 5 }),
            report_endpoint_granularity: seconds > 1,
        }
        .encode_to_vec()
    };
    // cpu_utilization 1.0, named_metrics {"a": 0.5}
    let report = b"\x09\0\0\0\0\0\0\xf0\x3f\x42\x0c\x0a\x01a\x11\0\0\0\0\0\0\xe0\x3f";
    let steps: [(u8, &[u8]); 4] = [(1, report), (5, b""), (2, b"throttle"), (63, b"")];
    let rest: Vec<u8> = steps.iter().flat_map(|(kind, bytes)| step(*kind, bytes)).collect();
    vec![
        ("load_reports/all", [step(0, &response(&[], 1)), rest.clone()].concat()),
        ("load_reports/named", [step(0, &response(&["cluster-0", "other"], 2)), rest].concat()),
    ]
}

fn step(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a short step");
    [&[kind], &length.to_le_bytes()[..], bytes].concat()
}
