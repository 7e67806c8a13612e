use tokio::sync::mpsc;
use tonic::{Code, Status};
use xdskit::{
    control_plane::{
        AnyResource, ControlPlane, Event, Headers, Request, ServerHandle,
        session::{Answer, Handled, Held},
        type_url::{CLUSTER, ENDPOINTS},
    },
    pb::envoy::{config::cluster::v3::Cluster, service::discovery::v3::DiscoveryResponse},
};

use super::peer::{Opening, Peer, method};

/// A control plane on a free port, with its events.
pub(crate) async fn start() -> (ControlPlane, ServerHandle, mpsc::UnboundedReceiver<Event>) {
    let (sender, events) = mpsc::unbounded_channel();
    let control_plane = ControlPlane::builder()
        .observe(move |event| {
            let _ = sender.send(event.clone());
        })
        .build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server, events)
}

pub(crate) fn text(type_url: &str, name: &str, text: &str) -> AnyResource {
    AnyResource::new(type_url, name, text.to_owned())
}

fn texts(response: &DiscoveryResponse) -> Vec<&str> {
    response.resources.iter().map(|any| std::str::from_utf8(&any.value).unwrap()).collect()
}

async fn next_request(events: &mut mpsc::UnboundedReceiver<Event>) -> (Request, Handled) {
    loop {
        if let Event::Request { request, handled, .. } = events.recv().await.unwrap() {
            return (request, handled);
        }
    }
}

