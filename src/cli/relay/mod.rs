//! A management server that gets all it serves from another one: each name once, however many clients want it.

mod args;
mod figures;
mod raw;
mod relay;
mod source;
mod stock;

use std::{env, io, process::ExitCode, sync::Arc};

use tokio::{io::AsyncWriteExt, time::interval};

use self::{
    args::{Args, USAGE},
    figures::Figures,
    relay::Relay,
};
use crate::{Client, config::Bootstrap, error::Escaped};

#[tokio::main]
pub(super) async fn main() -> ExitCode {
    let args = match Args::parse(env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("relay: {error}\nrelay --help tells more");
            return ExitCode::from(2);
        }
    };
    let bootstrap = match Bootstrap::from_file(&args.bootstrap) {
        Ok(bootstrap) => bootstrap,
        Err(error) => {
            eprintln!("relay: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&args, bootstrap).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args, bootstrap: Bootstrap) -> io::Result<()> {
    let bootstrap = Arc::new(bootstrap);
    let client = || Client::builder(bootstrap.clone()).api_type(args.api_type).build();
    let clients = [client().map_err(io::Error::other)?, client().map_err(io::Error::other)?];
    let relay = Relay::new(clients, args.linger);
    let (control_plane, figures) = (relay.control_plane().clone(), relay.figures());
    let server = control_plane.serve(&*args.listen).await?;
    print(&Figures::listening(server.addr(), args.json)).await?;

    let mut reports = interval(args.report);
    reports.tick().await;
    let mut complaints = figures.complaints();
    let relaying = tokio::spawn(relay.run());
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
            _ = reports.tick() => print(&figures.report(&control_plane, args.json)).await?,
            Ok(()) = complaints.changed() => {
                if let Some(complaint) = complaints.borrow_and_update().as_deref() {
                    eprintln!("relay: {}", Escaped(complaint));
                }
            }
        }
    }
    relaying.abort();
    print(&figures.report(&control_plane, args.json)).await?;
    server.shutdown().await;
    Ok(())
}

async fn print(line: &str) -> io::Result<()> {
    let mut stdout = tokio::io::stdout();
    stdout.write_all(line.as_bytes()).await?;
    stdout.write_all(b"\n").await?;
    stdout.flush().await
}
