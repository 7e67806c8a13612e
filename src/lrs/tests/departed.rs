//! What departed endpoints, localities and drop categories leave while no server takes load reports (LR6.6).

use std::{collections::BTreeMap, net::SocketAddr};

use super::rig::{Rig, all, only, secs};
use crate::{
    config::Locality,
    lrs::{LoadSettings, Outcome, ReportedCall},
};

fn limited(max_departed: usize) -> Rig {
    Rig::with(LoadSettings { max_departed, ..LoadSettings::default() })
}

fn address(number: u32) -> SocketAddr {
    SocketAddr::from((std::net::Ipv4Addr::from(number), 80))
}

/// The localities, endpoints and categories that have counters, at all servers.
fn census(rig: &Rig) -> usize {
    rig.loads.lock().servers.iter().map(|server| server.len()).sum()
}

#[test]
fn lr6_6_endpoints_that_are_never_called_have_no_counters() {
    let mut rig = Rig::new();
    let zone = rig.begin("shop", 0);
    let endpoints: Vec<_> = (0..1_000).map(|number| zone.endpoint(address(number))).collect();
    assert_eq!(census(&rig), 1, "the locality");
    endpoints[7].call_started().finish(Outcome::Success, None);
    endpoints[7].call_started().finish(Outcome::Success, None);
    assert_eq!(census(&rig), 2);
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_issued_requests, 2);
}

#[test]
fn lr6_6_departed_endpoints_leave_no_more_than_the_limit_whatever_the_server_does() {
    let mut rig = limited(100);
    let zone = rig.begin("shop", 0);
    let mut calls = 0;
    for update in 0..50 {
        for endpoint in 0..100 {
            let endpoint = zone.endpoint(address(update * 100 + endpoint));
            endpoint.call_started().finish(Outcome::Success, None);
            calls += 1;
        }
        assert!(census(&rig) <= 400, "{} after {calls} endpoints", census(&rig));
    }
    let stats = rig.keep[0].stats().unwrap();
    assert_eq!(stats.localities[zone.locality()].succeeded, calls, "each call stays counted");
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_successful_requests, calls);
    rig.advance(secs(1));
    assert_eq!(census(&rig), 1, "the locality, whose handle is there");
}

#[test]
fn lr6_6_lr6_7_a_report_in_progress_neither_loses_nor_doubles_what_departs_meanwhile() {
    let mut rig = Rig::reporting_with(LoadSettings { max_departed: 10, ..LoadSettings::default() });
    let mut reported = 0;
    let mut calls = 0;
    for round in 0..40_u32 {
        // The transport accepts some requests late, and loses some.
        rig.is_stalled = round % 3 == 1;
        for endpoint in 0..50 {
            let endpoint = rig.zone().endpoint(address(round * 50 + endpoint));
            endpoint.call_started().finish(Outcome::Success, None);
            calls += 1;
        }
        let reports = rig.advance(secs(1));
        let of_report = |stats: &crate::pb::envoy::config::endpoint::v3::ClusterStats| -> u64 {
            stats.upstream_locality_stats.iter().map(|it| it.total_successful_requests).sum()
        };
        reported += reports.iter().map(of_report).sum::<u64>();
        if rig.is_stalled {
            // It departs while the report is in progress.
            for endpoint in 0..200 {
                let endpoint = rig.zone().endpoint(address(1_000_000 + round * 200 + endpoint));
                endpoint.call_started().finish(Outcome::Success, None);
                calls += 1;
            }
            rig.is_stalled = false;
            rig.disconnect(0, crate::protocol::DisconnectKind::Closed);
            rig.advance(secs(150));
            rig.open(0);
            rig.respond(0, &all(1));
        }
    }
    let reports = rig.advance(secs(1));
    reported += reports
        .iter()
        .flat_map(|it| &it.upstream_locality_stats)
        .map(|it| it.total_successful_requests)
        .sum::<u64>();
    let left =
        rig.keep[0].stats().unwrap().localities.get(rig.zone().locality()).map_or(0, |it| it.succeeded);
    assert_eq!(reported + left, calls);
}

