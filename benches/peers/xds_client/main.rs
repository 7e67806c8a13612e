//! The crate `xds-client`, measured: see `client`, of which the mode may also be `messages`.
//!
//! It has no resources of its own; these keep what those of `tonic-xds` keep, which is built on it. With the mode `messages` it
//! watches all clusters and keeps their messages as they are, with everything that they say.

#[path = "../client/mod.rs"]
mod client;

use bytes::Bytes;
use envoy_types::pb::envoy::config::{
    cluster::v3::{Cluster, cluster::LbPolicy},
    core::v3::{address, socket_address},
    endpoint::v3::{ClusterLoadAssignment, LbEndpoint, lb_endpoint},
};
use prost::Message as _;
use xds_client::{
    ClientConfig, Error, Node, ProstCodec, Resource, ResourceEvent, ResourceWatcher, TokioRuntime,
    TonicTransportBuilder, XdsClient, resource::TypeUrl,
};

use client::{Args, Kind, Progress, name};

#[tokio::main]
async fn main() {
    let Args { address, count, mode } = Args::from_env();
    let all = mode == "all" || mode == "messages";
    let progress: &'static _ = Box::leak(Box::new(Progress::new(if all { count } else { 2 * count })));
    progress.obey();
    let config = ClientConfig::new(Node::new("xds-client", "0.1.0-alpha.4"), format!("http://{address}"));
    // The default, 4 MiB, is less than a response has.
    let transport = TonicTransportBuilder::new().with_max_decoding_message_size(256 << 20);
    let client = XdsClient::builder(config, transport, ProstCodec, TokioRuntime).build();
    match mode.as_str() {
        "all" => drop(tokio::spawn(watch_all(client.watch::<KeptCluster>("").await, progress, count))),
        "messages" => drop(tokio::spawn(watch_all(client.watch::<Message>("").await, progress, count))),
        _ => watch_each(&client, progress, count).await,
    }
    std::future::pending().await
}

async fn watch_each(client: &XdsClient, progress: &'static Progress, count: usize) {
    for number in 0..count {
        let watcher = client.watch::<KeptCluster>(name(number)).await;
        tokio::spawn(watch(watcher, progress, Kind::Clusters, number));
    }
    for number in 0..count {
        let watcher = client.watch::<KeptAssignment>(name(number)).await;
        tokio::spawn(watch(watcher, progress, Kind::Endpoints, number));
    }
}

async fn watch<T: Resource>(
    mut watcher: ResourceWatcher<T>,
    progress: &'static Progress,
    kind: Kind,
    number: usize,
) {
    let mut kept = None;
    while let Some(event) = watcher.next().await {
        match event {
            ResourceEvent::ResourceChanged { result: Ok(resource), done } => {
                match kept.replace(resource) {
                    Some(_) => progress.on_again(kind, number),
                    None => progress.on_first(1),
                }
                drop(done);
            }
            ResourceEvent::ResourceChanged { .. } | ResourceEvent::AmbientError { .. } => progress.on_error(),
        }
    }
}

async fn watch_all<T: Named>(mut watcher: ResourceWatcher<T>, progress: &'static Progress, count: usize) {
    // Each change is an event; who needs them by their names keeps them so.
    let mut kept = std::collections::HashMap::with_capacity(count);
    while let Some(event) = watcher.next().await {
        match event {
            ResourceEvent::ResourceChanged { result: Ok(resource), done } => {
                let name = resource.name().to_owned();
                match kept.insert(name, resource) {
                    None => progress.on_first(1),
                    Some(before) => {
                        if let Some((kind, number)) = progress.expected()
                            && client::name(number) == before.name()
                        {
                            progress.on_again(kind, number);
                        }
                    }
                }
                drop(done);
            }
            ResourceEvent::ResourceChanged { .. } | ResourceEvent::AmbientError { .. } => progress.on_error(),
        }
    }
}

trait Named: Resource {
    fn name(&self) -> &str;
}

/// A cluster with everything that it says.
struct Message(Cluster);

impl Named for Message {
    fn name(&self) -> &str {
        &self.0.name
    }
}

impl Resource for Message {
    type Message = Cluster;

