//! Makes calls through a channel, as commands on standard input request them, or one call of the command line.

mod command;
mod outcome;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use xdskit::Target;

pub use self::{
    command::{Call, Command},
    outcome::{Outcome, Outcomes},
};
pub use super::codec::RawCodec;
use super::{args::Connect, program::Failure};

/// Makes calls through a channel: one call of the command line, or as many as commands on standard input request.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "call", after_help = HELP, args_override_self = true)]
pub struct CallArgs {
    /// The management server.
    #[command(flatten)]
    pub connect: Connect,
    /// xds:///name, or xds://authority/name
    #[arg(long, value_name = "TARGET", allow_hyphen_values = true)]
    pub target: String,
    /// The authority of requests, in place of the target's name
    #[arg(long, value_name = "HOST", value_parser = authority, allow_hyphen_values = true)]
    pub authority: Option<String>,
    /// The security of connections to endpoints
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Credentials::Insecure)]
    pub credentials: Credentials,
    /// The time limit of the call of the command line [default: 20]
    #[arg(long, value_name = "SECONDS", value_parser = super::args::seconds, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// The method of one call, such as /helloworld.Greeter/SayHello; without it, commands are read from standard input
    #[arg(value_name = "METHOD")]
    method: Option<String>,
    /// The message of the call, as bytes
    #[arg(value_name = "BODY")]
    body: Option<String>,
}

/// The security of connections to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Credentials {
    /// Plaintext
    Insecure,
    /// The security of the clusters, with plaintext where a cluster has none
    Xds,
}

const HELP: &str = "\
A command is a JSON object on a line; commands run concurrently:
  {\"id\":\"a\",\"method\":\"/pkg.Service/Method\",\"headers\":{\"k\":\"v\"},\"body\":\"text\",\"timeout\":1.5,
   \"wait_for_ready\":true,\"count\":100,\"parallel\":10}
`id` and `method` are required. {\"id\":\"s\",\"status\":true} shows what the channel is doing.
{\"id\":\"q\",\"quit\":true} ends the program; the end of the input ends it after outstanding calls. Each finished command is answered by a JSON object on a line of standard output.";

impl CallArgs {
    /// Checks what the parser leaves open, and returns the call of the command line; `None` if there are commands in place of it.
    ///
    /// # Errors
    /// The command line cannot be used, whatever the bootstrap has.
    pub fn check(&self) -> Result<Option<Call>, Failure> {
        Target::new(self.target.as_str()).check()?;
        let Some(method) = &self.method else { return Ok(None) };
        let call = Call {
            method: method.clone(),
            body: self.body.clone().unwrap_or_default(),
            timeout: Some(self.timeout.unwrap_or(DEFAULT_TIMEOUT).as_secs_f64()),
            count: 1,
            parallel: 1,
            ..Call::default()
        };
        call.check().map_err(Failure::Usage)?;
        Ok(Some(call))
    }
}

/// Parses the authority of requests.
fn authority(text: &str) -> Result<String, String> {
    match text.parse::<http::uri::Authority>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The time limit of the call of the command line.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);
