//! Prints the resources that a management server sends, on each change, as text or as JSON.
//!
//! ```console
//! $ cargo run --example watch -- --bootstrap bootstrap.json 'listener=*' cluster=shop
//! ```
//!
//! `--help` prints the options. `xdskit watch` is this code. All that is done with xdskit is in this file; the command line, the
//! commands on standard input and the output are those of `xdskit_cli`.

use std::{collections::HashMap, env, future::ready, process::ExitCode, sync::Arc};

use futures_util::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::{AbortHandle, Abortable, BoxStream, SelectAll},
};
use serde::Serialize;
use serde_json::Value;
use xdskit::{
    Client, Observed, Resource, Watch, WatchAll,
    channel::ComputeEngineCredentials,
    client::{MemberChange, Validation},
    config::Bootstrap,
    resource::{
        AnyMessage, Cluster, ClusterLoadAssignment, Inspected, Listener, RouteConfiguration, Runtime,
        ScopedRouteConfiguration, Secret, VirtualHost,
    },
    transport::credentials::CredentialsRegistry,
};
use xdskit_cli::{
    kind::Kind,
    program::{self, Failure, Program, Stop},
    watch::{
        Command, Content, Decoder, Form, Lines, Present, Printer, Target, TargetType, WatchArgs,
        read_commands,
    },
};

fn main() -> ExitCode {
    Program::Example("watch").main(env::args_os().skip(1), run)
}

/// Prints the watched resources, once or until the program is interrupted.
pub(crate) fn run(program: Program, args: &WatchArgs) -> Result<(), Failure> {
    // An error of the command line comes before one of the bootstrap.
    args.check(program)?;
    let decoder = Decoder::read(&args.targets)?;
    program::log_to_stderr();
    let bootstrap = match &args.look.connect.bootstrap {
        Some(path) => Bootstrap::from_file(path)?, // in gRPC's format or in Envoy's
        None => Bootstrap::from_env()?,            // GRPC_XDS_BOOTSTRAP, or GRPC_XDS_BOOTSTRAP_CONFIG
    };
    watch(program, args, decoder, bootstrap)
}

/// The client runs on the thread of the runtime, and printing on this one: slow output does not delay the client, but
/// skips states.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn watch(
    program: Program,
    args: &WatchArgs,
    decoder: Decoder,
    bootstrap: Bootstrap,
) -> Result<(), Failure> {
    let mut watches = Watches::new(client(args, bootstrap)?, args, decoder);
    let stop = Stop::on_interrupt();
    if args.look.once {
        return tokio::select! {
            biased;
            () = stop.requested() => Err(Failure::Missing),
            ended = watches.once(program, &args.targets.list) => ended,
        };
    }
    for target in &args.targets.list {
        watches.watch(target);
    }
    let mut commands = read_commands(program, args, stop.clone());
    loop {
        tokio::select! {
            // An interrupt comes first, and then commands, even while states change all the time.
            biased;
            () = stop.requested() => return Ok(()),
            Some(command) = commands.recv() => match command {
                Command::Watch(target) => watches.watch(&target),
                Command::Unwatch(target) => watches.unwatch(&target),
                Command::Quit => return Ok(()),
            },
            Some(lines) = watches.lines.next(), if !watches.lines.is_empty() => lines.print()?,
        }
    }
}

/// A client of the management servers in the bootstrap.
fn client(args: &WatchArgs, bootstrap: Bootstrap) -> Result<Client, Failure> {
    // `google_compute_engine` among the `call_creds` of a bootstrap: tokens of the metadata server of a virtual machine.
    let google = ComputeEngineCredentials::default();
    let credentials = CredentialsRegistry::default().with_call("google_compute_engine", google);
    let validation = match args.form() {
        Form::Typed => Validation::Grpc, // resources that a gRPC client could not use are rejected
        Form::Observed | Form::Raw => Validation::Observe, // and here they are accepted, too
    };
    let mut builder = Client::builder(bootstrap)
        .credentials(credentials)
        .api_type(args.look.connect.protocol.into())
        .validation(validation);
    if let Some(timeout) = args.look.resource_timeout {
        builder = builder.resource_timeout(timeout);
    }
    Ok(builder.build()?)
}

/// The watches, and their pending output.
struct Watches {
    /// The client of all watches.
    client: Client,
    /// The form of the output.
    output: Output,
    /// The watches by target.
    handles: HashMap<Target, AbortHandle>,
    /// The output of all of them.
    lines: SelectAll<Abortable<BoxStream<'static, Lines>>>,
}

