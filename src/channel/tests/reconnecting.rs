//! Endpoints that end their connections soon.

use super::{
    raw::{GOAWAY, RawListener},
    *,
};

/// How an endpoint ends a connection.
#[derive(Debug, Clone, Copy)]
enum Goodbye {
    Close,
    /// GOAWAY without an error, and the end as soon as the client closes the connection.
    GoAway,
}

/// Ends each connection when SETTINGS are exchanged; returns how many there were within a minute.
async fn connections_in_a_minute(goodbye: Goodbye) -> usize {
    let endpoint = RawListener::bind().await;
    let neighbour = Peer::start().await;
    let settings =
        |builder: ChannelBuilder| builder.connect_backoff(Duration::from_secs(1), Duration::from_secs(120));
    let mesh = Mesh::at("ch3_3", &[endpoint.address, neighbour.address], settings).await;
    mesh.channel.connect();
    let (connected, mut count) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // Without delays there is no end of them.
        for _ in 0..MANY {
            let mut raw = endpoint.accept_when_it_comes().await;
            connected.send(()).unwrap();
            if let Goodbye::GoAway = goodbye {
                raw.write(GOAWAY, 0, 0, &[0; 8]).await;
                raw.read_to_end().await;
            }
        }
        std::future::pending::<()>().await;
    });
    soon(count.recv()).await.unwrap();
    soon(async { while mesh.channel.wait_ready(Duration::from_secs(20)).await.is_err() {} }).await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(mesh.channel.state(), crate::channel::ChannelState::Ready, "the neighbour is connected");
    let mut connections = 1;
    while count.try_recv().is_ok() {
        connections += 1;
    }
    connections
}

#[tokio::test]
async fn ch3_3_an_idle_channel_connects_with_backoff_to_an_endpoint_that_closes_after_settings() {
    for goodbye in [Goodbye::Close, Goodbye::GoAway] {
        let connections = connections_in_a_minute(goodbye).await;
        assert!((6..=12).contains(&connections), "{connections} connections with {goodbye:?}");
    }
}

#[tokio::test]
async fn ch3_3_a_server_that_ends_after_calls_is_connected_again_at_once() {
    let mut peer = Peer::start().await;
    let settings = |builder: ChannelBuilder| {
        builder.connect_backoff(Duration::from_secs(1_000), Duration::from_secs(1_000))
    };
    let mesh = Mesh::at("ch3_3_restarts", &[peer.address], settings).await;
    mesh.channel.connect();
    for code in [Code::Ok, Code::NotFound, Code::Ok, Code::Ok] {
        let connection = peer.connection().await;
        let call = mesh.get("/");
        let received = peer.request().await;
        if code == Code::Ok {
            received.respond();
        } else {
            received.fail(code, &[]);
        }
        let status = soon(call).await.unwrap();
        assert_eq!(status.map_or_else(|status| status.code(), |()| Code::Ok), code);
        connection.send(End::Graceful).unwrap_or_else(|_| panic!("it is open"));
    }
    peer.connection().await;
}

const MANY: usize = 200;
