//! Prints what a management server sends, on each change, for people or as JSON.
//!
//! ```console
//! $ cargo run --example watch -- --bootstrap bootstrap.json 'listener=*' cluster=shop
//! ```
//!
//! `--help` tells the rest. Watches can be added and ended on the standard input while it runs.

mod args;
mod observe;
#[path = "../paint/mod.rs"]
mod paint;
mod print;

use std::{
    collections::HashMap,
    env,
    fmt::Display,
    io::{self, BufRead, ErrorKind, IsTerminal, Write},
    process::{self, ExitCode},
    sync::Arc,
    thread,
    time::Duration,
};

use futures_util::{
    StreamExt,
    stream::{AbortHandle, Abortable, BoxStream, SelectAll},
};
use tokio::sync::{Notify, mpsc};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use xdskit::{Client, config::Bootstrap};

use args::{Args, Command, Invocation, Target, USAGE};
use paint::Paint;
use print::Printer;

fn main() -> ExitCode {
    let args = match Invocation::parse(env::args_os().skip(1)) {
        Ok(Invocation::Run(args)) => args,
        Ok(Invocation::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return refuse(format_args!("{error}\nwatch --help tells more")),
    };
    let bootstrap = match Bootstrap::from_file(&args.bootstrap) {
        Ok(bootstrap) => bootstrap,
        Err(error) => return refuse(error),
    };
    log_to_stderr();
    match run(&args, bootstrap) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever was reading has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watch: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Bad arguments or a bad bootstrap.
fn refuse(error: impl Display) -> ExitCode {
    eprintln!("watch: {error}");
    ExitCode::from(2)
}

/// The client works on the runtime's thread. This one looks and prints: if nobody reads what it prints, the client is not
/// held up, and states that nobody saw are skipped.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn run(args: &Args, bootstrap: Bootstrap) -> io::Result<()> {
    let mut builder = Client::builder(bootstrap);
    if let Some(timeout) = args.resource_timeout {
        builder = builder.resource_timeout(timeout);
    }
    let client = builder.build().map_err(io::Error::other)?;
    let printer = if args.json { Printer::Json } else { Printer::Text(Paint::for_output(&io::stdout())) };
    let mut watches = Watches { client, printer, handles: HashMap::new(), lines: SelectAll::new() };
    for target in &args.targets {
        watches.watch(target);
    }

    let stop = Arc::new(Notify::new());
    tokio::spawn(stop_on_interrupt(stop.clone()));
    let mut commands = read_commands(stop.clone());
    loop {
        tokio::select! {
            biased;
            () = stop.notified() => return Ok(()),
            Some(command) = commands.recv() => match command {
                Command::Watch(target) => watches.watch(&target),
                Command::Unwatch(target) => watches.unwatch(&target),
                Command::Quit => return Ok(()),
            },
            Some(lines) = watches.lines.next(), if !watches.lines.is_empty() => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines.as_bytes())?;
                stdout.flush()?;
            }
        }
    }
}

/// What is watched, and what is to be printed about it.
struct Watches {
    client: Client,
    printer: Printer,
    handles: HashMap<Target, AbortHandle>,
    lines: SelectAll<Abortable<BoxStream<'static, String>>>,
}

impl Watches {
    /// Does nothing if it is watched already.
    fn watch(&mut self, target: &Target) {
        if self.handles.contains_key(target) {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(target.clone(), handle);
        let lines = observe::observe(&self.client, target, self.printer);
        self.lines.push(Abortable::new(lines, registration));
    }

    fn unwatch(&mut self, target: &Target) {
        if let Some(handle) = self.handles.remove(target) {
            handle.abort();
        }
    }
}

/// Reads the commands on the standard input, and says on stderr what is wrong with them. The end of the input is not the
/// end of the program.
fn read_commands(stop: Arc<Notify>) -> mpsc::UnboundedReceiver<Command> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // A thread of its own, since reading cannot be cancelled: it ends with the process.
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let command = line.map_err(|error| format!("the standard input cannot be read: {error}"));
            match command.and_then(|line| Command::parse(&line)) {
                Ok(Some(Command::Quit)) => {
                    stop.notify_one();
                    thread::sleep(GRACE);
                    process::exit(0);
                }
                Ok(Some(command)) => {
                    let _ = sender.send(command); // It fails only at the end of the program.
                }
                Ok(None) => {}
                Err(error) => eprintln!("watch: {error}"),
            }
        }
    });
    receiver
}

async fn stop_on_interrupt(stop: Arc<Notify>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.notify_one();
        tokio::time::sleep(GRACE).await;
        process::exit(0);
    }
}

fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// How long a line may take to be printed that nobody reads, when the program shall end.
const GRACE: Duration = Duration::from_secs(1);
