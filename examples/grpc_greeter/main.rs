//! A client of the crate `grpc` and two servers of tonic in a mesh: the client calls `xds:///greeter` while the mesh changes.
//!
//! ```console
//! $ cargo run --example grpc_greeter
//! ```
//!
//! The servers, which are those of the example `greeter`, the control plane and the client run in this process, on loopback. The code
//! of an application is in `client`: it is that of any client of that crate, with a [`Channel`](xdskit::Channel) in the place of
//! `grpc::client::Channel`. The program ends by itself; its exit code is 1 if a call failed.

mod client;
#[path = "../common/print_line.rs"]
mod print_line;
#[path = "../greeter/server.rs"]
mod server;

use std::{error::Error, process::ExitCode, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Channel,
    config::Bootstrap,
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use self::{client::GreeterClient, print_line::print_line, server::Greeter};

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(end) = usage(std::env::args().nth(1).as_deref()) {
        return end;
    }
    let error = match timeout(CURFEW, run()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not at its end after {CURFEW:?}"),
    };
    eprintln!("grpc_greeter: {error}");
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage =
        "usage: grpc_greeter\n\nCalls servers of a mesh with a client of the crate grpc, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            print_line(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("grpc_greeter: unknown argument {unknown}; it takes none\n{usage}");
            Some(ExitCode::from(2))
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let (one, two) = (Greeter::start("one").await?, Greeter::start("two").await?);
    let mesh = TestControlPlane::start().await;
    mesh.set(listener("greeter").rds("routes"));
    mesh.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("greeters")]));
    mesh.set(cluster("greeters"));
    let (first, second) = (one.address.to_string(), two.address.to_string());
    mesh.set(endpoints("greeters").locality("eu", "a", [first.as_str(), second.as_str()]));

    let bootstrap = Bootstrap::from_json(&mesh.bootstrap_json())?;
    // With the channel of the crate this line is `Channel::new("dns:///greeter", credentials, ChannelOptions::default())`.
    let channel = Channel::builder("xds:///greeter").bootstrap(bootstrap).build()?;
    let greeter = GreeterClient::new(channel.clone());

    print_line("two servers");
    greetings(&greeter, &["one", "two"]).await?;

    print_line("\none is drained");
    mesh.set(endpoints("greeters").locality("eu", "a", [second.as_str()]));
    greetings(&greeter, &["two"]).await?;
    one.shut_down().await?;
    greetings(&greeter, &["two"]).await?;

    channel.shutdown(Duration::from_secs(1)).await;
    two.shut_down().await
}

/// Makes calls until 10 in a row came from these servers, each of them included, and prints those.
async fn greetings(greeter: &GreeterClient<Channel>, expected: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut row = Vec::new();
    loop {
        row.push(greeter.say_hello("mesh").await.map_err(|status| status.message().to_owned())?);
        if row.len() > 10 {
            row.remove(0);
        }
        let mut seen: Vec<_> = row.iter().map(String::as_str).collect();
        seen.sort_unstable();
        seen.dedup();
        if row.len() == 10 && seen == expected {
            print_line(format_args!("  {}", row.join(" ")));
            return Ok(());
        }
    }
}

/// The time that all of it may take.
const CURFEW: Duration = Duration::from_secs(20);
