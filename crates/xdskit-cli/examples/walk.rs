//! Resolves targets to listeners, routes, clusters and endpoints, and prints each change, as trees or as JSON.
//!
//! ```console
//! $ cargo run --example walk -- --bootstrap bootstrap.json xds:///shop xds:///payments
//! ```
//!
//! `--help` prints the options. `xdskit walk` is this code. All that is done with xdskit is in this file; the command line, the
//! output and the trees of proxies (`--observe`) are those of `xdskit_cli`.

use std::{env, process::ExitCode};

use futures_util::{FutureExt, StreamExt, future::join_all, stream};
use xdskit::{
    Client, Resolution, Target, channel::ComputeEngineCredentials, config::Bootstrap, resolve::ClusterView,
    transport::credentials::CredentialsRegistry,
};
use xdskit_cli::{
    program::{self, Failure, Program, Stop},
    walk::{Output, Resizes, WalkArgs, observe},
};

fn main() -> ExitCode {
    Program::Example("walk").main(env::args_os().skip(1), run)
}

/// Shows the targets, once or until the program is interrupted.
pub(crate) fn run(program: Program, args: &WalkArgs) -> Result<(), Failure> {
    // An error of the command line comes before one of the bootstrap.
    args.check(program)?;
    program::log_to_stderr();
    let bootstrap = match &args.look.connect.bootstrap {
        Some(path) => Bootstrap::from_file(path)?, // in gRPC's format or in Envoy's
        None => Bootstrap::from_env()?,            // GRPC_XDS_BOOTSTRAP, or GRPC_XDS_BOOTSTRAP_CONFIG
    };
    if args.observe {
        return observe(args, bootstrap);
    }
    if program.is_strict() {
        // The name of the listener is not needed here: a target whose authority is not in the bootstrap is an error.
        args.targets.iter().try_for_each(|target| bootstrap.listener_name(target).map(drop))?;
    }
    walk(args, bootstrap)
}

/// The client runs on the thread of the runtime, and printing on this one: slow output does not delay the client, but
/// skips states.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn walk(args: &WalkArgs, bootstrap: Bootstrap) -> Result<(), Failure> {
    let client = client(args, bootstrap)?;
    // Each resolution is a stream of the latest trees of its target, and subscribes to what the target leads to while it is kept.
    let resolutions: Vec<_> =
        args.targets.iter().map(|target| client.resolve(with_headers(target, args))).collect();

    let mut output = Output::new(args);
    let stop = Stop::on_interrupt();
    if args.look.once {
        return tokio::select! {
            // An interrupt comes first, even if the output is ready.
            biased;
            () = stop.requested() => Err(Failure::Missing),
            ended = once(resolutions, output) => ended,
        };
    }
    let numbered = resolutions.into_iter().enumerate();
    let mut seen = stream::select_all(numbered.map(|(index, one)| one.map(move |seen| (index, seen))));
    let mut resizes = Resizes::new(output.is_drawn())?;
    loop {
        tokio::select! {
            // An interrupt comes first, even while states change all the time.
            biased;
            () = stop.requested() => return Ok(()),
            () = resizes.next() => output.redraw()?,
            // A state is a `Result`: a snapshot, whose parts may have warnings, or the reason why there is none.
            Some((index, first)) = seen.next() => {
                output.show(index, first)?;
                // All targets that are resolved already are drawn at once.
                for _ in 1..args.targets.len() {
                    let Some(Some((index, next))) = seen.next().now_or_never() else { break };
                    output.show(index, next)?;
                }
                output.flush()?;
            }
        }
    }
}

/// A client of the management servers in the bootstrap.
fn client(args: &WalkArgs, bootstrap: Bootstrap) -> Result<Client, Failure> {
    // `google_compute_engine` among the `call_creds` of a bootstrap: tokens of the metadata server of a virtual machine.
    let google = ComputeEngineCredentials::default();
    let credentials = CredentialsRegistry::default().with_call("google_compute_engine", google);
    let mut builder =
        Client::builder(bootstrap).credentials(credentials).api_type(args.look.connect.protocol.into());
    if let Some(timeout) = args.look.resource_timeout {
        builder = builder.resource_timeout(timeout);
    }
    Ok(builder.build()?)
}

/// A target with the headers of its requests, by which a listener with scoped routes selects its routes.
fn with_headers(target: &str, args: &WalkArgs) -> Target {
    let headers = args.headers.iter();
    headers.fold(Target::new(target), |target, header| {
        target.with_header(header.name.as_str(), header.value.as_str())
    })
}

/// Prints the first tree of each target, in their order.
async fn once(resolutions: Vec<Resolution>, mut output: Output) -> Result<(), Failure> {
    let first = resolutions.into_iter().map(|mut resolution| async move { resolution.next().await });
    let mut missing = false;
    for (index, seen) in join_all(first).await.into_iter().enumerate() {
        // A resolution ends with its client alone.
        let Some(seen) = seen else { return Err(Failure::Missing) };
        missing |= seen.as_ref().map_or(true, |snapshot| snapshot.clusters().any(is_incomplete));
        output.show(index, seen)?;
    }
    output.flush()?;
    if missing { Err(Failure::Missing) } else { Ok(()) }
}

/// Whether calls of a cluster would fail: it is unusable, or known to be without endpoints.
fn is_incomplete(cluster: ClusterView<'_>) -> bool {
    let is_empty = || cluster.usable_endpoints_of_all_priorities().next().is_none();
    cluster.unusable_reason().is_some() || cluster.assignment().is_some() && is_empty()
}
