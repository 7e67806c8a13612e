//! What operators see of a client: A40, A71-7, A88-8.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, message, response, stream, stream_to};
use crate::{
    cache::ResourceState,
    config::{Bootstrap, Server, ServerBuilder},
    engine::{ResourceReport, Settings},
    pb::{
        envoy::{
            config::core::v3::{DataSource, data_source::Specifier},
            extensions::transport_sockets::tls::v3 as tls,
            service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName},
        },
        google::{protobuf::Any, rpc::Status as RpcStatus},
    },
    protocol::{ConnectionState, DisconnectKind, StreamEvent},
    resource::{Resource, Secret},
};

#[test]
fn a88_8_a_subscribed_resource_is_requested_until_something_is_known() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    assert_eq!(shown(&mut rig), ["a REQUESTED"]);
    rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(shown(&mut rig), ["a REQUESTED"], "an error of the server is not one of the resource");
}

#[test]
fn a40_5_what_was_accepted_is_shown_as_it_was_received() {
    let mut rig = accepted(server());
    let report = the(&mut rig, "a");
    assert_eq!(report.type_url, Full::TYPE_URL);
    assert_eq!(report.bytes, Some(message("a", "x")));
    assert_eq!(report.held, Some(("1".into(), rig.now)));
    assert_eq!(shown(&mut rig), ["a ACKED 1"]);
}

#[test]
fn a_resource_that_comes_again_is_updated_though_it_is_unchanged() {
    let mut rig = accepted(server());
    rig.pass(SECOND);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    assert_eq!(the(&mut rig, "a").held, Some(("2".into(), rig.now)));
}

/// Each state that errors lead to, without a good resource and with one, under both policies.
#[test]
fn a88_8_the_state_after_an_error_with_and_without_a_cached_resource() {
    let not_found = || error("a", 5, "no such thing");
    let passing = || error("a", 14, "later");
    let rejected = || response::<Full>("2", vec![any::<Full>("a", "bad")]);
    let deleted = || response::<Full>("2", vec![]);
    let keeping = || server().features(["ignore_resource_deletion"]);
    let dropping = || server().features(["fail_on_data_errors"]);
    for (what, server, had, updates, shows) in [
        ("rejected", server(), false, rejected(), "a NACKED | 2 INVALID_ARGUMENT"),
        ("rejected", server(), true, rejected(), "a NACKED 1 | 2 INVALID_ARGUMENT"),
        ("rejected and dropped", dropping(), true, rejected(), "a NACKED | 2 INVALID_ARGUMENT"),
        ("never there", server(), false, deleted(), "a REQUESTED"),
        ("deleted", server(), true, deleted(), "a DOES_NOT_EXIST | 2 NOT_FOUND"),
        ("deleted and kept", keeping(), true, deleted(), "a DOES_NOT_EXIST 1 | 2 NOT_FOUND"),
        ("no such thing", server(), false, not_found(), "a RECEIVED_ERROR | 2 NOT_FOUND"),
        ("no such thing, kept", server(), true, not_found(), "a RECEIVED_ERROR 1 | 2 NOT_FOUND"),
        ("no such thing, dropped", dropping(), true, not_found(), "a RECEIVED_ERROR | 2 NOT_FOUND"),
        ("a passing error", server(), false, passing(), "a RECEIVED_ERROR | 2 UNAVAILABLE"),
        ("a passing error drops nothing", dropping(), true, passing(), "a RECEIVED_ERROR 1 | 2 UNAVAILABLE"),
    ] {
        let mut rig = if had { accepted(server) } else { requested(server) };
        rig.pass(SECOND);
        rig.receive(1, &updates);
        assert_eq!(shown(&mut rig), [shows], "{what}");
        let report = the(&mut rig, "a");
        assert!(
            report.ambient_error.is_none_or(|ambient_error| ambient_error.update.at == rig.now),
            "{what}"
        );
        assert_eq!(report.bytes.is_some(), shows.contains(" 1"), "{what}: held or not");
    }
}

