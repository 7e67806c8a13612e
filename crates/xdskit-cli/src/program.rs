//! The start, the end and the output of the tool and its examples.

use std::{
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
    bootstrap::{BootstrapError, Origin},
    channel::ChannelError,
    client::BuildError,
    config::TargetError,
};

use super::{usage, wrap};

/// A command as it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The tool itself, or one of its subcommands.
    Tool(Option<&'static str>),
    /// An example. It continues to accept arguments for which there is a better form.
    Example(&'static str),
}

/// The reason why a command ends early.
#[derive(Debug)]
pub enum Failure {
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
pub struct Stop(Arc<Notify>);

impl Program {
    /// Reads the command line, without the name of the program, and runs the command.
    pub fn main<T: Parser>(
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
    pub fn parse<T: Parser>(self, args: impl IntoIterator<Item = OsString>) -> Result<Option<T>, Failure> {
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
    pub fn end(self, ended: Result<(), Failure>) -> ExitCode {
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
    pub fn complain(self, error: &str) {
        note(&format!("{self}: {error}"));
    }

    /// Whether arguments with a better form are rejected, which an example still accepts.
    pub fn is_strict(self) -> bool {
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

/// The command line lacks a bootstrap, or that is invalid.
impl From<BootstrapError> for Failure {
    fn from(error: BootstrapError) -> Self {
        Self::Usage(match (error.origin(), error.errors()) {
            (Origin::Environment, _) => {
                let [file, text] = VARIABLES;
                format!(
                    "--bootstrap PATH is missing, and the environment has neither {file} (the name of a file) nor \
                     {text} (JSON)\n{MINIMAL}"
                )
            }
            (_, []) => error.to_string(),
            (_, [..]) if error.is_of_envoys_format() => format!("{error}\n{ENVOYS_FORMAT}"),
            (_, [..]) => format!("{error}\n{MINIMAL}"),
        })
    }
}

/// A target can never be resolved; contains a correction if there is an obvious one.
impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let TargetError::Invalid { target, .. } = &error else { return Self::Usage(error.to_string()) };
        let name = target.split_once("://").map_or(&**target, |(_, name)| name).trim_start_matches('/');
        let name = name.strip_prefix("xds:").unwrap_or(name);
        Self::Usage(format!("{error}; write xds:///{}", if name.is_empty() { "shop" } else { name }))
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The command line does not fit the bootstrap.
impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl Stop {
    /// A request by an interrupt of the user.
    pub fn on_interrupt() -> Self {
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
    pub fn request(&self) {
        self.0.notify_one();
        // A thread of its own, since a write that nobody reads may block the runtime with its timers.
        thread::spawn(|| {
            thread::sleep(GRACE);
            process::exit(0);
        });
    }

    /// Waits until the end is requested.
    pub async fn requested(&self) {
        self.0.notified().await;
    }
}

/// Prints, and flushes the output.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes lines to standard error, ignoring errors.
pub fn note(lines: &str) {
    let _ = writeln!(io::stderr(), "{}", wrap::for_output(lines, &io::stderr()));
}

/// Logs to standard error: warnings, unless `RUST_LOG` asks for more.
pub fn log_to_stderr() {
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
