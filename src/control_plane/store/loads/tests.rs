#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::{Duration, Instant};

use super::*;
use crate::{
    config::Locality,
    pb::{
        envoy::{
            config::{
                core::v3 as core,
                endpoint::v3::{
                    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats,
                    UpstreamEndpointStats, UpstreamLocalityStats, cluster_stats::DroppedRequests,
                },
            },
            service::load_stats::v3::LoadStatsRequest,
        },
        google::protobuf,
    },
};

fn locality(zone: &str, [issued, successful, failed, in_progress]: [u64; 4]) -> UpstreamLocalityStats {
    UpstreamLocalityStats {
        locality: Some(core::Locality { region: "eu".into(), zone: zone.into(), ..Default::default() }),
        total_issued_requests: issued,
        total_successful_requests: successful,
        total_error_requests: failed,
        total_requests_in_progress: in_progress,
        ..UpstreamLocalityStats::default()
    }
}

fn cluster(name: &str, localities: Vec<UpstreamLocalityStats>) -> ClusterStats {
    ClusterStats {
        cluster_name: name.into(),
        upstream_locality_stats: localities,
        load_report_interval: Some(protobuf::Duration { seconds: 1, nanos: 500_000_000 }),
        ..ClusterStats::default()
    }
}

fn report(stream: u64, cluster_stats: Vec<ClusterStats>) -> LoadReport {
    let message = LoadStatsRequest { node: None, cluster_stats };
    LoadReport::new("node".into(), stream, message, Instant::now())
}

fn loads(reports: impl IntoIterator<Item = LoadReport>) -> Loads {
    let mut loads = Loads::new();
    reports.into_iter().for_each(|report| loads.add(report));
    loads
}

/// A locality with metrics and two endpoints, one of them without an address.
fn detailed_locality() -> UpstreamLocalityStats {
    let metric = |name: &str, count, sum| EndpointLoadMetricStats {
        metric_name: name.into(),
        num_requests_finished_with_metric: count,
        total_metric_value: sum,
    };
    let address = core::SocketAddress {
        address: "10.0.0.1".into(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(80)),
        ..core::SocketAddress::default()
    };
    let endpoint = UpstreamEndpointStats {
        address: Some(core::Address { address: Some(core::address::Address::SocketAddress(address)) }),
        total_issued_requests: 2,
        total_error_requests: 1,
        load_metric_stats: vec![metric("m", 1, 0.5)],
        ..UpstreamEndpointStats::default()
    };
    let cpu =
        UnnamedEndpointLoadMetricStats { num_requests_finished_with_metric: 2, total_metric_value: 0.75 };
    UpstreamLocalityStats {
        cpu_utilization: Some(cpu),
        load_metric_stats: vec![metric("m", 1, 0.5), metric("m", 2, 1.0)],
        upstream_endpoint_stats: vec![endpoint, UpstreamEndpointStats::default()],
        priority: 3,
        ..locality("a", [4, 3, 2, 1])
    }
}

#[test]
fn lr10_3_reports_are_typed() {
    let stats = ClusterStats {
        cluster_service_name: "service".into(),
        total_dropped_requests: 5,
        dropped_requests: vec![DroppedRequests { category: "throttle".into(), dropped_count: 4 }],
        ..cluster("shop", vec![detailed_locality()])
    };
    let report = report(1, vec![stats]);
    let load = report.cluster("shop").unwrap();
    assert_eq!((load.cluster.as_str(), load.service.as_deref()), ("shop", Some("service")));
    assert_eq!(load.interval, Some(Duration::from_millis(1500)));
    assert_eq!((load.dropped, load.dropped_by_category["throttle"]), (5, 4));
    let zone = load.locality("eu", "a", "").unwrap();
    let counts = RequestCounts { issued: 4, successful: 3, failed: 2, in_progress: 1 };
    assert_eq!((zone.requests, zone.priority), (counts, 3));
    assert_eq!(zone.cpu_utilization, Some(LoadMetric { count: 2, sum: 0.75 }));
    assert_eq!((zone.memory_utilization, zone.application_utilization), (None, None));
    assert_eq!(zone.metrics["m"], LoadMetric { count: 3, sum: 1.5 }, "of two entries with the same name");
    let [first, other] = &zone.endpoints[..] else { panic!("two endpoints") };
    assert_eq!((first.address, other.address), (Some("10.0.0.1:80".parse().unwrap()), None));
    assert_eq!(first.requests, RequestCounts { issued: 2, failed: 1, ..RequestCounts::default() });
    assert_eq!(first.metrics["m"], LoadMetric { count: 1, sum: 0.5 });
    assert_eq!(load.locality("eu", "b", ""), None);
}

#[test]
fn lr10_3_intervals_that_are_not_valid_are_none() {
    for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
        let interval = Some(protobuf::Duration { seconds, nanos });
        let stats = ClusterStats { load_report_interval: interval, ..cluster("shop", Vec::new()) };
        assert_eq!(report(1, vec![stats]).cluster("shop").unwrap().interval, None);
    }
}

