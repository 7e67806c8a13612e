//! The start, the end and the output of the tool and its examples.

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
use xdskit::{
    Client,
    channel::ComputeEngineCredentials,
    client::{ClientBuilder, Validation},
    config::Bootstrap,
    transport::credentials::CredentialsRegistry,
};

use super::{
    args::{Connect, Look},
    usage, wrap,
};

/// A command as it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The tool itself, or one of its subcommands.
    Tool(Option<&'static str>),
    /// An example. It continues to accept arguments for which there is a better form.
    Example(&'static str),
}

/// The reason why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the bootstrap is invalid; contains a correction.
    Usage(String),
    /// An operation failed.
    Failed(String),
    /// A resource is missing, which the output contains.
    Missing,
    /// Standard output, or a local resource, has failed.
    Io(io::Error),
}

/// A request to end the program, which also takes effect while its output is not being read.
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

    /// Parses a command line without the name of the program; `None` if it requests help, which is printed.
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
        // For clap, help and version are errors, too, that are for the standard output.
        if error.use_stderr() {
            return Err(Failure::Usage(format!("{}\n{self} --help has the rest", usage::explain(&error))));
        }
        print(&error.to_string())?;
        Ok(None)
    }

    /// Prints the reason why a command ended early, and returns its exit code.
    pub(crate) fn end(self, ended: Result<(), Failure>) -> ExitCode {
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of the output has closed it.
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

    /// Writes an error to standard error.
    pub(crate) fn complain(self, error: &str) {
        note(&format!("{self}: {error}"));
    }

    /// Whether arguments with a better form are rejected, which an example still accepts.
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
    /// A request by an interrupt of the user.
    pub(crate) fn on_interrupt() -> Self {
        let stop = Self(Arc::default());
        let requested = stop.clone();
        let mut interrupt = Box::pin(tokio::signal::ctrl_c());
        // It must be polled once before the first line is printed, since it listens from the first poll on.
        let first = interrupt.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        tokio::spawn(async move {
            let interrupted = match first {
                Poll::Ready(interrupted) => interrupted,
                Poll::Pending => interrupt.await,
            };
            if interrupted.is_ok() {
                requested.request();
            }
        });
        stop
    }

    /// Requests the end of the program. Output in progress has a moment to be read.
    pub(crate) fn request(&self) {
        self.0.notify_one();
        // A thread of its own, since a write that nobody reads may block the runtime with its timers.
        thread::spawn(|| {
            thread::sleep(GRACE);
            process::exit(0);
        });
    }

    /// Waits until the end is requested.
    pub(crate) async fn requested(&self) {
        self.0.notified().await;
    }
}

impl Connect {
    /// The bootstrap of the command line, or that of the environment.
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
            [..] if error.is_of_envoys_format() => Failure::Usage(format!("{error}\n{ENVOYS_FORMAT}")),
            [..] => Failure::Usage(format!("{error}\n{MINIMAL}")),
        })
    }
}

impl Look {
    /// The client with the settings of the command line.
    pub(crate) fn client(&self, bootstrap: Bootstrap, validation: Validation) -> Result<Client, Failure> {
        let mut builder = client(bootstrap).api_type(self.connect.protocol.into()).validation(validation);
        if let Some(timeout) = self.resource_timeout {
            builder = builder.resource_timeout(timeout);
        }
        builder.build().map_err(|error| Failure::Failed(error.to_string()))
    }
}

/// A builder of a client with the credentials that the tool has.
pub(crate) fn client(bootstrap: impl Into<Arc<Bootstrap>>) -> ClientBuilder {
    let google = ComputeEngineCredentials::default();
    Client::builder(bootstrap)
        .credentials(CredentialsRegistry::default().with_call("google_compute_engine", google))
}

/// Prints, and flushes the output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a line in an example, ignoring errors.
pub fn print_line(line: impl Display) {
    let _ = print(&format!("{line}\n"));
}

/// Writes lines to standard error, ignoring errors.
pub(crate) fn note(lines: &str) {
    let _ = writeln!(io::stderr(), "{}", wrap::for_output(lines, &io::stderr()));
}

/// Logs to standard error: warnings, unless `RUST_LOG` asks for more.
pub(crate) fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .init();
}

/// The grace period for output in progress when the program is to end.
const GRACE: Duration = Duration::from_secs(1);

/// The variables for a file and for JSON.
const VARIABLES: [&str; 2] = ["GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"];

/// The correction of a bootstrap in Envoy's format.
const ENVOYS_FORMAT: &str = "in Envoy's format, dynamic_resources name a cluster of static_resources by grpc_services, \
                             and docs/BOOTSTRAP.md has an example and the supported fields";

/// The correction for a missing or incomplete bootstrap.
const MINIMAL: &str = "a bootstrap has at least {\"xds_servers\": [{\"server_uri\": \"127.0.0.1:18000\", \
                       \"channel_creds\": [{\"type\": \"insecure\"}]}]}, or {\"type\": \"tls\"}";
