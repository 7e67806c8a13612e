//! A management server that gets all of its resources from another one: each name once, whatever the number of
//! clients.
//!
//! ```console
//! $ cargo run --example mesh
//! $ cargo run --example relay -- --bootstrap examples/mesh/bootstrap.json --listen 127.0.0.1:18001
//! ```
//!
//! `--help` prints the options. `xdskit relay` is this code: the clients of the upstream server, and the control plane. Which
//! resources are passed on, the credentials of the listener and the figures are in `xdskit_cli`.

use std::{env, io, process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    sync::watch,
    time::{Instant, interval, sleep_until},
};
use xdskit::{
    Client, channel::ComputeEngineCredentials, client::BuildError, config::Bootstrap,
    control_plane::ControlPlane, error::Escaped, transport::credentials::CredentialsRegistry,
};
use xdskit_cli::{
    program::{self, Failure, Program},
    relay::{Complaint, Figures, Mirror, Relay, RelayArgs, Security},
};

fn main() -> ExitCode {
    Program::Example("relay").main(env::args_os().skip(1), run)
}

/// Runs the relay until it is interrupted.
pub(crate) fn run(program: Program, args: &RelayArgs) -> Result<(), Failure> {
    // An error of the command line comes before one of the bootstrap.
    let listen = args.listen()?;
    program::log_to_stderr();
    let bootstrap = match &args.connect.bootstrap {
        Some(path) => Bootstrap::from_file(path)?, // in gRPC's format or in Envoy's
        None => Bootstrap::from_env()?,            // GRPC_XDS_BOOTSTRAP, or GRPC_XDS_BOOTSTRAP_CONFIG
    };
    relay(program, args, listen, bootstrap)
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
    // Two clients have separate streams, for names and for collections: on a shared one, a resource for a name would look like a member
    // of the wildcard, too.
    let clients = [client(args, &bootstrap)?, client(args, &bootstrap)?];
    let security = Security::read(&args.security)?;
    let mut control_plane =
        ControlPlane::builder().limits(args.limits.of_streams()).server_limits(args.limits.of_server());
    if let Some(tokens) = security.tokens() {
        control_plane = control_plane.authorize(move |headers| tokens.check(headers));
    }
    let mirror = Mirror::of_servers(&bootstrap, args.connect.protocol.into());
    let relay = Relay::new(clients, control_plane, mirror, args.linger);
    let (control_plane, figures) = (relay.control_plane().clone(), relay.figures());
    let server = match security.tls() {
        Some(tls) => control_plane.serve_tls(listen, tls).await,
        None => control_plane.serve(listen).await,
    };
    let server = server.map_err(|error| Failure::Failed(format!("{listen}: {error}")))?;
    print(&Figures::listening(server.addr(), args.json)).await?;

    let refreshing = security.spawn_refresh();
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

/// A client of the upstream servers in the bootstrap.
fn client(args: &RelayArgs, bootstrap: &Arc<Bootstrap>) -> Result<Client, BuildError> {
    // `google_compute_engine` among the `call_creds` of a bootstrap: tokens of the metadata server of a virtual machine.
    let google = ComputeEngineCredentials::default();
    let credentials = CredentialsRegistry::default().with_call("google_compute_engine", google);
    Client::builder(bootstrap.clone()).credentials(credentials).api_type(args.connect.protocol.into()).build()
}

/// Waits for an error of a client to show.
async fn next_complaint(complaints: &mut watch::Receiver<Complaint>, silent_until: Instant) {
    sleep_until(silent_until).await;
    if complaints.changed().await.is_err() {
        // The figures are gone, and so is the relay.
        std::future::pending::<()>().await;
    }
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
