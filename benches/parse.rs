//! What it costs to parse resources into typed values, beside decoding the same bytes into protobuf messages, which is the
//! least that a client has to do: `cargo bench --bench parse`, or of one type, `cargo bench --bench parse -- Cluster`.
//!
//! `kept` is decoding into messages that are kept, as parsing keeps what it makes, and `dropped` lets them go at once.
//! Decoding goes into the messages that others carry as bytes (`Any`), as parsing does, where anything in them counts. The plain
//! resources are those of `ingest`.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[path = "../tests/it/common/meshes/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod meshes;
#[allow(dead_code, reason = "other benches use more of it")]
mod plain;
#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::hint::black_box;

use bytes::Bytes;
use meshes::Mesh;
use prost::Message;
use ratio::{Candidate, Rounds};
use xdskit::{
    Resource,
    pb::{
        envoy::{
            config::{
                cluster::v3::{self as cluster, cluster::ClusterDiscoveryType},
                core::v3::{TransportSocket, transport_socket::ConfigType},
                endpoint::v3 as endpoint,
                listener::v3 as listener,
                route::v3 as route,
            },
            extensions::{
                clusters::aggregate::v3::ClusterConfig,
                filters::{
                    http::{fault::v3::HttpFault, rbac::v3::Rbac, router::v3::Router},
                    network::http_connection_manager::v3::{HttpConnectionManager, http_filter},
                },
                load_balancing_policies::wrr_locality::v3::WrrLocality,
                transport_sockets::tls::v3::{DownstreamTlsContext, UpstreamTlsContext},
            },
        },
        google::protobuf::Any,
    },
    resource::{Cluster, ClusterLoadAssignment, Context, Listener, RouteConfiguration},
};

const ROUNDS: usize = 101;
/// So many plain resources of a type.
const COUNT: usize = 1000;

fn main() {
    println!("typed parse beside protobuf decode, ns per resource, medians of {ROUNDS} rounds in turns\n");
    println!(
        "{:<18}{:<24}{:>6}{:>10}{:>10}{:>10}{:>8}{:>9}",
        "mesh", "type", "bytes", "kept", "dropped", "parse", "/ kept", "/ dropped"
    );
    let clusters: Vec<_> = (0..COUNT).map(|number| plain::cluster(number, 0)).collect();
    beside::<Cluster, _>("plain", &clusters, decode::<cluster::Cluster>);
    let assignments: Vec<_> = (0..COUNT).map(|number| plain::assignment(number, 0)).collect();
    beside::<ClusterLoadAssignment, _>("plain", &assignments, decode::<endpoint::ClusterLoadAssignment>);
    for (name, mesh) in
        [("istio", meshes::istio::mesh()), ("traffic director", meshes::traffic_director::mesh())]
    {
        beside::<Listener, _>(name, &of_type::<Listener>(&mesh), decode_listener);
        let routes = of_type::<RouteConfiguration>(&mesh);
        beside::<RouteConfiguration, _>(name, &routes, decode::<route::RouteConfiguration>);
        beside::<Cluster, _>(name, &of_type::<Cluster>(&mesh), decode_cluster);
        let assignments = of_type::<ClusterLoadAssignment>(&mesh);
        beside::<ClusterLoadAssignment, _>(name, &assignments, decode::<endpoint::ClusterLoadAssignment>);
    }
}

fn of_type<T: Resource>(mesh: &Mesh) -> Vec<Bytes> {
    let of_type = mesh.resources.iter().filter(|resource| resource.type_url == T::TYPE_URL);
    of_type.map(|resource| resource.bytes.clone()).collect()
}

