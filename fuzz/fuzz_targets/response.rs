//! Whole messages of a server, in both variants of the protocol: whatever they hold, the client goes on, keeps what is good,
//! and takes the next good one.
//!
//! The first byte of an input is the variant; the rest is up to some messages, each behind two bytes of its length.

#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use xdskit::{
    fuzzing::Receiver,
    pb::{
        envoy::service::{
            discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource as Wrapper},
            runtime::v3 as runtime,
        },
        google::protobuf::Any,
    },
    resource::{
        Cluster, ClusterLoadAssignment, Listener, Resource, RouteConfiguration, Runtime,
        ScopedRouteConfiguration, Secret, VirtualHost,
    },
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, mut rest)) = input.split_first() else { return };
    let delta = first & 1 == 1;
    let mut client = Receiver::new(delta);
    let good = watch(&mut client);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (message, next) = after.split_at(length);
        client.receive(Bytes::copy_from_slice(message));
        rest = next;
    }
    client.pass(Duration::from_secs(20));
    let requests = client.requests();
    client.receive(good_response(delta));
    let seen = client.seen::<Runtime>(good).expect("something is published");
    assert!(seen.contains("Present") && seen.contains("warning: None"), "{seen}");
    assert!(client.requests() > requests, "it is answered");
});

/// Everything at once: names of all types, a wildcard and collections. Gives the view of what will be good.
fn watch(client: &mut Receiver) -> u64 {
    client.watch::<Listener>("a");
    client.watch::<RouteConfiguration>("a");
    client.watch::<Cluster>("a");
    client.watch_all::<Cluster>(None);
    client.watch::<ClusterLoadAssignment>("a");
    client.watch::<ScopedRouteConfiguration>("a");
    client.watch::<VirtualHost>("a");
    client.watch::<Secret>("a");
    client.watch_all::<Listener>(Some("xdstp:///envoy.config.listener.v3.Listener/*"));
    client.watch_all::<Cluster>(Some("xdstp:///envoy.config.cluster.v3.ClusterCollection/list"));
    client.watch::<Listener>("xdstp:///envoy.config.listener.v3.Listener/moved");
    client.watch::<Runtime>("good")
}

/// A runtime whose name the corpus has nothing of.
fn good_response(delta: bool) -> Bytes {
    let message = runtime::Runtime { name: "good".into(), layer: None };
    let type_url = Runtime::TYPE_URL.to_owned();
    let body = Any { type_url: type_url.clone(), value: message.encode_to_vec().into() };
    let bytes = if delta {
        let wrapped = Wrapper {
            name: "good".into(),
            version: "the version of the good one".into(),
            resource: Some(body),
            ..Wrapper::default()
        };
        let nonce = "the nonce of the good one".into();
        DeltaDiscoveryResponse { nonce, type_url, resources: vec![wrapped], ..Default::default() }
            .encode_to_vec()
    } else {
        let nonce = "the nonce of the good one".into();
        let version_info = "the version of the good one".into();
        DiscoveryResponse { nonce, type_url, version_info, resources: vec![body], ..Default::default() }
            .encode_to_vec()
    };
    bytes.into()
}
