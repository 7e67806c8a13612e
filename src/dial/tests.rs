//! Sockets to listeners of the test.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::net::TcpListener;

use super::{happy_eyeballs::interleave, *};

#[test]
fn the_ip_families_take_turns_from_that_of_the_first_address_on() {
    let addresses =
        |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
    for (resolved, expected) in [
        (&[][..], &[][..]),
        (&["[::1]:1", "[::2]:1", "[::3]:1", "1.0.0.1:1"], &["[::1]:1", "1.0.0.1:1", "[::2]:1", "[::3]:1"]),
        (
            &["1.0.0.1:1", "1.0.0.2:1", "[::1]:1", "[::2]:1"],
            &["1.0.0.1:1", "[::1]:1", "1.0.0.2:1", "[::2]:1"],
        ),
        (&["1.0.0.2:1", "1.0.0.1:1"], &["1.0.0.2:1", "1.0.0.1:1"]),
    ] {
        assert_eq!(interleave(addresses(resolved)), addresses(expected));
    }
}

#[tokio::test]
async fn an_address_that_refuses_is_followed_by_the_next_one() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let open_address = listener.local_addr().unwrap();
    let addresses = ServerAddress::Addresses(vec![closed, open_address]);
    let (socket, host) = open(&addresses, SocketOptions::default()).await.unwrap();
    assert_eq!(socket.tcp().unwrap().peer_addr().unwrap(), open_address);
    assert_eq!(host, "127.0.0.1");
    let error = open(&ServerAddress::Addresses(vec![closed]), SocketOptions::default()).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn each_socket_has_the_options() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = ServerAddress::Host { host: "127.0.0.1".to_owned(), port };
    for given in [20, 0, u64::MAX].map(Duration::from_secs) {
        let options = SocketOptions { user_timeout: Some(given), keepalive: Some(given) };
        let (socket, _) = open(&server, options).await.unwrap();
        let socket = socket.tcp().unwrap();
        assert!(socket.nodelay().unwrap());
        let socket = socket2::SockRef::from(socket);
        assert!(socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            let expected = given.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
            assert_eq!(socket.tcp_keepalive_time().unwrap(), expected);
        }
    }
    let (socket, _) = open(&server, SocketOptions::default()).await.unwrap();
    assert!(!socket2::SockRef::from(socket.tcp().unwrap()).keepalive().unwrap());
}

#[cfg(unix)]
#[tokio::test]
async fn the_certificate_of_a_server_at_a_unix_socket_is_for_localhost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = tokio::net::UnixListener::bind(&path).unwrap();
    let (socket, host) = open(&ServerAddress::Unix(path), SocketOptions::default()).await.unwrap();
    assert!(matches!(socket, Socket::Unix(_)));
    assert_eq!(host, "localhost");
}
