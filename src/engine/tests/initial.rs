//! Resources that serve until a server has answered: rules IN1 to IN12.

use std::{sync::Arc, time::Duration};

use super::rig::{Full, Part, Rig, any, delta_response, redirect, response, stream_to};
use crate::{
    cache::ResourceState,
    config::{ApiType, AuthorityBuilder, Bootstrap, Node, Server},
    engine::{InitialResources, OnDeletion, Settings, check_initial_resources, simulation::parts::message},
    observed::ResourceSource,
    pb::{envoy::service::discovery::v3::Resource as Wrapper, google::protobuf::Any},
    protocol::{self, DisconnectKind},
};

const NONE: [&str; 0] = [];

fn initial() -> InitialResources {
    InitialResources::new()
        .with::<Full>(message("a", "old"))
        .with::<Full>(message("b", "old"))
        .with::<Part>(message("p", "old"))
}

fn server(uri: &str) -> crate::config::ServerBuilder {
    Server::new(uri).insecure()
}

fn rig_with(bootstrap: Bootstrap, settings: Settings) -> Rig {
    Rig::of(bootstrap, Settings { initial_resources: initial(), ..settings })
}

fn rig_of(server: crate::config::ServerBuilder) -> Rig {
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server).build().unwrap();
    rig_with(bootstrap, Settings::default())
}

fn rig() -> Rig {
    rig_of(server("127.0.0.1:1"))
}

fn delta() -> Rig {
    let protocol =
        protocol::Settings { api_type: ApiType::AggregatedDeltaGrpc, ..protocol::Settings::default() };
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server("127.0.0.1:1")).build().unwrap();
    rig_with(bootstrap, protocol.into())
}

#[test]
fn in1_a_watch_has_the_initial_resource_at_once_and_through_an_outage() {
    let mut rig = rig();
    let (_, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["connect 0.1", "#1 initial old (UNAVAILABLE)"]);
    let outputs = rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["#1 initial old (UNAVAILABLE)"], "the error of the server beside it");
    // A watch that joins has the same.
    assert_eq!(rig.watch::<Full>("a").1, ["#2 initial old (UNAVAILABLE)"]);
    let (_, outputs) = rig.watch::<Full>("unknown");
    assert_eq!(outputs, ["#3 absent UNAVAILABLE"], "others have none");
}

#[test]
fn in2_the_first_answer_replaces_it_and_nothing_brings_it_back() {
    let mut rig = rig();
    let watches = rig.open::<Full>(&["a"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "new")]));
    assert_eq!(outputs[0], "#1 present 1 new");
    rig.sent(1);
    rig.unwatch(watches[0]);
    rig.pass(Duration::from_secs(1));
    rig.sent(1);
    rig.pass(Duration::from_secs(100));
    assert_eq!(
        rig.watch::<Full>("a").1,
        ["connect 0.2"],
        "an answered name has no initial resource any more"
    );
}

#[test]
fn in2_a_resource_that_is_equal_to_the_initial_one_is_no_longer_initial() {
    let mut rig = rig();
    rig.open::<Part>(&["p"]);
    let outputs = rig.receive(1, &response::<Part>("1", vec![any::<Part>("p", "old")]));
    assert_eq!(outputs[0], "#1 present 1 old");
}

#[test]
fn in3_no_version_is_claimed_and_the_does_not_exist_timer_runs() {
    let mut rig = delta();
    rig.watch::<Part>("p");
    assert_eq!(rig.connect(1), ["read", "send Part +p node"]);
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Part>("n1", &[], &[]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Part +p node"], "nor on later streams");
    // The server answers the type, and does not send the name.
    rig.sent(2);
    rig.receive_raw(2, delta_response::<Part>("n1", &[], &[]));
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 absent NOT_FOUND"]);
}

#[test]
fn in4_a_removal_ends_it_at_once_whatever_the_policy_for_deletions() {
    let protocol =
        protocol::Settings { api_type: ApiType::AggregatedDeltaGrpc, ..protocol::Settings::default() };
    let settings = Settings { on_deletion: Some(OnDeletion::Keep), ..protocol.into() };
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server("127.0.0.1:1")).build().unwrap();
    let mut rig = rig_with(bootstrap, settings);
    rig.open::<Part>(&["p"]);
    let outputs = rig.receive_raw(1, delta_response::<Part>("n1", &[], &["p"]));
    assert_eq!(outputs[0], "#1 absent NOT_FOUND", "it was never a resource of the server's");
}

#[test]
fn in5_a_rejected_first_answer_leaves_it_with_the_error() {
    let mut rig = rig();
    rig.open::<Full>(&["a", "b"]);
    let both = vec![any::<Full>("a", "bad"), any::<Full>("b", "new")];
    let outputs = rig.receive(1, &response::<Full>("1", both));
    assert_eq!(outputs[..2], ["#1 initial old (INVALID_ARGUMENT)", "#2 present 1 new"]);
    rig.sent(1);
    let outputs =
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "new"), any::<Full>("b", "new")]));
    assert_eq!(outputs[0], "#1 present 2 new");
}

