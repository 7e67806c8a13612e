//! What counts as what, and the messages that it gives.

use prost::Message;

use super::rig::{self, Rig, all, millis, only, secs};
use crate::{
    config::Locality,
    lrs::{LoadSettings, Outcome, destination::ReportKey},
    pb::envoy::config::endpoint::v3::ClusterStats,
    protocol::DisconnectKind,
};

#[test]
fn lr4_1_equal_states_give_equal_bytes_in_the_order_of_names() {
    let bytes = |order: &[&str]| {
        let mut rig = Rig::new();
        for name in order {
            let reporter = rig.loads.reporter(name);
            rig.set(name, 0);
            for zone in order {
                drop(reporter.locality(&Locality::new("r", zone, "")).call_started());
                reporter.dropped(zone);
            }
            rig.keep.push(reporter);
        }
        rig.commands();
        rig.open(0);
        rig.respond(0, &all(1));
        rig.advance(secs(1));
        rig.raw.clone()
    };
    assert_eq!(bytes(&["a", "b", "c"]), bytes(&["c", "a", "b"]));
}

#[test]
fn lr4_2_lr4_3_lr4_5_a_report_names_the_cluster_its_service_its_localities_and_its_drops() {
    let mut rig = Rig::new();
    let shop = rig.loads.reporter("shop");
    rig.set_service("shop", 0, Some("shop-service"));
    let zones = [Locality::new("r", "a", "s"), Locality::default()].map(|it| shop.locality(&it));
    zones[0].call_started().finish(Outcome::Success, None);
    zones[0].call_started().finish(Outcome::Error, None);
    let call = zones[1].call_started();
    (0..3).for_each(|_| shop.dropped("throttle"));
    shop.drop_reporter("shed").dropped();
    shop.dropped_uncategorised();
    shop.dropped("");
    rig.commands();
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!((&*report.cluster_name, &*report.cluster_service_name), ("shop", "shop-service"));
    let localities: Vec<_> = report
        .upstream_locality_stats
        .iter()
        .map(|it| {
            let at = it.locality.as_ref().expect("the message is there");
            let calls = [it.total_issued_requests, it.total_successful_requests, it.total_error_requests];
            (
                format!("{}/{}/{}", at.region, at.zone, at.sub_zone),
                calls,
                it.total_requests_in_progress,
                it.priority,
            )
        })
        .collect();
    assert_eq!(localities, [("//".to_owned(), [1, 0, 0], 1, 0), ("r/a/s".to_owned(), [2, 1, 1], 0, 0)]);
    let drops: Vec<_> = report.dropped_requests.iter().map(|it| (&*it.category, it.dropped_count)).collect();
    assert_eq!((report.total_dropped_requests, drops), (6, vec![("shed", 1), ("throttle", 3)]));
    drop(call);
    rig.set_service("shop", 0, None);
    drop(zones[0].call_started());
    let reports = rig.advance(secs(1));
    let keys: Vec<_> = reports.iter().map(|it| &*it.cluster_service_name).collect();
    assert_eq!(keys, ["", "shop-service"], "LR5.8: the old call ended where it began");
    assert_eq!(reports[1].upstream_locality_stats[0].total_error_requests, 1);
}

#[test]
fn lr4_4_a_locality_has_the_counts_since_its_last_report_and_no_connections() {
    let mut rig = Rig::reporting();
    let call = rig.zone().call_started();
    rig.zone().call_started().finish(Outcome::Success, None);
    rig.zone().call_started().finish(Outcome::Error, None);
    let counts = |reports: &[ClusterStats]| {
        let it = &reports[0].upstream_locality_stats[0];
        let ended = [it.total_issued_requests, it.total_successful_requests, it.total_error_requests];
        (ended, it.total_requests_in_progress)
    };
    assert_eq!(counts(&rig.advance(secs(1))), ([3, 1, 1], 1));
    // The messages of this crate have no fields for numbers of connections, which would be lost in between.
    assert_eq!(rig.raw, rig.requests.iter().map(Message::encode_to_vec).collect::<Vec<_>>());
    call.finish(Outcome::Success, None);
    assert_eq!(counts(&rig.advance(secs(1))), ([0, 1, 0], 0));
}

