//! Sources without streams: REST (rules D10 to D14) and files (rules D1 to D8).

use std::time::Duration;

use super::{
    super::*,
    rig::{Cds, Eds, Rig, any, response, stream},
};
use crate::{
    config::{ApiType, Locality, PathSource, Polling, Server},
    error::Code,
    lrs::Reporting,
    pb::{
        envoy::config::core::v3::{ConfigSource, SelfConfigSource, config_source::ConfigSourceSpecifier},
        google::protobuf::Any,
    },
    protocol::{ConnectionState, Disconnect, DisconnectKind, StreamEvent},
    resource::{Cluster, Resource},
    test_log::Log,
};

const NONE: Vec<String> = Vec::new();
const DELAY: Duration = Duration::from_secs(10);

/// A client of a server that is polled every 10 to 20 s.
fn rest() -> Rig {
    let server = Server::new("a:1").insecure().api_type(ApiType::Rest).polling(Polling::every(DELAY));
    let bootstrap = Bootstrap::builder().node(crate::config::Node::new("n")).server(server);
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// A client with one file, which holds clusters, and one that holds endpoints.
fn files() -> Rig {
    let bootstrap = Bootstrap::builder()
        .node(crate::config::Node::new("n"))
        .source_for::<Cds>(PathSource::new("c.json"))
        .source_for::<Eds>(PathSource::new("e.json"));
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

impl Rig {
    fn unchanged(&mut self) -> Vec<String> {
        self.input(StreamEvent::Unchanged { stream: stream(1) })
    }

    fn not_found(&mut self) -> Vec<String> {
        let mut outputs = self.input(StreamEvent::NotFound { stream: stream(1) });
        // It is worked off in slices, as a response is.
        outputs.extend(self.pass(Duration::ZERO));
        outputs
    }

    /// What is wrong with the only resource.
    fn reason(&mut self) -> String {
        let resource = self.engine.status().resources.remove(0);
        resource.ambient_error.unwrap().error.to_string()
    }

    fn failed(&mut self, kind: DisconnectKind) -> Vec<String> {
        self.input(StreamEvent::Failed { stream: stream(1), reason: Disconnect::new(kind, "it broke") })
    }

    /// Lets time pass until there is an output.
    fn next(&mut self) -> (Duration, Vec<String>) {
        let since = self.now;
        for _ in 0..100 {
            let Some((at, _)) = self.engine.poll_timeout() else { break };
            let outputs = self.pass(at.saturating_duration_since(self.now));
            if !outputs.is_empty() {
                return (self.now - since, outputs);
            }
        }
        (self.now - since, NONE)
    }
}

#[test]
fn d12_a_delay_of_the_greatest_length_means_that_a_server_is_not_polled_again() {
    let never = Polling::every(Duration::MAX).with_request_timeout(Duration::MAX);
    let server = Server::new("a:1").insecure().api_type(ApiType::Rest).polling(never);
    let mut rig = Rig::with(server);
    rig.watch::<Cds>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(rig.pass(Duration::from_secs(1_000_000)), NONE);
}

#[test]
fn d12_the_next_poll_follows_the_end_of_the_last_after_the_delay_and_as_much_again_at_most() {
    let mut rig = rest();
    assert_eq!(rig.watch::<Cds>("a").1, ["connect 0.1 /v3/discovery:clusters"]);
    assert_eq!(rig.connect(1), ["read", "send Cluster [a] / node"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(14)), NONE, "exactly one is outstanding");
    let outputs = rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read"]);
    let mut delays = Vec::new();
    for _ in 0..50 {
        let (delay, outputs) = rig.next();
        assert_eq!(outputs, ["send Cluster [a] 1/ node"], "D10: the node goes with every request");
        delays.push(delay);
        rig.sent(1);
        rig.pass(Duration::from_secs(1));
        rig.unchanged();
    }
    assert!(delays.iter().all(|delay| (DELAY..=2 * DELAY).contains(delay)), "{delays:?}");
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(*most - *least > DELAY / 2, "there is jitter: {delays:?}");
}

#[test]
fn a40_a_server_whose_last_poll_failed_is_not_shown_as_connected() {
    let mut rig = rest();
    let shown = |rig: &mut Rig| rig.engine.status().servers[0].connection;
    rig.open::<Cds>(&["a"]);
    assert_eq!(shown(&mut rig), ConnectionState::Connected);
    rig.failed(DisconnectKind::Unreachable);
    assert_eq!(shown(&mut rig), ConnectionState::BackingOff);
    rig.next();
    rig.sent(1);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(shown(&mut rig), ConnectionState::Connected);
}

#[test]
fn ms6_a_404_deletes_what_a_response_without_resources_would_delete() {
    let mut rig = rest();
    rig.open::<Cds>(&["a"]);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    rig.next();
    rig.sent(1);
    let outputs = rig.not_found();
    assert_eq!(outputs.len(), 2, "{outputs:?}");
    assert_eq!(outputs[0], "#1 absent NOT_FOUND");
    assert!(rig.reason().contains("HTTP status 404 at /v3/discovery:clusters"), "{}", rig.reason());
    assert_eq!(rig.next().1, ["send Cluster [a] / node"], "there is no version to send");
    rig.sent(1);
    assert_eq!(rig.not_found(), ["read"], "it is published once");
    rig.next();
    rig.sent(1);
    let back = rig.receive(1, &response::<Cds>("2", vec![any::<Cds>("a", "y")]));
    assert_eq!(back, ["#1 present 2 y", "read"]);
    // The absence of endpoints means nothing.
    let mut rig = rest();
    rig.open::<Eds>(&["a"]);
    rig.receive(1, &response::<Eds>("1", vec![any::<Eds>("a", "x")]));
    rig.next();
    rig.sent(1);
    assert_eq!(rig.not_found(), ["read"]);
}

#[test]
fn ms6_what_was_never_seen_is_absent_with_a_hint_at_the_path_when_it_had_its_time() {
    let mut rig = rest();
    rig.open::<Eds>(&["a"]);
    assert_eq!(rig.not_found(), ["read"]);
    let outputs: Vec<_> = (0..4)
        .flat_map(|_| {
            let outputs = rig.pass(Duration::from_secs(5));
            rig.sent(1);
            rig.not_found();
            outputs
        })
        .filter(|line| line.starts_with('#'))
        .collect();
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    assert_eq!(outputs[0], "#1 absent NOT_FOUND");
    assert!(rig.reason().contains("HTTP status 404 at /v3/discovery:endpoints"), "{}", rig.reason());
}

#[test]
fn d13_what_is_watched_later_is_in_the_next_polls_body() {
    let mut rig = rest();
    rig.open::<Cds>(&["a"]);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(rig.watch::<Cds>("b").1, NONE);
    // The version is that of an answer to other names, and would keep back what is named for the first time.
    assert_eq!(rig.next().1, ["send Cluster [a,b] / node"]);
    rig.sent(1);
    let both = vec![any::<Cds>("a", "x"), any::<Cds>("b", "y")];
    assert_eq!(rig.receive(1, &response::<Cds>("1", both)), ["#2 present 1 y", "read"]);
    assert_eq!(rig.next().1, ["send Cluster [a,b] 1/ node"]);
}

#[test]
fn d11_what_is_rejected_is_not_reported_and_the_version_stays() {
    let mut rig = rest();
    rig.open::<Cds>(&["a"]);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    rig.next();
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Cds>("2", vec![any::<Cds>("a", "bad")]));
    assert_eq!(outputs, ["#1 present 1 x (INVALID_ARGUMENT)", "read"]);
    assert_eq!(rig.next().1, ["send Cluster [a] 1/ node"]);
}

#[test]
fn d11_a_failed_poll_keeps_the_last_good_and_the_next_answer_clears_the_warning() {
    let mut rig = rest();
    rig.open::<Cds>(&["a"]);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    for (kind, code) in [
        (DisconnectKind::Failed(Code::Unavailable), "UNAVAILABLE"),
        (DisconnectKind::Unusable, "INVALID_ARGUMENT"),
    ] {
        rig.next();
        rig.sent(1);
        assert_eq!(rig.failed(kind), [format!("#1 present 1 x ({code})")]);
        let (delay, outputs) = rig.next();
        assert_eq!(outputs, ["send Cluster [a] 1/ node"]);
        assert!((DELAY..=2 * DELAY).contains(&delay), "D12: a failure is the end of a request, too");
        rig.sent(1);
        assert_eq!(rig.unchanged(), ["#1 present 1 x"], "status 304");
    }
}

#[test]
fn a57_5_the_time_of_a_resource_begins_with_its_poll_and_not_while_the_server_is_away() {
    let mut rig = rest();
    rig.watch::<Cds>("a");
    rig.connect(1);
    assert_eq!(rig.failed(DisconnectKind::Unreachable), ["#1 absent UNAVAILABLE"]);
    assert_eq!(rig.next().1, ["send Cluster [a] / node"]);
    rig.sent(1);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("b", "x")]));
    let mut outputs = Vec::new();
    for _ in 0..5 {
        outputs.extend(rig.next().1);
        rig.sent(1);
        rig.unchanged();
    }
    assert!(outputs.contains(&"#1 absent NOT_FOUND".to_owned()), "{outputs:?}");
}