#[test]
fn in5_a_server_whose_data_errors_count_ends_it_by_a_rejection() {
    let mut rig = rig_of(server("127.0.0.1:1").features(["fail_on_data_errors"]));
    rig.open::<Full>(&["a"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad")]));
    assert_eq!(outputs[0], "#1 absent INVALID_ARGUMENT");
}

#[test]
fn in6_a_full_response_ends_those_that_nobody_watches() {
    let mut rig = rig();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "new")]));
    rig.sent(1);
    let (_, outputs) = rig.watch::<Full>("b");
    assert_eq!(outputs, ["send Full [a,b] 1/n1"], "the server has none, or sends it now");
    let (_, outputs) = rig.watch::<Part>("p");
    assert_eq!(outputs, ["#3 initial old (UNAVAILABLE)"], "another type goes on");
}

#[test]
fn in6_those_in_use_that_a_full_response_lacks_are_decided_by_their_timers() {
    let mut rig = rig();
    rig.open::<Full>(&["a", "b"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "new")]));
    assert_eq!(outputs, ["#1 present 1 new", "read", "send Full [a,b] 1/n1"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#2 absent NOT_FOUND"]);
}

#[test]
fn in7_a_server_that_accepts_the_stream_and_sends_nothing_leaves_it() {
    let mut rig = rig();
    rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.watch::<Full>("a").1.last().unwrap().split(' ').nth(1), Some("initial"));
    // Neither does one that answers other types alone.
    let mut rig = self::rig();
    rig.watch::<Part>("q");
    rig.open::<Full>(&["a"]);
    rig.sent(1);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("q", "x")]));
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(60));
    assert!(outputs.iter().all(|text| !text.contains("absent")), "{outputs:?}");
}

#[test]
fn in8_the_next_server_is_asked_all_the_same_and_its_answer_counts() {
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server("127.0.0.1:1"));
    let bootstrap = bootstrap.server(server("127.0.0.1:2")).build().unwrap();
    let mut rig = rig_with(bootstrap, Settings::default());
    rig.watch::<Full>("a");
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["connect 1.1"]);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let new = prost::Message::encode_to_vec(&response::<Full>("7", vec![any::<Full>("a", "new")]));
    assert_eq!(rig.receive_from(stream_to(1, 1), new)[0], "#1 present 7 new");
}

#[test]
fn in9_names_of_authorities_are_replaced_by_their_own_servers() {
    let name = "xdstp://shop/test.Full/a";
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server("127.0.0.1:1"));
    let authority = AuthorityBuilder::default().server(server("127.0.0.1:2"));
    let bootstrap = bootstrap.authority("shop", authority).build().unwrap();
    let initial = initial().with_name::<Full>(name, message(name, "theirs"));
    let mut rig = Rig::of(bootstrap, Settings { initial_resources: initial, ..Settings::default() });
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "new")]));
    rig.sent(1);
    let (_, outputs) = rig.watch::<Full>(name);
    assert_eq!(
        outputs,
        ["connect 1.1", "#2 initial theirs (UNAVAILABLE)"],
        "the other server has not answered"
    );
}

#[test]
fn in10_collections_redirects_and_batches_have_none_of_their_own() {
    let mut rig = rig();
    let (_, outputs) = rig.watch::<Full>("*");
    assert_eq!(outputs, ["connect 0.1"]);
    // Behind a redirect, the initial resource of the target serves.
    let mut rig = self::rig();
    rig.open::<Part>(&["from"]);
    let outputs = rig.receive(1, &response::<Part>("1", vec![redirect("from", "p")]));
    assert!(outputs.iter().any(|text| text == "#1 initial old (UNAVAILABLE)"), "{outputs:?}");
}

#[test]
fn in1_the_status_shows_it_with_its_bytes_and_as_requested() {
    let mut rig = rig();
    rig.watch::<Full>("a");
    let status = rig.engine.status();
    let report = &status.resources[0];
    assert!(report.is_initial);
    assert_eq!((report.state, report.bytes.clone()), (ResourceState::Requested, Some(message("a", "old"))));
    assert_eq!(report.held, None);
}

#[test]
fn in11_an_answer_has_the_server_that_it_came_from() {
    let mut rig = rig();
    let watches = rig.open::<Full>(&["a"]);
    let mut named = response::<Full>("1", vec![any::<Full>("a", "new")]);
    named.control_plane =
        Some(crate::pb::envoy::config::core::v3::ControlPlane { identifier: "istiod-7".into() });
    rig.receive(1, &named);
    let entry = rig.engine.store.iter().next().unwrap().1;
    let crate::observed::ErasedObserved::Present { source, .. } = entry.observe(|| None).unwrap() else {
        panic!("it is present")
    };
    let expected = ResourceSource::Server { uri: "127.0.0.1:1".into(), identifier: Some("istiod-7".into()) };
    assert_eq!(source.as_deref(), Some(&expected));
    rig.unwatch(watches[0]);
    assert_eq!(rig.drain(), NONE);
}

