//! How the tool and its examples begin and end, and how they write.

use std::{
    env,
    ffi::OsString,
    fmt::{self, Display},
    io::{self, ErrorKind, IsTerminal, Write},
    process::{self, ExitCode},
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use clap::Parser;
use tokio::sync::Notify;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::{
    args::{Connect, Look},
    usage, wrap,
};
use crate::{Client, client::Validation, config::Bootstrap};

/// A command as its user calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The tool itself, or one of its subcommands.
    Tool(Option<&'static str>),
    /// An example. It takes what has always been taken, though there may be a better way to write it.
    Example(&'static str),
}

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the bootstrap is wrong: what to write instead.
    Usage(String),
    /// Something cannot be done.
    Failed(String),
    /// Something is missing, which the output has.
    Missing,
    Io(io::Error),
}

/// The end of a program, which can be wanted while nobody reads what it prints.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<Notify>);

impl Program {
    /// Reads the command line, without the name of the program, and runs the command.
    pub(crate) fn main<T: Parser>(
        self,
        args: impl IntoIterator<Item = OsString>,
        run: impl FnOnce(Self, &T) -> Result<(), Failure>,
    ) -> ExitCode {
        match self.parse(args) {
            Ok(Some(args)) => self.end(run(self, &args)),
            Ok(None) => ExitCode::SUCCESS,
            Err(failure) => self.end(Err(failure)),
        }
    }

    /// Reads a command line without the name of the program; `None` if it asks for help, which is printed then.
    pub(crate) fn parse<T: Parser>(
        self,
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<T>, Failure> {
        let name = OsString::from(match self {
            Self::Tool(_) => "xdskit",
            Self::Example(name) => name,
        });
        let error = match T::try_parse_from([name].into_iter().chain(args)) {
            Ok(args) => return Ok(Some(args)),
            Err(error) => error,
        };
        if error.use_stderr() {
            return Err(Failure::Usage(format!("{}\n{self} --help has the rest", usage::explain(&error))));
        }
        print(&error.to_string())?;
        Ok(None)
    }

    /// Prints why a command ended early, and says it by the exit code.
    pub(crate) fn end(self, ended: Result<(), Failure>) -> ExitCode {
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            // Whoever was reading has seen enough.
            Err(Failure::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(Failure::Io(error)) => {
                self.complain(&error.to_string());
                ExitCode::FAILURE
            }
            Err(Failure::Failed(error)) => {
                self.complain(&error);
                ExitCode::FAILURE
            }
            Err(Failure::Missing) => ExitCode::FAILURE,
            Err(Failure::Usage(error)) => {
                self.complain(&error);
                ExitCode::from(2)
            }
        }
    }

    /// Writes an error for people.
    pub(crate) fn complain(self, error: &str) {
        note(&format!("{self}: {error}"));
    }

    /// Whether what an example has always taken is refused if there is a better way to write it.
    pub(crate) fn is_strict(self) -> bool {
        match self {
            Self::Tool(_) => true,
            Self::Example(_) => false,
        }
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(None) => f.write_str("xdskit"),
            Self::Tool(Some(subcommand)) => write!(f, "xdskit {subcommand}"),
            Self::Example(name) => f.write_str(name),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
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

impl Connect {
    /// That of the command line, or that of the environment.
    pub(crate) fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let read = match &self.bootstrap {
            Some(path) => Bootstrap::from_file(path),
            None if VARIABLES.into_iter().any(is_set) => Bootstrap::from_env(),
            None => {
                let [file, text] = VARIABLES;
                return Err(Failure::Usage(format!(
                    "--bootstrap PATH is missing, and the environment has neither {file} (the name of a file) nor \
                     {text} (JSON)\n{MINIMAL}"
                )));
            }
        };
        read.map_err(|error| match error.errors() {
            [] => Failure::Usage(error.to_string()),
            [..] => Failure::Usage(format!("{error}\n{MINIMAL}")),
        })
    }
}

impl Look {
    /// The client that the command line asks for.
    pub(crate) fn client(&self, bootstrap: Bootstrap, validation: Validation) -> Result<Client, Failure> {
        let mut builder =
            Client::builder(bootstrap).api_type(self.connect.protocol.into()).validation(validation);
        if let Some(timeout) = self.resource_timeout {
            builder = builder.resource_timeout(timeout);
        }
        builder.build().map_err(|error| Failure::Failed(error.to_string()))
    }
}

/// Prints, so that it is read at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a line in an example that goes on to its end, whether or not somebody reads it.
pub fn say(line: impl Display) {
    let _ = print(&format!("{line}\n"));
}

/// Writes lines on the standard error. If nobody reads them, that is no reason to end.
pub(crate) fn note(lines: &str) {
    let _ = writeln!(io::stderr(), "{}", wrap::for_output(lines, &io::stderr()));
}

pub(crate) fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .init();
}

/// How long a line may take to be printed that nobody reads, when the program shall end.
const GRACE: Duration = Duration::from_secs(1);

/// That of a file, and that of JSON.
const VARIABLES: [&str; 2] = ["GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"];

/// What to write instead of no bootstrap, or half of one.
const MINIMAL: &str = "a bootstrap has at least {\"xds_servers\": [{\"server_uri\": \"127.0.0.1:18000\", \
                       \"channel_creds\": [{\"type\": \"insecure\"}]}]}, or {\"type\": \"tls\"}";
