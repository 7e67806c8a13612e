//! The services of single types, and v2.

use prost::Message;
use tokio::sync::mpsc;
use tonic::{Code, transport::Channel};
use xdskit::{
    config::TransportApiVersion,
    control_plane::{
        Event, Variant,
        type_url::{
            CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION, RUNTIME, SCOPED_ROUTE_CONFIGURATION, SECRET,
            VIRTUAL_HOST,
        },
    },
    pb::envoy::service::discovery::v3::Resource,
};

use super::{
    peer::{DeltaPeer, Peer, method},
    service::{start, text},
};

/// Checks the next event, of a stream that opens.
async fn opened(
    events: &mut mpsc::UnboundedReceiver<Event>,
) -> (Variant, TransportApiVersion, Option<&'static str>) {
    loop {
        if let Some(Event::Opened { variant, api_version, type_url, .. }) = events.recv().await {
            return (variant, api_version, type_url);
        }
    }
}

async fn status(uri: &str, path: &'static str) -> Code {
    let channel = Channel::from_shared(uri.to_owned()).unwrap().connect().await.unwrap();
    let (_requests, outgoing) = mpsc::unbounded_channel();
    method(channel, path, outgoing).await.unwrap_err().code()
}

#[tokio::test]
async fn e_each_type_has_a_stream_of_its_own_in_the_state_of_the_world_variant() {
    let (control_plane, server, mut events) = start().await;
    for (type_url, v2, path, path_of_v2) in SOTW {
        control_plane.set(text(type_url, "a", "of a"));
        for (api_version, path, written) in
            [(TransportApiVersion::V3, path, type_url), (TransportApiVersion::V2, path_of_v2, v2)]
        {
            let mut peer = Peer::call(&server.uri(), path).await;
            assert_eq!(opened(&mut events).await, (Variant::Sotw, api_version, Some(type_url)));
            peer.request(written, &["a"]);
            let response = peer.response().await;
            assert_eq!(response.type_url, written);
            let [any] = &response.resources[..] else { panic!("{response:?}") };
            assert_eq!((&*any.type_url, &*any.value), (written, &b"of a"[..]));
        }
    }
}

#[tokio::test]
async fn e_each_type_has_a_stream_of_its_own_in_the_incremental_variant() {
    let (control_plane, server, mut events) = start().await;
    for (type_url, v2, path, path_of_v2) in DELTA {
        control_plane.set(text(type_url, "a", "of a"));
        for (api_version, path, written) in
            [(TransportApiVersion::V3, path, type_url), (TransportApiVersion::V2, path_of_v2, v2)]
        {
            let mut peer = DeltaPeer::call(&server.uri(), path).await;
            assert_eq!(opened(&mut events).await, (Variant::Delta, api_version, Some(type_url)));
            peer.change(written, &["a"], &[]);
            let response = peer.response().await;
            assert_eq!(response.type_url, written);
            let [Resource { resource: Some(any), .. }] = &response.resources[..] else {
                panic!("{response:?}")
            };
            assert_eq!((&*any.type_url, &*any.value), (written, &b"of a"[..]));
        }
    }
}

#[tokio::test]
async fn the_type_may_be_left_out_where_the_method_implies_it_and_is_always_in_the_response() {
    let (control_plane, server, mut events) = start().await;
    control_plane.set(text(ENDPOINTS, "a", "a1"));
    let mut peer = Peer::call(&server.uri(), SOTW[3].2).await;
    peer.request("", &["a"]);
    assert_eq!(peer.response().await.type_url, ENDPOINTS);
    let mut peer = DeltaPeer::call(&server.uri(), DELTA[3].3).await;
    peer.change("", &["a"], &[]);
    assert_eq!(peer.response().await.type_url, "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment");
    let mut requests = 0;
    while requests < 2 {
        if let Some(Event::Request { request, .. }) = events.recv().await {
            assert_eq!(request.type_url(), ENDPOINTS, "observers see the type of v3");
            requests += 1;
        }
    }
}