/// The error of these resources, with the default settings.
fn rejected(initial: InitialResources) -> String {
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server("127.0.0.1:1")).build().unwrap();
    let settings = Settings { initial_resources: initial, ..Settings::default() };
    check_initial_resources(&Arc::new(bootstrap), &settings)
        .map_or_else(|error| error.to_string(), |()| "valid".into())
}

#[test]
fn in12_each_resource_is_checked_and_the_error_has_its_place() {
    let new = InitialResources::new;
    assert_eq!(rejected(initial()), "valid");
    assert_eq!(rejected(initial().with::<Full>(message("c", "bad"))), r#"Full "c".text: it is bad"#);
    assert_eq!(rejected(new().with::<Full>(message("", "x"))), r#"Full "": it has no name"#);
    assert!(rejected(new().with::<Full>(b"\xff".as_slice())).starts_with(r#"Full "": not a valid message"#));
    assert_eq!(
        rejected(new().with_name::<Full>("*", message("a", "x"))),
        r#"Full "*": the name is not that of one resource"#
    );
    assert_eq!(
        rejected(new().with_name::<Full>("xdstp:///test.Full/a/*", message("a", "x"))),
        r#"Full "xdstp:///test.Full/a/*": the name is not that of one resource"#
    );
    assert_eq!(
        rejected(new().with_name::<Full>("xdstp://nowhere/test.Full/a", message("a", "x"))),
        r#"Full "xdstp://nowhere/test.Full/a": authority "nowhere" is not found in the bootstrap"#
    );
    let many = (0..=100_000).fold(new(), |all, number| all.with::<Full>(message(&format!("r{number}"), "x")));
    assert!(rejected(many).contains("are more than 100000"));
    let large = new().with::<Full>(message("a", &"x".repeat(64 << 20)));
    assert!(rejected(large).contains("67108864 bytes"), "the limit is in the error");
}

#[test]
fn in12_a_response_may_have_several_types_and_wrapped_resources() {
    use prost::Message;

    use crate::{
        pb::envoy::config::cluster::v3 as pb,
        resource::{Cluster, Resource, RouteConfiguration},
    };

    let cluster = pb::Cluster { name: "shop".into(), ..pb::Cluster::default() }.encode_to_vec();
    let wrap = |name: &str, type_url: &str, value: Vec<u8>| {
        let resource = Some(Any { type_url: type_url.into(), value: value.into() });
        let wrapper = Wrapper { name: name.into(), resource, ..Wrapper::default() };
        Any { type_url: crate::resource::services::WRAPPER.into(), value: wrapper.encode_to_vec().into() }
    };
    let bare = Any { type_url: RouteConfiguration::TYPE_URL.into(), value: cluster.clone().into() };
    let name = "xdstp://a/envoy.config.cluster.v3.Cluster/shop";
    let mut response = response::<Full>("1", vec![bare, wrap(name, Cluster::TYPE_URL, cluster)]);
    let read = InitialResources::new().with_response(&response.encode_to_vec()).unwrap();
    assert_eq!(read.len(), 2);
    response.resources.push(any::<Full>("a", "x"));
    let error = InitialResources::new().with_response(&response.encode_to_vec()).unwrap_err();
    assert_eq!(error.to_string(), r#"resources[2]: unknown type "type.googleapis.com/test.Full""#);
    response.resources.truncate(1);
    response.resources.push(Any { value: b"\xff".as_slice().into(), ..wrap("a", "b", Vec::new()) });
    let error = InitialResources::new().with_response(&response.encode_to_vec()).unwrap_err();
    assert!(error.to_string().starts_with("resources[1]: not a Resource"), "{error}");
    assert!(InitialResources::new().with_response(b"\xff").is_err());
}

#[cfg(feature = "json")]
#[test]
fn in12_a_document_in_json_is_read_as_those_of_file_sources() {
    let document = r#"{ "resources": [{ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "shop",
        "type": "EDS", "eds_cluster_config": { "eds_config": { "ads": {} } } }] }"#;
    let read = InitialResources::new().with_json(document).unwrap();
    assert_eq!(rejected(read), "valid");
    let without = document
        .replace("\"eds_cluster_config\": { \"eds_config\": { \"ads\": {} } }", "\"alt_stat_name\": \"x\"");
    let error = rejected(InitialResources::new().with_json(&without).unwrap());
    assert_eq!(error, r#"Cluster "shop".eds_cluster_config: must be set"#);
    assert!(InitialResources::new().with_json("{}").is_err(), "a document that was cut off");
    assert!(InitialResources::new().with_json("[").is_err());
}
