//! Connections that channels share (CH3.8).

use super::{peer::End, *};

/// Two channels of a client to the same peer.
struct Pair {
    mesh: Mesh,
    other: Channel,
}

impl Pair {
    async fn start(name: &str, peer: &Peer, settings: impl Fn(ChannelBuilder) -> ChannelBuilder) -> Self {
        let mesh = Mesh::with(name, &[peer], &settings).await;
        let builder = mesh.client.channel("xds:///shop");
        let builder = builder.connect_backoff(Duration::from_millis(20), Duration::from_millis(100));
        let other = settings(builder).build().unwrap();
        Self { mesh, other }
    }

    async fn shared(name: &str, peer: &Peer) -> Self {
        Self::start(name, peer, |builder| builder.share_connections(true)).await
    }

    /// A call of the second channel.
    fn get(&self, path: &str) -> JoinHandle<Result<(), Status>> {
        let request = Request::post(path).body(Given::default()).unwrap();
        let mut channel = self.other.clone();
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    }
}

async fn answered(peer: &mut Peer, call: JoinHandle<Result<(), Status>>) {
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch3_8_channels_share_connections_if_they_are_set_to() {
    for (is_shared, connections) in [(true, 1), (false, 2)] {
        let mut peer = Peer::start().await;
        let pair = Pair::start("ch3_8_share", &peer, |it| it.share_connections(is_shared)).await;
        let (one, two) = (pair.mesh.get("/1"), pair.get("/2"));
        for _ in 0..2 {
            peer.request().await.respond();
        }
        soon(one).await.unwrap().unwrap();
        soon(two).await.unwrap().unwrap();
        for _ in 0..connections {
            peer.connection().await;
        }
        assert!(peer.has_no_further_connection(), "shared: {is_shared}");
    }
}

#[tokio::test]
async fn ch3_8_other_settings_of_connections_are_not_shared() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::with("ch3_8_settings", &[&peer], |it| it.share_connections(true)).await;
    let other = mesh.client.channel("xds:///shop").share_connections(true);
    let other = other.keep_alive_interval(Duration::from_secs(600)).build().unwrap();
    let pair = Pair { mesh, other };
    let call = pair.mesh.get("/1");
    answered(&mut peer, call).await;
    let call = pair.get("/2");
    answered(&mut peer, call).await;
    peer.connection().await;
    peer.connection().await;
}

#[tokio::test]
async fn ch3_8_the_loss_of_a_shared_connection_is_that_of_all_channels() {
    let mut peer = Peer::start().await;
    let pair = Pair::shared("ch3_8_loss", &peer).await;
    let call = pair.mesh.get("/1");
    answered(&mut peer, call).await;
    let call = pair.get("/2");
    answered(&mut peer, call).await;
    let (one, two) = (pair.mesh.get("/3"), pair.get("/4"));
    let running = [peer.request().await, peer.request().await];
    peer.connection().await.send(End::Crash).unwrap();
    for call in [one, two] {
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
    }
    drop(running);
    // They share the next one, too.
    let call = pair.mesh.get("/5");
    answered(&mut peer, call).await;
    let call = pair.get("/6");
    answered(&mut peer, call).await;
    peer.connection().await;
    assert!(peer.has_no_further_connection());
}

#[tokio::test]
async fn ch3_8_a_shared_connection_outlives_the_shutdown_of_a_channel() {
    let mut peer = Peer::start().await;
    let pair = Pair::shared("ch3_8_shutdown", &peer).await;
    let call = pair.mesh.get("/1");
    answered(&mut peer, call).await;
    let (ending, going_on) = (pair.mesh.get("/ending"), pair.get("/going-on"));
    let mut requests = [peer.request().await, peer.request().await];
    requests.sort_by_key(|it| it.path().to_owned());
    let [ends, goes_on] = requests;
    soon(pair.mesh.channel.shutdown(Duration::ZERO)).await;
    let status = soon(ending).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Cancelled, "channel is shut down"));
    assert_eq!(ends.cancelled().await, h2::Reason::CANCEL);
    goes_on.respond();
    soon(going_on).await.unwrap().unwrap();
    let call = pair.get("/next");
    answered(&mut peer, call).await;
    peer.connection().await;
    assert!(peer.has_no_further_connection(), "the second channel keeps the connection");
}

#[tokio::test]
async fn ch1_6_calls_on_a_shared_connection_have_the_grace_to_end() {
    let mut peer = Peer::start().await;
    let pair = Pair::shared("ch1_6_grace", &peer).await;
    let call = pair.mesh.get("/1");
    let request = peer.request().await;
    let channel = pair.mesh.channel.clone();
    let shutdown = tokio::spawn(async move { channel.shutdown(Duration::from_secs(600)).await });
    until("the channel is shut down", || pair.mesh.channel.state() == super::super::ChannelState::Shutdown)
        .await;
    assert!(!shutdown.is_finished(), "a call is running");
    request.respond();
    soon(call).await.unwrap().unwrap();
    soon(shutdown).await.unwrap();
}

#[tokio::test]
async fn ch3_9_the_last_channel_drains_a_shared_connection() {
    let mut peer = Peer::start().await;
    let pair = Pair::shared("ch3_9_shared", &peer).await;
    let call = pair.mesh.get("/1");
    answered(&mut peer, call).await;
    let call = pair.get("/2");
    answered(&mut peer, call).await;
    let connection = peer.connection().await;
    let Pair { mesh, other } = pair;
    let Mesh { server: _server, client: _client, channel } = mesh;
    drop(channel);
    assert!(!connection.is_closed());
    drop(other);
    soon(connection.closed()).await;
}

#[tokio::test]
async fn ch4_13_calls_of_all_channels_wait_for_the_streams_of_a_shared_connection() {
    let mut peer = Peer::with(|it| {
        it.max_concurrent_streams(1);
    })
    .await;
    let pair = Pair::shared("ch4_13_shared", &peer).await;
    let first = pair.mesh.get("/1");
    let request = peer.request().await;
    let waiting = pair.get("/2");
    let other = &pair.other.shared.calls.published;
    until("the call waits", || other.waiting() == 1).await;
    let lost = pair.get("/3");
    until("both wait", || other.waiting() == 2).await;
    assert!(peer.is_quiet(), "one stream at a time");
    request.respond();
    soon(first).await.unwrap().unwrap();
    let request = peer.request().await;
    soon(pair.other.shutdown(Duration::ZERO)).await;
    let statuses = [soon(waiting).await.unwrap(), soon(lost).await.unwrap()];
    let codes = statuses.map(|it| it.unwrap_err().code());
    assert_eq!(codes, [Code::Cancelled, Code::Unavailable], "one had been sent, and one had not");
    request.cancelled().await;
}
