//! Calls, measured: `calls CLIENT CONTROL_PLANE BACKEND...`, where CLIENT is `xdskit`, `tonic`, `tonic-xds`, or
//! `h2` for connections without a channel; `grpc` for the crate of that name with its own channel, which is to one endpoint alone, and
//! `xdskit-grpc` for a client of that crate with ours; or
//! `calls sidecar CONTROL_PLANE LISTENER LISTENER`, tonic with a proxy that has a listener for each of the two targets; or
//! `calls xdskit-tls|tonic-tls CONTROL_PLANE BACKEND CERTIFICATES`, over TLS with a folder that `certificates` wrote.
//!
//! On the line `round ENDPOINTS SIZE IN_FLIGHT CALLS` on standard input it makes unary calls, and prints what they took, a JSON
//! object a line; ENDPOINTS is `one` or `all`. A client connects with its first round. `handshakes COUNT` makes so many channels to
//! `one`, one after the other, each for one call. The program ends with its input.

#[path = "../../calls/codec.rs"]
mod codec;
#[path = "../../calls/direct.rs"]
mod direct;
#[path = "../../calls/echo.rs"]
#[allow(dead_code, reason = "this is a client")]
mod echo;
#[path = "../../calls/invoke.rs"]
mod invoke;
#[path = "../../calls/load.rs"]
#[allow(dead_code, reason = "benches use more of it")]
mod load;

use std::{
    cell::OnceCell,
    collections::HashMap,
    env,
    error::Error,
    fs,
    io::stdin,
    path::Path,
    time::{Duration, Instant},
};

use direct::Direct;
use grpc::{
    client::{ChannelOptions, Invoke},
    credentials::LocalChannelCredentials,
};
use load::{Call, Caller, Load};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Certificate, Channel as TonicChannel, ClientTlsConfig, Endpoint, Identity};
use tonic_xds::{BootstrapConfig, XdsChannelBuilder, XdsChannelConfig, XdsUri};
use xdskit::{
    Channel, Client,
    channel::FallbackCredentials,
    config::{Bootstrap, CertificateProvider, FileWatcherConfig, Node, Server},
};

/// How clients find the servers.
struct Mesh {
    control_plane: String,
    backends: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(client), Some(control_plane)) = (args.next(), args.next()) else {
        return Err("usage: calls CLIENT CONTROL_PLANE BACKEND...".into());
    };
    let mesh = Mesh { control_plane, backends: args.collect() };
    match client.as_str() {
        "xdskit" => serve(|_, target| mesh.xdskit(target)),
        "xdskit-grpc" => serve_with(|_, target| mesh.xdskit(target), by_grpc),
        "grpc" => serve_with(|_, target| mesh.grpc(target), by_grpc),
        "h2" => serve(|runtime, target| mesh.direct(runtime, target)),
        "tonic" => serve(|_, target| mesh.tonic(target)),
        "tonic-xds" => serve(|_, target| mesh.tonic_xds(target)),
        "sidecar" => serve(|_, target| mesh.sidecar(target)),
        "xdskit-tls" => {
            // Made in the runtime, with the first channel.
            let client = OnceCell::new();
            serve(|_, target| {
                let client: &Client = match client.get() {
                    Some(client) => client,
                    None => {
                        let made = mesh.xds_client()?;
                        client.get_or_init(|| made)
                    }
                };
                let builder = client.channel(format!("xds:///{target}"));
                Ok(builder.xds_credentials(FallbackCredentials::Plaintext).build()?)
            })
        }
        "tonic-tls" => serve(|_, _| mesh.tonic_tls()),
        _ => Err(format!("there is no client {client}").into()),
    }
}

impl Mesh {
    fn xdskit(&self, target: &str) -> Result<Channel, Box<dyn Error>> {
        let server = Server::new(self.control_plane.as_str()).insecure();
        let bootstrap = Bootstrap::builder().node(Node::new("calls")).server(server).build()?;
        Ok(Channel::builder(format!("xds:///{target}")).bootstrap(bootstrap).build()?)
    }

    fn direct(&self, runtime: &Runtime, target: &str) -> Result<Direct, Box<dyn Error>> {
        let count = if target == "one" { 1 } else { self.backends.len() };
        let addresses: Result<Vec<_>, _> = self.backends.iter().take(count).map(|it| it.parse()).collect();
        Ok(runtime.block_on(Direct::connect(&addresses?)))
    }

    fn xds_client(&self) -> Result<Client, Box<dyn Error>> {
        let folder = self.certificates()?;
        let mut files = FileWatcherConfig::identity(folder.join("cert.pem"), folder.join("key.pem"));
        files.ca_certificate_file = Some(folder.join("ca.pem"));
        let server = Server::new(self.control_plane.as_str()).insecure();
        let bootstrap = Bootstrap::builder()
            .node(Node::new("calls"))
            .server(server)
            .certificate_provider("files", CertificateProvider::FileWatcher(files))
            .build()?;
        Ok(Client::builder(bootstrap).build()?)
    }

