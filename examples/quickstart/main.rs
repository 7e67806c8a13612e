//! A management server and a client of it in one process: the states of a service while its mesh changes.
//!
//! ```console
//! $ cargo run --example quickstart
//! ```
//!
//! It runs six acts on loopback, waits in each for the announced states, and ends by itself; its exit code is 1 if
//! one does not occur. Read it top-down: `main` lists the acts, each of which is a function, and the helpers follow.

mod backend;
mod drawing;
#[path = "../common/print_line.rs"]
mod print_line;

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Display,
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};
use tonic::{
    body::Body,
    codegen::{Service, http::Request},
};
use xdskit::{
    Channel, Client, RouteQuery, WatchError,
    client::{ClientStatus, Resolution},
    config::{Bootstrap, Node, Server},
    control_plane::type_url,
    resolve::{ClusterView, Snapshot},
    resource::HealthStatus,
    testing::{
        TestControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

use self::{
    backend::Backend,
    drawing::{Paint, draw},
    print_line::print_line,
};

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(end) = usage(env::args().nth(1).as_deref()) {
        return end;
    }
    let error = match timeout(CURFEW, play()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not at its end after {CURFEW:?}"),
    };
    eprintln!("{}", Paint::for_output(&io::stderr()).red(format_args!("quickstart: {error}")));
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage = "usage: quickstart\n\nPlays what a service sees while its mesh changes, on loopback, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            print_line(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("quickstart: unknown argument {unknown}; it takes none\n{usage}");
            Some(ExitCode::from(2))
        }
    }
}

async fn play() -> Result<(), Box<dyn Error>> {
    let mut stage = Stage::new();
    let server = TestControlPlane::start().await;
    let bootstrap = Bootstrap::builder()
        .node(Node::new("quickstart")) // the identity of this client
        .server(Server::new(server.uri()).insecure()) // and its address
        .build()?;
    let client = Client::builder(bootstrap).scope(SHOP).build()?;

    let mut shop = the_mesh(&mut stage, &server, &client).await?;
    stage.pause().await;
    a_drained_endpoint(&mut stage, &server, &mut shop).await?;
    stage.pause().await;
    a_canary(&mut stage, &server, &mut shop).await?;
    stage.pause().await;
    a_bad_update(&mut stage, &server, (&client, &mut shop)).await?;
    stage.pause().await;
    a_restart(&mut stage, &server, &mut shop).await?;
    stage.pause().await;
    calls(&mut stage, &server, (&client, &mut shop)).await?;

    client.shutdown().await;
    stage.end();
    Ok(())
}