#[tokio::test]
async fn several_clients_get_changes() {
    let (control_plane, server, _events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1"));
    let mut first = Peer::connect(&server.uri()).await;
    let mut second = Peer::connect(&server.uri()).await;
    first.request(CLUSTER, &[]);
    second.request(CLUSTER, &["b"]);
    assert_eq!(texts(&first.response().await), ["a1"]);
    assert_eq!(texts(&second.response().await), [""; 0]);
    assert_eq!(control_plane.streams(), 2);
    first.request(CLUSTER, &[]);
    second.request(CLUSTER, &["b"]);
    control_plane.update(|tx| {
        tx.set(text(CLUSTER, "b", "b1")).remove(CLUSTER, "a");
    });
    for peer in [&mut first, &mut second] {
        let response = peer.response().await;
        assert_eq!((response.version_info.as_str(), texts(&response)), ("2", vec!["b1"]));
    }
}

#[tokio::test]
async fn events_report_streams_and_requests() {
    let (control_plane, server, mut events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1"));
    let mut peer = Peer::connect(&server.uri()).await;
    assert!(matches!(events.recv().await, Some(Event::Opened { stream: 1, peer: Some(_), .. })));
    peer.request(CLUSTER, &[]);
    let (request, handled) = next_request(&mut events).await;
    assert_eq!(request.node().unwrap().id, "test");
    assert!(matches!(handled, Handled::Understood { answer: None, names_changed: true, .. }));
    let Some(Event::Response { type_url, resources: 1, bytes, .. }) = events.recv().await else { panic!() };
    assert_eq!(type_url, CLUSTER);
    assert!(bytes > CLUSTER.len());
    peer.response().await;
    peer.reject(CLUSTER, &[], "a: bad");
    let Handled::Understood { answer: Some(Answer::Rejected { message, code: 3, .. }), .. } =
        next_request(&mut events).await.1
    else {
        panic!("a rejection")
    };
    assert_eq!(message, "a: bad");
    drop(peer);
    assert!(matches!(events.recv().await, Some(Event::Closed { stream: 1, .. })));
    assert_eq!(control_plane.streams(), 0);
}

#[tokio::test]
async fn a_hundred_thousand_clusters_fit_into_one_response() {
    let (control_plane, server, _events) = start().await;
    let cluster = |i: u32| {
        let name = format!("cluster-{i:06}");
        AnyResource::encode(CLUSTER, name.clone(), &Cluster { name, ..Cluster::default() })
    };
    control_plane.update(|tx| {
        (0..100_000).for_each(|i| {
            tx.set(cluster(i));
        });
    });
    let mut peer = Peer::connect(&server.uri()).await;
    peer.request(CLUSTER, &[]);
    assert_eq!(peer.response().await.resources.len(), 100_000);
    peer.request(CLUSTER, &[]);
    control_plane.set(AnyResource::new(CLUSTER, "cluster-000007", "changed"));
    let response = peer.response().await;
    assert_eq!(response.resources.len(), 100_000);
    assert_eq!(&response.resources[7].value[..], b"changed");
}

#[tokio::test]
async fn headers_come_at_once() {
    let (_control_plane, server, _events) = start().await;
    // No request was sent, so there is no response to wait for.
    Peer::connect(&server.uri()).await;
}

#[tokio::test]
async fn headers_may_come_with_the_first_response() {
    let (control_plane, server, mut events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1"));
    control_plane.set_headers(Headers::WithFirstResponse);
    control_plane.set_held(Held::all());
    let opening = Opening::start(&server.uri()).await;
    opening.request(CLUSTER, &[]);
    next_request(&mut events).await;
    assert!(!opening.headers.is_finished());
    control_plane.set_held(Held::none());
    assert_eq!(texts(&opening.finish().await.response().await), ["a1"]);
}

#[tokio::test]
async fn headers_may_never_come() {
    let (control_plane, server, mut events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1"));
    control_plane.set_headers(Headers::Never);
    let opening = Opening::start(&server.uri()).await;
    opening.request(CLUSTER, &[]);
    while !matches!(events.recv().await.unwrap(), Event::Response { .. }) {}
    assert!(!opening.headers.is_finished());
    control_plane.set_headers(Headers::AtOnce);
    assert_eq!(texts(&opening.finish().await.response().await), ["a1"]);
}

#[tokio::test]
async fn requests_may_stay_unread() {
    let (control_plane, server, mut events) = start().await;
    control_plane.set_reading(false);
    let mut peer = Peer::connect(&server.uri()).await;
    peer.request(CLUSTER, &[]);
    control_plane.inject(DiscoveryResponse { version_info: "injected".into(), ..Default::default() });
    assert_eq!(peer.response().await.version_info, "injected");
    assert!(matches!(events.recv().await, Some(Event::Opened { .. })));
    assert!(matches!(events.recv().await, Some(Event::Response { .. })), "and no request before it");
    control_plane.set_reading(true);
    assert_eq!(peer.response().await.type_url, CLUSTER);
}

#[tokio::test]
async fn anything_can_be_sent() {
    let (control_plane, server, mut events) = start().await;
    let mut peer = Peer::connect(&server.uri()).await;
    peer.request(ENDPOINTS, &["a"]);
    next_request(&mut events).await;
    let injected =
        DiscoveryResponse { type_url: ENDPOINTS.into(), nonce: "mine".into(), ..Default::default() };
    assert_eq!(control_plane.inject(injected.clone()), 1);
    assert_eq!(peer.response().await, injected);
    peer.request(ENDPOINTS, &["a"]);
    let (_, handled) = next_request(&mut events).await;
    assert!(matches!(handled, Handled::Understood { answer: Some(Answer::Accepted { .. }), .. }));
    assert_eq!(control_plane.inject_raw(&b"garbage"[..]), 1);
    assert_eq!(peer.raw().await.unwrap().unwrap(), "garbage");
}

#[tokio::test]
async fn requests_that_cannot_be_understood_end_the_stream() {
    let (_control_plane, server, _events) = start().await;
    for (message, expected) in [(&b"\xff"[..], "not a DiscoveryRequest"), (b"", "type_url")] {
        let mut peer = Peer::connect(&server.uri()).await;
        peer.send_raw(message);
        let status = peer.raw().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{status}");
    }
}

#[tokio::test]
async fn streams_can_be_ended_and_opened_again() {
    let (control_plane, server, _events) = start().await;
    control_plane.set(text(CLUSTER, "a", "a1"));
    let mut peer = Peer::connect(&server.uri()).await;
    assert_eq!(control_plane.disconnect(Status::aborted("go away")), 1);
    assert_eq!(peer.raw().await.unwrap_err().code(), Code::Aborted);
    let mut peer = Peer::connect(&server.uri()).await;
    peer.request(CLUSTER, &["a"]);
    assert_eq!(texts(&peer.response().await), ["a1"]);
}

#[tokio::test]
async fn shutting_down_ends_streams_and_gives_the_address_back() {
    let (control_plane, server, _events) = start().await;
    let addr = server.addr();
    let mut peer = Peer::connect(&server.uri()).await;
    server.shutdown().await;
    assert_eq!(peer.raw().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(control_plane.streams(), 0);
    let server = control_plane.serve(addr).await.unwrap();
    Peer::connect(&server.uri()).await;
}

#[tokio::test]
async fn other_methods_are_not_served() {
    let (_control_plane, server, _events) = start().await;
    let channel = tonic::transport::Channel::from_shared(server.uri()).unwrap().connect().await.unwrap();
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/Other";
    let status = method(channel, path, mpsc::unbounded_channel().1).await;
    assert_eq!(status.unwrap_err().code(), Code::Unimplemented);
}