    fn tonic_tls(&self) -> Result<TonicChannel, Box<dyn Error>> {
        let (backend, folder) = (self.backends.first().ok_or("no backend")?, self.certificates()?);
        let read = |name| fs::read(folder.join(name));
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.pem")?))
            .identity(Identity::from_pem(read("cert.pem")?, read("key.pem")?))
            .domain_name("backend.test");
        Ok(Endpoint::from_shared(format!("https://{backend}"))?.tls_config(tls)?.connect_lazy())
    }

    /// The last argument.
    fn certificates(&self) -> Result<&Path, Box<dyn Error>> {
        Ok(Path::new(self.backends.last().ok_or("no certificates")?))
    }

    /// It takes the addresses as they are: to one, tonic's plain channel, to all the one that balances.
    fn tonic(&self, target: &str) -> Result<TonicChannel, Box<dyn Error>> {
        let endpoints = self.endpoints()?;
        Ok(match target {
            "one" => endpoints.first().ok_or("no backend")?.connect_lazy(),
            _ => TonicChannel::balance_list(endpoints.into_iter()),
        })
    }

    /// Its own channel connects to the first address of a name alone.
    fn grpc(&self, target: &str) -> Result<grpc::client::Channel, Box<dyn Error>> {
        if target != "one" {
            return Err("the channel of the crate grpc is to one endpoint".into());
        }
        let target = format!("dns:///{}", self.backends.first().ok_or("no backend")?);
        Ok(grpc::client::Channel::new(target, LocalChannelCredentials::new_arc(), ChannelOptions::default()))
    }

    fn sidecar(&self, target: &str) -> Result<TonicChannel, Box<dyn Error>> {
        let [one, all] = &self.endpoints()?[..] else { return Err("two listeners are needed".into()) };
        Ok(if target == "one" { one.connect_lazy() } else { all.connect_lazy() })
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, tonic::transport::Error> {
        self.backends.iter().map(|it| Endpoint::from_shared(format!("http://{it}"))).collect()
    }

    fn tonic_xds(&self, target: &str) -> Result<tonic_xds::XdsChannelGrpc, Box<dyn Error>> {
        let bootstrap = BootstrapConfig::from_json(&format!(
            r#"{{
                "xds_servers": [{{"server_uri": "http://{}", "channel_creds": [{{"type": "insecure"}}]}}],
                "node": {{"id": "calls"}}
            }}"#,
            self.control_plane
        ))?;
        let config =
            XdsChannelConfig::new(XdsUri::parse(&format!("xds:///{target}"))?).with_bootstrap(bootstrap);
        Ok(XdsChannelBuilder::new(config).build_grpc_channel()?)
    }
}

/// Makes calls as the lines of standard input request.
fn serve<T: Caller>(
    build: impl Fn(&Runtime, &str) -> Result<T, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    serve_with(build, round)
}

/// The same with calls that a function makes.
fn serve_with<T>(
    build: impl Fn(&Runtime, &str) -> Result<T, Box<dyn Error>>,
    round: impl Fn(&Runtime, &T, Load) -> Vec<Call>,
) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut clients = HashMap::new();
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["handshakes", count] = words[..] {
            let (start, cpu) = (Instant::now(), used());
            let load = Load { calls: 1, in_flight: 1, size: 100 };
            let mut calls = Vec::new();
            for _ in 0..count.parse()? {
                let _within = runtime.enter();
                calls.extend(round(&runtime, &build(&runtime, "one")?, load));
            }
            report(&calls, start.elapsed(), used() - cpu);
            continue;
        }
        let ["round", target, size, in_flight, calls] = words[..] else {
            return Err(format!("a line that is not understood: {line}").into());
        };
        let load = Load { calls: calls.parse()?, in_flight: in_flight.parse()?, size: size.parse()? };
        let (start, cpu) = (Instant::now(), used());
        if !clients.contains_key(target) {
            let _within = runtime.enter();
            clients.insert(target.to_owned(), build(&runtime, target)?);
        }
        report(&round(&runtime, &clients[target], load), start.elapsed(), used() - cpu);
    }
    Ok(())
}

/// A function of its own, by which a profiler finds what is measured.
#[inline(never)]
fn round<T: Caller>(runtime: &Runtime, client: &T, load: Load) -> Vec<Call> {
    runtime.block_on(load::run(client, load))
}

/// Calls by the crate `grpc`.
#[inline(never)]
fn by_grpc<T: Invoke + Clone + Send + 'static>(runtime: &Runtime, channel: &T, load: Load) -> Vec<Call> {
    runtime.block_on(invoke::run(channel, load))
}

fn report(calls: &[Call], wall: Duration, cpu: Duration) {
    let errors: Vec<_> = calls.iter().filter_map(|call| call.error.as_ref()).collect();
    let error = errors.first().map_or(String::new(), |error| error.to_string());
    println!(
        r#"{{"event":"round","calls":{},"failed":{},"error":{error:?},"wall":{},"cpu":{},"p50":{},"p99":{}}}"#,
        calls.len(),
        errors.len(),
        wall.as_nanos(),
        cpu.as_nanos(),
        load::quantile(calls, 0.5),
        load::quantile(calls, 0.99),
    );
}

/// The time that the threads of this process had the processor.
fn used() -> Duration {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32)
}
