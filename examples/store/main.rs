//! A program with a store of its own: it applies what the management server sends, refuses what it cannot use, and the server gets its
//! ACK or NACK when the store has decided.
//!
//! ```console
//! $ cargo run --example store
//! ```
//!
//! Control plane and client run in this process, on loopback. The store is kept in a file, so that the program serves with it right after
//! a restart, before the server is connected, and is sent what has changed since. The program ends by itself; its exit code is 1 if an
//! update does not arrive. `docs/BATCHES.md` describes batches, and `docs/ON_DEMAND.md` how a store goes on.

mod store;
mod workload;

use std::{env, error::Error, fs, process, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Bootstrap, Client, ResourceSelector,
    client::{Batch, BatchOptions, Batches, Keep},
    config::ApiType,
    control_plane::Request,
    resource::{Prost, Resource},
    testing::TestControlPlane,
};

use self::{store::Store, workload::Workload};

type Workloads = Batches<Prost<Workload>>;

const TYPE_URL: &str = Prost::<Workload>::TYPE_URL;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestControlPlane::start().await;
    server.set(workload::resource("web-1", "10.0.0.1:80"));
    server.set(workload::resource("web-2", "10.0.0.2:80"));
    let file = env::temp_dir().join(format!("xdskit-store-{}", process::id()));

    let mut store = Store::open(&file)?;
    let (client, mut batches) = connect(&server, &store)?;
    follow(&mut batches, &mut store, |store| store.len() == 2).await?;
    println!("{store}");

    // The store has no place for the one, and takes the other.
    server.update(|tx| {
        tx.set(workload::resource("web-1", "nowhere"));
        tx.set(workload::resource("web-3", "10.0.0.3:80"));
    });
    follow(&mut batches, &mut store, |store| store.len() == 3).await?;
    println!("rejected: {}", server.expect_nack(TYPE_URL).await?.message);
    println!("{store}");

    server.remove(TYPE_URL, "web-2");
    follow(&mut batches, &mut store, |store| store.len() == 2).await?;
    println!("{store}");

    // A restart, during which a workload ends. The new client is given the versions of the store, so that the server sends what has
    // changed since.
    client.shutdown().await;
    drop((client, batches));
    server.update(|tx| {
        tx.set(workload::resource("web-1", "10.0.0.9:80"));
        tx.remove(TYPE_URL, "web-3");
    });
    let mut store = Store::open(&file)?;
    println!("after the restart: {store}");
    server.clear_requests();
    let (_client, mut batches) = connect(&server, &store)?;
    follow(&mut batches, &mut store, |store| store.len() == 1).await?;
    println!("{store}");
    let versions =
        |request: &Request| request.delta().map_or(0, |delta| delta.initial_resource_versions.len());
    let sent: usize = server.requests().of(TYPE_URL).iter().map(|request| versions(request.message())).sum();
    println!("the new client has sent {sent} versions");
    fs::remove_file(&file)?;
    Ok(())
}

/// A client of the server, in the incremental variant, in which removals and versions are sent. It keeps nothing beside the store.
fn connect(server: &TestControlPlane, store: &Store) -> Result<(Client, Workloads), Box<dyn Error>> {
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json())?;
    let client = Client::builder(bootstrap).api_type(ApiType::AggregatedDeltaGrpc).build()?;
    let options = BatchOptions::new().with_keep(Keep::Nothing).with_versions(store.versions());
    let batches = client.batches_with(ResourceSelector::All, options);
    Ok((client, batches))
}

/// Applies batches until the store is in some state.
async fn follow(
    batches: &mut Workloads,
    store: &mut Store,
    is_done: impl Fn(&Store) -> bool,
) -> Result<(), Box<dyn Error>> {
    timeout(BOUND, async {
        while !is_done(store) {
            let batch = batches.next().await.ok_or("the client was shut down")?;
            apply(batch, store)?;
        }
        Ok(())
    })
    .await?
}

/// Applies one batch, then answers it: what the server gets an ACK for is on the disk.
fn apply(batch: Batch<Prost<Workload>>, store: &mut Store) -> Result<(), Box<dyn Error>> {
    let mut rejected = Vec::new();
    for added in &batch.added {
        if let Err(reason) = store.insert(added) {
            rejected.push((added.name.clone(), reason));
        }
    }
    for name in &batch.removed {
        store.remove(name);
    }
    store.save()?;
    batch.reject(rejected);
    Ok(())
}

/// The limit of each wait.
const BOUND: Duration = Duration::from_secs(10);
