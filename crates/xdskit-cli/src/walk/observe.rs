//! `walk --observe`: the configuration of proxies as trees, one for each listener.

mod output;
mod state;
mod watches;

use futures_util::{FutureExt, StreamExt};
use xdskit::{client::Validation, config::Bootstrap};

use self::{
    output::Output,
    state::{ObservedMesh, Selection},
    watches::Watches,
};
use super::{Resizes, WalkArgs};
use crate::{
    kind::Kind,
    program::{Failure, Stop},
    watch::target::Target,
};

/// Rejects a command line that no bootstrap makes right.
pub(super) fn check(args: &WalkArgs) -> Result<(), Failure> {
    if !args.headers.is_empty() {
        let why = "it selects one of several scopes, and --observe draws all of them";
        return Err(Failure::Usage(format!("--header cannot be used with --observe: {why}")));
    }
    args.targets.iter().try_for_each(|target| match is_of_client(target) {
        true => {
            xdskit::Target::new(target.as_str()).check().map_err(|error| Failure::Usage(error.to_string()))
        }
        false => of_name(target).map(drop),
    })
}

/// Draws all listeners as a proxy would have them.
pub(super) fn run(args: &WalkArgs, bootstrap: Bootstrap) -> Result<(), Failure> {
    let all = ["*".to_owned()];
    let targets = if args.targets.is_empty() { &all } else { &*args.targets };
    let selections = targets.iter().map(|target| {
        let listeners = listeners(target, &bootstrap)?;
        Ok(Selection::new(target, listeners))
    });
    let selections = selections.collect::<Result<_, Failure>>()?;
    observe(args, bootstrap, ObservedMesh::new(selections))
}

/// The listener of a client's target, or those of a name or a glob.
fn listeners(target: &str, bootstrap: &Bootstrap) -> Result<Target, Failure> {
    if is_of_client(target) {
        let name = bootstrap.listener_name(target);
        let name = name.map_err(|error| Failure::Usage(error.to_string()))?;
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
async fn observe(args: &WalkArgs, bootstrap: Bootstrap, mut state: ObservedMesh) -> Result<(), Failure> {
    let client = args.look.client(bootstrap, Validation::Observe)?;
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

/// The maximum number of changes between two drawings, so that an interrupt is not held up.
const BATCH: usize = 4096;
