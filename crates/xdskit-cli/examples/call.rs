//! Makes calls through a channel: one of the command line, or those that JSON commands on standard input request.
//!
//! ```console
//! $ cargo run --example call -- --bootstrap bootstrap.json --target xds:///shop /shop.Cart/Get hello
//! $ cargo run --example call -- --bootstrap bootstrap.json --target xds:///shop < commands
//! ```
//!
//! `--help` prints the options and the form of commands. `xdskit call` is this code. All that is done with xdskit is in this file;
//! the command line, the commands and the form of their answers are those of `xdskit_cli`.
//!
//! An application has the client that tonic generates of its service, `ShopClient::new(channel)`, in place of `tonic::client::Grpc`
//! and a codec of bytes.

use std::{env, process::ExitCode};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    runtime::Runtime,
    task::{JoinError, JoinSet},
};
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Channel, Client,
    channel::{ComputeEngineCredentials, FallbackCredentials, WaitForReady},
    config::Bootstrap,
    transport::credentials::CredentialsRegistry,
};
use xdskit_cli::{
    call::{Call, CallArgs, Command, Credentials, Outcome, Outcomes, RawCodec},
    json::printable,
    program::{self, Failure, Program},
};

fn main() -> ExitCode {
    Program::Example("call").main(env::args_os().skip(1), run)
}

/// Makes the call of the command line, or those of standard input until its end.
pub(crate) fn run(_: Program, args: &CallArgs) -> Result<(), Failure> {
    // An error of the command line comes before one of the bootstrap.
    let only = args.check()?;
    program::log_to_stderr();
    let bootstrap = match &args.connect.bootstrap {
        Some(path) => Bootstrap::from_file(path)?, // in gRPC's format or in Envoy's
        None => Bootstrap::from_env()?,            // GRPC_XDS_BOOTSTRAP, or GRPC_XDS_BOOTSTRAP_CONFIG
    };
    let runtime = Runtime::new()?;
    let ended = runtime.block_on(async {
        let channel = channel(args, bootstrap)?;
        match only {
            Some(call) => one_call(&channel, &call).await,
            None => commands(&channel).await,
        }
    });
    // Reading standard input cannot be cancelled.
    runtime.shutdown_background();
    ended
}

/// A channel to the target. It connects to endpoints when the first call needs them.
fn channel(args: &CallArgs, bootstrap: Bootstrap) -> Result<Channel, Failure> {
    // `google_compute_engine` among the `call_creds` of a bootstrap: tokens of the metadata server of a virtual machine.
    let google = ComputeEngineCredentials::default();
    let credentials = CredentialsRegistry::default().with_call("google_compute_engine", google);
    let client =
        Client::builder(bootstrap).credentials(credentials).api_type(args.connect.protocol.into()).build()?;
    let mut builder = client.channel(args.target.as_str());
    builder = match args.credentials {
        // Plaintext, whatever the clusters configure.
        Credentials::Insecure => builder.insecure_credentials(),
        // The TLS of the clusters, and plaintext for those without.
        Credentials::Xds => builder.xds_credentials(FallbackCredentials::Plaintext),
    };
    if let Some(authority) = &args.authority {
        builder = builder.authority(authority);
    }
    Ok(builder.build()?)
}

/// Makes the call of the command line, and prints its outcome for people.
async fn one_call(channel: &Channel, call: &Call) -> Result<(), Failure> {
    let outcome = make(channel, call).await;
    program::print(&outcome.text())?;
    if outcome.is_ok() { Ok(()) } else { Err(Failure::Missing) }
}

/// Executes commands until the input ends.
async fn commands(channel: &Channel) -> Result<(), Failure> {
    // Commands run beside each other, so that one that waits for an endpoint does not hold up the next line. Clones of a channel share
    // its connections.
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
                let channel = channel.clone();
                match Command::parse(&line) {
                    Ok(Command::Quit) => return Ok(()),
                    Ok(Command::Status(id)) => {
                        running.spawn(async move { printable(json!({"id": id, "status": channel.status().await}).to_string()) });
                    }
                    Ok(Command::Call(call)) => {
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
fn write(answer: Result<String, JoinError>) -> Result<(), Failure> {
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
    // A status of the channel itself, such as that there is no endpoint, has the reason in its message, as one of the server has.
    let mut outcome = attempt(channel, call).await.unwrap_or_else(|status| Outcome::failed(&status));
    outcome.set_duration(begin.elapsed());
    outcome
}

/// Makes a call; an error is the status that it ended with.
async fn attempt(channel: &Channel, call: &Call) -> Result<Outcome, Status> {
    let mut request = Request::new(Bytes::from(call.body.clone()));
    // Metadata, which the routes of the target match, and the time limit.
    call.add_headers(request.metadata_mut())?;
    if let Some(timeout) = call.timeout() {
        request.set_timeout(timeout);
    }
    // Whether the call waits for a usable endpoint, or fails at once; a route can set the default.
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