#[test]
fn go3_everything_is_requested_by_no_names() {
    let mut rig = rest();
    rig.watch::<Cds>("*");
    rig.watch::<Cds>("a");
    assert_eq!(rig.connect(1), ["read", "send Cluster [] / node"]);
    rig.sent(1);
    let both = vec![any::<Cds>("a", "x"), any::<Cds>("b", "y")];
    let outputs = rig.receive(1, &response::<Cds>("1", both));
    assert_eq!(outputs, ["#2 present 1 x", "read", "#1 {a: present 1 x, b: present 1 y} complete"]);
    assert_eq!(rig.next().1, ["send Cluster [] 1/ node"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Cds>("2", vec![any::<Cds>("a", "x")]));
    assert_eq!(outputs, ["read", "#1 {a: present 1 x} complete"], "B1.10: what is missing is deleted");
}

#[test]
fn a_source_without_subscriptions_is_not_polled() {
    let mut rig = rest();
    let watches = rig.open::<Cds>(&["a", "b"]);
    let both = vec![any::<Cds>("a", "x"), any::<Cds>("b", "y")];
    rig.receive(1, &response::<Cds>("1", both));
    assert_eq!(rig.unwatch(watches[0]), NONE);
    assert_eq!(rig.next().1, ["send Cluster [b] / node"]);
    rig.sent(1);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("b", "y")]));
    assert_eq!(rig.engine.resources(), 1);
    assert_eq!(rig.unwatch(watches[1]), NONE);
    assert_eq!(rig.engine.resources(), 0);
    assert_eq!(rig.next().1, ["disconnect 0.1"], "after the idle stream timeout");
}