#[test]
fn a88_5_the_timer_makes_it_not_exist_or_a_timeout_of_the_server() {
    let mut rig = requested(server());
    rig.pass(Duration::from_secs(16));
    assert_eq!(shown(&mut rig), ["a DOES_NOT_EXIST | NOT_FOUND"]);
    let mut rig = requested(server().features(["resource_timer_is_transient_error"]));
    rig.pass(Duration::from_secs(16));
    assert_eq!(shown(&mut rig), ["a REQUESTED"]);
    rig.pass(Duration::from_secs(15));
    assert_eq!(shown(&mut rig), ["a TIMEOUT | UNAVAILABLE"]);
}

#[test]
fn a40_2_a_good_update_clears_the_failure_be_it_new_or_the_held_one() {
    for text in ["x", "y"] {
        let mut rig = accepted(server());
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad")]));
        assert_eq!(the(&mut rig, "a").state, ResourceState::Nacked);
        rig.sent(1);
        rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", text)]));
        assert_eq!(shown(&mut rig), ["a ACKED 3"]);
    }
}

#[test]
fn a46_only_the_bad_resource_of_a_response_has_failed() {
    let mut rig = requested(server());
    rig.watch::<Full>("b");
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad"), any::<Full>("b", "x")]));
    assert_eq!(shown(&mut rig), ["a NACKED | 1 INVALID_ARGUMENT", "b ACKED 1"]);
}

#[test]
fn members_of_a_wildcard_are_shown_and_go_with_it() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("m", "x"), any::<Full>("n", "bad")]));
    rig.sent(1);
    assert_eq!(shown(&mut rig), ["m ACKED 1", "n NACKED | 1 INVALID_ARGUMENT"]);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("m", "x")]));
    rig.sent(1);
    assert_eq!(shown(&mut rig), ["m ACKED 2"]);
    rig.unwatch(watches[0]);
    rig.pass(SECOND);
    rig.sent(1);
    assert_eq!(shown(&mut rig), NONE);
}

/// Until the server is notified, the cache keeps it without a subscription (client.md, G).
#[test]
fn what_nobody_watches_any_more_is_not_shown() {
    let mut rig = accepted(server());
    let (watch_id, _) = rig.watch::<Full>("b");
    rig.sent(1);
    rig.unwatch(watch_id);
    assert_eq!(shown(&mut rig), ["a ACKED 1"]);
}

#[test]
fn types_are_numbered_in_the_order_of_first_use() {
    let mut rig = Rig::new();
    rig.watch::<Part>("b");
    rig.watch::<Full>("a");
    let mut reports = rig.engine.status().resources;
    reports.sort_by_key(|report| report.order);
    let types: Vec<_> = reports.iter().map(|report| report.type_url).collect();
    assert_eq!(types, [Part::TYPE_URL, Full::TYPE_URL]);
}

#[test]
fn the_bytes_of_secrets_are_never_shown() {
    let key = "-----BEGIN PRIVATE KEY-----";
    let inline = |text: &str| DataSource {
        specifier: Some(Specifier::InlineString(text.into())),
        ..Default::default()
    };
    let certificate = tls::TlsCertificate {
        certificate_chain: Some(inline("-----BEGIN CERTIFICATE-----")),
        private_key: Some(inline(key)),
        ..tls::TlsCertificate::default()
    };
    let secret =
        tls::Secret { name: "identity".into(), r#type: Some(tls::secret::Type::TlsCertificate(certificate)) };
    let mut rig = Rig::new();
    rig.open::<Secret>(&["identity"]);
    let value = secret.encode_to_vec().into();
    let response = response::<Secret>("1", vec![Any { type_url: Secret::TYPE_URL.into(), value }]);
    let input =
        StreamEvent::Received { stream: stream(1), message: response.encode_to_vec().into(), at: None };
    rig.engine.handle_input(input, rig.now);
    while rig.engine.poll_output().is_some() {}
    rig.engine.handle_timeout(rig.now);
    while rig.engine.poll_output().is_some() {}
    let report = the(&mut rig, "identity");
    assert_eq!((report.state, report.bytes.is_none()), (ResourceState::Acked, true));
    assert!(!format!("{report:?}").contains("PRIVATE"));
}

#[test]
fn servers_are_shown_with_their_streams_and_failures() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    assert_eq!(connection(&mut rig), (ConnectionState::Connecting, None));
    rig.disconnect(1, DisconnectKind::Unreachable);
    let failure = "cannot connect to xDS server 127.0.0.1:1: it broke".to_owned();
    assert_eq!(connection(&mut rig), (ConnectionState::BackingOff, Some(failure)));
    rig.pass(SECOND * 2);
    rig.connect(2);
    assert_eq!(connection(&mut rig).0, ConnectionState::Connected);
    rig.sent(2);
    rig.receive(2, &response::<Full>("1", vec![]));
    assert_eq!(connection(&mut rig), (ConnectionState::Connected, None));
}