async fn the_mesh(
    stage: &mut Stage,
    server: &TestControlPlane,
    client: &Client,
) -> Result<Resolution, Box<dyn Error>> {
    stage.act("1. The mesh", "One name leads to everything behind it.");
    server.update(|tx| {
        tx.set(listener("shop").rds("shop-routes"));
        tx.set(route_config("shop-routes").virtual_host(
            ["shop"],
            [route::prefix("/cart/").cluster("cart"), route::prefix("/").cluster("web")],
        ));
        tx.set(cluster("cart"));
        tx.set(endpoints("cart").locality("eu", "a", [CART_1]).locality("eu", "b", [CART_2]));
        tx.set(cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", [WEB_1]).locality("eu", "b", [WEB_2]));
    });
    stage.server(format_args!("serves on {}", server.addr()));

    let mut shop = client.resolve(SHOP);
    let snapshot = shop.ready().await?;
    stage.client(format_args!("resolves {SHOP}"));
    stage.tree(&snapshot);
    stage.client(format_args!("sends a request for /cart/add to {}", choose(&snapshot, "/cart/add", 0)?));
    Ok(shop)
}

async fn a_drained_endpoint(
    stage: &mut Stage,
    server: &TestControlPlane,
    shop: &mut Resolution,
) -> Result<(), Box<dyn Error>> {
    stage.act("2. An endpoint is drained", "It finishes what it has; nothing new is sent to it.");
    let cart = endpoints("cart").locality("eu", "a", [CART_1]).locality("eu", "b", [CART_2]);
    server.set(cart.draining(CART_2));
    stage.server(format_args!("marks {CART_2} as draining"));

    let is_drained = |snapshot: &Snapshot| health(snapshot, CART_2) == Some(HealthStatus::Draining);
    let snapshot = see(shop, "the drained endpoint", is_drained).await?;
    stage.client("sees it");
    stage.tree(&snapshot);
    Ok(())
}

async fn a_canary(
    stage: &mut Stage,
    server: &TestControlPlane,
    shop: &mut Resolution,
) -> Result<(), Box<dyn Error>> {
    stage.act("3. A canary", "One in ten requests to the cart goes to its new release.");
    server.update(|tx| {
        tx.set(cluster("cart-canary"));
        tx.set(endpoints("cart-canary").locality("eu", "a", [CANARY]));
        tx.set(route_config("shop-routes").virtual_host(
            ["shop"],
            [
                route::prefix("/cart/").weighted([("cart", 90), ("cart-canary", 10)]),
                route::prefix("/").cluster("web"),
            ],
        ));
    });
    stage.server("adds the cluster cart-canary, and splits 90 to 10");

    // New routes are published once all of their clusters are known.
    let snapshot = see(shop, "the canary", |snapshot| snapshot.cluster("cart-canary").is_some()).await?;
    stage.client("sees new routes, with the cluster that they lead to");
    stage.tree(&snapshot);
    let requests = (0..1000).map(|random| choose(&snapshot, "/cart/add", random));
    let chosen = requests.collect::<Result<Vec<_>, _>>()?;
    let canaries = chosen.iter().filter(|address| *address == CANARY).count();
    stage.client(format_args!("sends {canaries} of 1000 requests for /cart/add to the canary"));
    Ok(())
}

async fn a_bad_update(
    stage: &mut Stage,
    server: &TestControlPlane,
    (client, shop): (&Client, &mut Resolution),
) -> Result<(), Box<dyn Error>> {
    stage.act("4. A bad update", "It is rejected, and the last known good resource stays in use.");
    let good = shop.ready().await?.cluster("cart").and_then(|cart| cart.config().cloned());
    server.set(cluster("cart").edit(|cart| cart.eds_cluster_config = None));
    stage.server("sends a cluster cart without a source of its endpoints");

    let snapshot = see(shop, "the rejection", |snapshot| warns(snapshot, WatchError::is_rejected)).await?;
    stage.client("rejects it, and keeps the last known good one");
    stage.tree(&snapshot);
    stage.client("shows its operators what it has");
    stage.table(&client.status().await);
    if snapshot.cluster("cart").and_then(ClusterView::config) != good.as_ref() {
        return Err("the last good cluster is lost".into());
    }
    let nack = server.expect_nack(type_url::CLUSTER).await?;
    stage.server(format_args!("receives the NACK: {}", stage.paint().yellow(nack.message)));

    server.set(cluster("cart"));
    stage.server("sends a good one again");
    let snapshot = see(shop, "the end of the warning", |snapshot| !warns(snapshot, |_| true)).await?;
    stage.client("accepts it; the warning is gone");
    stage.tree(&snapshot);
    Ok(())
}

async fn a_restart(
    stage: &mut Stage,
    server: &TestControlPlane,
    shop: &mut Resolution,
) -> Result<(), Box<dyn Error>> {
    stage.act("5. The server restarts", "The connection is lost and comes back; no resource is.");
    let before = inventory(&*shop.ready().await?);
    server.stop().await;
    stage.server("stops");
    let snapshot = see(shop, "the lost connection", |snapshot| {
        // The error is reported for each resource.
        snapshot.warnings().filter(|why| why.is_transient()).count() == 2 + 2 * snapshot.clusters().count()
    });
    let snapshot = snapshot.await?;
    stage.client("reports the error, and keeps its resources");
    stage.tree(&snapshot);
    if inventory(&snapshot) != before {
        return Err(format!("there was {before}, and is only {}", inventory(&snapshot)).into());
    }
    stage.client(format_args!("still has {before}"));

    server.set(endpoints("cart").locality("eu", "a", [CART_1, CART_3]));
    server.restart().await;
    stage.server(format_args!("is back; meanwhile {CART_3} has taken the place of {CART_2}"));
    let snapshot = see(shop, "the new endpoint", |snapshot| {
        let moved = health(snapshot, CART_3).is_some() && health(snapshot, CART_2).is_none();
        moved && !warns(snapshot, |_| true)
    });
    let snapshot = snapshot.await?;
    stage.client("has connected again by itself, and caught up");
    stage.tree(&snapshot);
    stage.client(format_args!("has {}", inventory(&snapshot)));
    Ok(())
}

async fn calls(
    stage: &mut Stage,
    server: &TestControlPlane,
    (client, shop): (&Client, &mut Resolution),
) -> Result<(), Box<dyn Error>> {
    stage.act("6. Calls", "A channel sends each call to an endpoint of the mesh.");
    let (one, two) = (Backend::start("one")?, Backend::start("two")?);
    server.update(|tx| {
        tx.set(cart_of(&[&one, &two]));
        tx.set(route_config("shop-routes").virtual_host(["shop"], [route::prefix("/").cluster("cart")]));
    });
    stage.server("has real servers now: one and two");
    let address = two.address.to_string();
    see(shop, "the servers", |snapshot| {
        health(snapshot, &address).is_some() && snapshot.clusters().count() == 1
    })
    .await?;
    let mut channel = client.channel(SHOP).build()?;
    stage.client(format_args!("calls: {}", shares(&mut channel, &["one", "two"]).await?));

    server.set(cart_of(&[&one, &two]).draining(&one.address.to_string()));
    stage.server("marks one as draining");
    stage.client(format_args!("calls: {}", shares(&mut channel, &["two"]).await?));

    let three = Backend::start("three")?;
    server.set(cart_of(&[&two, &three]));
    stage.server("adds three");
    stage.client(format_args!("calls: {}", shares(&mut channel, &["three", "two"]).await?));

    drop(two);
    stage.server("does not know that two stops");
    stage.client(format_args!("calls: {}", shares(&mut channel, &["three"]).await?));
    channel.shutdown(PATIENCE).await;
    Ok(())
}

/// Makes calls until 100 in a row came from these backends, each of them included, and describes those. No call may fail.
async fn shares(channel: &mut Channel, expected: &[&str]) -> Result<String, Box<dyn Error>> {
    let seen = async {
        loop {
            let mut shares = BTreeMap::<String, u32>::new();
            for _ in 0..100 {
                let request = Request::post("/shop.Cart/Add").body(Body::empty())?;
                let response = channel.call(request).await?;
                let backend = response.headers().get("x-backend");
                let backend = backend.ok_or_else(|| format!("a call failed: {:?}", response.headers()))?;
                *shares.entry(backend.to_str()?.to_owned()).or_default() += 1;
            }
            if shares.keys().eq(expected) {
                return Ok(shares
                    .iter()
                    .map(|(name, count)| format!("{count} × {name}"))
                    .collect::<Vec<_>>());
            }
        }
    };
    timeout(PATIENCE, seen).await?.map(|shares| shares.join(", "))
}

fn cart_of(backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address.to_string()).collect();
    endpoints("cart").locality("eu", "a", addresses.iter().map(String::as_str))
}