#[test]
fn d11_a_resubscribed_name_is_requested_without_a_version_since_unchanged_would_not_bring_it_back() {
    for name in ["a", "*"] {
        let mut rig = rest();
        let watch_id = rig.open::<Cds>(&[name])[0];
        rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
        rig.unwatch(watch_id);
        rig.pass(Duration::ZERO);
        assert_eq!(rig.engine.resources(), 0);
        let names = name.trim_matches('*');
        assert_eq!(rig.watch::<Cds>(name).1, [format!("send Cluster [{names}] / node")]);
    }
}

#[test]
fn d1_a_file_is_read_once_and_again_after_each_change() {
    let mut rig = files();
    assert_eq!(rig.watch::<Cds>("a").1, ["open 0.1 c.json"]);
    assert_eq!(rig.connect(1), ["read", "send Cluster [a] / node"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read"], "D8: nothing is answered");
    let outputs = rig.receive(1, &response::<Cds>("2", vec![any::<Cds>("a", "y")]));
    assert_eq!(outputs, ["#1 present 2 y", "read"]);
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE, "it is not polled");
}

#[test]
fn d8_what_does_not_stand_in_a_file_does_not_exist_at_once() {
    let mut rig = files();
    rig.watch::<Cds>("a");
    rig.connect(1);
    rig.sent(1);
    let of_a = response::<Cds>("1", vec![any::<Cds>("a", "x")]);
    rig.receive(1, &of_a);
    assert_eq!(rig.watch::<Cds>("b").1, ["send Cluster [a,b] / node"], "it is read again");
    rig.sent(1);
    assert_eq!(rig.receive(1, &of_a), ["#2 absent NOT_FOUND", "read"]);
    let both = vec![any::<Cds>("a", "x"), any::<Cds>("b", "y")];
    assert_eq!(rig.receive(1, &response::<Cds>("2", both))[0], "#2 present 2 y");
    assert_eq!(rig.receive(1, &of_a), ["#2 absent NOT_FOUND", "read"], "B1.10");
}

#[test]
fn b1_11_endpoints_that_vanish_from_a_file_are_not_deleted() {
    let mut rig = files();
    rig.watch::<Eds>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Eds>("1", vec![any::<Eds>("a", "x")]));
    assert_eq!(rig.receive(1, &response::<Eds>("2", vec![any::<Eds>("b", "x")])), ["read"]);
    assert_eq!(rig.watch::<Eds>("a").1, ["#2 present 1 x"]);
}

