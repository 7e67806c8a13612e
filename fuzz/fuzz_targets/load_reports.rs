//! Load reports: responses of a management server, and the reports of backends in trailers. Whatever they hold, the client goes on,
//! and its reports are messages.
//!
//! An input is a sequence of steps, each a byte of its kind, two bytes of a length, and as many bytes.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use prost::Message;
use xdskit::{
    fuzzing::LoadReporting,
    pb::{envoy::service::load_stats::v3::LoadStatsResponse, google::protobuf as google},
};

fuzz_target!(|input: &[u8]| {
    let mut client = LoadReporting::new(2, 2);
    let mut rest = input;
    while let Some((&[kind, low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (bytes, next) = after.split_at(length);
        match kind % 4 {
            0 => client.receive(bytes),
            1 => client.call(kind & 4 == 0, Some(bytes)),
            2 => client.drop_call(&String::from_utf8_lossy(bytes)),
            _ => drop(client.pass(Duration::from_millis(u64::from(kind) * 40))),
        }
        check(&client);
        rest = next;
    }
    // The server asks for all load: what is counted from now on is reported, exactly.
    let interval = google::Duration { seconds: 1, nanos: 0 };
    let good = LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: Some(interval),
        ..LoadStatsResponse::default()
    };
    client.receive(&good.encode_to_vec());
    // What was counted before, and the report of zeros behind it.
    (0..3).for_each(|_| {
        client.pass(Duration::from_secs(2));
    });
    client.call(true, None);
    client.pass(Duration::from_secs(2));
    let clusters: Vec<_> = client.requests().into_iter().flat_map(|it| it.cluster_stats).collect();
    assert_eq!(clusters.len(), 2);
    for locality in clusters.iter().flat_map(|it| &it.upstream_locality_stats) {
        assert_eq!((locality.total_issued_requests, locality.total_successful_requests), (1, 1));
    }
});

fn check(client: &LoadReporting) {
    assert!(client.is_idle());
    for cluster in client.requests().iter().flat_map(|it| &it.cluster_stats) {
        let interval = cluster.load_report_interval.as_ref().expect("each report has one");
        assert!(
            interval.seconds >= 0 && interval.nanos >= 0 && interval.seconds + i64::from(interval.nanos) > 0
        );
        for locality in &cluster.upstream_locality_stats {
            let names = locality.load_metric_stats.iter();
            assert!(names.clone().count() <= 16);
            assert!(names.clone().all(|it| it.num_requests_finished_with_metric > 0));
        }
    }
}