#[test]
fn a71_in_a_fallback_what_is_shown_is_what_the_lower_server_sent() {
    let servers = [1, 2].map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap = servers.into_iter().fold(Bootstrap::builder(), |all, server| all.server(server));
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    rig.watch::<Full>("*");
    rig.disconnect_from(stream_to(0, 1), DisconnectKind::Unreachable);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let members = response::<Full>("f1", vec![any::<Full>("m", "x"), any::<Full>("n", "bad")]);
    rig.receive_from(stream_to(1, 1), members.encode_to_vec());
    assert_eq!(shown(&mut rig), ["m ACKED f1", "n NACKED | f1 INVALID_ARGUMENT"]);
    let servers = rig.engine.status().servers;
    let servers: Vec<_> =
        servers.iter().map(|server| (&*server.uri, server.connection, server.failure.is_some())).collect();
    let expected = [
        ("127.0.0.1:1", ConnectionState::BackingOff, true),
        ("127.0.0.1:2", ConnectionState::Connected, false),
    ];
    assert_eq!(servers, expected);
}

fn server() -> ServerBuilder {
    Server::new("127.0.0.1:1").insecure()
}

/// A rig that has requested `a`.
fn requested(server: ServerBuilder) -> Rig {
    let mut rig = Rig::with(server);
    rig.open::<Full>(&["a"]);
    rig
}

/// A rig that holds `a` in version 1.
fn accepted(server: ServerBuilder) -> Rig {
    let mut rig = requested(server);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig
}

/// A response with an error in place of a resource.
fn error(name: &str, code: i32, message: &str) -> DiscoveryResponse {
    let error = ResourceError {
        resource_name: Some(ResourceName { name: name.into(), ..ResourceName::default() }),
        error_detail: Some(RpcStatus { code, message: message.into(), details: vec![] }),
    };
    DiscoveryResponse { resource_errors: vec![error], ..response::<Full>("2", vec![]) }
}

/// All resources in words: name, state, the version that is held; and behind a bar, the version and the code of a failure.
fn shown(rig: &mut Rig) -> Vec<String> {
    let mut resources = rig.engine.status().resources;
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    let describe = |report: &ResourceReport| {
        let held = report.held.as_ref().map(|(version, _)| version.as_str());
        let failure = report.ambient_error.as_ref();
        let version = failure.map(|failure| failure.update.version.as_str()).filter(|text| !text.is_empty());
        let code = failure.map(|failure| failure.error.code().as_str());
        let bar = failure.map(|_| "|");
        let words = [Some(&*report.name), Some(report.state.as_str()), held, bar, version, code];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    resources.iter().map(describe).collect()
}

fn the(rig: &mut Rig, name: &str) -> ResourceReport {
    rig.engine.status().resources.into_iter().find(|report| *report.name == *name).unwrap()
}

fn connection(rig: &mut Rig) -> (ConnectionState, Option<String>) {
    let server = rig.engine.status().servers.remove(0);
    (server.connection, server.failure)
}

const NONE: [&str; 0] = [];
const SECOND: Duration = Duration::from_secs(1);
