#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use super::*;
use crate::pb::{
    envoy::config::{core::v3::Node, endpoint::v3::ClusterStats},
    google::protobuf,
};

const SECOND: Duration = Duration::from_secs(1);

fn request(node: Option<&str>, clusters: usize) -> LoadStatsRequest {
    let node = node.map(|id| Node { id: id.into(), ..Node::default() });
    LoadStatsRequest { node, cluster_stats: vec![ClusterStats::default(); clusters] }
}

/// A session after its first request.
fn begun(node: &str) -> LoadSession {
    let mut session = LoadSession::new(7);
    session.handle_request(request(Some(node), 0), Instant::now()).unwrap();
    session
}

fn config(reporting: LoadReporting) -> LoadReportingConfig {
    let mut config = LoadReportingConfig::default();
    config.set(reporting);
    config
}

#[test]
fn lr10_2_responses_ask_for_all_clusters_or_for_names() {
    let interval = Some(protobuf::Duration { seconds: 1, nanos: 0 });
    let all = LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: interval,
        ..LoadStatsResponse::default()
    };
    assert_eq!(LoadReporting::all(SECOND).response(), all);
    let named = LoadStatsResponse {
        clusters: vec!["a".into(), "b".into()],
        load_reporting_interval: interval,
        report_endpoint_granularity: true,
        ..LoadStatsResponse::default()
    };
    assert_eq!(LoadReporting::of(["b", "a", "b"], SECOND).with_endpoints().response(), named);
}

#[test]
fn lr10_2_a_response_is_due_after_the_first_request_and_after_each_change() {
    let mut config = config(LoadReporting::all(SECOND));
    let mut session = LoadSession::new(1);
    assert_eq!(session.poll_response(&config), None, "the client begins");
    session.handle_request(request(Some("a"), 0), Instant::now()).unwrap();
    assert!(session.is_response_due(&config));
    assert_eq!(session.poll_response(&config), Some(LoadReporting::all(SECOND).response()));
    session.handle_request(request(None, 1), Instant::now()).unwrap();
    assert!(!session.is_response_due(&config));
    assert_eq!(session.poll_response(&config), None);
    config.set(LoadReporting::of(["shop"], SECOND));
    assert_eq!(session.poll_response(&config), Some(LoadReporting::of(["shop"], SECOND).response()));
    config.set(LoadReporting::of(["shop"], SECOND));
    assert!(session.poll_response(&config).is_some(), "the same again");
    assert_eq!(session.poll_response(&config), None);
}

#[test]
fn lr10_2_clients_are_asked_by_their_node() {
    let mut config = config(LoadReporting::all(SECOND));
    config.set_for("a", LoadReporting::of(["shop"], SECOND));
    let (mut a, mut b) = (begun("a"), begun("b"));
    assert_eq!(a.poll_response(&config), Some(LoadReporting::of(["shop"], SECOND).response()));
    assert_eq!(b.poll_response(&config), Some(LoadReporting::all(SECOND).response()));
    config.set(LoadReporting::all(2 * SECOND));
    assert_eq!(a.poll_response(&config), None);
    assert_eq!(b.poll_response(&config), Some(LoadReporting::all(2 * SECOND).response()));
    config.set_for("a", LoadReporting::of(["cart"], SECOND));
    assert!(a.poll_response(&config).is_some());
    assert_eq!(b.poll_response(&config), None);
    let mut only = LoadReportingConfig::default();
    only.set_for("a", LoadReporting::all(SECOND));
    assert_eq!(begun("b").poll_response(&only), None, "nobody asked it");
}

#[test]
fn lr2_4_later_requests_may_repeat_the_node() {
    let now = Instant::now();
    let mut session = begun("a");
    for node in [None, Some("a"), None] {
        let report = session.handle_request(request(node, 1), now).unwrap();
        assert_eq!((report.node(), report.stream(), report.received_at()), ("a", 7, now));
        assert_eq!(report.message(), &request(node, 1));
    }
    assert_eq!(LoadSession::new(1).handle_request(request(None, 0), now), None, "the first one needs it");
}