#[test]
fn lr6_6_lr6_7_what_departs_while_its_report_is_in_progress_is_reported_once() {
    let mut rig = Rig::reporting_with(LoadSettings { max_departed: 10, ..LoadSettings::default() });
    let call = |rig: &Rig, numbers: std::ops::Range<u32>| {
        for number in numbers {
            rig.keep[0].dropped(&format!("category {number}"));
            rig.zone().endpoint(address(number)).call_started().finish(Outcome::Success, None);
        }
    };
    call(&rig, 0..50);
    rig.is_stalled = true;
    assert!(rig.advance(secs(1)).is_empty(), "the report of 50 calls is in progress");
    call(&rig, 50..500);
    assert!(census(&rig) <= 400, "{}", census(&rig));
    rig.accept(0);
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_successful_requests, 450);
    assert_eq!(report.total_dropped_requests, 450);
    assert!(rig.keep[0].stats().unwrap().localities.is_empty(), "nothing is left");
}

#[test]
fn lr6_6_calls_that_are_withdrawn_while_their_report_is_in_progress_leave_nothing_when_they_depart() {
    let mut rig = Rig::reporting_with(LoadSettings { max_departed: 10, ..LoadSettings::default() });
    let calls: Vec<_> = (0..50).map(|number| rig.zone().endpoint(address(number)).call_started()).collect();
    rig.is_stalled = true;
    assert!(rig.advance(secs(1)).is_empty(), "the report of 50 calls is in progress");
    calls.into_iter().for_each(ReportedCall::withdraw);
    for number in 50..500 {
        rig.zone().endpoint(address(number)).call_started().finish(Outcome::Success, None);
    }
    assert!(census(&rig) <= 400, "{}", census(&rig));
    rig.accept(0);
    let report = only(&rig.advance(secs(1)));
    let stats = &report.upstream_locality_stats[0];
    assert_eq!((stats.total_successful_requests, stats.total_requests_in_progress), (450, 0));
    assert!(rig.keep[0].stats().unwrap().localities.is_empty(), "nothing is left");
}

#[test]
fn lr6_6_drop_categories_that_are_gone_are_reported_without_a_category_beyond_the_limit() {
    let mut rig = limited(10);
    let _zone = rig.begin("shop", 0);
    for category in 0..5_000 {
        rig.keep[0].dropped(&format!("category {category}"));
        assert!(census(&rig) <= 400, "{}", census(&rig));
    }
    assert_eq!(rig.keep[0].stats().unwrap().dropped, 5_000);
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.total_dropped_requests, 5_000);
    assert!(report.dropped_requests.len() <= 200, "{}", report.dropped_requests.len());
}

#[test]
fn lr6_6_a_category_that_is_used_by_turns_keeps_its_name_while_it_has_a_handle() {
    let mut rig = limited(0);
    let _zone = rig.begin("shop", 0);
    let throttle = rig.keep[0].drop_reporter("throttle");
    for category in 0..1_000 {
        rig.keep[0].dropped(&format!("category {category}"));
        throttle.dropped();
    }
    let dropped: BTreeMap<_, _> = rig.keep[0].stats().unwrap().dropped_by_category;
    assert_eq!(dropped["throttle"], 1_000);
}

#[test]
fn lr6_6_localities_that_are_gone_are_dropped_beyond_the_limit_and_counted() {
    let mut rig = limited(10);
    let _zone = rig.begin("shop", 0);
    for number in 0..1_000 {
        let zone = rig.keep[0].locality(&Locality::new("r", &format!("z{number}"), ""));
        zone.call_started().finish(Outcome::Success, None);
        drop(zone);
        assert!(census(&rig) <= 200, "{}", census(&rig));
    }
    let kept: u64 = rig.keep[0].stats().unwrap().localities.values().map(|it| it.succeeded).sum();
    let dropped = rig.reporting.status()[0].dropped_residues;
    assert_eq!(kept + dropped, 1_000);
    assert!(kept >= 10);
}

#[test]
fn lr6_6_calls_in_progress_outlive_their_endpoints() {
    let mut rig = limited(1);
    let zone = rig.begin("shop", 0);
    let calls: Vec<_> = (0..300).map(|number| zone.endpoint(address(number)).call_started()).collect();
    assert_eq!(rig.keep[0].stats().unwrap().localities[zone.locality()].in_progress, 300);
    calls.into_iter().for_each(|call| call.finish(Outcome::Success, None));
    let stats = &rig.keep[0].stats().unwrap().localities[zone.locality()];
    assert_eq!((stats.succeeded, stats.in_progress), (300, 0));
}