#[tokio::test]
async fn another_type_than_that_of_the_stream_ends_it() {
    let (_control_plane, server, _events) = start().await;
    let v2_cluster = "type.googleapis.com/envoy.api.v2.Cluster";
    for (path, wrong) in [(SOTW[2].2, ENDPOINTS), (SOTW[2].2, v2_cluster), (SOTW[2].3, CLUSTER)] {
        let mut peer = Peer::call(&server.uri(), path).await;
        peer.request(wrong, &["a"]);
        let error = peer.raw().await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(wrong), "{error}");
    }
    let mut peer = DeltaPeer::call(&server.uri(), DELTA[2].2).await;
    peer.change(LISTENER, &["a"], &[]);
    assert_eq!(peer.raw().await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn changes_and_answers_of_a_stream_of_one_type_are_those_of_ads() {
    let (control_plane, server, _events) = start().await;
    let mut peer = Peer::call(&server.uri(), SOTW[2].2).await;
    peer.request("", &[]);
    assert!(peer.response().await.resources.is_empty(), "there is no cluster");
    peer.request(CLUSTER, &[]);
    control_plane.update(|tx| {
        tx.set(text(CLUSTER, "a", "a1")).set(text(ENDPOINTS, "a", "never sent here"));
    });
    let response = peer.response().await;
    assert_eq!((response.version_info.as_str(), response.resources.len()), ("1", 1));
    peer.reject(CLUSTER, &[], "no");
    control_plane.set(text(CLUSTER, "a", "a2"));
    assert_eq!(peer.response().await.version_info, "2");
}

#[tokio::test]
async fn b3_5_virtual_hosts_and_single_endpoints_are_in_the_incremental_variant_only() {
    let (control_plane, server, mut events) = start().await;
    for path in [
        "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.api.v2.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/StreamLocalityEndpoints",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
    ] {
        assert_eq!(status(&server.uri(), path).await, Code::Unimplemented, "{path}");
    }
    let of_endpoints = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
    control_plane.set(text(of_endpoints, "a", "a1"));
    let path = "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints";
    let mut peer = DeltaPeer::call(&server.uri(), path).await;
    assert_eq!(opened(&mut events).await, (Variant::Delta, TransportApiVersion::V3, Some(of_endpoints)));
    peer.change("", &["a"], &[]);
    assert_eq!(peer.response().await.resources[0].name, "a");
}

#[tokio::test]
async fn aggregated_streams_of_v2_have_the_names_of_v2() {
    let (control_plane, server, mut events) = start().await;
    let own = "type.googleapis.com/example.Banner";
    let secret = "type.googleapis.com/envoy.api.v2.auth.Secret";
    control_plane.set(text(SECRET, "a", "a1"));
    control_plane.set(text(own, "b", "b1"));
    let mut peer = Peer::call(&server.uri(), ADS_V2).await;
    assert_eq!(opened(&mut events).await, (Variant::Sotw, TransportApiVersion::V2, None));
    for type_url in [secret, own] {
        peer.request(type_url, &[]);
        let response = peer.response().await;
        assert_eq!((&*response.type_url, &*response.resources[0].type_url), (type_url, type_url));
        peer.request(type_url, &[]);
    }
    peer.request(SECRET, &[]);
    let error = peer.raw().await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "a name of v3 is not one of v2");
}