#[test]
fn lr10_3_totals_are_sums_of_all_reports_of_a_cluster() {
    let dropped = |count| DroppedRequests { category: "throttle".into(), dropped_count: count };
    let with_drops = |total, by_category, localities| ClusterStats {
        total_dropped_requests: total,
        dropped_requests: vec![dropped(by_category)],
        ..cluster("shop", localities)
    };
    let loads = loads([
        report(1, vec![with_drops(3, 2, vec![locality("a", [10, 6, 1, 3]), locality("b", [1, 1, 0, 0])])]),
        report(2, vec![with_drops(1, 1, vec![locality("a", [5, 0, 0, 5])]), cluster("other", Vec::new())]),
        report(1, vec![cluster("shop", vec![locality("a", [0, 1, 1, 1])])]),
    ]);
    let totals = loads.totals("shop");
    assert_eq!((totals.issued, totals.successful, totals.failed, totals.in_progress), (16, 8, 2, 6));
    assert_eq!((totals.reports, totals.interval), (3, Duration::from_millis(4500)));
    assert_eq!((totals.dropped, totals.dropped_by_category["throttle"]), (4, 3));
    let zone = &totals.localities[&Locality::new("eu", "a", "")];
    assert_eq!((zone.issued, zone.successful, zone.failed), (15, 7, 2));
    assert_eq!(loads.clusters().collect::<Vec<_>>(), ["other", "shop"]);
    assert_eq!(loads.totals("unknown"), LoadTotals::default());
}

#[test]
fn lr10_3_totals_of_localities_have_their_metrics_and_endpoints() {
    let one = || report(1, vec![cluster("shop", vec![detailed_locality()])]);
    let totals = loads([one(), one()]).totals("shop");
    let zone = &totals.localities[&Locality::new("eu", "a", "")];
    assert_eq!(zone.cpu_utilization, LoadMetric { count: 4, sum: 1.5 });
    assert_eq!(zone.memory_utilization, LoadMetric::default());
    assert_eq!(zone.metrics["m"], LoadMetric { count: 6, sum: 3.0 });
    let endpoints: Vec<_> = zone.endpoints.iter().collect();
    let counts = RequestCounts { issued: 4, failed: 2, ..RequestCounts::default() };
    assert_eq!(endpoints, [(&"10.0.0.1:80".parse().unwrap(), &counts)]);
}

#[test]
fn lr10_3_requests_in_progress_are_those_of_the_newest_report_of_open_streams() {
    let in_progress = |requests| cluster("shop", vec![locality("a", [0, 0, 0, requests])]);
    let of_service =
        |requests| ClusterStats { cluster_service_name: "service".into(), ..in_progress(requests) };
    let mut loads = loads([report(1, vec![in_progress(3), of_service(4)]), report(2, vec![in_progress(5)])]);
    assert_eq!(loads.totals("shop").in_progress, 12);
    loads.add(report(1, vec![in_progress(1)]));
    assert_eq!(loads.totals("shop").in_progress, 10);
    loads.add(report(1, vec![cluster("shop", Vec::new())]));
    assert_eq!(loads.totals("shop").in_progress, 9, "the closing report has no requests");
    loads.on_stream_ended(2);
    assert_eq!(loads.totals("shop").in_progress, 4);
}

#[test]
fn lr10_3_the_oldest_reports_are_dropped_and_their_sums_stay() {
    let one = || report(1, vec![cluster("shop", vec![locality("a", [1, 0, 0, 1])])]);
    let mut loads = Loads::new().with_max_bytes(2 * one().bytes());
    for _ in 0..5 {
        loads.add(one());
    }
    assert_eq!(loads.reports().count(), 2);
    assert_eq!(loads.totals("shop").issued, 5);
    assert_eq!(loads.at(0).map(|(_, next)| next), Some(4), "the oldest that is kept");
    assert_eq!(loads.at(4).map(|(_, next)| next), Some(5));
    assert_eq!(loads.at(5), None);
    loads.clear();
    assert_eq!((loads.at(0), loads.totals("shop")), (None, LoadTotals::default()));
    loads.add(one());
    assert_eq!(loads.at(0).map(|(_, next)| next), Some(6), "positions go on");
    let loads = loads.with_max_bytes(0);
    assert_eq!(loads.reports().count(), 1, "the newest stays");
}

#[test]
fn lr10_3_clients_cannot_add_names_without_end() {
    let mut loads = Loads { room: 3, ..Loads::new() };
    let name = |name: &str| cluster(name, vec![locality(name, [1, 0, 0, 0])]);
    loads.add(report(1, vec![name("a"), name("b"), name("c"), name("a")]));
    assert_eq!(loads.clusters().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(loads.totals("a").localities.len(), 1);
    assert_eq!(loads.totals("b").localities.len(), 0);
    assert_eq!((loads.totals("a").issued, loads.totals("b").issued), (2, 1), "its sum is complete");
}
