//! A mesh-aware application: a client with a load balancer of tower, which follows the endpoints of a control plane.
//!
//! ```console
//! $ cargo run --example balance
//! ```
//!
//! The backends, the control plane and the application run in this process, on loopback. The application sends 3,000
//! calls, 32 at a time, without a break: while a backend is drained and then shut down, and while another one is
//! added. It prints each backend's share of the calls, and ends by itself; its exit code is 1 if a call failed, or if
//! the drained backend received a call that was begun after the drain had reached the client.
//!
//! The code of an application would be that in `balanced`; the rest is its environment.

mod backend;
mod load;
mod shares;

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use tonic::{Status, body::Body, codegen::http, transport::Endpoint};
use tower::{
    ServiceExt,
    balance::p2c::Balance,
    buffer::Buffer,
    load::{CompleteOnResponse, PendingRequests},
    util::BoxCloneService,
};
use xdskit::{
    Client, Resolution, RouteQuery, Snapshot, WatchError,
    cli::{Paint, say},
    config::{Bootstrap, Node, Server},
    discover::discover,
    testing::{
        ControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

use self::{
    backend::{Backend, GREET},
    load::Load,
    shares::{ADDED, DRAINED},
};

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(end) = usage(env::args().nth(1).as_deref()) {
        return end;
    }
    let error = match timeout(CURFEW, run()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not at its end after {CURFEW:?}"),
    };
    eprintln!("{}", Paint::for_output(&io::stderr()).red(format_args!("balance: {error}")));
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage = "usage: balance\n\nSends 3,000 calls through a load balancer while backends are drained and added, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            say(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("balance: unknown argument {unknown}; it takes none\n{usage}");
            Some(ExitCode::from(2))
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let (paint, begin) = (Paint::for_output(&io::stdout()), Instant::now());
    let one = Backend::start("one", FAST).await?;
    let two = Backend::start("two", FAST).await?;
    let three = Backend::start("three", SLOW).await?;
    let mesh = Mesh::start(&[&one, &two, &three]).await?;

    let mut greeter = mesh.client.resolve("xds:///greeter");
    let cluster = where_greetings_go(&mut greeter).await?;
    say(format_args!(
        "{}  cluster {cluster}: one, two, and three, which takes longer",
        paint.green("resolved ")
    ));
    let load = Load::start(&balanced(greeter.clone(), &cluster));

    load.wait_for(load::EACH_PHASE * 9 / 10).await;
    mesh.server.set(endpoints_of(&[&one, &two, &three]).draining(&two.address.to_string()));
    see(&mut greeter, &[&one, &three]).await?;
    say(format_args!("{}  two: it finishes what it has, and gets nothing new", paint.yellow("drained  ")));
    load.begin(DRAINED).await;
    two.shut_down().await?;
    mesh.server.set(endpoints_of(&[&one, &three]));
    say(format_args!("{}  two", paint.yellow("shut down")));

    load.wait_for(load::EACH_PHASE * 19 / 10).await;
    let four = Backend::start("four", FAST).await?;
    load.begin(ADDED).await;
    mesh.server.set(endpoints_of(&[&one, &three, &four]));
    see(&mut greeter, &[&one, &three, &four]).await?;
    say(format_args!("{}  four", paint.green("added    ")));

    let shares = load.end().await?;
    say(format_args!("\n{}", shares.table(paint).trim_end()));
    say(format_args!(
        "\n{} calls in {:.1} s, {} failed",
        shares.calls(),
        begin.elapsed().as_secs_f64(),
        shares.failures()
    ));
    mesh.client.shutdown().await;
    Ok(shares.check()?)
}

/// The service that calls use.
type Balanced = BoxCloneService<http::Request<Body>, http::Response<Body>, Status>;

/// Builds a clonable tower service from the endpoints of a cluster; it selects the less loaded one of two.
fn balanced(greeter: Resolution, cluster: &str) -> Balanced {
    let connections = discover(greeter, cluster, |endpoint| {
        let uri = format!("http://{}", endpoint.address());
        // It connects with the first call, and reconnects when necessary.
        let channel = Endpoint::from_shared(uri).expect("an address is a URI").connect_lazy();
        PendingRequests::new(channel, CompleteOnResponse::default())
    });
    Buffer::new(Balance::new(connections), load::AT_A_TIME).map_err(Status::from_error).boxed_clone()
}

/// Returns the cluster that the routes select for the calls.
async fn where_greetings_go(greeter: &mut Resolution) -> Result<String, Box<dyn Error>> {
    let snapshot = greeter.ready().await?;
    let route = snapshot.route(&RouteQuery::new(GREET, 0)).ok_or("no route for greetings")?;
    Ok(route.pick_cluster().ok_or("the route leads to no cluster")?.name().to_owned())
}

/// The control plane, and the application's client of it.
struct Mesh {
    server: ControlPlane,
    client: Client,
}

impl Mesh {
    async fn start(backends: &[&Backend]) -> Result<Self, Box<dyn Error>> {
        let server = ControlPlane::start().await;
        let greetings = route::prefix("/").cluster("greetings");
        server.update(|tx| {
            tx.set(listener("greeter"));
            tx.set(route_config("greeter").virtual_host(["greeter"], [greetings]));
            tx.set(cluster("greetings"));
            tx.set(endpoints_of(backends));
        });
        let bootstrap = Bootstrap::builder()
            .node(Node::new("balance"))
            .server(Server::new(server.uri()).insecure())
            .build()?;
        Ok(Self { client: Client::builder(bootstrap).build()?, server })
    }
}

fn endpoints_of(backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address.to_string()).collect();
    endpoints("greetings").locality("eu", "a", addresses.iter().map(String::as_str))
}

/// Waits until exactly these endpoints are usable in the client's snapshot.
async fn see(greeter: &mut Resolution, backends: &[&Backend]) -> Result<(), &'static str> {
    let expected: BTreeSet<_> = backends.iter().map(|backend| backend.address).collect();
    let is_seen =
        |seen: &Result<Arc<Snapshot>, WatchError>| seen.as_ref().is_ok_and(|seen| usable(seen) == expected);
    match greeter.wait_for(is_seen).await {
        Some(_) => Ok(()),
        None => Err("the client has ended"),
    }
}

fn usable(snapshot: &Snapshot) -> BTreeSet<SocketAddr> {
    let endpoints = snapshot.clusters().flat_map(|cluster| cluster.usable_endpoints_of_all_priorities());
    endpoints.map(|endpoint| endpoint.address()).collect()
}

/// The response time of backends.
const FAST: Duration = Duration::from_millis(3);
const SLOW: Duration = Duration::from_millis(6);
/// The timeout of the whole example.
const CURFEW: Duration = Duration::from_secs(30);
