//! A management server and a client of it in one process: what a service sees while its mesh changes.
//!
//! ```console
//! $ cargo run --example quickstart
//! ```
//!
//! It plays five acts on loopback, waits in each for what it tells, and ends by itself; its exit code is 1 if anything did
//! not happen as told. Read it top-down: `main` is the playbill, each act a function, the props are below.

mod paint;

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::Display,
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};
use xdskit::{
    Client, Observed, Resource,
    client::Watch,
    config::{Bootstrap, Node, Server},
    control_plane::type_url,
    resource::{
        Cluster, ClusterKind, ClusterLoadAssignment, HealthStatus, Listener, RouteConfiguration,
        listener::RouteSource,
        route_action::{ClusterChoice::WeightedClusters, ForwardAction, RouteAction},
        route_match::PathMatcher,
    },
    testing::{
        ControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use paint::Paint;

#[tokio::main]
async fn main() -> ExitCode {
    let error = match timeout(CURFEW, play()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not at its end after {CURFEW:?}"),
    };
    eprintln!("{}", Paint::for_output(&io::stderr()).red(format_args!("quickstart: {error}")));
    ExitCode::FAILURE
}

async fn play() -> Result<(), Box<dyn Error>> {
    let stage = Stage::new();
    let server = ControlPlane::start().await;
    let bootstrap = Bootstrap::builder()
        .node(Node::new("quickstart")) // who we are, for the server
        .server(Server::new(server.uri()).insecure()) // and where it is
        .build()?;
    let client = Client::builder(bootstrap).build()?;

    let mut mesh = the_mesh(&stage, &server, &client).await?;
    stage.pause().await;
    a_drained_endpoint(&stage, &server, &mut mesh).await?;
    stage.pause().await;
    a_canary(&stage, &server, &client, &mut mesh).await?;
    stage.pause().await;
    a_bad_update(&stage, &server, &mut mesh).await?;
    stage.pause().await;
    a_restart(&stage, &server, &mut mesh).await?;

    client.shutdown().await;
    stage.end();
    Ok(())
}

async fn the_mesh(stage: &Stage, server: &ControlPlane, client: &Client) -> Result<Mesh, Box<dyn Error>> {
    stage.act("1. The mesh", "One name, shop, leads to everything behind it.");
    server.update(|tx| {
        tx.set(listener("shop").rds("shop-routes"));
        tx.set(route_config("shop-routes").virtual_host(
            ["shop.example"],
            [route::prefix("/cart/").cluster("cart"), route::prefix("/").cluster("web")],
        ));
        tx.set(cluster("cart"));
        tx.set(endpoints("cart").locality("eu", "a", [CART_1]).locality("eu", "b", [CART_2]));
        tx.set(cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", [WEB_1]).locality("eu", "b", [WEB_2]));
    });
    stage.server(format_args!("serves on {}", server.addr()));

    let mut listener = client.watch::<Listener>("shop");
    let seen = listener.ready().await?;
    let Some(RouteSource::Rds(routes)) = seen.api().map(|api| &api.routes) else {
        return Err("the listener does not name its routes".into());
    };
    let mut routes = client.watch::<RouteConfiguration>(routes);
    stage.client(format_args!("follows listener {} to the routes {}", seen.name, routes.ready().await?.name));

    let mut mesh = Mesh { listener, routes, clusters: BTreeMap::new() };
    mesh.watch_clusters(client).await?;
    stage.routes(&mesh.routes);
    for group in mesh.clusters.values() {
        stage.endpoints(&group.endpoints);
    }
    Ok(mesh)
}

async fn a_drained_endpoint(
    stage: &Stage,
    server: &ControlPlane,
    mesh: &mut Mesh,
) -> Result<(), Box<dyn Error>> {
    stage.act("2. An endpoint is drained", "It finishes what it has; nothing new is sent to it.");
    let cart = endpoints("cart").locality("eu", "a", [CART_1]).locality("eu", "b", [CART_2]);
    server.set(cart.draining(CART_2));
    stage.server(format_args!("says that {CART_2} is draining"));

    let cart = &mut mesh.group("cart")?.endpoints;
    see(cart, "the drained endpoint", |cart| health(cart, CART_2) == Some(HealthStatus::Draining)).await?;
    stage.client("sees it");
    stage.endpoints(cart);
    Ok(())
}

async fn a_canary(
    stage: &Stage,
    server: &ControlPlane,
    client: &Client,
    mesh: &mut Mesh,
) -> Result<(), Box<dyn Error>> {
    stage.act("3. A canary", "One in ten requests to the cart goes to its new release.");
    server.update(|tx| {
        tx.set(cluster("cart-canary"));
        tx.set(endpoints("cart-canary").locality("eu", "a", [CANARY]));
        tx.set(route_config("shop-routes").virtual_host(
            ["shop.example"],
            [
                route::prefix("/cart/").weighted([("cart", 90), ("cart-canary", 10)]),
                route::prefix("/").cluster("web"),
            ],
        ));
    });
    stage.server("adds the cluster cart-canary, and splits 90 to 10");

    let canary = |routes: &RouteConfiguration| clusters(routes).any(|name| &**name == "cart-canary");
    see(&mut mesh.routes, "the canary", |seen| seen.resource().is_some_and(|routes| canary(routes))).await?;
    stage.client("sees new routes, and watches the cluster that they lead to");
    mesh.watch_clusters(client).await?;
    stage.routes(&mesh.routes);
    stage.endpoints(&mesh.group("cart-canary")?.endpoints);
    Ok(())
}

async fn a_bad_update(stage: &Stage, server: &ControlPlane, mesh: &mut Mesh) -> Result<(), Box<dyn Error>> {
    stage.act("4. A bad update", "It is rejected, and what was good before goes on serving.");
    let cart = &mut mesh.group("cart")?.cluster;
    let good = cart.ready().await?;
    server.set(cluster("cart").edit(|cart| cart.eds_cluster_config = None));
    stage.server("sends a cluster cart that does not say where its endpoints come from");

    let seen = see(cart, "the rejection", |seen| seen.error().is_some()).await?;
    let rejection = seen.error().filter(|error| error.is_rejected()).ok_or("the warning is another")?;
    stage.client(format_args!("rejects it: {}", stage.paint.yellow(rejection)));
    if seen.resource() != Some(&good) {
        return Err("the last good cluster is lost".into());
    }
    stage.client("goes on with the last good one");
    let nack = server.expect_nack(type_url::CLUSTER).await?;
    stage.server(format_args!("hears of it: {}", stage.paint.yellow(nack.message)));

    server.set(cluster("cart"));
    stage.server("sends a good one again");
    see(cart, "the end of the warning", |seen| seen.is_present() && seen.error().is_none()).await?;
    stage.client("accepts it; the warning is gone");
    Ok(())
}

async fn a_restart(stage: &Stage, server: &ControlPlane, mesh: &mut Mesh) -> Result<(), Box<dyn Error>> {
    stage.act("5. The server restarts", "The connection is lost and comes back; no resource is.");
    server.stop().await;
    stage.server("stops");
    let lost = |error: Option<&xdskit::WatchError>| error.is_some_and(xdskit::WatchError::is_transient);
    let seen = see(&mut mesh.listener, "the lost connection", |seen| lost(seen.error())).await?;
    let why = seen.error().map(ToString::to_string).unwrap_or_default();
    stage.client(format_args!("says so on each watch: {}", stage.paint.yellow(why)));
    stage.client(format_args!("still has {}", mesh.inventory()?));

    let cart = endpoints("cart").locality("eu", "a", [CART_1, CART_3]);
    server.set(cart);
    server.restart().await;
    stage.server(format_args!("is back; meanwhile {CART_3} has taken the place of {CART_2}"));
    see(&mut mesh.listener, "the connection", |seen| seen.is_present() && seen.error().is_none()).await?;
    let cart = &mut mesh.group("cart")?.endpoints;
    see(cart, "the new endpoint", |cart| health(cart, CART_3).is_some() && health(cart, CART_2).is_none())
        .await?;
    stage.client("has connected again by itself, and caught up");
    stage.endpoints(cart);
    stage.client(format_args!("has {}", mesh.inventory()?));
    Ok(())
}

/// What the client watches.
struct Mesh {
    listener: Watch<Listener>,
    routes: Watch<RouteConfiguration>,
    clusters: BTreeMap<Arc<str>, Group>,
}

struct Group {
    cluster: Watch<Cluster>,
    endpoints: Watch<ClusterLoadAssignment>,
}

impl Mesh {
    /// Watches the clusters that the routes lead to, and where they are no longer led to, ends that.
    async fn watch_clusters(&mut self, client: &Client) -> Result<(), Box<dyn Error>> {
        let routes = self.routes.ready().await?;
        let mut before = std::mem::take(&mut self.clusters);
        for name in clusters(&routes) {
            let group = match before.remove(name) {
                Some(group) => group,
                None => Group::watch(client, name).await?,
            };
            self.clusters.insert(name.clone(), group);
        }
        Ok(())
    }

    fn group(&mut self, name: &str) -> Result<&mut Group, String> {
        self.clusters.get_mut(name).ok_or_else(|| format!("no route leads to {name}"))
    }

    /// What there is to work with at this moment.
    fn inventory(&self) -> Result<String, String> {
        let absent = || "something good is lost".to_owned();
        let routes = self.routes.latest().resource().cloned().filter(|_| self.listener.latest().is_present());
        let routes =
            routes.ok_or_else(absent)?.virtual_hosts.iter().map(|host| host.routes.len()).sum::<usize>();
        let mut endpoints = 0;
        for group in self.clusters.values() {
            let seen =
                group.endpoints.latest().resource().cloned().filter(|_| group.cluster.latest().is_present());
            endpoints += seen.ok_or_else(absent)?.endpoints().count();
        }
        Ok(format!("1 listener, {routes} routes, {} clusters, {endpoints} endpoints", self.clusters.len()))
    }
}

impl Group {
    async fn watch(client: &Client, name: &str) -> Result<Self, Box<dyn Error>> {
        let mut cluster = client.watch::<Cluster>(name);
        let ClusterKind::Eds { service_name, .. } = &cluster.ready().await?.kind else {
            return Err(format!("cluster {name} does not name its endpoints").into());
        };
        let mut endpoints = client.watch::<ClusterLoadAssignment>(service_name);
        endpoints.ready().await?;
        Ok(Self { cluster, endpoints })
    }
}

/// Waits for something to be seen, but not for ever.
async fn see<T: Resource>(
    watch: &mut Watch<T>,
    what: &str,
    condition: impl FnMut(&Observed<T>) -> bool,
) -> Result<Arc<Observed<T>>, Box<dyn Error>> {
    match timeout(PATIENCE, watch.wait_for(condition)).await {
        Ok(seen) => Ok(seen.ok_or("the client has ended")?),
        Err(_) => Err(format!("waited in vain for {what}; there is {:?}", watch.latest()).into()),
    }
}

/// The clusters that routes lead to.
fn clusters(routes: &RouteConfiguration) -> impl Iterator<Item = &Arc<str>> {
    routes.virtual_hosts.iter().flat_map(|host| &host.routes).flat_map(|route| route.action.clusters())
}

/// What is known of an endpoint's health; `None` if there is no such endpoint.
fn health(seen: &Observed<ClusterLoadAssignment>, address: &str) -> Option<HealthStatus> {
    let mut endpoints = seen.resource()?.endpoints();
    endpoints.find(|endpoint| endpoint.address.to_string() == address).map(|endpoint| endpoint.health)
}

/// Where the play is shown.
struct Stage {
    paint: Paint,
    is_terminal: bool,
    begin: Instant,
}

impl Stage {
    fn new() -> Self {
        let stdout = io::stdout();
        Self { paint: Paint::for_output(&stdout), is_terminal: stdout.is_terminal(), begin: Instant::now() }
    }

    fn act(&self, title: &str, tells: &str) {
        println!("\n{}  {}", self.paint.bold(title), self.paint.dim(tells));
    }

    /// Gives a reader time, where there is one.
    async fn pause(&self) {
        if self.is_terminal {
            sleep(READING).await;
        }
    }

    fn server(&self, does: impl Display) {
        println!("   {} {does}", self.paint.cyan("server"));
    }

    fn client(&self, does: impl Display) {
        println!("   {} {does}", self.paint.green("client"));
    }

    fn routes(&self, routes: &Watch<RouteConfiguration>) {
        let Some(routes) = routes.latest().resource().cloned() else { return };
        for host in &routes.virtual_hosts {
            for route in &host.routes {
                let PathMatcher::Prefix(path) = &route.matcher.path else { continue };
                println!("          {}{:<8} → {}", host.name, format!("{path}*"), destination(&route.action));
            }
        }
    }

    fn endpoints(&self, endpoints: &Watch<ClusterLoadAssignment>) {
        let Some(endpoints) = endpoints.latest().resource().cloned() else { return };
        println!("          {}", self.paint.bold(format_args!("cluster {}", endpoints.cluster_name)));
        for place in endpoints.localities() {
            for endpoint in &place.endpoints {
                let (dot, note) = match endpoint.health {
                    health if is_used(health) => (self.paint.green("●").to_string(), String::new()),
                    health => (self.paint.yellow("◌").to_string(), format!("  {health:?}").to_lowercase()),
                };
                let zone = format!("{}-{}", place.locality.region, place.locality.zone);
                println!("            {dot} {}  {zone}{}", endpoint.address, self.paint.yellow(note));
            }
        }
    }

    fn end(&self) {
        let seconds = self.begin.elapsed().as_secs_f64();
        println!(
            "\n{} in {seconds:.1} s. Next: README.md, and the code of this: examples/quickstart.rs",
            self.paint.bold("Done")
        );
    }
}

/// Whether requests are sent to an endpoint of this health.
fn is_used(health: HealthStatus) -> bool {
    matches!(health, HealthStatus::Unknown | HealthStatus::Healthy)
}

/// Where a route sends requests, with percentages where it splits.
fn destination(action: &RouteAction) -> String {
    if let RouteAction::Forward(ForwardAction { clusters: WeightedClusters(split), .. }) = action {
        let percent = |weight| f64::from(weight) / f64::from(split.total_weight) * 100.0;
        let parts = split.clusters.iter().map(|part| format!("{:.0} % {}", percent(part.weight), part.name));
        return parts.collect::<Vec<_>>().join(", ");
    }
    action.clusters().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const CART_1: &str = "10.0.1.1:8080";
const CART_2: &str = "10.0.1.2:8080";
const CART_3: &str = "10.0.1.3:8080";
const CANARY: &str = "10.0.2.1:8080";
const WEB_1: &str = "10.0.3.1:8080";
const WEB_2: &str = "10.0.3.2:8080";

/// How long something may take that should happen at once, or after a reconnect.
const PATIENCE: Duration = Duration::from_secs(6);
/// For the whole play.
const CURFEW: Duration = Duration::from_secs(14);
/// A pause for the reader of a terminal.
const READING: Duration = Duration::from_millis(900);