#[test]
fn lr4_6_intervals_are_measured_and_cover_gaps() {
    let mut rig = Rig::reporting();
    drop(rig.zone().call_started());
    rig.advance(secs(1));
    rig.advance(millis(400));
    drop(rig.zone().call_started());
    rig.disconnect(0, DisconnectKind::Closed);
    rig.advance(secs(2));
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(millis(1_000)));
    let interval = report.load_report_interval.unwrap();
    assert_eq!((interval.seconds, interval.nanos), (3, 400_000_000));
}

#[test]
fn lr4_7_lr4_8_lr4_9_one_report_of_zeros_follows_activity_and_then_nothing() {
    let mut rig = Rig::reporting();
    let other = rig.keep[0].locality(&Locality::new("other", "", ""));
    let call = rig.zone().call_started();
    drop(other.call_started());
    assert_eq!(only(&rig.advance(secs(1))).upstream_locality_stats.len(), 2);
    for _ in 0..3 {
        let report = only(&rig.advance(secs(1)));
        assert_eq!(report.upstream_locality_stats.len(), 1, "the one with zeros is left out");
        assert_eq!(report.upstream_locality_stats[0].total_requests_in_progress, 1, "it is not quiet");
    }
    drop(call);
    assert_eq!(only(&rig.advance(secs(1))).upstream_locality_stats[0].total_error_requests, 1);
    let zeros = only(&rig.advance(secs(1)));
    assert_eq!(zeros.upstream_locality_stats.len(), 1);
    assert_eq!(zeros.upstream_locality_stats[0].total_issued_requests, 0);
    assert!(rig.advance(secs(10)).is_empty());
    drop(other.call_started());
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.load_report_interval.unwrap().seconds, 11, "since the report of zeros");
}

#[test]
fn lr4_9_lr5_2_drops_alone_are_reported_and_not_issued() {
    let mut rig = Rig::reporting();
    rig.keep[0].dropped_uncategorised();
    let report = only(&rig.advance(secs(1)));
    assert_eq!((report.total_dropped_requests, report.upstream_locality_stats.len()), (1, 0));
    assert_eq!(report.dropped_requests.len(), 0);
}

#[test]
fn lr4_10_large_reports_are_split_between_clusters() {
    let mut rig = Rig::with(LoadSettings { max_request_size: 300, slice: 4, ..LoadSettings::default() });
    let names: Vec<_> = (0..30).map(|number| format!("cluster-{number:02}")).collect();
    let zones: Vec<_> = names.iter().map(|name| rig.begin(name, 0)).collect();
    rig.open(0);
    rig.respond(0, &all(1));
    zones.iter().for_each(|zone| drop(zone.call_started()));
    // One has more than fits into a request.
    let large = rig.loads.reporter("cluster-07");
    let more: Vec<_> = (0..40).map(|it| large.locality(&Locality::new("r", &it.to_string(), ""))).collect();
    more.iter().for_each(|zone| drop(zone.call_started()));
    let reports = rig.advance(secs(1));
    assert_eq!(reports.iter().map(|it| it.cluster_name.clone()).collect::<Vec<_>>(), names);
    assert!(rig.requests.len() > 5);
    for (request, raw) in rig.requests.iter().zip(&rig.raw) {
        assert!(raw.len() <= 300 || request.cluster_stats.len() == 1, "{} bytes", raw.len());
    }
    assert!(rig.raw.iter().any(|raw| raw.len() > 300));
    assert_eq!(rig.reporting.poll_timeout(), Some(rig.now + secs(1)));
}

#[test]
fn lr5_5_lr5_6_a_call_is_issued_once_and_ends_once() {
    let mut rig = Rig::reporting();
    let counts = |rig: &mut Rig| {
        let report = only(&rig.advance(secs(1)));
        let it = &report.upstream_locality_stats[0];
        [
            it.total_issued_requests,
            it.total_requests_in_progress,
            it.total_successful_requests,
            it.total_error_requests,
        ]
    };
    let (one, other) = (rig.zone().call_started(), rig.zone().call_started());
    assert_eq!(counts(&mut rig), [2, 2, 0, 0]);
    assert_eq!(counts(&mut rig), [0, 2, 0, 0]);
    one.finish(Outcome::Success, None);
    assert_eq!(counts(&mut rig), [0, 1, 1, 0]);
    drop(other);
    assert_eq!(counts(&mut rig), [0, 0, 0, 1]);
}

