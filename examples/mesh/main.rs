//! A management server with a mesh of 25 services that changes continuously, for `walk` and `watch`.
//!
//! ```console
//! $ cargo run --example mesh
//! $ cargo run --example walk -- --bootstrap examples/mesh/bootstrap.json xds:///cart xds:///orders xds:///mail
//! ```
//!
//! It runs until it is interrupted. The first argument is the listening address, 127.0.0.1:18000 by default; `--help`
//! prints the usage.

#[path = "../common/print_line.rs"]
mod print_line;

use std::{env, io, process::ExitCode, time::Duration};

use tokio::time::sleep;
use xdskit::{
    control_plane::{AnyResource, ControlPlane, store::Transaction, type_url},
    testing::resources::{cluster, collection, endpoints, listener, route, route_config},
};

use self::print_line::print_line;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let address = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => ADDRESS.to_owned(),
        ["--help" | "-h", ..] => {
            print_line(USAGE.trim_end());
            return ExitCode::SUCCESS;
        }
        [address] if !address.starts_with('-') => (*address).to_owned(),
        [_, unknown, ..] | [unknown] => {
            eprintln!("mesh: unknown argument {unknown}; write an address such as {ADDRESS}, or nothing");
            return ExitCode::from(2);
        }
    };
    match serve(&address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mesh: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: &str) -> io::Result<()> {
    let mesh = ControlPlane::new();
    mesh.update(|tx| {
        SERVICES.iter().enumerate().for_each(|(number, name)| set_service(tx, number, name));
        set_collections(tx);
    });
    let server = mesh.serve(address).await?;
    print_line(format_args!("{} services on {}: {}", SERVICES.len(), server.addr(), SERVICES.join(" ")));
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt,
        () = play(&mesh) => Ok(()),
    }
}

/// Sets a service with two endpoints.
fn set_service(tx: &mut Transaction<'_>, number: usize, name: &str) {
    tx.set(listener(name).rds(format!("{name}-routes")));
    tx.set(route_config(format!("{name}-routes")).virtual_host([name], [route::prefix("/").cluster(name)]));
    tx.set(cluster(name));
    let [first, second] = [1, 2].map(|host| format!("10.0.{number}.{host}:8080"));
    tx.set(endpoints(name).locality("eu", "a", [&*first]).locality("eu", "b", [&*second]));
}

/// Sets some clusters for a glob, and a list of some of them.
fn set_collections(tx: &mut Transaction<'_>) {
    for name in ["cart", "mail"] {
        let endpoints = cluster(name).eds_service(name);
        tx.set(AnyResource::from(endpoints).with_name(format!("{CLUSTERS}/{name}")));
    }
    let list = collection(LIST).locator(&format!("{CLUSTERS}/mail"));
    tx.set(list.inline("users", "7", cluster("users").eds_service("users")));
}

/// Changes the mesh in a loop.
async fn play(mesh: &ControlPlane) {
    loop {
        for (title, change) in SCENES {
            sleep(SCENE).await;
            print_line(title);
            mesh.update(change);
        }
    }
}

type Change = fn(&mut Transaction<'_>);

const SCENES: &[(&str, Change)] = &[
    ("search: the routes lead to a cluster that there is not", |tx| {
        let routes = [route::prefix("/v2/").cluster("search-v2"), route::prefix("/").cluster("search")];
        tx.set(route_config("search-routes").virtual_host(["search"], routes));
    }),
    ("cart: a canary gets 10 % of the requests", |tx| set_canary(tx, 10)),
    ("cart: the canary gets half of them", |tx| set_canary(tx, 50)),
    ("cart: the canary gets all of them", |tx| set_canary(tx, 100)),
    ("orders: an endpoint is drained", |tx| {
        let places = endpoints("orders").locality("eu", "a", ["10.0.2.1:8080"]);
        tx.set(places.locality("eu", "b", ["10.0.2.2:8080"]).draining("10.0.2.2:8080"));
    }),
    ("users: the routes lead to a database with a replica", |tx| {
        tx.set(cluster("users").aggregate(["users-main", "users-replica"]));
        for (name, endpoint) in [("users-main", "10.1.0.1:5432"), ("users-replica", "10.1.0.2:5432")] {
            tx.set(cluster(name));
            tx.set(endpoints(name).locality("eu", "a", [endpoint]));
        }
    }),
    ("users: the database is down", |tx| {
        tx.set(endpoints("users-main").locality("eu", "a", ["10.1.0.1:5432"]).unhealthy("10.1.0.1:5432"));
    }),
    ("mail: moves to a host that is looked up", |tx| {
        tx.set(cluster("mail").logical_dns("localhost", 8025));
    }),
    ("stock: a bad update, which is rejected", |tx| {
        tx.set(cluster("stock").edit(|stock| stock.eds_cluster_config = None));
    }),
    ("prices: there are no endpoints", |tx| {
        tx.set(endpoints("prices"));
    }),
    ("taxes: the listener is deleted", |tx| {
        tx.remove(type_url::LISTENER, "taxes");
    }),
    ("all is as in the beginning", |tx| {
        SERVICES.iter().enumerate().for_each(|(number, name)| set_service(tx, number, name));
    }),
];

fn set_canary(tx: &mut Transaction<'_>, percent: u32) {
    tx.set(cluster("cart-canary"));
    tx.set(endpoints("cart-canary").locality("eu", "a", ["10.0.99.1:8080"]));
    let weights = [("cart", 100 - percent), ("cart-canary", percent)];
    let routes = [
        route::prefix("/cart/").header("x-canary", "yes").cluster("cart-canary"),
        route::prefix("/").weighted(weights),
    ];
    tx.set(route_config("cart-routes").virtual_host(["cart"], routes));
}

const SERVICES: [&str; 25] = [
    "ads", "cart", "orders", "users", "mail", "stock", "search", "prices", "taxes", "payments", "checkout",
    "catalog", "reviews", "images", "sessions", "login", "billing", "invoices", "shipping", "returns",
    "coupons", "loyalty", "fraud", "reports", "web",
];

const CLUSTERS: &str = "xdstp://mesh/envoy.config.cluster.v3.Cluster/shop";

const LIST: &str = "xdstp://mesh/envoy.config.cluster.v3.ClusterCollection/front";

const ADDRESS: &str = "127.0.0.1:18000";

const USAGE: &str = "\
usage: mesh [ADDRESS]

Serves a mesh of 25 services that keeps changing, on 127.0.0.1:18000 or the ADDRESS. It runs until it is interrupted (Ctrl-C).
";

/// The time between changes.
const SCENE: Duration = Duration::from_secs(4);
