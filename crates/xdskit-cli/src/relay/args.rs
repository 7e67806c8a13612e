//! The command line of the relay.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, ValueHint};
use xdskit::control_plane::{ServerLimits, session::Limits};

use crate::{
    args::{Connect, seconds},
    program::Failure,
};

/// Serves many clients from one subscription
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "relay", after_help = HELP, args_override_self = true)]
pub struct RelayArgs {
    /// The upstream server.
    #[command(flatten)]
    pub connect: Connect,
    /// Where clients connect, such as 127.0.0.1:18001; port 0 is any that is free
    #[arg(long, value_name = "ADDR", allow_hyphen_values = true)]
    pub listen: Option<String>,
    /// How often figures are printed
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", allow_hyphen_values = true)]
    pub report: Duration,
    /// Time for which a name stays subscribed after the last client unsubscribes
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30", allow_hyphen_values = true)]
    pub linger: Duration,
    /// Prints figures as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// What clients may use.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// How clients are known.
    #[command(flatten)]
    pub security: SecurityArgs,
}

/// How clients are known.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Security of the listener")]
pub struct SecurityArgs {
    /// The certificates of the relay (PEM), for TLS with its clients
    #[arg(long, value_name = "PATH", requires = "tls_key", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the first certificate (PEM)
    #[arg(long, value_name = "PATH", requires = "tls_certificate", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Authorities (PEM), one of which has to have issued the certificate of each client
    #[arg(long, value_name = "PATH", requires = "tls_certificate", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub client_ca: Option<PathBuf>,
    /// Tokens, one a line, one of which each client has to send in authorization: Bearer
    #[arg(long, value_name = "PATH", requires = "tls_certificate", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// How often these files are read again
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", allow_hyphen_values = true)]
    pub credentials_refresh: Duration,
}

/// What clients may use.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Limits of clients")]
pub struct LimitArgs {
    /// The largest request, in bytes
    #[arg(long, value_name = "BYTES", value_parser = positive, default_value = "16777216", allow_hyphen_values = true)]
    pub max_request_size: usize,
    /// The most names on a stream, of all types together
    #[arg(long, value_name = "NUMBER", value_parser = positive, default_value = "100000", allow_hyphen_values = true)]
    pub max_names: usize,
    /// The most initial versions of a type in a request of the incremental variant
    #[arg(long, value_name = "NUMBER", value_parser = positive, default_value = "1000000", allow_hyphen_values = true)]
    pub max_initial_versions: usize,
    /// The most different names that all clients together subscribe to
    #[arg(long, value_name = "NUMBER", value_parser = positive, default_value = "1000000", allow_hyphen_values = true)]
    pub max_total_names: usize,
    /// The longest name, in bytes
    #[arg(long, value_name = "BYTES", value_parser = positive, default_value = "4096", allow_hyphen_values = true)]
    pub max_name_length: usize,
    /// The most resource types on a stream
    #[arg(long, value_name = "NUMBER", value_parser = positive, default_value = "100", allow_hyphen_values = true)]
    pub max_types: usize,
    /// The largest node of a client, in bytes
    #[arg(long, value_name = "BYTES", value_parser = positive, default_value = "1048576", allow_hyphen_values = true)]
    pub max_node_size: usize,
    /// The most streams on a connection
    #[arg(long, value_name = "NUMBER", value_parser = streams, default_value = "100", allow_hyphen_values = true)]
    pub max_streams: u32,
    /// The most connections
    #[arg(long, value_name = "NUMBER", value_parser = positive, default_value = "10000", allow_hyphen_values = true)]
    pub max_connections: usize,
    /// Time after which a connection without streams is closed
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300", allow_hyphen_values = true)]
    pub idle_timeout: Duration,
}

impl RelayArgs {
    /// The address where clients connect.
    ///
    /// # Errors
    /// There is none, or it is not of the form HOST:PORT.
    pub fn listen(&self) -> Result<&str, Failure> {
        let Some(listen) = self.listen.as_deref() else {
            let what = "--listen ADDR is missing: where clients connect, such as 127.0.0.1:18001";
            return Err(Failure::Usage(what.to_owned()));
        };
        let has_port = listen.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match has_port {
            true => Ok(listen),
            false => Err(Failure::Usage(format!(
                "--listen {listen:?}: must be HOST:PORT, such as 127.0.0.1:18001"
            ))),
        }
    }
}

impl LimitArgs {
    /// The limits of a stream.
    pub fn of_streams(&self) -> Limits {
        let Self { max_names, max_initial_versions, max_name_length, max_types, max_node_size, .. } = *self;
        let mut limits = Limits::default();
        limits.max_names = max_names;
        limits.max_initial_versions = max_initial_versions;
        limits.max_name_length = max_name_length;
        limits.max_types = max_types;
        limits.max_node_size = max_node_size;
        limits
    }

    /// The limits of requests and connections.
    pub fn of_server(&self) -> ServerLimits {
        let Self { max_request_size, max_total_names, max_connections, idle_timeout, .. } = *self;
        let mut limits = ServerLimits::default();
        limits.max_request_size = max_request_size;
        limits.max_total_names = max_total_names;
        limits.max_streams_per_connection = self.max_streams;
        limits.max_connections = max_connections;
        limits.idle_timeout = idle_timeout;
        limits
    }
}

/// Parses a number over 0.
fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "must be a whole number over 0".to_owned())
}

/// Parses a number of streams over 0.
fn streams(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "must be a whole number over 0".to_owned())
}

const HELP: &str = "\
Subscribes once to each name that clients subscribe to, at the management server of the bootstrap, and forwards the resources
of any type unchanged. It serves ADS and the services of single types, in both variants of the protocol.

It runs until it is interrupted (Ctrl-C), and prints figures again at the end. Rejections by clients are written to the standard
error. Exit codes: 0; 1 for failures; 2 for a bad command line or bootstrap.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_a_control_plane_by_default() {
        let RelayArgs { limits, .. } = RelayArgs::parse_from(["relay"]);
        assert_eq!((limits.of_streams(), limits.of_server()), (Limits::default(), ServerLimits::default()));
        let line = "relay --max-request-size 1 --max-names 2 --max-total-names 3 --max-name-length 4 --max-types 5 \
                    --max-node-size 6 --max-initial-versions 10 --max-streams 7 --max-connections 8 --idle-timeout 9";
        let RelayArgs { limits, .. } = RelayArgs::parse_from(line.split_whitespace());
        let Limits { max_names, max_initial_versions, max_name_length, max_types, max_node_size, .. } =
            limits.of_streams();
        let of_streams = [max_names, max_initial_versions, max_name_length, max_types, max_node_size];
        assert_eq!(of_streams, [2, 10, 4, 5, 6]);
        let ServerLimits {
            max_request_size,
            max_total_names,
            max_streams_per_connection,
            max_connections,
            idle_timeout,
            ..
        } = limits.of_server();
        assert_eq!([max_request_size, max_total_names, max_connections], [1, 3, 8]);
        assert_eq!((max_streams_per_connection, idle_timeout), (7, Duration::from_secs(9)));
    }
}