#[test]
fn lr5_8_lr1_3_a_failover_leaves_calls_where_they_began() {
    let mut rig = Rig::reporting();
    let zone = rig.zone().clone();
    let call = zone.call_started();
    rig.set("shop", 1);
    assert_eq!(rig.commands(), ["connect 1.1"], "the old one goes on, for the call");
    drop(zone.call_started());
    rig.open(1);
    rig.respond(1, &all(1));
    let reports = rig.advance(secs(1));
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0].upstream_locality_stats[0].total_requests_in_progress, 1);
    assert_eq!(reports[1].upstream_locality_stats[0].total_error_requests, 1);
    drop(call);
    rig.advance(secs(1));
    assert_eq!(rig.finished, [0], "the last call has ended");
    rig.set("shop", 0);
    drop(zone.call_started());
    assert!(!zone.call_started().wants_metrics());
    let key = ReportKey { cluster: "shop".into(), service: None };
    assert_eq!(rig.loads.lock().servers[0].stats(&key).unwrap().localities.len(), 1);
}

#[test]
fn lr9_3_equal_localities_have_the_same_counters() {
    let mut rig = Rig::reporting();
    let place = Locality::new("r", "z", "");
    assert!(rig.keep[0].locality(&place) == *rig.zone());
    assert!(rig.loads.reporter("shop").locality(&place) == *rig.zone());
    drop(rig.loads.reporter("shop").locality(&place).call_started());
    drop(rig.zone().call_started());
    assert_eq!(only(&rig.advance(secs(1))).upstream_locality_stats[0].total_issued_requests, 2);
}

#[test]
fn lr3_7_lr9_5_endpoints_are_reported_on_request_and_are_part_of_their_locality() {
    let mut rig = Rig::reporting();
    let addresses = ["127.0.0.1:80", "[::1]:443"].map(|it| it.parse().unwrap());
    let endpoints = addresses.map(|address| rig.zone().endpoint(address));
    for has_endpoints in [false, true] {
        let mut response = all(1);
        response.report_endpoint_granularity = has_endpoints;
        rig.respond(0, &response);
        endpoints.iter().for_each(|endpoint| endpoint.call_started().finish(Outcome::Success, None));
        drop(endpoints[0].call_started());
        drop(rig.zone().call_started());
        let report = only(&rig.advance(secs(1)));
        let it = &report.upstream_locality_stats[0];
        assert_eq!(
            (it.total_issued_requests, it.total_successful_requests, it.total_error_requests),
            (4, 2, 2)
        );
        let endpoints: Vec<_> = it
            .upstream_endpoint_stats
            .iter()
            .map(|it| [it.total_issued_requests, it.total_successful_requests, it.total_error_requests])
            .collect();
        let expected: &[[u64; 3]] = if has_endpoints { &[[2, 1, 1], [1, 1, 0]] } else { &[] };
        assert_eq!(endpoints, expected);
    }
    let report = rig.requests.last().unwrap();
    let address =
        report.cluster_stats[0].upstream_locality_stats[0].upstream_endpoint_stats[1].address.clone();
    assert_eq!(rig::socket(address), "[::1]:443");
}

#[test]
fn lr9_7_stats_are_read_and_not_reset() {
    let mut rig = Rig::reporting();
    let _call = rig.zone().call_started();
    rig.keep[0].dropped("throttle");
    for _ in 0..2 {
        let stats = rig.keep[0].stats().unwrap();
        let zone = &stats.localities[&Locality::new("r", "z", "")];
        assert_eq!((zone.issued, zone.in_progress, zone.failed, stats.dropped), (1, 1, 0, 1));
        assert_eq!(stats.dropped_by_category["throttle"], 1);
    }
    rig.advance(secs(1));
    assert_eq!(rig.keep[0].stats().unwrap().dropped, 0);
    rig.loads.set_cluster(&"shop".into(), None);
    assert_eq!(rig.keep[0].stats(), None);
}
