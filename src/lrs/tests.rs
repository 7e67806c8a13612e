//! The rules of load reports, by the messages that a server sees. They exclude the defects that other clients have had (LR11.2).

mod departed;
mod endpoint_metadata;
mod reports;
pub(super) mod rig;

pub(super) use rig::server;
use rig::{Rig, all, millis, named, only, response, secs};

use super::{LoadSettings, LoadStreamState, Outcome, destination::ReportKey};
use crate::{config::Locality, error::Code, protocol::DisconnectKind};

#[test]
fn lr2_2_lr9_1_a_stream_is_there_while_handles_of_reporting_clusters_are() {
    let mut rig = Rig::new();
    let shop = rig.loads.reporter("shop");
    let zone = shop.locality(&Locality::default());
    assert!(rig.commands().is_empty(), "the cluster is not known to report");
    drop(zone.call_started());
    rig.set("shop", 0);
    assert_eq!(rig.commands(), ["connect 0.1"]);
    rig.open(0);
    rig.respond(0, &all(1));
    drop(zone.call_started());
    drop((shop, zone));
    // What is left is reported at once, and nothing waits for the interval.
    let reports = rig.reports();
    assert_eq!(only(&reports).upstream_locality_stats[0].total_issued_requests, 1, "not the call before");
    assert_eq!(rig.finished, [0]);
    rig.disconnect(0, DisconnectKind::Closed);
    assert_eq!((rig.state(0), rig.reporting.poll_timeout()), (LoadStreamState::Closed, None));
}

#[test]
fn lr2_2_clusters_without_handles_open_no_stream() {
    let mut rig = Rig::new();
    rig.set("shop", 0);
    assert!(rig.commands().is_empty());
    assert_eq!(rig.reporting.poll_timeout(), None);
}

#[test]
fn lr2_1_one_stream_serves_all_clusters_of_a_server() {
    let mut rig = Rig::new();
    let reporters: Vec<_> = ["a", "b", "c"].map(|name| rig.loads.reporter(name)).into();
    rig.set("a", 0);
    rig.set("b", 0);
    rig.set("c", 1);
    assert_eq!(rig.commands(), ["connect 0.1", "connect 1.1"]);
    let methods = [0, 1].map(|server| rig.method(server));
    assert_eq!(methods[0], "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats");
    assert_eq!(
        methods[1], "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats",
        "a v2 server"
    );
    drop(reporters);
}

#[test]
fn lr2_4_the_first_request_has_the_node_alone_and_later_ones_have_none() {
    let mut rig = Rig::reporting();
    let greeting = rig.greeting.take().unwrap();
    let node = greeting.node.unwrap();
    assert_eq!(
        (node.id.as_str(), &*node.client_features),
        ("n", &["f", "envoy.lrs.supports_send_all_clusters"].map(String::from)[..])
    );
    assert!(greeting.cluster_stats.is_empty());
    drop(rig.zone().call_started());
    rig.advance(secs(1));
    assert_eq!(rig.requests.iter().map(|request| request.node.is_none()).collect::<Vec<_>>(), [true]);
}

#[test]
fn lr2_5_lr6_1_lr7_1_reports_begin_one_interval_after_the_first_response() {
    let mut rig = Rig::new();
    let zone = rig.begin("shop", 0);
    drop(zone.call_started());
    rig.open(0);
    assert!(rig.advance(secs(100)).is_empty(), "nothing was asked for");
    rig.respond(0, &all(10));
    assert!(rig.advance(millis(9_999)).is_empty());
    let report = only(&rig.advance(millis(1)));
    assert_eq!(report.upstream_locality_stats[0].total_error_requests, 1);
    // LR6.1, LR4.6: the interval is that since the first handle.
    assert_eq!(report.load_report_interval.unwrap().seconds, 110);
}

#[test]
fn lr2_6_a_stream_that_ends_is_opened_again_after_a_backoff() {
    let mut rig = Rig::new();
    let _zone = rig.begin("shop", 0);
    let mut delays = Vec::new();
    for round in 0..8 {
        if round == 6 {
            rig.open(0);
            rig.respond(0, &all(1));
        }
        rig.disconnect(0, DisconnectKind::Unreachable);
        let before = rig.now;
        rig.advance_to_timeout();
        delays.push((rig.now - before).as_secs_f64());
        assert_eq!(rig.commands(), [format!("connect 0.{}", round + 2)]);
    }
    for (delay, expected) in delays.iter().zip([1.0, 1.6, 2.56, 4.1, 6.55, 10.5, 1.0, 1.6]) {
        assert!((expected * 0.79..expected * 1.21).contains(delay), "{delays:?}");
    }
}