#[tokio::test]
async fn wrapped_resources_of_v2_have_the_names_of_v2_within() {
    let (control_plane, server, _events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1").with_name("b"));
    let mut peer = Peer::call(&server.uri(), SOTW[2].3).await;
    peer.request("", &[]);
    let response = peer.response().await;
    let any = &response.resources[0];
    assert_eq!(any.type_url, "type.googleapis.com/envoy.api.v2.Resource");
    let wrapper = Resource::decode(any.value.clone()).unwrap();
    assert_eq!(wrapper.name, "b");
    assert_eq!(wrapper.resource.unwrap().type_url, "type.googleapis.com/envoy.api.v2.Cluster");
}

#[tokio::test]
async fn a_server_of_ones_own_has_all_services_by_their_routes() {
    let (control_plane, _server, _events) = start().await;
    control_plane.set(text(ENDPOINTS, "a", "a1"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let router = tonic::transport::Server::builder().add_routes(control_plane.routes());
    let serving = tokio::spawn(router.serve_with_incoming(incoming));
    for path in [SOTW[3].2, SOTW[3].3] {
        let mut peer = Peer::call(&uri, path).await;
        peer.request("", &["a"]);
        assert_eq!(peer.response().await.resources.len(), 1);
    }
    assert_eq!(status(&uri, "/example.Other/Method").await, Code::Unimplemented);
    serving.abort();
}

const ADS_V2: &str = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources";

/// Type URL, v2 type URL, and the methods of both.
type Row = (&'static str, &'static str, &'static str, &'static str);

const SOTW: [Row; 7] = [
    (
        LISTENER,
        "type.googleapis.com/envoy.api.v2.Listener",
        "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
        "/envoy.api.v2.ListenerDiscoveryService/StreamListeners",
    ),
    (
        ROUTE_CONFIGURATION,
        "type.googleapis.com/envoy.api.v2.RouteConfiguration",
        "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes",
        "/envoy.api.v2.RouteDiscoveryService/StreamRoutes",
    ),
    (
        CLUSTER,
        "type.googleapis.com/envoy.api.v2.Cluster",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        "/envoy.api.v2.ClusterDiscoveryService/StreamClusters",
    ),
    (
        ENDPOINTS,
        "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment",
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
        "/envoy.api.v2.EndpointDiscoveryService/StreamEndpoints",
    ),
    (
        SCOPED_ROUTE_CONFIGURATION,
        "type.googleapis.com/envoy.api.v2.ScopedRouteConfiguration",
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/StreamScopedRoutes",
        "/envoy.api.v2.ScopedRoutesDiscoveryService/StreamScopedRoutes",
    ),
    (
        SECRET,
        "type.googleapis.com/envoy.api.v2.auth.Secret",
        "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
        "/envoy.service.discovery.v2.SecretDiscoveryService/StreamSecrets",
    ),
    (
        RUNTIME,
        "type.googleapis.com/envoy.service.discovery.v2.Runtime",
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime",
        "/envoy.service.discovery.v2.RuntimeDiscoveryService/StreamRuntime",
    ),
];

const DELTA: [Row; 8] = [
    (SOTW[0].0, SOTW[0].1, LDS_DELTA, "/envoy.api.v2.ListenerDiscoveryService/DeltaListeners"),
    (
        SOTW[1].0,
        SOTW[1].1,
        "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes",
        "/envoy.api.v2.RouteDiscoveryService/DeltaRoutes",
    ),
    (
        SOTW[2].0,
        SOTW[2].1,
        "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
        "/envoy.api.v2.ClusterDiscoveryService/DeltaClusters",
    ),
    (
        SOTW[3].0,
        SOTW[3].1,
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
        "/envoy.api.v2.EndpointDiscoveryService/DeltaEndpoints",
    ),
    (
        SOTW[4].0,
        SOTW[4].1,
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/DeltaScopedRoutes",
        "/envoy.api.v2.ScopedRoutesDiscoveryService/DeltaScopedRoutes",
    ),
    (
        SOTW[5].0,
        SOTW[5].1,
        "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
        "/envoy.service.discovery.v2.SecretDiscoveryService/DeltaSecrets",
    ),
    (
        SOTW[6].0,
        SOTW[6].1,
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/DeltaRuntime",
        "/envoy.service.discovery.v2.RuntimeDiscoveryService/DeltaRuntime",
    ),
    (
        VIRTUAL_HOST,
        "type.googleapis.com/envoy.api.v2.route.VirtualHost",
        "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts",
        "/envoy.api.v2.VirtualHostDiscoveryService/DeltaVirtualHosts",
    ),
];

const LDS_DELTA: &str = "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners";
