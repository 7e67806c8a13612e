//! A pool of connections for a line protocol over TCP, with failover between the priorities of a mesh.
//!
//! ```console
//! $ cargo run --example tcp
//! ```
//!
//! The management server and the servers of the protocol are in this process, on loopback; it ends by itself. The pool is in `pool`.

mod pool;
#[path = "../common/print_line.rs"]
mod print_line;
mod server;

use std::{collections::BTreeMap, env, error::Error, process::ExitCode, time::Duration};

use tokio::time::{sleep, timeout};
use xdskit::{
    Client,
    config::{Bootstrap, Node, Server},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use self::{pool::Pool, print_line::print_line, server::LineServer};

async fn play() -> Result<(), Box<dyn Error>> {
    let [mut near, mut next, far] =
        [LineServer::start("near").await?, LineServer::start("next").await?, LineServer::start("far").await?];
    let [first, second, third] = [&near, &next, &far].map(|server| server.address.to_string());
    let mesh = TestControlPlane::start().await;
    mesh.update(|tx| {
        tx.set(listener("store").rds("store"));
        tx.set(route_config("store").virtual_host(["store"], [route::prefix("").cluster("store")]));
        tx.set(cluster("store"));
        let preferred = endpoints("store").locality("eu", "a", [first.as_str(), &second]);
        tx.set(preferred.locality("us", "a", [third.as_str()]).priority(1));
    });
    let server = Server::new(mesh.uri()).insecure();
    let client =
        Client::builder(Bootstrap::builder().node(Node::new("pool")).server(server).build()?).build()?;
    let pool = Pool::new(client.resolve("xds:///store"));

    show("all servers run", &pool, "near next").await?;
    near.stop().await;
    show("near has stopped", &pool, "next").await?;
    next.stop().await;
    show("next has stopped, too", &pool, "far").await?;
    near.restart().await?;
    show("near has started again", &pool, "near").await?;
    print_line(format_args!("{} requests, none has failed", pool.requests()));
    client.shutdown().await;
    Ok(())
}

/// Makes requests until 20 of them were answered by these servers alone, and shows their shares.
async fn show(event: &str, pool: &Pool, servers: &str) -> Result<(), Box<dyn Error>> {
    loop {
        let mut shares = BTreeMap::<String, usize>::new();
        for number in 0..20 {
            let answer = pool.request("store", format!("get {number}")).await?;
            let (server, request) =
                answer.split_once(": ").ok_or("an answer without the name of a server")?;
            if request != format!("get {number}") {
                return Err(format!("the answer to another request: {answer}").into());
            }
            *shares.entry(server.to_owned()).or_default() += 1;
        }
        if shares.keys().map(String::as_str).collect::<Vec<_>>().join(" ") == servers {
            let shares: Vec<_> =
                shares.iter().map(|(server, requests)| format!("{requests} by {server}")).collect();
            print_line(format_args!("{event}: 20 requests are answered, {}", shares.join(", ")));
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        None => {}
        Some("--help" | "-h") => {
            print_line(
                "usage: tcp\n\nSends requests of a line protocol to a mesh on loopback, and ends by itself.",
            );
            return ExitCode::SUCCESS;
        }
        Some(unknown) => {
            eprintln!("tcp: unknown argument {unknown}; it takes none");
            return ExitCode::from(2);
        }
    }
    match timeout(CURFEW, play()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => eprintln!("tcp: {error}"),
        Err(_) => eprintln!("tcp: not at its end after {CURFEW:?}"),
    }
    ExitCode::FAILURE
}

const CURFEW: Duration = Duration::from_secs(20);
