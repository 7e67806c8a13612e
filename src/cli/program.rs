//! What `watch` and `walk` share: their command line, how they begin and end, and how they write.

use std::{
    env,
    fmt::Display,
    io::{self, ErrorKind, IsTerminal, Write},
    process::{self, ExitCode},
    str::FromStr,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tokio::sync::Notify;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::args::{Args, Invocation};
use crate::{Client, config::Bootstrap};

/// A program for the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    /// What a target is called, if there must be one.
    pub(crate) needs: Option<&'static str>,
    /// Whether `--header` means something.
    pub(crate) takes_headers: bool,
}

/// The end of a program, which can be wanted while nobody reads what it prints.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<Notify>);

impl Program {
    /// Reads the command line and the bootstrap, and runs. The exit code is 2 if one of these is bad.
    pub(crate) fn main<T: FromStr<Err: Display>>(
        &self,
        run: impl FnOnce(&Args<T>, Bootstrap) -> io::Result<()>,
    ) -> ExitCode {
        let args = match self.parse() {
            Ok(Invocation::Run(args)) => args,
            Ok(Invocation::Help) => {
                print!("{}", self.usage);
                return ExitCode::SUCCESS;
            }
            Err(error) => return self.refuse(format_args!("{error}\n{} --help tells more", self.name)),
        };
        // What a bootstrap has to say beside errors is logged.
        log_to_stderr();
        let bootstrap = match Bootstrap::from_file(&args.bootstrap) {
            Ok(bootstrap) => bootstrap,
            Err(error) => return self.refuse(error),
        };
        match run(&args, bootstrap) {
            Ok(()) => ExitCode::SUCCESS,
            // Whoever was reading has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", self.name);
                ExitCode::FAILURE
            }
        }
    }

    fn parse<T: FromStr<Err: Display>>(&self) -> Result<Invocation<T>, String> {
        let invocation = Invocation::parse(env::args_os().skip(1))?;
        match (&invocation, self.needs) {
            (Invocation::Run(args), _) if !self.takes_headers && !args.headers.is_empty() => {
                Err("unknown option --header".to_owned())
            }
            (Invocation::Run(args), Some(target)) if args.targets.is_empty() => {
                Err(format!("{target} is missing"))
            }
            (Invocation::Run(_) | Invocation::Help, _) => Ok(invocation),
        }
    }

    /// Bad arguments or a bad bootstrap.
    fn refuse(&self, error: impl Display) -> ExitCode {
        eprintln!("{}: {error}", self.name);
        ExitCode::from(2)
    }
}

impl Stop {
    /// Is wanted when the user interrupts the program.
    pub(crate) fn on_interrupt() -> Self {
        let stop = Self(Arc::default());
        let wanted = stop.clone();
        let mut interrupt = Box::pin(tokio::signal::ctrl_c());
        // It listens from the first poll on, which must not be later than the first line that is printed.
        let first = interrupt.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        tokio::spawn(async move {
            let interrupted = match first {
                Poll::Ready(interrupted) => interrupted,
                Poll::Pending => interrupt.await,
            };
            if interrupted.is_ok() {
                wanted.want();
            }
        });
        stop
    }

    /// Ends the program. What it is just printing has a moment to be read.
    pub(crate) fn want(&self) {
        self.0.notify_one();
        thread::spawn(|| {
            thread::sleep(GRACE);
            process::exit(0);
        });
    }

    /// Waits until the end is wanted.
    pub(crate) async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// The client that the command line asks for.
pub(crate) fn client<T>(args: &Args<T>, bootstrap: Bootstrap) -> io::Result<Client> {
    let mut builder = Client::builder(bootstrap).api_type(args.api_type);
    if let Some(timeout) = args.resource_timeout {
        builder = builder.resource_timeout(timeout);
    }
    builder.build().map_err(io::Error::other)
}

/// Prints, so that it is read at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
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
