//! A program with a store of its own: it applies what the management server sends, refuses what it cannot use, and the server gets its
//! ACK or NACK when the store has decided.
//!
//! ```console
//! $ cargo run --example store
//! ```
//!
//! Control plane and client run in this process, on loopback. The store is kept in a file, so that the program serves with it right after
//! a restart, before the server is connected. The program ends by itself; its exit code is 1 if an update does not arrive.
//! `docs/BATCHES.md` describes batches.

mod store;
mod workload;

use std::{env, error::Error, fs, process, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Bootstrap, Client, ResourceSelector,
    client::{Batch, Batches},
    config::ApiType,
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
    let (client, mut batches) = connect(&server)?;
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

    // A restart, during which a workload ends. A client cannot be given the versions of the store, so that the server sends everything
    // again; the store finds out by that what has ended.
    client.shutdown().await;
    drop((client, batches));
    server.update(|tx| {
        tx.set(workload::resource("web-1", "10.0.0.9:80"));
        tx.remove(TYPE_URL, "web-3");
    });
    let mut store = Store::open(&file)?;
    println!("after the restart: {store}");
    let (_client, mut batches) = connect(&server)?;
    follow(&mut batches, &mut store, |store| store.len() == 1).await?;
    println!("{store}");
    fs::remove_file(&file)?;
    Ok(())
}

/// A client of the server, in the incremental variant, in which removals are sent.
fn connect(server: &TestControlPlane) -> Result<(Client, Workloads), Box<dyn Error>> {
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json())?;
    let client = Client::builder(bootstrap).api_type(ApiType::AggregatedDeltaGrpc).build()?;
    let batches = client.batches(ResourceSelector::All);
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
        if let Err(reason) = store.insert(&added.name, &added.resource) {
            rejected.push((added.name.clone(), reason));
        }
    }
    for name in &batch.removed {
        store.remove(name);
    }
    if batch.is_complete() {
        store.retain_received();
    }
    store.save()?;
    batch.reject(rejected);
    Ok(())
}

/// The limit of each wait.
const BOUND: Duration = Duration::from_secs(10);
