//! An xDS-enabled echo server, driven by lines of JSON.
//!
//! ```console
//! $ cargo run --features server --example serve -- --bootstrap bootstrap.json --listen 127.0.0.1:8080
//! ```
//!
//! Each gRPC method answers with the message of its request, and shows in its metadata what the server knows of the request; any other
//! request gets the same as JSON. A header `x-echo-NAME` comes back as `NAME`, and `x-delay-ms` delays the answer.
//!
//! Lines on standard output are states (`{"listener":..,"state":..,"reason":..}`) and the ends of drains (`{"drained":..}`). Lines on
//! standard input are `{"shutdown":true,"within":5}`, `{"status":true}` and `{"quit":true}`.

mod args;
#[path = "../common/print_line.rs"]
mod print_line;
mod service;

use std::{error::Error, fs, process::ExitCode, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin},
    sync::watch,
};
use xdskit::{
    Bootstrap, Server,
    server::{Fallback, ListenerStatus, OwnCredentials, ServerHandle, ServingState},
};

use self::{args::Args, print_line::print_line, service::Echo};

/// The time for requests to end when the program does.
const QUIT_WITHIN: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print_line(args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            eprintln!("serve: {reason}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    let (stopped, mut ended) = watch::channel(0);
    let server = match start(&args, stopped) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("serve: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (address, _) in server.states() {
        print_line(json!({"listener": address.to_string(), "state": "STARTING", "reason": ""}));
    }
    obey(&server, BufReader::new(stdin()).lines()).await;
    server.shutdown_within(QUIT_WITHIN).await;
    // The callback prints the last states.
    drop(ended.wait_for(|count| *count == args.listen.len()).await);
    ExitCode::SUCCESS
}

/// Starts the server. `stopped` counts the listeners that have stopped.
fn start(args: &Args, stopped: watch::Sender<usize>) -> Result<ServerHandle, Box<dyn Error>> {
    let mut bootstrap: Value = serde_json::from_str(&fs::read_to_string(&args.bootstrap)?)?;
    if let Some(template) = &args.template {
        bootstrap["server_listener_resource_name_template"] = template.as_str().into();
    }
    let mut builder = Server::builder(Bootstrap::from_json(&bootstrap.to_string())?)
        .release_port(args.release_port)
        .on_state(move |address, state| {
            print_state(address, state);
            if *state == ServingState::Stopped {
                stopped.send_modify(|count| *count += 1);
            }
        })
        .on_drained(|address, connections| {
            print_line(json!({"drained": {"listener": address.to_string(), "connections": connections}}));
        });
    builder = match args.xds_credentials {
        true => builder.xds_credentials(Fallback::Plaintext),
        false => builder.own_credentials(OwnCredentials::Plaintext),
    };
    for address in &args.listen {
        builder = builder.listen(*address);
    }
    if let Some(time) = args.handshake_timeout {
        builder = builder.handshake_timeout(time);
    }
    if let Some(time) = args.drain_grace {
        builder = builder.drain_grace(time);
    }
    if let Some(time) = args.drain_spread {
        builder = builder.drain_spread(time);
    }
    if let Some(number) = args.max_connections {
        builder = builder.max_connections(number);
    }
    if let Some(age) = args.max_connection_age {
        builder = builder.max_connection_age(age);
    }
    Ok(builder.serve(Echo)?)
}

/// Does what standard input orders, until its end.
async fn obey(server: &ServerHandle, mut lines: Lines<BufReader<Stdin>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let order: Value = match serde_json::from_str(&line) {
            Ok(order) => order,
            Err(error) => {
                eprintln!("serve: {line:?} is no order: {error}");
                continue;
            }
        };
        if order["quit"] == true {
            return;
        }
        if order["shutdown"] == true {
            let within = order["within"].as_f64().and_then(|time| Duration::try_from_secs_f64(time).ok());
            match within {
                Some(time) => server.shutdown_within(time).await,
                None => server.shutdown().await,
            }
        } else if order["status"] == true {
            let listeners: Vec<_> = server.status().await.iter().map(status).collect();
            print_line(json!({"listeners": listeners}));
        } else {
            eprintln!("serve: {line:?} is no order");
        }
    }
}

fn print_state(address: std::net::SocketAddr, state: &ServingState) {
    let (state, reason) = match state {
        ServingState::Starting => ("STARTING", String::new()),
        ServingState::Serving => ("SERVING", String::new()),
        ServingState::NotServing(reason) => ("NOT_SERVING", reason.to_string()),
        ServingState::Stopped => ("STOPPED", String::new()),
        // The state before `STOPPED` is none of the interface.
        ServingState::Stopping => return,
        _ => return,
    };
    print_line(json!({"listener": address.to_string(), "state": state, "reason": reason}));
}

fn status(status: &ListenerStatus) -> Value {
    let (state, connections) = (status.state.to_string(), status.connections);
    json!({
        "name": &*status.name,
        "listener": status.address.to_string(),
        "state": state.split(':').next(),
        "reason": state.split_once(": ").map(|(_, reason)| reason).unwrap_or_default(),
        "warning": status.warning.as_ref().map(ToString::to_string),
        "version": status.version.as_str(),
        "pending_version": status.pending_version.as_str(),
        "waiting_for": status.waiting_for.iter().map(|name| &**name).collect::<Vec<_>>(),
        "filter_chains": status.filter_chains,
        "connections": {
            "handshaking": connections.handshaking,
            "serving": connections.serving,
            "draining": connections.draining,
            "closing": connections.closing,
        },
    })
}