/// What is printed of a resource.
#[derive(Clone)]
struct Output {
    form: Form,
    printer: Printer,
    args: Arc<WatchArgs>,
    decoder: Arc<Decoder>,
}

/// The first complete state of a target.
#[derive(Default)]
struct FirstState {
    lines: Vec<Lines>,
    /// Whether a resource is missing.
    missing: bool,
}

impl Watches {
    fn new(client: Client, args: &WatchArgs, decoder: Decoder) -> Self {
        let output = Output {
            form: args.form(),
            printer: Printer::new(args),
            args: Arc::new(args.clone()),
            decoder: Arc::new(decoder),
        };
        Self { client, output, handles: HashMap::new(), lines: SelectAll::new() }
    }

    /// Begins a watch, unless it exists already. The client subscribes to its resources.
    fn watch(&mut self, target: &Target) {
        if self.handles.contains_key(target) {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(target.clone(), handle);
        let lines = (Watching::of(&target.ty).changes)(&self.client, target.clone(), self.output.clone());
        self.lines.push(Abortable::new(lines, registration));
    }

    /// Ends the watch of a target. The client unsubscribes when it is dropped.
    fn unwatch(&mut self, target: &Target) {
        if let Some(handle) = self.handles.remove(target) {
            handle.abort();
        }
    }

    /// Prints the first complete state of all targets, in their order.
    async fn once(&self, program: Program, targets: &[Target]) -> Result<(), Failure> {
        let first = |target: &Target| {
            (Watching::of(&target.ty).first)(self.client.clone(), target.clone(), self.output.clone())
        };
        let states = join_all(targets.iter().map(first)).await;
        let mut missing = false;
        for (target, state) in targets.iter().zip(states) {
            missing |= state.missing || state.lines.is_empty();
            if state.lines.is_empty() {
                program.complain(&format!("{target}: nothing matches"));
            }
            for lines in state.lines {
                lines.print()?;
            }
        }
        if missing { Err(Failure::Missing) } else { Ok(()) }
    }
}

/// The functions that watch one type. The type of a target is known at run time alone, and each has functions of its own.
struct Watching {
    /// The output of each state, until the stream is dropped.
    changes: fn(&Client, Target, Output) -> BoxStream<'static, Lines>,
    /// The output of the first complete state.
    first: fn(Client, Target, Output) -> BoxFuture<'static, FirstState>,
}

impl Watching {
    fn of(ty: &TargetType) -> Self {
        let kind = match ty {
            TargetType::Kind(kind) => *kind,
            TargetType::Url(_) => return Self::of_any_type(),
        };
        match kind {
            Kind::Listener => Self::of_type::<Listener>(),
            Kind::Route => Self::of_type::<RouteConfiguration>(),
            Kind::Cluster => Self::of_type::<Cluster>(),
            Kind::Endpoints => Self::of_type::<ClusterLoadAssignment>(),
            Kind::ScopedRoute => Self::of_type::<ScopedRouteConfiguration>(),
            Kind::VirtualHost => Self::of_type::<VirtualHost>(),
            Kind::Secret => Self::of_type::<Secret>(),
            Kind::Runtime => Self::of_type::<Runtime>(),
        }
    }

    fn of_type<T: Resource + Serialize>() -> Self {
        Self {
            changes: |client, target, output| match output.form {
                Form::Typed => changes(watched::<T>(client, &target), target, output, typed),
                Form::Observed | Form::Raw => {
                    changes(watched::<Inspected<T>>(client, &target), target, output, inspected)
                }
            },
            first: |client, target, output| match output.form {
                Form::Typed => Box::pin(first(watched::<T>(&client, &target), target, output, typed)),
                Form::Observed | Form::Raw => {
                    Box::pin(first(watched::<Inspected<T>>(&client, &target), target, output, inspected))
                }
            },
        }
    }

