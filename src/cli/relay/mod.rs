//! A management server that gets all of its resources from another one: each name once, whatever the number of
//! clients.

mod args;
mod figures;
mod forward;
mod mirror;
mod raw;
mod source;

use std::{env, io, process::ExitCode, sync::Arc};

use tokio::{io::AsyncWriteExt, time::interval};

pub(crate) use self::args::RelayArgs;
use self::{figures::Figures, forward::Relay};
use super::program::{Failure, Program};
use crate::{Client, client::ClientBuilder, config::Bootstrap, error::Escaped};

pub(super) fn main() -> ExitCode {
    Program::Example("relay").main(env::args_os().skip(1), run)
}

pub(super) fn run(program: Program, args: &RelayArgs) -> Result<(), Failure> {
    let bootstrap = match (&args.connect.bootstrap, &args.listen) {
        (Some(_), None) => return Err(no_address()),
        (Some(_) | None, _) => args.connect.bootstrap()?,
    };
    let listen = args.listen.as_deref().ok_or_else(no_address)?;
    relay(program, (args, listen), bootstrap)
}

fn no_address() -> Failure {
    Failure::Usage("--listen ADDR is missing: where clients connect, such as 127.0.0.1:18001".to_owned())
}

#[tokio::main]
async fn relay(
    program: Program,
    (args, listen): (&RelayArgs, &str),
    bootstrap: Bootstrap,
) -> Result<(), Failure> {
    let bootstrap = Arc::new(bootstrap);
    let client = || Client::builder(bootstrap.clone()).api_type(args.connect.protocol.into());
    let build = |builder: ClientBuilder| builder.build().map_err(|error| Failure::Failed(error.to_string()));
    let clients = [build(client())?, build(client())?];
    let relay = Relay::new(clients, args.linger);
    let (control_plane, figures) = (relay.control_plane().clone(), relay.figures());
    let server =
        control_plane.serve(listen).await.map_err(|error| Failure::Failed(format!("{listen}: {error}")))?;
    print(&Figures::listening(server.addr(), args.json)).await?;

    let mut reports = interval(args.report);
    reports.tick().await;
    let mut complaints = figures.complaints();
    let mut relaying = tokio::spawn(relay.run());
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
            ended = &mut relaying => {
                let reason = ended.err().map_or_else(|| "its clients have ended".to_owned(), |e| e.to_string());
                return Err(Failure::Failed(format!("the relay has ended: {reason}")));
            }
            _ = reports.tick() => print(&figures.report(&control_plane, args.json)).await?,
            Ok(()) = complaints.changed() => {
                if let Some(complaint) = complaints.borrow_and_update().as_deref() {
                    program.complain(&Escaped(complaint).to_string());
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
