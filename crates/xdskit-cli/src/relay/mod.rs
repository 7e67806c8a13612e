//! A management server that gets all of its resources from another one: each name once, whatever the number of
//! clients.

mod args;
mod figures;
mod forward;
mod mirror;
mod raw;
mod security;
mod source;
mod tokens;

use std::{env, io, process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    sync::watch,
    time::{Instant, interval, sleep_until},
};
use xdskit::{
    client::ClientBuilder,
    config::{ApiType, Bootstrap, Server},
    error::Escaped,
    tool_support::supervise,
};

pub(crate) use self::args::RelayArgs;
use self::{
    figures::{Complaint, Figures},
    forward::Relay,
    mirror::Mirror,
    security::Security,
};
use super::program::{self, Failure, Program};

/// Runs the example.
pub(super) fn main() -> ExitCode {
    Program::Example("relay").main(env::args_os().skip(1), run)
}

/// Runs the relay until it is interrupted.
pub(super) fn run(program: Program, args: &RelayArgs) -> Result<(), Failure> {
    let bootstrap = match (&args.connect.bootstrap, &args.listen) {
        (Some(_), None) => return Err(no_address()),
        (Some(_) | None, _) => args.connect.bootstrap()?,
    };
    let listen = args.listen.as_deref().ok_or_else(no_address)?;
    relay(program, args, listen, bootstrap)
}

/// The error of a command line without an address.
fn no_address() -> Failure {
    Failure::Usage("--listen ADDR is missing: where clients connect, such as 127.0.0.1:18001".to_owned())
}

/// Starts the relay with a valid command line.
#[tokio::main]
async fn relay(
    program: Program,
    args: &RelayArgs,
    listen: &str,
    bootstrap: Bootstrap,
) -> Result<(), Failure> {
    let bootstrap = Arc::new(bootstrap);
    let client = || program::client(bootstrap.clone()).api_type(args.connect.protocol.into());
    let build = |builder: ClientBuilder| builder.build().map_err(|error| Failure::Failed(error.to_string()));
    let clients = [build(client())?, build(client())?];
    let security = Security::read(&args.security)?;
    let control_plane =
        security.control_plane().limits(args.limits.of_streams()).server_limits(args.limits.of_server());
    let mirror = match has_type_versions(&bootstrap, args.connect.protocol.into()) {
        true => Mirror::with_type_versions(),
        false => Mirror::default(),
    };
    let relay = Relay::new(clients, control_plane, mirror, args.linger);
    let (control_plane, figures) = (relay.control_plane().clone(), relay.figures());
    let server = match security.tls() {
        Some(tls) => control_plane.serve_tls(listen, tls).await,
        None => control_plane.serve(listen).await,
    };
    let server = server.map_err(|error| match error.kind() == io::ErrorKind::InvalidInput {
        true => Failure::Usage(format!("--listen {listen:?}: must be HOST:PORT, such as 127.0.0.1:18001")),
        false => Failure::Failed(format!("{listen}: {error}")),
    })?;
    print(&Figures::listening(server.addr(), args.json)).await?;

    let refresh = security.refresh(args.security.credentials_refresh);
    let refreshing = tokio::spawn(supervise("credentials of the relay", refresh));
    let mut reports = interval(args.report);
    // The first tick is at once, when there is nothing to report.
    reports.tick().await;
    let mut complaints = figures.complaints();
    // Errors come at the rate of clients, and are shown once a second.
    let (mut shown, mut silent_until) = (0, Instant::now());
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
            () = next_complaint(&mut complaints, silent_until) => {
                let complaint = complaints.borrow_and_update().clone();
                program.complain(&Escaped(complaint.since(shown)).to_string());
                (shown, silent_until) = (complaint.number, Instant::now() + COMPLAINT_INTERVAL);
            }
        }
    }
    relaying.abort();
    refreshing.abort();
    print(&figures.report(&control_plane, args.json)).await?;
    server.shutdown().await;
    Ok(())
}

/// Waits for an error of a client to show.
async fn next_complaint(complaints: &mut watch::Receiver<Complaint>, silent_until: Instant) {
    sleep_until(silent_until).await;
    if complaints.changed().await.is_err() {
        // The figures are gone, and so is the relay.
        std::future::pending::<()>().await;
    }
}

/// Whether all resources are from one server of the state-of-the-world variant, so that a type has a version.
fn has_type_versions(bootstrap: &Bootstrap, api_type: ApiType) -> bool {
    let is_sotw = |server: &Arc<Server>| !server.api_type.unwrap_or(api_type).is_delta();
    let mut servers = bootstrap.servers();
    let only = servers.next().is_some_and(is_sotw) && servers.next().is_none();
    only && bootstrap.authorities().is_empty() && bootstrap.default_authority().is_none()
}

/// Prints a line at once.
async fn print(line: &str) -> io::Result<()> {
    let mut stdout = tokio::io::stdout();
    stdout.write_all(line.as_bytes()).await?;
    stdout.write_all(b"\n").await?;
    stdout.flush().await
}

/// The minimum time between two complaints on standard error.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use xdskit::config::Node;

    use super::*;

    #[test]
    fn cp14_only_a_single_server_of_the_state_of_the_world_has_versions_of_types() {
        let server = || Server::new("http://127.0.0.1:1");
        let bootstrap = || Bootstrap::builder().node(Node::new("relay")).server(server());
        let built = |builder: xdskit::config::BootstrapBuilder| builder.build().unwrap();
        let one = built(bootstrap());
        assert!(has_type_versions(&one, ApiType::AggregatedGrpc));
        assert!(!has_type_versions(&one, ApiType::AggregatedDeltaGrpc));
        let two = built(bootstrap().server(Server::new("http://127.0.0.1:2")));
        assert!(!has_type_versions(&two, ApiType::AggregatedGrpc));
    }
}
