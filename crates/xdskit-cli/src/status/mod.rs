//! Requests the status of xDS clients from the client status service (CSDS, gRFC A40).

mod server;
mod show;

use std::{
    io,
    time::{Duration, SystemTime},
};

use clap::Parser;
use futures_util::future::join_all;
use tokio::time::timeout;
use xdskit::pb::envoy::service::status::v3::{ClientConfig, ClientStatusResponse};

use self::server::Server;
use super::{
    args::seconds,
    filter::Filter,
    kind::Kind,
    program::{self, Failure, Program},
    wrap,
};

/// Queries the client status service (CSDS) of xDS clients: Envoy, gRPC's, and this crate's
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "status", after_help = HELP, args_override_self = true)]
pub(crate) struct StatusArgs {
    /// Where the service listens: HOST:PORT
    #[arg(value_name = "ADDR")]
    addrs: Vec<String>,
    /// Connects with TLS, by the roots of the system
    #[arg(long)]
    tls: bool,
    /// How long the answer may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", allow_hyphen_values = true)]
    timeout: Duration,
    /// Shows only resources whose names match: GLOB, or TYPE=GLOB; several if repeated
    #[arg(long = "filter", value_name = "FILTER", allow_hyphen_values = true)]
    filters: Vec<Filter>,
    /// Writes the whole answer, with the resources themselves, as JSON: one client a line
    #[arg(long)]
    json: bool,
}

/// Prints the status of the clients at some servers.
pub(crate) fn run(program: Program, args: &StatusArgs) -> Result<(), Failure> {
    if args.addrs.is_empty() {
        let what = "where the client's status service (CSDS) listens, such as 127.0.0.1:18001";
        return Err(Failure::Usage(format!("ADDR is missing: {what}")));
    }
    let servers = args.addrs.iter().map(|addr| Server::new(addr, args.tls)).collect::<Result<Vec<_>, _>>();
    status(program, args, &servers.map_err(Failure::Usage)?)
}

/// Prints the status of all servers: one that does not respond does not hide the others.
#[tokio::main(flavor = "current_thread")]
async fn status(program: Program, args: &StatusArgs, servers: &[Server]) -> Result<(), Failure> {
    // All at once: the time to wait is that of the slowest server, and not of all together.
    let answers = join_all(servers.iter().map(|server| timeout(args.timeout, server.query(args.json)))).await;
    let mut ended = Ok(());
    let mut is_first = true;
    for (server, answer) in servers.iter().zip(answers) {
        let late = |_| Err(format!("no answer within {:?}", args.timeout));
        match answer.unwrap_or_else(late) {
            Ok(answer) => args.print(server, answer, &mut is_first)?,
            Err(error) => {
                program.complain(&format!("{server}: {error}"));
                ended = Err(Failure::Missing);
            }
        }
    }
    ended
}

impl StatusArgs {
    /// Prints an answer of a server.
    fn print(
        &self,
        server: &Server,
        answer: ClientStatusResponse,
        is_first: &mut bool,
    ) -> Result<(), Failure> {
        if answer.config.is_empty() && !self.json {
            program::print(&format!("No clients at {server}.\n"))?;
        }
        for config in answer.config {
            let config = self.filtered(config);
            if self.json {
                let line =
                    show::json(&config).map_err(|error| Failure::Failed(format!("{server}: {error}")))?;
                program::print(&(line + "\n"))?;
                continue;
            }
            let gap = if *is_first { "" } else { "\n" };
            let text = show::table(&config, &server.to_string(), SystemTime::now());
            // Only errors are wrapped; tables keep their columns.
            let lines = text.lines().map(|line| match line.starts_with('!') {
                true => wrap::for_output(line, &io::stdout()),
                false => line.to_owned(),
            });
            program::print(&format!("{gap}{}\n", lines.collect::<Vec<_>>().join("\n")))?;
            *is_first = false;
        }
        Ok(())
    }

    /// The status of a client without the resources that the command line excludes.
    fn filtered(&self, mut config: ClientConfig) -> ClientConfig {
        config.generic_xds_configs.retain(|resource| {
            let kind = Kind::from_type_url(&resource.type_url);
            Filter::any_passes(&self.filters, kind, &resource.name)
        });
        config
    }
}

const HELP: &str = "\
Prints name, status, version, type and time of the last update of each resource,
and below it the error of the last update.
Exit codes: 0; 1 if a server is not there or does not answer in time, and why; 2 for a bad command line.";