    /// The messages as they were sent, of a type that the client does not know.
    fn of_any_type() -> Self {
        Self {
            changes: |client, target, output| changes(watched_any(client, &target), target, output, decoded),
            first: |client, target, output| {
                Box::pin(first(watched_any(&client, &target), target, output, decoded))
            },
        }
    }
}

/// A watch, which subscribes to its resources.
enum Watched<R: Resource> {
    One(Watch<R>),
    /// All resources of the type, or the members of a collection.
    Many(WatchAll<R>),
}

fn watched<R: Resource>(client: &Client, target: &Target) -> Watched<R> {
    match target.is_many() {
        true => Watched::Many(client.watch_all(target.subscribed())),
        false => Watched::One(client.watch(target.subscribed())),
    }
}

fn watched_any(client: &Client, target: &Target) -> Watched<AnyMessage> {
    let type_url = target.ty.to_string();
    match target.is_many() {
        true => Watched::Many(client.watch_all_any(&type_url, target.subscribed())),
        false => Watched::One(client.watch_any(&type_url, target.subscribed())),
    }
}

/// Converts a resource to its output.
type ContentOf<R, T> = for<'a> fn(&'a R, &Output) -> Content<'a, T>;

/// The output of each state. `R` is the type of the watch, and `T` is what is printed of it.
fn changes<R: Resource, T: Serialize + 'static>(
    watched: Watched<R>,
    target: Target,
    output: Output,
    content: ContentOf<R, T>,
) -> BoxStream<'static, Lines> {
    match watched {
        // A stream of what has changed.
        Watched::Many(all) => {
            let lines = move |change: MemberChange<R>| match change.of_collection {
                // The state of a collection as a whole has the name of the target.
                true => output.lines(&target, &target.name, &change.observed, content),
                false if !output.shows(&target, &change.name) => None,
                false => output.lines(&target, &change.name, &change.observed, content),
            };
            all.changes().filter_map(move |change| ready(lines(change))).boxed()
        }
        // A stream of its latest states.
        Watched::One(states) => {
            let is_shown = output.shows(&target, target.subscribed());
            let lines = move |state: &Observed<R>| output.lines(&target, &target.name, state, content);
            states.filter_map(move |state| ready(lines(&state).filter(|_| is_shown))).boxed()
        }
    }
}

/// The output of the first complete state.
async fn first<R: Resource, T: Serialize>(
    watched: Watched<R>,
    target: Target,
    output: Output,
    content: ContentOf<R, T>,
) -> FirstState {
    let name = target.subscribed();
    let mut first = FirstState::default();
    let mut all = match watched {
        Watched::Many(all) => all,
        Watched::One(mut one) => {
            let state = one.wait_for(|state| !state.is_pending()).await;
            if let Some(state) = state.filter(|_| output.shows(&target, name)) {
                first.missing = state.is_absent();
                first.lines.extend(output.lines(&target, &target.name, &state, content));
            }
            return first;
        }
    };
    let known = all.wait_for(|members| members.is_complete() || members.absence().is_some());
    let Some(members) = known.await else { return first };
    if let Some(reason) = members.absence() {
        first.missing = true;
        first.lines.push(output.printer.absent(&target, &target.name, &reason));
    }
    for (name, state) in members.iter().filter(|(name, _)| output.shows(&target, name)) {
        first.missing |= state.is_absent();
        first.lines.extend(output.lines(&target, name, state, content));
    }
    first
}

impl Output {
    /// Whether a resource is printed.
    fn shows(&self, target: &Target, name: &str) -> bool {
        target.matches(name) && self.args.shows(&target.ty, name)
    }

    /// The output of a state; `None` while it is unknown.
    fn lines<R, T: Serialize>(
        &self,
        target: &Target,
        name: &str,
        state: &Observed<R>,
        content: ContentOf<R, T>,
    ) -> Option<Lines> {
        match state {
            // The last known good resource, and the reason why it may be stale, if there is one.
            Observed::Present { resource, version, warning, .. } => {
                let content = content(resource, self);
                let present = Present { name, version, content, warning: warning.as_ref() };
                Some(self.printer.present(target, present))
            }
            Observed::Absent { reason, .. } => Some(self.printer.absent(target, name, reason)),
            Observed::Pending | _ => None,
        }
    }
}

/// The content of a resource that gRPC's rules accept.
fn typed<'a, T>(resource: &'a T, _: &Output) -> Content<'a, T> {
    Content::typed(resource)
}

/// The content of a resource, whether the rules accept it or not.
fn inspected<'a, T: Resource>(resource: &'a Inspected<T>, output: &Output) -> Content<'a, T> {
    let typed = resource.typed();
    match output.form {
        Form::Typed | Form::Observed => Content::observed(typed.map(|typed| &**typed)),
        Form::Raw => Content::raw(resource.to_json(), typed.err()),
    }
}

/// The content of a message as JSON.
fn decoded<'a>(message: &'a AnyMessage, output: &Output) -> Content<'a, Value> {
    output.decoder.content(message)
}
