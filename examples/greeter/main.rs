//! A tonic client and three servers in a mesh: the client calls `xds:///greeter` while servers are drained and added.
//!
//! ```console
//! $ cargo run --example greeter
//! ```
//!
//! The servers, the control plane and the client run in this process, on loopback. The code of an application is in `client`: it
//! is that of any tonic client, with a [`Channel`](xdskit::Channel) in the place of tonic's. The program ends by itself; its
//! exit code is 1 if a call failed.

mod client;
#[path = "../common/print_line.rs"]
mod print_line;
mod server;

use std::{error::Error, process::ExitCode, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Channel,
    config::Bootstrap,
    testing::{
        TestControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
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
    eprintln!("greeter: {error}");
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage = "usage: greeter\n\nCalls servers of a mesh while it changes, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            print_line(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("greeter: unknown argument {unknown}; it takes none\n{usage}");
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
    mesh.set(greeters(&[&one, &two]));

    let bootstrap = Bootstrap::from_json(&mesh.bootstrap_json())?;
    let channel = Channel::builder("xds:///greeter").bootstrap(bootstrap).build()?;
    let mut greeter = GreeterClient::new(channel.clone());

    print_line("two servers");
    greetings(&mut greeter, &["one", "two"]).await?;

    print_line("\none is drained");
    mesh.set(greeters(&[&one, &two]).draining(&one.address.to_string()));
    greetings(&mut greeter, &["two"]).await?;
    mesh.set(greeters(&[&two]));
    one.shut_down().await?;

    print_line("\nthree is added");
    let three = Greeter::start("three").await?;
    mesh.set(greeters(&[&two, &three]));
    greetings(&mut greeter, &["three", "two"]).await?;

    print_line("\ntwo ends, and the control plane does not know");
    two.shut_down().await?;
    greetings(&mut greeter, &["three"]).await?;

    channel.shutdown(Duration::from_secs(1)).await;
    three.shut_down().await
}

/// Makes calls until 10 in a row came from these servers, each of them included, and prints those.
async fn greetings(greeter: &mut GreeterClient<Channel>, expected: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut row = Vec::new();
    loop {
        let name = greeter.say_hello("mesh").await?;
        row.push(name);
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

fn greeters(servers: &[&Greeter]) -> EndpointsBuilder {
    let addresses: Vec<_> = servers.iter().map(|server| server.address.to_string()).collect();
    endpoints("greeters").locality("eu", "a", addresses.iter().map(String::as_str))
}

/// The time that all of it may take.
const CURFEW: Duration = Duration::from_secs(20);
