use std::time::Duration;

use tonic::Code;
use xdskit::{
    control_plane::{
        self, AnyResource, Event, Variant,
        type_url::{CLUSTER, ENDPOINTS},
    },
    pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse},
    testing::{TestControlPlane, resources::cluster},
};

use super::peer::{DeltaPeer, Peer, delta_request};

/// `NAME=BYTES... -REMOVED...`
fn text(response: &DeltaDiscoveryResponse) -> String {
    let resources = response.resources.iter().map(|resource| {
        let body = resource.resource.as_ref().map(|any| String::from_utf8_lossy(&any.value).into_owned());
        format!("{}={}", resource.name, body.unwrap_or_default())
    });
    let removed = response.removed_resources.iter().map(|name| format!("-{name}"));
    resources.chain(removed).collect::<Vec<_>>().join(" ")
}

fn resource(name: &str, text: &str) -> AnyResource {
    AnyResource::new(CLUSTER, name, text.to_owned())
}

#[tokio::test]
async fn both_variants_are_served_at_once() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(resource("a", "a1"));
    let mut whole = Peer::connect(&control_plane.uri()).await;
    let mut delta = DeltaPeer::connect(&control_plane.uri()).await;
    whole.request(CLUSTER, &[]);
    delta.change(CLUSTER, &[], &[]);
    assert_eq!(whole.response().await.resources.len(), 1);
    let response = delta.response().await;
    assert_eq!((text(&response).as_str(), response.resources[0].version.as_str()), ("a=a1", "1"));
    delta.answer(&response, None);
    whole.request(CLUSTER, &[]);

    control_plane.update(|tx| {
        tx.set(resource("b", "b1")).remove(CLUSTER, "a");
    });
    assert_eq!(whole.response().await.resources.len(), 1);
    assert_eq!(text(&delta.response().await), "b=b1 -a");
}

#[tokio::test]
async fn answers_and_names_of_delta_clients_are_expected() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(cluster("a"));
    let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
    peer.change(CLUSTER, &["a", "b"], &[]);
    let response = peer.response().await;
    peer.answer(&response, None);
    let ack = control_plane.expect_ack(CLUSTER).await.unwrap();
    assert_eq!((ack.version.as_str(), &ack.names[..]), ("1", &["a".into(), "b".into()][..]));

    control_plane.set(cluster("b"));
    let response = peer.response().await;
    peer.answer(&response, Some("b: bad"));
    let nack = control_plane.expect_nack(CLUSTER).await.unwrap();
    assert_eq!((nack.version.as_str(), nack.accepted_version.as_str()), ("2", ""));
    assert_eq!((nack.code, nack.message.as_str()), (3, "b: bad"));

    peer.change(CLUSTER, &["c"], &["a"]);
    let newest = control_plane.expect_names(CLUSTER, &["b", "c"]).await.unwrap();
    assert_eq!(newest.message().variant(), Variant::Delta);
    assert_eq!(newest.message().delta(), Some(&delta_request(CLUSTER, &["c"], &["a"])));
    peer.change(ENDPOINTS, &[], &[]);
    control_plane.expect_names(ENDPOINTS, &["*"]).await.unwrap();
    peer.change(ENDPOINTS, &["a"], &["*"]);
    control_plane.expect_names(ENDPOINTS, &["a"]).await.unwrap();

    drop(peer);
    control_plane.expect_clients(0).await.unwrap();
    let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
    peer.change(CLUSTER, &["z"], &[]);
    control_plane.expect_names(CLUSTER, &["z"]).await.unwrap();
}

#[tokio::test]
async fn what_is_injected_goes_to_streams_of_its_variant() {
    let control_plane = TestControlPlane::start().await;
    let mut whole = Peer::connect(&control_plane.uri()).await;
    let mut delta = DeltaPeer::connect(&control_plane.uri()).await;
    whole.request(ENDPOINTS, &["a"]);
    control_plane.expect_names(ENDPOINTS, &["a"]).await.unwrap();
    delta.change(ENDPOINTS, &["b"], &[]);
    assert_eq!(text(&delta.response().await), "-b");
    let injected = DeltaDiscoveryResponse {
        type_url: ENDPOINTS.into(),
        nonce: "mine".into(),
        system_version_info: "odd".into(),
        ..Default::default()
    };
    assert_eq!(control_plane.inject(injected.clone()), 1);
    assert_eq!(delta.response().await, injected);
    delta.answer(&injected, None);
    assert_eq!(control_plane.expect_ack(ENDPOINTS).await.unwrap().version, "odd");
    let injected = DiscoveryResponse { type_url: ENDPOINTS.into(), ..Default::default() };
    assert_eq!(control_plane.inject(injected.clone()), 1);
    assert_eq!(whole.response().await, injected);
    assert_eq!(control_plane.inject_raw("both"), 2);
    assert_eq!(delta.raw().await.unwrap().unwrap(), "both");
}