#[test]
fn d7_a_file_that_cannot_be_used_keeps_the_last_good() {
    let mut rig = files();
    rig.watch::<Cds>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(rig.failed(DisconnectKind::Unusable), ["#1 present 1 x (INVALID_ARGUMENT)"]);
    assert_eq!(rig.failed(DisconnectKind::Unreachable), ["#1 present 1 x (UNAVAILABLE)"]);
    assert_eq!(rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")])), ["#1 present 1 x", "read"]);
    let outputs = rig.receive(1, &response::<Cds>("2", vec![any::<Cds>("a", "bad")]));
    assert_eq!(outputs, ["#1 present 1 x (INVALID_ARGUMENT)", "read"]);
}

#[test]
fn d7_the_status_of_each_resource_has_the_error_of_its_file() {
    let mut rig = files();
    rig.watch::<Cds>("a");
    rig.connect(1);
    rig.sent(1);
    let good = response::<Cds>("1", vec![any::<Cds>("a", "x")]);
    rig.receive(1, &good);
    let status = |rig: &mut Rig| {
        let report = rig.engine.status().resources.pop().expect("it is watched");
        let error = report.ambient_error.map(|ambient_error| ambient_error.error.code().to_string());
        (report.state.as_str(), report.held.map(|(version, _)| version.to_string()), error)
    };
    let held = Some("1".to_owned());
    rig.failed(DisconnectKind::Unusable);
    assert_eq!(status(&mut rig), ("NACKED", held.clone(), Some("INVALID_ARGUMENT".to_owned())));
    rig.failed(DisconnectKind::Unreachable);
    assert_eq!(status(&mut rig), ("ACKED", held.clone(), Some("UNAVAILABLE".to_owned())));
    rig.receive(1, &good);
    assert_eq!(status(&mut rig), ("ACKED", held, None));
}

#[test]
fn d1_a_file_that_is_not_there_is_an_error_until_it_is() {
    let mut rig = files();
    rig.watch::<Cds>("a");
    rig.connect(1);
    assert_eq!(rig.failed(DisconnectKind::Unreachable), ["#1 absent UNAVAILABLE"]);
    let outputs = rig.receive(1, &response::<Cds>("1", vec![any::<Cds>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read"]);
}

#[test]
fn lr1_2_a_cluster_of_a_source_without_streams_is_not_reported_with_one_warning() {
    let (log, _guard) = Log::start("xdskit=warn");
    let file = PathSource::new("c.json");
    let file = Bootstrap::builder().node(crate::config::Node::new("n")).source_for::<Cluster>(file);
    let file = Rig::of(file.build().unwrap(), Settings::default());
    for (mut rig, streams) in [(rest(), 0), (file, 0), (Rig::new(), 1)] {
        let loads = rig.engine.loads().clone();
        let mut reporting = Reporting::new(loads.clone(), &[], 1);
        rig.watch::<Cluster>("shop");
        rig.connect(1);
        for version in ["1", "2"] {
            rig.sent(1);
            let outputs = rig.receive(1, &response::<Cluster>(version, vec![reported("shop", version)]));
            assert_eq!(outputs[0], format!("#1 present {version} shop"));
            if outputs.len() == 2 {
                rig.next();
            }
        }
        drop(loads.reporter("shop").locality(&Locality::default()).call_started());
        reporting.handle_change(rig.now);
        assert_eq!(reporting.status().len(), streams);
    }
    let warning = "WARN xdskit::engine::load_sources: load is not reported: the cluster's source has no stream \
                   cluster=shop source=";
    assert_eq!(log.lines(), [format!("{warning}a:1"), format!("{warning}c.json")]);
}

/// A cluster whose load is to be reported to its own server.
fn reported(name: &str, service: &str) -> Any {
    let own = ConfigSourceSpecifier::Self_(SelfConfigSource::default());
    let own = Some(ConfigSource { config_source_specifier: Some(own), ..ConfigSource::default() });
    let cluster = crate::testing::resources::cluster(name).eds_service(service);
    let message = cluster.edit(|it| it.lrs_server = own).into_message();
    Any { type_url: Cluster::TYPE_URL.into(), value: prost::Message::encode_to_vec(&message).into() }
}

#[test]
fn e3_what_is_left_out_is_logged_when_a_resource_begins_to_lack_it() {
    let (log, _guard) = Log::start("xdskit=warn");
    let mut rig = Rig::new();
    rig.watch::<crate::resource::ClusterLoadAssignment>("shop");
    rig.connect(1);
    let assignment = |address: &str, weight: Option<u32>| {
        let weight = weight.map(|value| crate::pb::google::protobuf::UInt32Value { value });
        let assignment = crate::testing::resources::endpoints("shop").locality("eu", "a", [address]);
        assignment.edit(|message| message.endpoints[0].load_balancing_weight = weight)
    };
    for (version, address, weight) in [
        ("1", "10.0.0.1:1", None),
        ("2", "10.0.0.2:1", None),
        ("3", "10.0.0.2:1", Some(1)),
        ("4", "10.0.0.1:1", None),
    ] {
        rig.sent(1);
        rig.receive(1, &super::resolutions::response(version, [assignment(address, weight)]));
    }
    let line = "WARN xdskit::engine::ingest::left_out: a resource is accepted without a part of it: endpoints[0]: no \
                load_balancing_weight (endpoints: 1) \
                type_url=\"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\" name=shop parts=1";
    assert_eq!(log.lines(), [line, line], "of versions 1 and 4");
}

#[test]
fn d13_a_poll_that_is_held_back_is_given_up_for_a_new_name() {
    let mut rig = rest();
    rig.watch::<Eds>("a");
    rig.connect(1);
    rig.sent(1);
    rig.pass(DELAY / 2);
    assert_eq!(rig.watch::<Eds>("b").1, NONE, "no sooner than a poll would be due");
    assert_eq!(rig.pass(DELAY / 2), ["send ClusterLoadAssignment [a,b] / node"]);
    rig.sent(1);
    rig.pass(2 * DELAY);
    assert_eq!(rig.watch::<Eds>("c").1, ["send ClusterLoadAssignment [a,b,c] / node"], "at once");
    rig.sent(1);
    // It may be the answer to the request before.
    let outputs = rig.receive(1, &response::<Eds>("1", vec![any::<Eds>("a", "x"), any::<Eds>("b", "y")]));
    assert_eq!(outputs, ["#1 present 1 x", "#2 present 1 y", "read"]);
    let outputs = rig.pass(2 * DELAY);
    assert!(
        outputs.contains(&"send ClusterLoadAssignment [a,b,c] / node".to_owned()),
        "no version: {outputs:?}"
    );
    rig.sent(1);
    let all = vec![any::<Eds>("a", "x"), any::<Eds>("b", "y"), any::<Eds>("c", "z")];
    assert_eq!(rig.receive(1, &response::<Eds>("1", all))[0], "#3 present 1 z");
    assert_eq!(rig.next().1, ["send ClusterLoadAssignment [a,b,c] 1/ node"]);
}