    const TYPE_URL: TypeUrl = KeptCluster::TYPE_URL;

    fn deserialize(bytes: Bytes) -> xds_client::Result<Cluster> {
        Ok(Cluster::decode(bytes)?)
    }

    fn name(message: &Cluster) -> &str {
        &message.name
    }

    fn validate(message: Cluster) -> xds_client::Result<Self> {
        Ok(Self(message))
    }
}

impl Named for KeptCluster {
    fn name(&self) -> &str {
        &self.name
    }
}

#[allow(dead_code, reason = "they are kept, for whoever would use them")]
struct KeptCluster {
    name: String,
    eds_service_name: Option<String>,
    lb_policy: LbPolicy,
}

impl Resource for KeptCluster {
    type Message = Cluster;

    const TYPE_URL: TypeUrl = TypeUrl::new("type.googleapis.com/envoy.config.cluster.v3.Cluster");

    fn deserialize(bytes: Bytes) -> xds_client::Result<Cluster> {
        Ok(Cluster::decode(bytes)?)
    }

    fn name(message: &Cluster) -> &str {
        &message.name
    }

    fn validate(message: Cluster) -> xds_client::Result<Self> {
        let lb_policy = LbPolicy::try_from(message.lb_policy)
            .map_err(|_| Error::Validation("unknown load balancing policy".to_owned()))?;
        let eds = message.eds_cluster_config.map(|eds| eds.service_name);
        Ok(Self { name: message.name, eds_service_name: eds.filter(|name| !name.is_empty()), lb_policy })
    }
}

#[allow(dead_code, reason = "they are kept, for whoever would use them")]
struct KeptAssignment {
    cluster_name: String,
    localities: Vec<KeptLocality>,
}

#[allow(dead_code, reason = "they are kept, for whoever would use them")]
struct KeptLocality {
    locality: Option<[String; 3]>,
    endpoints: Vec<KeptEndpoint>,
    load_balancing_weight: u32,
    priority: u32,
}

#[allow(dead_code, reason = "they are kept, for whoever would use them")]
struct KeptEndpoint {
    host: String,
    port: u16,
    health_status: i32,
    load_balancing_weight: u32,
}

impl Resource for KeptAssignment {
    type Message = ClusterLoadAssignment;

    const TYPE_URL: TypeUrl =
        TypeUrl::new("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment");

    const ALL_RESOURCES_REQUIRED_IN_SOTW: bool = false;

    fn deserialize(bytes: Bytes) -> xds_client::Result<ClusterLoadAssignment> {
        Ok(ClusterLoadAssignment::decode(bytes)?)
    }

    fn name(message: &ClusterLoadAssignment) -> &str {
        &message.cluster_name
    }

    fn validate(message: ClusterLoadAssignment) -> xds_client::Result<Self> {
        let mut localities = Vec::with_capacity(message.endpoints.len());
        for locality in message.endpoints {
            localities.push(KeptLocality {
                locality: locality.locality.map(|l| [l.region, l.zone, l.sub_zone]),
                endpoints: locality.lb_endpoints.into_iter().map(endpoint).collect::<Result<_, _>>()?,
                load_balancing_weight: locality.load_balancing_weight.map_or(0, |weight| weight.value),
                priority: locality.priority,
            });
        }
        Ok(Self { cluster_name: message.cluster_name, localities })
    }
}

fn endpoint(endpoint: LbEndpoint) -> xds_client::Result<KeptEndpoint> {
    let invalid = || Error::Validation("endpoint without a socket address".to_owned());
    let Some(lb_endpoint::HostIdentifier::Endpoint(host)) = endpoint.host_identifier else {
        return Err(invalid());
    };
    let Some(address::Address::SocketAddress(socket)) = host.address.and_then(|address| address.address)
    else {
        return Err(invalid());
    };
    let Some(socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier else {
        return Err(invalid());
    };
    Ok(KeptEndpoint {
        host: socket.address,
        port: u16::try_from(port).map_err(|_| invalid())?,
        health_status: endpoint.health_status,
        load_balancing_weight: endpoint.load_balancing_weight.map_or(1, |weight| weight.value),
    })
}
