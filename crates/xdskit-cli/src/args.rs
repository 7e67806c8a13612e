//! The flags that several subcommands have in common, and their values.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use xdskit::config::ApiType;

/// Which management server, and how to talk to it.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Connect {
    /// A bootstrap, in gRPC's format or in Envoy's. Without it, that of the environment is read: the file in
    /// GRPC_XDS_BOOTSTRAP, or the JSON in GRPC_XDS_BOOTSTRAP_CONFIG
    #[arg(long, value_name = "PATH", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub bootstrap: Option<PathBuf>,
    /// The variant of the protocol where the bootstrap names none: state of the world, or incremental
    #[arg(long, value_name = "VARIANT", value_enum, default_value_t = Protocol::Sotw, allow_hyphen_values = true)]
    pub protocol: Protocol,
}

/// What `watch` and `walk` share.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Look {
    /// The management server.
    #[command(flatten)]
    pub connect: Connect,
    /// How long a server may take before a resource counts as non-existent [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub resource_timeout: Option<Duration>,
    /// Writes one JSON object a line instead of text for people
    #[arg(long)]
    pub json: bool,
    /// Prints the first complete state of all targets and ends: with exit code 0, or 1 if something is missing
    #[arg(long)]
    pub once: bool,
}

/// A variant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Sotw,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Delta,
}

/// A header of requests: NAME=VALUE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

impl From<Protocol> for ApiType {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Sotw => Self::AggregatedGrpc,
            Protocol::Delta => Self::AggregatedDeltaGrpc,
        }
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self { name: name.into(), value: value.into() }),
            Some(_) | None => Err("must be NAME=VALUE".to_owned()),
        }
    }
}

/// Parses a duration in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "must be a number of seconds over 0, such as 2.5".to_owned())
}

/// The maximum in seconds; some 30 years, so that adding it to a time cannot overflow.
const LONGEST: f64 = 1e9;
