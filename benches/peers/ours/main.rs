//! xdskit, measured: see `client`, of which the mode may also be `delta`, for the incremental variant.

#[path = "../client/mod.rs"]
mod client;

use std::error::Error;

use xdskit::{
    Client, Observed, Resource,
    client::ChangeGuard,
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
        return watch_all(&client, progress, count).await;
    }
    let clusters: Vec<_> =
        (0..count).map(|number| watch::<Cluster>(&client, progress, Kind::Clusters, number)).collect();
    let endpoints: Vec<_> = (0..count)
        .map(|number| watch::<ClusterLoadAssignment>(&client, progress, Kind::Endpoints, number))
        .collect();
    std::future::pending::<()>().await;
    drop((clusters, endpoints));
    Ok(())
}

fn watch<T: Resource>(
    client: &Client,
    progress: &'static Progress,
    kind: Kind,
    number: usize,
) -> ChangeGuard {
    let mut is_known = false;
    client.on_change::<T, _>(name(number), move |seen| match &**seen {
        Observed::Present { .. } if is_known => progress.on_again(kind, number),
        Observed::Present { .. } => {
            is_known = true;
            progress.on_first(1);
        }
        _ => progress.on_error(),
    })
}

async fn watch_all(client: &Client, progress: &Progress, count: usize) -> Result<(), Box<dyn Error>> {
    let mut all = client.watch_all::<Cluster>("*");
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
    Ok(())
}
