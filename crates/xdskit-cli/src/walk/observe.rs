//! `walk --observe`: the configuration of proxies as trees, one for each listener.

mod output;
mod state;
mod watches;

use futures_util::{FutureExt, StreamExt};
use xdskit::{
    Client, channel::ComputeEngineCredentials, client::Validation, config::Bootstrap,
    transport::credentials::CredentialsRegistry,
};

use self::{
    output::Output,
    state::{ObservedMesh, Selection},
    watches::Watches,
};
use super::{Resizes, WalkArgs};
use crate::{
    kind::Kind,
    program::{Failure, Stop},
    watch::Target,
};

/// Rejects a command line that no bootstrap makes right.
pub(super) fn check(args: &WalkArgs) -> Result<(), Failure> {
    if !args.headers.is_empty() {
        let why = "it selects one of several scopes, and --observe draws all of them";
        return Err(Failure::Usage(format!("--header cannot be used with --observe: {why}")));
    }
    args.targets.iter().try_for_each(|target| match is_of_client(target) {
        true => Ok(xdskit::Target::new(target.as_str()).check()?),
        false => of_name(target).map(drop),
    })
}

/// Draws the listeners of the command line as a proxy would have them, once or until the program is interrupted.
///
/// # Errors
/// A target cannot be used with this bootstrap, the client cannot be built, or with `--once` something is missing.
pub fn observe(args: &WalkArgs, bootstrap: Bootstrap) -> Result<(), Failure> {
    let all = ["*".to_owned()];
    let targets = if args.targets.is_empty() { &all } else { &*args.targets };
    let selections = targets.iter().map(|target| {
        let listeners = listeners(target, &bootstrap)?;
        Ok(Selection::new(target, listeners))
    });
    let selections = selections.collect::<Result<_, Failure>>()?;
    draw(args, bootstrap, ObservedMesh::new(selections))
}

/// The listener of a client's target, or those of a name or a glob.
fn listeners(target: &str, bootstrap: &Bootstrap) -> Result<Target, Failure> {
    if is_of_client(target) {
        let name = bootstrap.listener_name(target)?;
        return Ok(Target::named(Kind::Listener, &name.to_string()));
    }
    of_name(target)
}

/// Whether a target is one that clients resolve, and not the name of a listener.
fn is_of_client(target: &str) -> bool {
    target.starts_with("xds:")
}

/// The listeners of a name or a glob.
fn of_name(name: &str) -> Result<Target, Failure> {
    format!("{}={name}", Kind::Listener.as_str()).parse().map_err(Failure::Usage)
}

/// The client runs on the thread of the runtime, and printing on this one, as without `--observe`.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn draw(args: &WalkArgs, bootstrap: Bootstrap, mut state: ObservedMesh) -> Result<(), Failure> {
    let client = client(args, bootstrap)?;
    let mut output = Output::new(&args.look);
    let mut watches = Watches::new(client, state.selections());
    let stop = Stop::on_interrupt();
    let mut resizes = Resizes::new(output.is_drawn())?;
    loop {
        tokio::select! {
            biased;
            () = stop.requested() => return if args.look.once { Err(Failure::Missing) } else { Ok(()) },
            () = resizes.next() => output.redraw()?,
            Some(first) = watches.updates.next() => {
                first(&mut state);
                // What is there already is drawn at once.
                for _ in 1..BATCH {
                    let Some(Some(update)) = watches.updates.next().now_or_never() else { break };
                    update(&mut state);
                }
                watches.follow(&mut state);
                if !args.look.once {
                    output.show(&mut state)?;
                } else if state.is_settled() {
                    output.show(&mut state)?;
                    return if state.is_incomplete() { Err(Failure::Missing) } else { Ok(()) };
                }
            }
        }
    }
}

/// A client that accepts what gRPC's rules reject.
fn client(args: &WalkArgs, bootstrap: Bootstrap) -> Result<Client, Failure> {
    let google = ComputeEngineCredentials::default();
    let mut builder = Client::builder(bootstrap)
        .credentials(CredentialsRegistry::default().with_call("google_compute_engine", google))
        .api_type(args.look.connect.protocol.into())
        .validation(Validation::Observe);
    if let Some(timeout) = args.look.resource_timeout {
        builder = builder.resource_timeout(timeout);
    }
    Ok(builder.build()?)
}

/// The maximum number of changes between two drawings, so that an interrupt is not held up.
const BATCH: usize = 4096;