/// Prints a row: resources of one type, one after the other; nothing if only another type is asked for.
fn beside<T: Resource, D>(name: &str, all: &[Bytes], decode: impl Fn(Bytes) -> D) {
    let short = T::TYPE_URL.rsplit('.').next().expect("a name");
    if std::env::args().skip(1).any(|only| !only.starts_with('-') && only != short) {
        return;
    }
    let providers = ["default", "google_cloud_private_spiffe"].map(str::to_owned).into();
    let cx = Context::new().with_certificate_providers(&providers);
    let candidates = vec![
        Candidate::kept("decode", || all.iter().cloned().map(&decode).collect::<Vec<_>>()),
        Candidate::kept("drop", || all.iter().for_each(|bytes| drop(black_box(decode(bytes.clone()))))),
        Candidate::kept("parse", || {
            all.iter().map(|bytes| T::parse(bytes, &cx).expect("accepted")).collect::<Vec<_>>()
        }),
    ];
    let rounds = Rounds::of(candidates, ROUNDS);
    let count = all.len() as f64;
    let bytes = all.iter().map(Bytes::len).sum::<usize>() / all.len();
    let rows: Vec<_> = rounds.rows().collect();
    let [(_, kept, _), (_, dropped, _), (_, parsed, ratio)] = rows[..] else { panic!("three candidates") };
    println!(
        "{name:<18}{short:<24}{bytes:>6}{:>10.0}{:>10.0}{:>10.0}{ratio:>8.2}{:>11.2}",
        kept / count,
        dropped / count,
        parsed / count,
        parsed / dropped,
    );
}

fn decode<M: Message + Default>(bytes: Bytes) -> M {
    M::decode(bytes).expect("valid")
}

fn inner<M: Message + Default>(any: &Any) -> M {
    decode(any.value.clone())
}

/// With its connection managers, what their filters are configured with, and the TLS contexts of its chains.
fn decode_listener(bytes: Bytes) -> (listener::Listener, Vec<Manager>, Vec<DownstreamTlsContext>) {
    let message: listener::Listener = decode(bytes);
    let api = message.api_listener.iter().filter_map(|api| api.api_listener.as_ref());
    let chains = || message.filter_chains.iter().chain(&message.default_filter_chain);
    let filters = chains().flat_map(|chain| &chain.filters).filter_map(|filter| match &filter.config_type {
        Some(listener::filter::ConfigType::TypedConfig(any)) => Some(any),
        Some(listener::filter::ConfigType::ConfigDiscovery(_)) | None => None,
    });
    let managers = api.chain(filters).map(|any| {
        let manager: HttpConnectionManager = inner(any);
        let configs = manager.http_filters.iter().filter_map(|filter| match &filter.config_type {
            Some(http_filter::ConfigType::TypedConfig(any)) => Some(FilterConfig::decode(any)),
            Some(http_filter::ConfigType::ConfigDiscovery(_)) | None => None,
        });
        let configs = configs.collect();
        (manager, configs)
    });
    let managers = managers.collect();
    let contexts = chains().filter_map(|chain| socket(chain.transport_socket.as_ref())).collect();
    (message, managers, contexts)
}

/// A connection manager, and what its filters are configured with.
type Manager = (HttpConnectionManager, Vec<FilterConfig>);

/// What an HTTP filter of the meshes is configured with.
#[allow(dead_code, reason = "it is only kept")]
enum FilterConfig {
    Router(Router),
    Fault(Box<HttpFault>),
    Rbac(Rbac),
}

impl FilterConfig {
    fn decode(any: &Any) -> Self {
        match any.type_url.rsplit('.').next() {
            Some("Router") => Self::Router(inner(any)),
            Some("HTTPFault") => Self::Fault(Box::new(inner(any))),
            Some("RBAC") => Self::Rbac(inner(any)),
            _ => panic!("a mesh has no filter of {}", any.type_url),
        }
    }
}

/// With its TLS context, its list of policies, and what it aggregates.
fn decode_cluster(
    bytes: Bytes,
) -> (cluster::Cluster, Option<UpstreamTlsContext>, Vec<WrrLocality>, Option<ClusterConfig>) {
    let message: cluster::Cluster = decode(bytes);
    let context = socket(message.transport_socket.as_ref());
    let policies = message.load_balancing_policy.iter().flat_map(|list| &list.policies);
    let configs = policies.filter_map(|policy| policy.typed_extension_config.as_ref()?.typed_config.as_ref());
    let policies = configs.filter(|any| any.type_url.ends_with("WrrLocality")).map(inner).collect();
    let aggregate = match &message.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(custom)) => custom.typed_config.as_ref().map(inner),
        Some(ClusterDiscoveryType::Type(_)) | None => None,
    };
    (message, context, policies, aggregate)
}

fn socket<M: Message + Default>(socket: Option<&TransportSocket>) -> Option<M> {
    socket?.config_type.as_ref().map(|ConfigType::TypedConfig(any)| inner(any))
}
