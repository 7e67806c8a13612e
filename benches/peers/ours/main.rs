//! xdskit, measured: see `client`, of which the mode may also be `delta`, for the incremental variant.

#[path = "../client/mod.rs"]
mod client;

use std::error::Error;

use xdskit::{
    Client, Resource,
    client::{Watch, WatchAll},
    config::{ApiType, Bootstrap, Node, Server},
    resource::{Cluster, ClusterLoadAssignment},
};

use client::{Args, Kind, Progress, name};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Args { address, count, mode } = Args::from_env();
    let all = mode == "all";
    let progress: &'static _ = Box::leak(Box::new(Progress::new(if all { count } else { 2 * count })));
    progress.obey();
    let bootstrap =
        Bootstrap::builder().node(Node::new("ours")).server(Server::new(address).insecure()).build()?;
    let api_type = if mode == "delta" { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
    let client = Client::builder(bootstrap).api_type(api_type).build()?;
    if all {
        tokio::spawn(watch_all(client.watch_all("*"), progress, count)).await?;
        return Ok(());
    }
    let clusters = watches::<Cluster>(&client, count);
    let endpoints = watches::<ClusterLoadAssignment>(&client, count);
    tokio::join!(follow(clusters, progress, Kind::Clusters), follow(endpoints, progress, Kind::Endpoints));
    Ok(())
}

fn watches<T: Resource>(client: &Client, count: usize) -> Vec<Watch<T>> {
    (0..count).map(|number| client.watch(name(number))).collect()
}

/// Watches have the latest state and no queue, so that they can be looked at in any order, by one task.
async fn follow<T: Resource>(mut watches: Vec<Watch<T>>, progress: &'static Progress, kind: Kind) {
    for watch in &mut watches {
        while !watch.next().await.is_some_and(|seen| seen.is_present()) {
            progress.on_error();
        }
        progress.on_first(1);
    }
    loop {
        let number = progress.next_expected(kind).await;
        if watches[number].next().await.is_some() {
            progress.on_again(kind, number);
        }
    }
}

async fn watch_all(mut all: WatchAll<Cluster>, progress: &'static Progress, count: usize) {
    let mut last = all.wait_for(|all| all.is_complete() && all.len() == count).await;
    progress.on_first(count);
    while let Some(next) = all.next().await {
        if let (Some((kind, number)), Some(last)) = (progress.expected(), &last)
            && next.get(&name(number)) != last.get(&name(number))
        {
            progress.on_again(kind, number);
        }
        last = Some(next);
    }
}