#[test]
fn lr2_7_a_server_without_load_reports_is_asked_again_and_counting_goes_on() {
    let mut rig = Rig::new();
    let zone = rig.begin("shop", 0);
    for _ in 0..3 {
        rig.disconnect(0, DisconnectKind::Failed(Code::Unimplemented));
        drop(zone.call_started());
        rig.advance_to_timeout();
    }
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_issued_requests, 3);
}

#[test]
fn lr3_1_lr3_2_lr6_2_clusters_that_are_not_named_are_discarded() {
    let mut rig = Rig::new();
    let (shop, cart) = (rig.begin("shop", 0), rig.begin("cart", 0));
    rig.open(0);
    rig.respond(0, &named(&[], 1));
    [&shop, &cart].iter().for_each(|zone| drop(zone.call_started()));
    assert!(rig.advance(secs(5)).is_empty(), "no name is no cluster");
    rig.respond(0, &named(&["cart", "cart", "unknown"], 1));
    [&shop, &cart].iter().for_each(|zone| drop(zone.call_started()));
    rig.advance(millis(500));
    let report = only(&rig.advance(millis(500)));
    assert_eq!(
        (report.cluster_name.as_str(), report.upstream_locality_stats[0].total_issued_requests),
        ("cart", 1)
    );
    assert_eq!(report.load_report_interval.unwrap().seconds, 1, "old traffic is not billed");
    rig.respond(0, &all(1));
    [&shop, &cart].iter().for_each(|zone| drop(zone.call_started()));
    let reports = rig.advance(secs(1));
    let issued = |index: usize| reports[index].upstream_locality_stats[0].total_issued_requests;
    assert_eq!((reports.len(), issued(0), issued(1)), (2, 1, 1));
}

#[test]
fn lr3_3_ch13_3_intervals_have_a_minimum_and_invalid_ones_are_ignored() {
    for (seconds, nanos, interval) in [
        (0, 0, Some(1_000)),
        (0, 999_999_999, Some(1_000)),
        (-5, 0, Some(1_000)),
        (1, 500_000_000, Some(1_500)),
        (-1, -5, Some(1_000)),
        (1, -1, None),
        (0, 1_000_000_000, None),
        (315_576_000_001, 0, None),
        (i64::MIN, 0, None),
        (i64::MAX, i32::MIN, None),
    ] {
        let mut rig = Rig::new();
        let zone = rig.begin("shop", 0);
        rig.open(0);
        drop(zone.call_started());
        rig.respond(0, &response((seconds, nanos), true, &[]));
        let timeout = rig.reporting.poll_timeout().map(|at| (at - rig.now).as_millis());
        // What is ignored is no response: the server counts as silent after 20 s.
        assert_eq!(timeout, interval.or(Some(20_000)), "{seconds} s {nanos} ns");
    }
    let mut rig = Rig::new();
    let _zone = rig.begin("shop", 0);
    rig.open(0);
    rig.respond(0, &crate::pb::envoy::service::load_stats::v3::LoadStatsResponse::default());
    assert_eq!(rig.reporting.poll_timeout(), Some(rig.now + secs(1)), "unset");
}

#[test]
fn lr3_4_lr3_5_lr3_6_a_response_restarts_the_timer_only_with_another_interval() {
    let mut rig = Rig::reporting();
    let due = |rig: &Rig| rig.reporting.poll_timeout().unwrap() - rig.now;
    rig.respond(0, &all(10));
    rig.advance(secs(4));
    rig.respond(0, &all(10));
    assert_eq!(due(&rig), secs(6), "the same response");
    rig.respond(0, &named(&["shop"], 10));
    assert_eq!(due(&rig), secs(6), "another list");
    rig.respond(0, &named(&["shop"], 20));
    assert_eq!(due(&rig), secs(20));
    rig.respond_with(0, b"\xff\xff");
    assert_eq!(due(&rig), secs(20), "LR3.6: what cannot be decoded is ignored");
    assert_eq!(rig.state(0), LoadStreamState::Reporting);
}

#[test]
fn lr3_8_the_list_and_the_interval_end_with_the_stream() {
    let mut rig = Rig::reporting();
    rig.disconnect(0, DisconnectKind::Closed);
    rig.advance_to_timeout();
    rig.open(0);
    drop(rig.zone().call_started());
    assert!(rig.advance(secs(100)).is_empty());
    assert_eq!(rig.state(0), LoadStreamState::Unanswered);
}

