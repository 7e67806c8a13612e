//! A channel without calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{queue::Counted, *};
use crate::channel::ChannelState;

/// The number of polls, when everything that goes on has ended.
async fn settled(polls: &AtomicUsize) -> usize {
    loop {
        let before = polls.load(Ordering::Relaxed);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        if polls.load(Ordering::Relaxed) == before {
            return before;
        }
    }
}

/// The number of polls after a time.
async fn after(time: Duration, polls: &AtomicUsize) -> usize {
    tokio::time::pause();
    tokio::time::advance(time).await;
    let polls = settled(polls).await;
    tokio::time::resume();
    polls
}

#[tokio::test]
async fn ch11_11_the_task_of_a_channel_without_calls_is_not_woken() {
    let mut peer = Peer::start().await;
    let mut mesh = Mesh::start("ch11_11", &[&peer]).await;
    let client =
        Client::builder(Bootstrap::from_json(&mesh.server.bootstrap_json()).unwrap()).build().unwrap();
    let (channel, task, _) = client.channel("xds:///shop").with_task().unwrap();
    let polls = Arc::<AtomicUsize>::default();
    tokio::spawn(Counted { call: Box::pin(task), polls: polls.clone() });
    mesh.channel = channel;
    assert_eq!(after(Duration::from_secs(3_600), &polls).await, 1, "nothing before the first call");
    let call = mesh.get("/first");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let connected = settled(&polls).await;
    assert_eq!(after(Duration::from_secs(29 * 60), &polls).await, connected);
    assert_eq!(mesh.channel.state(), ChannelState::Ready);
    // The idle timeout is the only one that it has.
    let idle = after(Duration::from_secs(2 * 60), &polls).await;
    assert_eq!((mesh.channel.state(), idle > connected), (ChannelState::Idle, true));
    assert_eq!(after(Duration::from_secs(24 * 3_600), &polls).await, idle);
    let call = mesh.get("/second");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
}
