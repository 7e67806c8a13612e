//! Clients with equal bootstraps and settings that are shared.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};
use xdskit::{
    Observed,
    config::{Bootstrap, Node, Server},
    control_plane::ControlPlane,
    error::Code,
};

use crate::common::*;

#[apply(streams)]
async fn equal_clients_share_a_stream_if_configured(transport: Transport) {
    let (control_plane, server) = serve().await;
    let equal = || transport.builder(server.uri());
    let shared = [equal().shared().unwrap(), equal().shared().unwrap()];
    let apart = equal().build().unwrap();
    let patient = equal().resource_timeout(Duration::from_secs(60)).shared().unwrap();
    let slow = equal().keep_alive_timeout(Duration::from_secs(5)).shared().unwrap();
    let scoped = equal().scope("mine").shared().unwrap();
    let node = Bootstrap::builder().node(Node::new("other")).server(Server::new(server.uri()).insecure());
    let other = transport.builder_from(node.build().unwrap()).shared().unwrap();
    let mut watches = Vec::new();
    for (client, streams) in [
        (&shared[0], 1),
        (&shared[1], 1),
        (&apart, 2),
        (&patient, 3),
        (&slow, 4),
        (&other, 5),
        (&scoped, 6),
        (&equal().scope("mine").shared().unwrap(), 6),
        (&shared[1].clone(), 6),
        (&equal().shared().unwrap(), 6),
    ] {
        let mut watch = client.watch::<Cluster>("shop");
        soon(watch.ready()).await.unwrap();
        watches.push(watch);
        assert_eq!(control_plane.streams(), streams);
    }
}

#[apply(streams)]
async fn the_last_handle_or_watch_ends_a_shared_client(transport: Transport) {
    let (control_plane, server) = serve().await;
    let [first, second] = [(), ()].map(|()| transport.builder(server.uri()).shared().unwrap());
    let mut shop = first.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    drop((first, second));
    control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    let third = transport.builder(server.uri()).shared().unwrap();
    let joined = third.watch::<Cluster>("shop").latest();
    assert_eq!(note(&joined), Some("two"), "it is the same, kept by a watch");
    drop((shop, third));
    ended(&control_plane).await;
}

#[apply(streams)]
async fn one_who_shuts_down_ends_it_for_nobody_else(transport: Transport) {
    let (control_plane, server) = serve().await;
    let clients = [(), (), ()].map(|()| transport.builder(server.uri()).shared().unwrap());
    let mut shop = clients[0].watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    for leaving in [&clients[1], &clients[1].clone(), &clients[2]] {
        soon(leaving.shutdown()).await;
    }
    control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    let [first, second, third] = clients;
    drop(first);
    soon(second.shutdown()).await;
    control_plane.set(cluster("shop", "three"));
    soon(shop.wait_for(|seen| note(seen) == Some("three"))).await.unwrap();
    drop(shop);
    soon(third.shutdown()).await;
    ended(&control_plane).await;
    assert_eq!(soon(third.watch::<Cluster>("shop").ready()).await.unwrap_err().code(), Code::Cancelled);
    let next = transport.builder(server.uri()).shared().unwrap();
    assert_eq!(soon(next.watch::<Cluster>("shop").ready()).await.unwrap().note, "three", "a new one");
}

#[apply(streams)]
fn a_runtime_that_ends_ends_no_client_of_another_runtime(transport: Transport) {
    let (serving, first, second) = (threads(), runtime(), runtime());
    let (control_plane, server) = serving.block_on(serve());
    let shared = || transport.builder(server.uri()).shared().unwrap();
    let (client, mut ended) = first.block_on(async {
        let client = shared();
        let mut shop = client.watch::<Cluster>("shop");
        soon(shop.ready()).await.unwrap();
        (client, shop)
    });
    let mut lasting = second.block_on(async {
        let mut shop = shared().watch::<Cluster>("shop");
        soon(shop.ready()).await.unwrap();
        shop
    });
    drop(first);
    control_plane.set(cluster("shop", "two"));
    second.block_on(async {
        soon(lasting.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
        assert!(soon(ended.next()).await.is_none(), "it ends with its runtime");
        assert_eq!(soon(client.watch::<Cluster>("more").ready()).await.unwrap_err().code(), Code::Cancelled);
    });
}

/// As with tests, each of which has a runtime that is not driven between its tasks.
#[apply(streams)]
fn a_runtime_that_stands_still_holds_up_no_client_of_another_runtime(transport: Transport) {
    let (serving, first, second) = (threads(), runtime(), runtime());
    let (_control_plane, server) = serving.block_on(serve());
    let shared = || transport.builder(server.uri()).shared().unwrap();
    let _idle = first.block_on(async { shared() });
    let shop = second.block_on(async { soon(shared().watch::<Cluster>("shop").ready()).await });
    assert_eq!(shop.unwrap().note, "one");
}

#[apply(streams)]
fn callbacks_of_a_shared_client_run_on_its_runtime(transport: Transport) {
    let (serving, first, second) = (threads(), runtime(), runtime());
    let (control_plane, server) = serving.block_on(serve());
    let shared = || transport.builder(server.uri()).shared().unwrap();
    let _client = first.block_on(async { shared() });
    let (calls, called) = mpsc::channel();
    let here = thread::current().id();
    second.block_on(async {
        let _guard = shared().on_change::<Cluster, _>("shop", move |seen| {
            calls.send((thread::current().id(), seen.is_present())).unwrap();
        });
        let mut shop = shared().watch::<Cluster>("shop");
        soon(shop.wait_for(Observed::is_present)).await.unwrap();
        assert_eq!(control_plane.streams(), 1);
        while called.try_recv() != Ok((here, true)) {
            tokio::task::yield_now().await;
        }
    });
}

/// Sharers are created, cloned, shut down and dropped at the same time, and all are served: some on one runtime,
/// whose client they share, others each on a runtime that ends with them.
#[apply(streams)]
fn many_who_come_and_go_at_once_are_all_served(transport: Transport) {
    let serving = threads();
    let (control_plane, server) = serving.block_on(serve());
    let uri = &server.uri();
    let come_and_go = |thread: usize| async move {
        for round in 0..50 {
            let client = transport.builder(uri).shared().unwrap();
            let served = soon(client.watch::<Cluster>("shop").ready()).await;
            assert!(served.is_ok_and(|shop| shop.note == "one"), "{thread} {round}");
            match (thread + round) % 3 {
                0 => soon(client.shutdown()).await,
                1 => drop(client),
                _ => drop((client.clone(), client)),
            }
        }
    };
    thread::scope(|threads| {
        for thread in 0..6 {
            let common = serving.handle();
            threads.spawn(move || match thread % 2 {
                0 => common.block_on(come_and_go(thread)),
                _ => runtime().block_on(come_and_go(thread)),
            });
        }
    });
    serving.block_on(ended(&control_plane));
}

async fn serve() -> (ControlPlane, xdskit::control_plane::ServerHandle) {
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

/// Waits until no stream is open.
async fn ended(control_plane: &ControlPlane) {
    let begin = Instant::now();
    while control_plane.streams() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} streams are left", control_plane.streams());
        tokio::task::yield_now().await;
    }
}

/// A runtime that is driven by the thread that blocks on it.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime with threads of its own.
fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
