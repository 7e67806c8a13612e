use std::time::Duration;

use clap::Parser;

use crate::cli::args::{Connect, seconds};

/// Serves many clients from one subscription
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "relay", after_help = HELP, args_override_self = true)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Where clients connect, such as 127.0.0.1:18001; port 0 is any that is free
    #[arg(long, value_name = "ADDR", allow_hyphen_values = true)]
    pub(crate) listen: Option<String>,
    /// How often figures are printed
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", allow_hyphen_values = true)]
    pub(crate) report: Duration,
    /// Time for which a name stays subscribed after the last client unsubscribes
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30", allow_hyphen_values = true)]
    pub(crate) linger: Duration,
    /// Prints figures as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Subscribes once to each name that clients subscribe to, at the management server of the bootstrap, and forwards the resources
unchanged. It serves ADS and the services of single types, in both variants of the protocol.

It runs until it is interrupted (Ctrl-C), and prints figures again at the end. Rejections by clients are written to the standard
error. Exit codes: 0; 1 for failures; 2 for a bad command line or bootstrap.";
