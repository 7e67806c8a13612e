//! Echo servers for the calls: `backend COUNT` prints their addresses and serves until its standard input ends.

#[path = "../../calls/echo.rs"]
#[allow(dead_code, reason = "this is no client")]
mod echo;

use std::{error::Error, io, net::Ipv4Addr, thread};

use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).ok_or("usage: backend COUNT")?.parse()?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(format!("{:?}", listener.local_addr()?.to_string()));
        tokio::spawn(echo::serve(listener));
    }
    println!(r#"{{"event":"listening","addresses":[{}]}}"#, addresses.join(","));
    thread::spawn(|| {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        std::process::exit(0);
    });
    std::future::pending().await
}
