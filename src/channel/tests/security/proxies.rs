//! Endpoints behind HTTP proxies (A86).

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::pb::envoy::{
    config::{
        core::v3::{Address, Metadata, SocketAddress, address, socket_address::PortSpecifier},
        endpoint::v3::ClusterLoadAssignment,
    },
    extensions::transport_sockets::http_11_proxy::v3::Http11ProxyUpstreamTransport,
};

const PROXY: &str = "envoy.http11_proxy_transport_socket.proxy_address";
const HTTP_11_PROXY: &str =
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport";

/// A proxy that tunnels, or answers with something else.
struct Proxy {
    address: SocketAddr,
    /// The heads of the requests.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let noted = heads.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(tunnel(client, answer, noted.clone()));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Metadata with its address.
    fn metadata(&self) -> Metadata {
        let address = SocketAddress {
            address: self.address.ip().to_string(),
            port_specifier: Some(PortSpecifier::PortValue(self.address.port().into())),
            ..SocketAddress::default()
        };
        let address = Address { address: Some(address::Address::SocketAddress(address)) };
        let any = any("envoy.config.core.v3.Address", &address.encode_to_vec());
        Metadata { typed_filter_metadata: [(PROXY.to_owned(), any)].into(), ..Metadata::default() }
    }
}

async fn tunnel(client: TcpStream, answer: &'static str, heads: Arc<Mutex<Vec<String>>>) {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).await.unwrap();
    }
    let target = head.split(' ').nth(1).unwrap().to_owned();
    heads.lock().unwrap().push(head);
    client.write_all(answer.as_bytes()).await.unwrap();
    if answer.contains(" 200 ") {
        let mut endpoint = TcpStream::connect(target).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut endpoint).await;
    } else {
        let _ = client.read(&mut [0; 1]).await;
    }
}

const OPEN: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// The transport socket of a proxy, with another one in it.
fn through_proxies(inner: Option<TransportSocket>) -> TransportSocket {
    socket(HTTP_11_PROXY, &Http11ProxyUpstreamTransport { transport_socket: inner })
}

fn of_endpoint(metadata: Metadata) -> impl FnOnce(&mut ClusterLoadAssignment) {
    move |it| it.endpoints[0].lb_endpoints[0].metadata = Some(metadata)
}

fn of_locality(metadata: Metadata) -> impl FnOnce(&mut ClusterLoadAssignment) {
    move |it| it.endpoints[0].metadata = Some(metadata)
}

fn connect_head(peer: &Peer) -> String {
    format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", peer.address)
}

#[tokio::test]
async fn ch7_25_an_endpoint_is_connected_through_its_proxy_or_that_of_its_locality() {
    let (mut peer, one, two) = (Peer::start().await, Proxy::start(OPEN).await, Proxy::start(OPEN).await);
    let name = "ch7_25_proxy";
    let mesh = Mesh::at(name, &[], |it| it).await;
    secure(&mesh, name, through_proxies(None));
    let both = |it: &mut ClusterLoadAssignment| {
        of_locality(one.metadata())(it);
        of_endpoint(two.metadata())(it);
    };
    mesh.server.set(assignment(name, &[&peer]).edit(of_locality(one.metadata())));
    answered(&mesh, &mut peer).await;
    assert_eq!((one.heads(), two.heads()), (vec![connect_head(&peer)], vec![]));
    mesh.server.set(assignment(name, &[&peer]).edit(both));
    soon(async { while answered(&mesh, &mut peer).await.connection == 0 {} }).await;
    assert_eq!((one.heads().len(), two.heads()), (1, vec![connect_head(&peer)]), "the endpoint's goes first");
    mesh.server.set(assignment(name, &[&peer]));
    soon(async { while answered(&mesh, &mut peer).await.connection == 1 {} }).await;
    assert_eq!((one.heads().len(), two.heads().len()), (1, 1), "it is direct");
}

#[tokio::test]
async fn ch7_25_a_proxy_is_used_by_clusters_with_its_socket_alone() {
    let (mut peer, proxy) = (Peer::start().await, Proxy::start(OPEN).await);
    let name = "ch7_25_none";
    let mesh = Mesh::at(name, &[], |it| it).await;
    mesh.server.set(assignment(name, &[&peer]).edit(of_endpoint(proxy.metadata())));
    answered(&mesh, &mut peer).await;
    assert!(proxy.heads().is_empty());
}

#[tokio::test]
async fn ch7_25_ch7_26_tls_goes_through_the_tunnel() {
    let (ca, proxy) = (Ca::new(), Proxy::start(OPEN).await);
    let mut peer = Peer::secured(ca.server(&["a.example"])).await;
    let name = "ch7_26_tls";
    let mesh = secured(name, &peer, &ca, through_proxies(Some(upstream(&["a.example"], false)))).await;
    mesh.server.set(assignment(name, &[&peer]).edit(of_endpoint(proxy.metadata())));
    soon(async { while answered(&mesh, &mut peer).await.connection == 0 && proxy.heads().is_empty() {} })
        .await;
    assert_eq!(proxy.heads(), [connect_head(&peer)]);
    let received = answered(&mesh, &mut peer).await;
    assert_eq!(received.request.uri().scheme_str(), Some("https"));
}

#[tokio::test]
async fn ch7_25_a_proxy_that_refuses_the_tunnel_fails_calls_with_its_status() {
    let mut peer = Peer::start().await;
    let proxy = Proxy::start("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let name = "ch7_25_refused";
    let mesh = Mesh::at(name, &[], |it| it).await;
    secure(&mesh, name, through_proxies(None));
    mesh.server.set(assignment(name, &[&peer]).edit(of_endpoint(proxy.metadata())));
    let to = format!("{} through the proxy {}", peer.address, proxy.address);
    let reason = "proxy: it refuses the tunnel with the HTTP status 407 Proxy Authentication Required";
    fails(&mesh, &format!("{to}: {reason}")).await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch7_26_a_proxy_that_does_not_answer_fails_the_attempt_at_its_timeout() {
    let (peer, proxy) = (Peer::start().await, Proxy::start("HTTP/1.1 ").await);
    let name = "ch7_26_silent";
    let settings = |it: ChannelBuilder| {
        it.connect_timeout(Duration::from_millis(100)).connect_backoff(Duration::ZERO, Duration::ZERO)
    };
    let mesh = Mesh::at(name, &[], settings).await;
    secure(&mesh, name, through_proxies(None));
    mesh.server.set(assignment(name, &[&peer]).edit(of_endpoint(proxy.metadata())));
    let to = format!("{} through the proxy {}", peer.address, proxy.address);
    fails(&mesh, &format!("{to}: no HTTP/2 connection within 100ms")).await;
}