/// Selects the endpoint of a request: by its route, then by the weights of clusters, localities and endpoints.
fn choose(snapshot: &Snapshot, path: &str, random: u64) -> Result<String, Box<dyn Error>> {
    let route = snapshot.route(&RouteQuery::new(path, random)).ok_or("no route")?;
    let cluster = route.pick_cluster().ok_or("a route without clusters")?;
    let endpoint = cluster.pick_endpoint(random).ok_or("no usable endpoint")?;
    Ok(endpoint.address().to_string())
}

/// Waits for a tree that fulfils a condition, with a timeout.
async fn see(
    shop: &mut Resolution,
    what: &str,
    mut condition: impl FnMut(&Snapshot) -> bool,
) -> Result<Arc<Snapshot>, Box<dyn Error>> {
    let seen = shop.wait_for(|seen| seen.as_ref().is_ok_and(|snapshot| condition(snapshot)));
    match timeout(PATIENCE, seen).await {
        Ok(seen) => Ok(seen.ok_or("the client has ended")??),
        Err(_) => Err(format!("waited in vain for {what}; there is {:?}", shop.latest()).into()),
    }
}

/// The health of an endpoint; `None` if there is no such endpoint.
fn health(snapshot: &Snapshot, address: &str) -> Option<HealthStatus> {
    let mut endpoints = snapshot.clusters().flat_map(ClusterView::endpoints);
    endpoints.find(|endpoint| endpoint.address().to_string() == address).map(|endpoint| endpoint.health())
}