#[test]
fn lr6_3_lr6_7_a_report_that_was_not_written_is_in_the_next_one() {
    let mut rig = Rig::reporting();
    drop(rig.zone().call_started());
    rig.keep[0].dropped("throttle");
    rig.is_stalled = true;
    rig.advance(secs(1));
    drop(rig.zone().call_started());
    assert_eq!(rig.reporting.poll_timeout(), None, "LR7.1: a slow server gets no second one");
    rig.disconnect(0, DisconnectKind::Closed);
    rig.is_stalled = false;
    rig.advance(secs(2));
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_error_requests, 2);
    assert_eq!((report.total_dropped_requests, report.load_report_interval.unwrap().seconds), (1, 4));
    let status = &rig.reporting.status()[0];
    assert_eq!((status.reports_sent, status.failures), (1, 1));
    assert_eq!(status.last_report.unwrap().clusters, 1);
    assert_eq!(status.report_bytes, rig.raw.last().unwrap().len() as u64);
}

#[test]
fn lr6_4_lr6_5_ended_handles_leave_a_residue_that_new_ones_continue() {
    let mut rig = Rig::reporting();
    let probe = rig.begin("probe", 0);
    rig.advance(millis(300));
    drop(rig.zone().call_started());
    rig.drop_zone();
    rig.keep.retain(|reporter| !format!("{reporter:?}").contains("shop"));
    rig.advance(millis(200));
    let zone = rig.loads.reporter("shop").locality(&Locality::new("r", "z", ""));
    let call = zone.call_started();
    drop(zone);
    let report = only(&rig.advance(millis(500)));
    assert_eq!(report.upstream_locality_stats[0].total_issued_requests, 2);
    assert_eq!((report.load_report_interval.unwrap().seconds, report.upstream_locality_stats.len()), (1, 1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.upstream_locality_stats[0].total_requests_in_progress, 1, "the call keeps it alive");
    drop(call);
    assert_eq!(only(&rig.advance(secs(1))).upstream_locality_stats[0].total_error_requests, 1);
    assert!(rig.advance(secs(5)).is_empty());
    let key = ReportKey { cluster: "shop".into(), service: None };
    assert!(rig.loads.lock().servers[0].stats(&key).is_none(), "the entry is gone");
    drop(probe);
}

#[test]
fn lr6_6_residues_are_limited_and_the_oldest_are_dropped() {
    let mut rig = Rig::with(LoadSettings { max_residues: 10, ..LoadSettings::default() });
    for number in 0..25 {
        let zone = rig.begin(&format!("c{number:02}"), 0);
        drop(zone.call_started());
        rig.keep.clear();
        drop(zone);
        rig.commands();
        rig.now += secs(1);
    }
    let _probe = rig.begin("probe", 0);
    rig.open(0);
    rig.respond(0, &all(1));
    let reports = rig.advance(secs(1));
    let names: Vec<_> = reports.iter().map(|it| it.cluster_name.clone()).collect();
    assert_eq!(names, (15..25).map(|number| format!("c{number}")).collect::<Vec<_>>());
    assert_eq!(rig.reporting.status()[0].dropped_residues, 15);
}

#[test]
fn lr6_8_the_end_of_a_client_sends_a_last_report() {
    let mut rig = Rig::reporting();
    let zone = rig.zone().clone();
    drop(zone.call_started());
    rig.advance(millis(10));
    rig.reporting.shut_down(rig.now);
    assert_eq!(only(&rig.reports()).upstream_locality_stats[0].total_error_requests, 1);
    assert!(!rig.reporting.is_closed());
    assert_eq!(rig.finished, [0]);
    rig.disconnect(0, DisconnectKind::Closed);
    assert!(rig.reporting.is_closed() && rig.reporting.poll_timeout().is_none());
    drop(zone.call_started());
}

#[test]
fn lr6_8_a_server_that_does_not_read_delays_the_end_by_one_second() {
    let mut rig = Rig::reporting();
    drop(rig.zone().call_started());
    rig.is_stalled = true;
    rig.reporting.shut_down(rig.now);
    assert!(rig.reports().is_empty());
    rig.advance(millis(999));
    assert!(!rig.reporting.is_closed());
    rig.advance(millis(1));
    assert!(rig.reporting.is_closed());
    let mut rig = Rig::new();
    let _zone = rig.begin("shop", 0);
    rig.open(0);
    rig.reporting.shut_down(rig.now);
    assert!(rig.reporting.is_closed(), "a server that has not asked is not waited for");
}

#[test]
fn lr7_2_a_late_timer_gives_one_report() {
    let mut rig = Rig::reporting();
    drop(rig.zone().call_started());
    rig.now += secs(10);
    let reports = rig.reports();
    assert_eq!(only(&reports).load_report_interval.unwrap().seconds, 10);
    assert_eq!(rig.reporting.poll_timeout(), Some(rig.now + secs(1)));
}

#[test]
fn lr9_4_guards_outlive_their_reporter_and_the_client() {
    let rig = Rig::reporting();
    let call = rig.zone().call_started();
    drop(rig);
    std::thread::spawn(move || call.finish(Outcome::Success, None)).join().unwrap();
}

#[test]
fn lr1_5_keys_without_cds_are_reported_to_a_named_server() {
    let mut rig = Rig::new();
    let server = rig.servers[1].clone();
    let shop = rig.loads.reporter_to(&server, "shop", Some("service"));
    drop(shop.locality(&Locality::default()).call_started());
    // The index is that of the first use.
    assert_eq!(rig.commands(), ["connect 0.1"]);
    rig.open(0);
    rig.respond(0, &all(1));
    let report = only(&rig.advance(secs(1)));
    assert_eq!((&*report.cluster_name, &*report.cluster_service_name), ("shop", "service"));
}

#[test]
fn lr5_1_a_call_that_is_withdrawn_is_reported_nowhere_and_one_that_was_reported_is_made_up_for() {
    let mut rig = Rig::reporting();
    let zone = rig.zone().clone();
    zone.call_started().withdraw();
    zone.call_started().finish(Outcome::Success, None);
    let counts = |report: crate::pb::envoy::config::endpoint::v3::ClusterStats| {
        let it = &report.upstream_locality_stats[0];
        let ended = it.total_successful_requests + it.total_error_requests;
        (it.total_issued_requests, ended, it.total_requests_in_progress)
    };
    assert_eq!(counts(only(&rig.advance(secs(1)))), (1, 1, 0), "the withdrawn one is not there");
    let call = zone.call_started();
    assert_eq!(counts(only(&rig.advance(secs(1)))), (1, 0, 1));
    call.withdraw();
    for _ in 0..3 {
        zone.call_started().finish(Outcome::Error, None);
    }
    assert_eq!(counts(only(&rig.advance(secs(1)))), (2, 3, 0), "one was reported already");
}

#[test]
fn lr5_1_lr5_7_many_threads_count_exactly_while_reports_are_taken() {
    let mut rig = Rig::reporting();
    let zone = rig.zone().clone();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let zone = zone.clone();
            std::thread::spawn(move || {
                for number in 0..5_000 {
                    let outcome = if number % 3 == 0 { Outcome::Error } else { Outcome::Success };
                    zone.call_started().finish(outcome, None);
                }
            })
        })
        .collect();
    let mut sums = [0; 3];
    let mut add = |rig: &mut Rig| {
        for report in rig.advance(secs(1)) {
            for it in report.upstream_locality_stats {
                let counts =
                    [it.total_issued_requests, it.total_successful_requests, it.total_error_requests];
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                assert_eq!(sums[0], sums[1] + sums[2] + it.total_requests_in_progress);
            }
        }
    };
    while threads.iter().any(|thread| !thread.is_finished()) {
        add(&mut rig);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    add(&mut rig);
    let failed = 4 * (0..5_000).filter(|number| number % 3 == 0).count() as u64;
    assert_eq!(sums, [20_000, 20_000 - failed, failed]);
}

#[test]
fn lr7_3_reports_are_built_in_slices() {
    let mut rig = Rig::with(LoadSettings { slice: 10, ..LoadSettings::default() });
    let zones: Vec<_> = (0..50).map(|number| rig.begin(&format!("c{number:02}"), 0)).collect();
    rig.open(0);
    rig.respond(0, &all(1));
    zones.iter().for_each(|zone| drop(zone.call_started()));
    rig.now += secs(1);
    rig.is_stalled = true;
    rig.reporting.handle_timeout(rig.now);
    let built = rig.reporting.poll_timeout().is_some_and(|at| at <= rig.now);
    assert!(built, "the rest is built later");
    rig.is_stalled = false;
    assert_eq!(rig.reports().len(), 50);
}

const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    fn is_send<T: Send + 'static>() {}
    is_send_and_sync::<super::LoadReporter>();
    is_send_and_sync::<super::LocalityReporter>();
    is_send_and_sync::<super::EndpointReporter>();
    is_send::<super::ReportedCall>();
};
