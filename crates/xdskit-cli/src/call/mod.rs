//! Makes calls through a channel, as commands on standard input request them, or one call of the command line.

mod command;
mod outcome;

use std::{env, process::ExitCode, time::Duration};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    task::JoinSet,
};
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Channel, Target,
    channel::{FallbackCredentials, WaitForReady},
};

use self::{
    command::{Call, Command},
    outcome::{Outcome, Outcomes},
};
use super::{
    args::Connect,
    codec::RawCodec,
    json::printable,
    program::{self, Failure, Program},
};

/// Makes calls through a channel: one call of the command line, or as many as commands on standard input request.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "call", after_help = HELP, args_override_self = true)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    connect: Connect,
    /// xds:///name, or xds://authority/name
    #[arg(long, value_name = "TARGET", allow_hyphen_values = true)]
    target: String,
    /// The authority of requests, in place of the target's name
    #[arg(long, value_name = "HOST", allow_hyphen_values = true)]
    authority: Option<String>,
    /// The security of connections to endpoints
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Credentials::Insecure)]
    credentials: Credentials,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Credentials {
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

/// Runs the example.
pub(super) fn main() -> ExitCode {
    Program::Example("call").main(env::args_os().skip(1), run)
}

/// Makes the calls of the command line, or those of standard input until its end.
fn run(_: Program, args: &CallArgs) -> Result<(), Failure> {
    // Before the bootstrap, which may be missing.
    Target::new(args.target.as_str()).check().map_err(|error| Failure::Usage(error.to_string()))?;
    program::log_to_stderr();
    let bootstrap = args.connect.bootstrap()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let client = program::client(bootstrap).api_type(args.connect.protocol.into()).build();
        let client = client.map_err(|error| Failure::Failed(error.to_string()))?;
        let builder = client.channel(args.target.as_str());
        let builder = match args.credentials {
            Credentials::Insecure => builder.insecure_credentials(),
            Credentials::Xds => builder.xds_credentials(FallbackCredentials::Plaintext),
        };
        let builder = match &args.authority {
            Some(authority) => builder.authority(authority),
            None => builder,
        };
        let channel = builder.build().map_err(|error| Failure::Usage(error.to_string()))?;
        match &args.method {
            Some(method) => one_call(&channel, method, args).await,
            None => commands(&channel).await,
        }
    });
    // Reading standard input cannot be cancelled.
    runtime.shutdown_background();
    ended
}

/// The call of the command line, for people.
async fn one_call(channel: &Channel, method: &str, args: &CallArgs) -> Result<(), Failure> {
    let call = Call {
        method: method.to_owned(),
        body: args.body.clone().unwrap_or_default(),
        timeout: Some(args.timeout.unwrap_or(DEFAULT_TIMEOUT).as_secs_f64()),
        count: 1,
        parallel: 1,
        ..Call::default()
    };
    call.check().map_err(Failure::Usage)?;
    let outcome = make(channel, &call).await;
    program::print(&outcome.text())?;
    if outcome.is_ok() { Ok(()) } else { Err(Failure::Missing) }
}

/// Executes commands until the input ends.
async fn commands(channel: &Channel) -> Result<(), Failure> {
    // Commands run beside each other, so that one that waits for an endpoint does not hold up the next line.
    let mut lines = BufReader::new(stdin()).lines();
    let (mut running, mut number) = (JoinSet::new(), 0);
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let Some(line) = line? else { break };
                number += 1;
                if line.trim().is_empty() {
                    continue;
                }
                match Command::parse(&line) {
                    Ok(Command::Quit) => return Ok(()),
                    Ok(Command::Status(id)) => {
                        let channel = channel.clone();
                        running.spawn(async move { printable(json!({"id": id, "status": channel.status().await}).to_string()) });
                    }
                    Ok(Command::Call(call)) => {
                        let channel = channel.clone();
                        running.spawn(async move { execute(&channel, *call).await });
                    }
                    Err((id, reason)) => {
                        let message = format!("line {number}: {reason}");
                        let answer = json!({"id": id, "code": "INVALID_ARGUMENT", "message": message});
                        program::print(&format!("{}\n", printable(answer.to_string())))?;
                    }
                }
            }
            // Without running commands there is no answer, and the pattern disables this branch.
            Some(answer) = running.join_next() => write(answer)?,
        }
    }
    while let Some(answer) = running.join_next().await {
        write(answer)?;
    }
    Ok(())
}

/// Writes an answer as a line.
fn write(answer: Result<String, tokio::task::JoinError>) -> Result<(), Failure> {
    let answer = answer.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(program::print(&format!("{answer}\n"))?)
}

/// Makes the calls of a command.
async fn execute(channel: &Channel, call: Call) -> String {
    if call.count == 1 {
        return make(channel, &call).await.json(&call.id);
    }
    let calls = stream::iter(0..call.count).map(|_| make(channel, &call)).buffer_unordered(call.parallel);
    let outcomes = calls.fold(Outcomes::default(), async |mut all, outcome| {
        all.add(&outcome);
        all
    });
    outcomes.await.json(&call.id)
}

/// Makes a call and measures it.
async fn make(channel: &Channel, call: &Call) -> Outcome {
    let begin = tokio::time::Instant::now();
    let mut outcome = attempt(channel, call).await.unwrap_or_else(|status| Outcome::failed(&status));
    outcome.set_duration(begin.elapsed());
    outcome
}

/// Makes a call; an error is the status that it ended with.
async fn attempt(channel: &Channel, call: &Call) -> Result<Outcome, Status> {
    let mut request = Request::new(Bytes::from(call.body.clone()));
    call.add_headers(request.metadata_mut())?;
    if let Some(timeout) = call.timeout() {
        request.set_timeout(timeout);
    }
    if let Some(wait) = call.wait_for_ready {
        request.extensions_mut().insert(WaitForReady(wait));
    }
    let path = PathAndQuery::try_from(call.method.as_str())
        .map_err(|error| Status::invalid_argument(format!("method {:?}: {error}", call.method)))?;
    // As a stream with one message: of a unary call, tonic merges headers and trailers.
    let response = Grpc::new(channel.clone()).server_streaming(request, path, RawCodec).await?;
    let (headers, mut messages, _) = response.into_parts();
    let body = messages.message().await?;
    let trailers = messages.trailers().await?.unwrap_or_default();
    match body {
        Some(body) => Ok(Outcome::answered(&body, &headers, &trailers)),
        None => Err(Status::internal("the response has no message")),
    }
}

/// The time limit of the call of the command line.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);