fn warns(snapshot: &Snapshot, condition: impl Fn(&WatchError) -> bool) -> bool {
    snapshot.warnings().any(condition)
}

/// Describes the usable endpoints.
fn inventory(snapshot: &Snapshot) -> String {
    let endpoints = snapshot.clusters().flat_map(ClusterView::endpoints).count();
    let routes = snapshot.virtual_host().routes.len();
    format!("{routes} routes, {} clusters, {endpoints} endpoints", snapshot.clusters().count())
}

/// The output.
struct Stage {
    paint: Paint,
    is_terminal: bool,
    begin: Instant,
    /// The last drawn tree.
    drawn: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        let stdout = io::stdout();
        let paint = Paint::for_output(&stdout);
        Self { paint, is_terminal: stdout.is_terminal(), begin: Instant::now(), drawn: Vec::new() }
    }

    fn paint(&self) -> Paint {
        self.paint
    }

    fn act(&self, title: &str, summary: &str) {
        print_line(format_args!("\n{}  {}", self.paint().bold(title), self.paint().dim(summary)));
    }

    /// Pauses for the reader of a terminal, if the output is one.
    async fn pause(&self) {
        if self.is_terminal {
            sleep(READING).await;
        }
    }

    fn server(&self, does: impl Display) {
        print_line(format_args!("   {} {does}", self.paint().cyan("server")));
    }

    fn client(&self, does: impl Display) {
        print_line(format_args!("   {} {does}", self.paint().green("client")));
    }

    /// Draws the tree, and marks its new lines.
    fn tree(&mut self, snapshot: &Snapshot) {
        let lines = draw(self.paint, SHOP, snapshot);
        let is_first = self.drawn.is_empty();
        for line in &lines {
            let was_there = self.drawn.iter().any(|old| words(old).eq(words(line)));
            let pointer =
                if was_there || is_first { " ".to_owned() } else { self.paint().green("▸").to_string() };
            print_line(format_args!("        {pointer} {line}"));
        }
        self.drawn = lines;
    }

    /// Prints the status of the client for operators.
    fn table(&self, status: &ClientStatus) {
        for line in status.to_string().lines() {
            let is_bad = line.starts_with('!') || line.contains("NACKED");
            let line = if is_bad { self.paint().yellow(line).to_string() } else { line.to_owned() };
            print_line(format_args!("          {line}"));
        }
    }

    fn end(&self) {
        let seconds = self.begin.elapsed().as_secs_f64();
        print_line(format_args!(
            "\n{} in {seconds:.1} s. Next: README.md, and the code of this: examples/quickstart",
            self.paint().bold("Done")
        ));
    }
}

/// The words of a line, without its indentation and alignment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.trim_start_matches(['│', '├', '└', '─', ' ']).split_whitespace()
}

const SHOP: &str = "xds:///shop";

const CART_1: &str = "10.0.1.1:8080";
const CART_2: &str = "10.0.1.2:8080";
const CART_3: &str = "10.0.1.3:8080";
const CANARY: &str = "10.0.2.1:8080";
const WEB_1: &str = "10.0.3.1:8080";
const WEB_2: &str = "10.0.3.2:8080";

/// The timeout of an expected state, with or without a reconnection.
const PATIENCE: Duration = Duration::from_secs(6);
/// The timeout of the whole example.
const CURFEW: Duration = Duration::from_secs(14);
/// The pause for the reader of a terminal.
const READING: Duration = Duration::from_millis(900);
