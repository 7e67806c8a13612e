//! The client of gRPC's xDS interoperability tests, on a [`Channel`].
//!
//! It makes calls of `grpc.testing.TestService` at a constant rate. A driver such as psm-interop, which configures the control plane
//! and the backends, reads from it where the calls went and how they ended, and changes what it calls. Its flags and services are
//! those of the clients of the other gRPC implementations: `doc/xds-test-descriptions.md` in grpc/grpc describes them.
//!
//! ```console
//! $ export GRPC_XDS_BOOTSTRAP=/etc/grpc-xds-bootstrap.json
//! $ cargo run --example interop_client -- --server=xds:///shop --qps=100 --stats_port=8081
//! ```
//!
//! The first line on standard output is `{"stats_port":PORT}`, which tells the port if it was 0. On that port are the services of
//! `services`, the client status service (CSDS), channelz, and health.

mod args;
mod calls;
mod codec;
mod messages;
mod policy;
#[path = "../common/print_line.rs"]
mod print_line;
mod services;
mod stats;

use std::{error::Error, io, net::Ipv4Addr, process::ExitCode, sync::Arc};

use tonic::transport::{Server, server::TcpIncoming};
use tracing_subscriber::EnvFilter;
use xdskit::{
    Channel, Client, channel::FallbackCredentials, channelz::ChannelzService, config::Bootstrap,
    csds::ClientStatusService, resource::Registry,
};

use self::{
    args::{Args, USAGE},
    calls::{Calls, Settings},
    policy::RpcBehavior,
    print_line::print_line,
    services::{Configure, Health, LoadBalancerStats, Served},
    stats::Stats,
};

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print_line(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("interop_client: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop_client: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes calls until it is killed, or until one fails that must not.
async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let client = Client::builder(Bootstrap::from_env()?)
        .scope(&args.server)
        .extensions(Registry::new().with_endpoint_policy::<RpcBehavior>())
        .build()?;
    let channels = (0..args.num_channels).map(|_| {
        let builder = client.channel(&*args.server);
        match args.secure_mode {
            true => builder.xds_credentials(FallbackCredentials::Plaintext).build(),
            false => builder.insecure_credentials().build(),
        }
    });
    let channels = channels.collect::<Result<Vec<Channel>, _>>()?;

    let stats = Arc::new(Stats::default());
    let settings = Arc::new(Settings::new(&args)?);
    let status = ClientStatusService::new();
    status.add(&client);
    let channelz = ChannelzService::new();
    channels.iter().for_each(|channel| channelz.add(channel));
    let incoming = TcpIncoming::bind((Ipv4Addr::UNSPECIFIED, args.stats_port).into())?;
    print_line(format_args!("{{\"stats_port\":{}}}", incoming.local_addr()?.port()));
    let services = Server::builder()
        .add_service(Served(LoadBalancerStats { stats: stats.clone() }))
        .add_service(Served(Configure { settings: settings.clone() }))
        .add_service(Served(Health))
        .add_service(status)
        .add_service(channelz)
        .serve_with_incoming(incoming);

    let calls = Calls { args: Arc::new(args), channels, stats, settings };
    tokio::select! {
        ended = services => Ok(ended?),
        failed = calls.run() => Err(format!("a call failed after the first success: {failed}").into()),
    }
}