#[tokio::test]
async fn a_limit_splits_what_is_large() {
    let settings = control_plane::ControlPlane::builder().max_per_response(2);
    let control_plane = TestControlPlane::start_with(settings).await;
    control_plane.update(|tx| {
        tx.set(resource("a", "1")).set(resource("b", "1")).set(resource("c", "1"));
    });
    let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
    peer.change(CLUSTER, &[], &[]);
    let response = peer.response().await;
    assert_eq!(text(&response), "a=1 b=1");
    peer.answer(&response, None);
    assert_eq!(text(&peer.response().await), "c=1");
}

#[tokio::test]
async fn cached_resources_are_not_resent_on_a_reconnect_by_default() {
    for (ignore, expected) in [(false, "b=1"), (true, "a=1 b=1")] {
        let settings = control_plane::ControlPlane::builder().ignore_initial_versions(ignore);
        let control_plane = TestControlPlane::start_with(settings).await;
        control_plane.set(resource("a", "1"));
        control_plane.set(resource("b", "1"));
        let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
        let mut request = delta_request(CLUSTER, &[], &[]);
        request.initial_resource_versions = [("a".into(), "1".into())].into();
        peer.send(&request);
        assert_eq!(text(&peer.response().await), expected);
    }
}

#[tokio::test]
async fn requests_that_cannot_be_understood_end_the_stream() {
    let control_plane = TestControlPlane::start().await.with_timeout(Duration::from_secs(10));
    for (message, expected) in [(&b"\xff"[..], "not a DeltaDiscoveryRequest"), (b"", "type_url")] {
        let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
        peer.send_raw(message);
        let status = peer.raw().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{status}");
    }
}

#[tokio::test]
async fn events_have_the_variant_and_the_removed_names() {
    let (events_in, mut events) = tokio::sync::mpsc::unbounded_channel();
    let control_plane = control_plane::ControlPlane::builder()
        .observe(move |event| drop(events_in.send(event.clone())))
        .build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    control_plane.set(resource("a", "1"));
    let mut peer = DeltaPeer::connect(&server.uri()).await;
    assert!(matches!(events.recv().await, Some(Event::Opened { variant: Variant::Delta, .. })));
    peer.change(CLUSTER, &["a", "y", "z"], &[]);
    assert!(matches!(events.recv().await, Some(Event::Request { stream: 1, .. })));
    assert!(matches!(events.recv().await, Some(Event::Response { resources: 1, removed: 2, .. })));
}

#[tokio::test]
async fn resources_with_a_time_to_live_are_confirmed_in_both_variants() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(resource("a", "1").with_ttl(Duration::from_millis(90)));
    control_plane.set(resource("b", "1"));
    let mut delta = DeltaPeer::connect(&control_plane.uri()).await;
    delta.change(CLUSTER, &["a", "b"], &[]);
    let mut response = delta.response().await;
    assert_eq!(response.resources[0].ttl.as_ref().unwrap().nanos, 90_000_000);
    // A machine that is too slow for this time to live gets the whole resource instead.
    while response.resources[0].resource.is_some() {
        delta.answer(&response, None);
        response = delta.response().await;
    }
    let [heartbeat] = &response.resources[..] else { panic!("one resource") };
    assert_eq!((heartbeat.name.as_str(), heartbeat.version.as_str()), ("a", "1"));
    drop(delta);

    let mut whole = Peer::connect(&control_plane.uri()).await;
    whole.request(CLUSTER, &[]);
    let mut response = whole.response().await;
    while response.resources.len() == 2 {
        whole.request(CLUSTER, &[]);
        response = whole.response().await;
    }
    assert_eq!((response.version_info.as_str(), response.resources.len()), ("2", 1));
}

#[tokio::test]
async fn globs_redirects_and_errors_are_served() {
    let control_plane = TestControlPlane::start().await;
    let glob = "xdstp://a/envoy.config.cluster.v3.Cluster/shop/*";
    let name = "xdstp://a/envoy.config.cluster.v3.Cluster/shop/cart";
    let mut peer = DeltaPeer::connect(&control_plane.uri()).await;
    peer.change(CLUSTER, &[glob, "broken"], &[]);
    let response = peer.response().await;
    assert_eq!(response.removed_resources, ["broken", glob]);
    peer.answer(&response, None);
    control_plane
        .set(AnyResource::redirect(CLUSTER, name, "xdstp://b/envoy.config.cluster.v3.Cluster/cart").unwrap());
    let response = peer.response().await;
    assert_eq!(response.resources[0].name, name);
    let body = response.resources[0].resource.as_ref().unwrap();
    assert_eq!(body.type_url, "type.googleapis.com/xds.core.v3.ResourceLocator");
    peer.answer(&response, None);
    assert!(control_plane.set_error(CLUSTER, "broken", 7, "not yours"));
    let response = peer.response().await;
    assert_eq!(response.resource_errors[0].error_detail.as_ref().unwrap().message, "not yours");
}
