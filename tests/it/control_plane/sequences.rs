//! Sequences of requests that mix names that exist, names that do not, and wildcards, as suites for management servers send
//! them. Each response is read independently of the server.

use std::{collections::BTreeSet, time::Duration};

use prost::Message;
use xdskit::{
    control_plane::{
        AnyResource, ControlPlane,
        type_url::{CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION},
    },
    pb::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
        },
    },
};

use super::{
    peer::{DeltaPeer, Peer},
    response_rules::{Leeway, ResponseRules},
};

const TYPES: [&str; 4] = [LISTENER, CLUSTER, ENDPOINTS, ROUTE_CONFIGURATION];
const EXISTING: [&str; 3] = ["a", "b", "c"];

/// The subscribed names, step by step.
const STEPS: [&[&str]; 8] = [
    &["a", "missing"],
    &["missing", "b", "a"],
    &["b"],
    &["unseen", "b", "a", "missing"],
    &["unseen"],
    &["c", "unseen", "a"],
    &["*", "c"],
    &["a", "missing"],
];

/// The resources that the sequences expect: three of each type, some with a time to live.
pub(crate) fn resources() -> Vec<AnyResource> {
    let all = TYPES.into_iter().flat_map(|type_url| EXISTING.map(|name| (type_url, name)));
    let resource = |(type_url, name): (&'static str, &'static str)| {
        let message = [&[10, name.len() as u8], name.as_bytes()].concat();
        let resource = AnyResource::new(type_url, name, message);
        if name == "b" { resource.with_ttl(Duration::from_secs(600)) } else { resource }
    };
    all.map(resource).collect()
}

/// Runs all sequences, in both variants, as clients with and without features.
pub(crate) async fn run(uri: &str) {
    for has_features in [true, false] {
        for type_url in TYPES {
            in_the_state_of_the_world(uri, type_url, has_features).await;
            incrementally(uri, type_url, has_features).await;
        }
    }
}

async fn in_the_state_of_the_world(uri: &str, type_url: &str, has_features: bool) {
    let mut peer = Peer::connect(uri).await;
    let mut rules = rules();
    let mut newest = DiscoveryResponse::default();
    let mut before: BTreeSet<&str> = BTreeSet::new();
    for names in STEPS {
        let mut expected = added(names, &before);
        before = names.iter().copied().collect();
        loop {
            let request = DiscoveryRequest {
                node: Some(node(has_features)),
                type_url: type_url.to_owned(),
                resource_names: names.iter().map(|&name| name.to_owned()).collect(),
                version_info: newest.version_info.clone(),
                response_nonce: newest.nonce.clone(),
                ..DiscoveryRequest::default()
            };
            rules.on_sotw_request(&request);
            peer.send_raw(request.encode_to_vec());
            if expected.is_empty() {
                break;
            }
            let message = soon(peer.raw()).await.expect("a response").expect("an open stream");
            newest = DiscoveryResponse::decode(message).expect("a DiscoveryResponse");
            assert_eq!(rules.on_sotw_response(&newest), Ok(()), "{newest:?}");
            for any in &newest.resources {
                let is_wrapped = any.type_url != type_url;
                let body = match is_wrapped {
                    true => Resource::decode(any.value.clone()).unwrap().resource.map(|any| any.value),
                    false => Some(any.value.clone()),
                };
                let name = String::from_utf8(body.unwrap_or_default()[2..].to_vec()).unwrap();
                assert_eq!(is_wrapped, has_features && name == "b", "{name} of {type_url}");
                expected.remove(name.as_str());
            }
        }
    }
}

async fn incrementally(uri: &str, type_url: &str, has_features: bool) {
    let mut peer = DeltaPeer::connect(uri).await;
    let mut rules = rules();
    let mut before: BTreeSet<&str> = BTreeSet::new();
    for names in STEPS {
        let now: BTreeSet<&str> = names.iter().copied().collect();
        let mut expected = added(names, &before);
        let owned = |names: &mut dyn Iterator<Item = &&str>| names.map(|&name| name.to_owned()).collect();
        let mut request = DeltaDiscoveryRequest {
            node: Some(node(has_features)),
            type_url: type_url.to_owned(),
            resource_names_subscribe: owned(&mut now.difference(&before)),
            resource_names_unsubscribe: owned(&mut before.difference(&now)),
            ..DeltaDiscoveryRequest::default()
        };
        before = now;
        loop {
            rules.on_delta_request(&request);
            peer.send(&request);
            if expected.is_empty() {
                break;
            }
            let message = soon(peer.raw()).await.expect("a response").expect("an open stream");
            let response = DeltaDiscoveryResponse::decode(message).expect("a DeltaDiscoveryResponse");
            assert_eq!(rules.on_delta_response(&response), Ok(()), "{response:?}");
            for resource in &response.resources {
                assert_eq!(resource.ttl.is_some(), has_features && resource.name == "b");
                expected.remove(resource.name.as_str());
            }
            request = DeltaDiscoveryRequest {
                type_url: type_url.to_owned(),
                response_nonce: response.nonce,
                ..DeltaDiscoveryRequest::default()
            };
        }
    }
}

/// The resources that have to arrive after a request.
fn added(names: &[&str], before: &BTreeSet<&str>) -> BTreeSet<&'static str> {
    let is_new = |name: &&'static str| {
        let is_named = names.contains(name) && !before.contains(name);
        is_named || (names.contains(&"*") && !before.contains("*"))
    };
    EXISTING.into_iter().filter(is_new).collect()
}

fn rules() -> ResponseRules {
    ResponseRules::new(Leeway { in_flight: true, ..Leeway::default() })
}

fn node(has_features: bool) -> Node {
    let features = ["xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"];
    let client_features = if has_features { features.map(str::to_owned).to_vec() } else { Vec::new() };
    Node { id: "test".into(), client_features, ..Node::default() }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it takes too long")
}

#[tokio::test]
async fn cp18_names_seen_and_unseen_are_answered_by_a_control_plane() {
    let control_plane = ControlPlane::new();
    resources().into_iter().for_each(|resource| assert!(control_plane.set(resource)));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    run(&server.uri()).await;
}
