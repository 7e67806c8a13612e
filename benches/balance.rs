//! What load balancing costs by itself, without connections: to pick an endpoint, and to publish a change.
//!
//! ```console
//! $ cargo bench --bench balance --features fuzzing     # --quick for a short run; --only picks, changes or features for a part
//! ```
//!
//! - *pick*: an endpoint is chosen and counted, and the attempt ends at once (CH11.4). Under ring_hash each call has another hash, and
//!   the ring has 4,096 entries; with weights, each endpoint has another one.
//! - *select*: the route of a request is matched, and its cluster is held.
//! - *one endpoint leaves*, *comes back*: from the bytes of the assignment until the pickers are published; when it comes back, with
//!   its connection. In brackets what is left without the client, which makes a snapshot of the bytes.
//! - *ring*: 4,096 entries are hashed and sorted.
//! - *sweep*: outlier detection looks at all endpoints, of which each had calls, some of them outliers, and the pickers are published.
//!   Anything else may happen between its slices, of which the longest one is that of each round.
//! - *weights*: the weights of all endpoints are read, and their order is published.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "a bench of time does not mind what was requested")]
mod feed;
#[allow(dead_code, reason = "every bench uses a part of it")]
mod ratio;

use std::{
    cell::Cell,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use feed::Feed;
use prost::Message;
use ratio::{Candidate, Rounds, Samples};
use xdskit::{
    Resource, Snapshot,
    client::Resolution,
    config::ApiType,
    control_plane::type_url::{CLUSTER, ENDPOINTS},
    fuzzing::{Balancing, build_ring},
    pb::{
        envoy::{
            config::{
                cluster::v3::{
                    Cluster, LoadBalancingPolicy, OutlierDetection,
                    cluster::{LbConfig, LbPolicy, RingHashLbConfig},
                    load_balancing_policy::Policy,
                },
                core::v3::TypedExtensionConfig,
            },
            extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
            service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Wrapped},
        },
        google::protobuf::{self as google, Any},
    },
    resource::Listener,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let only = args.iter().position(|arg| arg == "--only").and_then(|place| args.get(place + 1));
    if only.is_none_or(|only| only == "picks") {
        picks(if is_quick { 5 } else { 201 });
    }
    if only.is_none_or(|only| only == "changes") {
        changes(if is_quick { 3 } else { 51 });
    }
    if only.is_none_or(|only| only == "features") {
        features(if is_quick { 3 } else { 51 });
    }
}

fn picks(rounds: usize) {
    let few = World::new(10, 0, lb(LbPolicy::RoundRobin));
    let mut candidates = Vec::new();
    candidates.push(Candidate::kept("select", || {
        (0..PICKS).for_each(|_| assert!(few.balancing.select(PATH).is_some(), "there is a route"));
    }));
    for (name, count, policy) in [
        ("round_robin, 10", 10, LbPolicy::RoundRobin),
        ("round_robin, 10,000", 10_000, LbPolicy::RoundRobin),
        ("least_request, 10", 10, LbPolicy::LeastRequest),
        ("least_request, 10,000", 10_000, LbPolicy::LeastRequest),
    ] {
        candidates.push(candidate(name, World::new(count, 0, lb(policy))));
    }
    for (name, count) in [("ring_hash, 10", 10), ("ring_hash, 10,000", 10_000)] {
        candidates.push(candidate(name, World::on_demand(count)));
    }
    for (name, count) in [("weights, 10", 10), ("weights, 10,000", 10_000)] {
        let mut world = World::new(count, 0, weights);
        world.balancing.call(PATH, count as u32, |_| true);
        world.balancing.pass(Duration::from_secs(1));
        candidates.push(candidate(name, world));
    }
    println!("\npicks, ns of CPU; medians of {rounds} rounds in turns\n\n| what | ns |\n|---|---:|");
    for (name, taken, _) in Rounds::of(candidates, rounds).rows() {
        println!("| {name} | {:.1} |", taken / PICKS as f64);
    }
}

fn candidate(name: &'static str, world: World) -> Candidate<'static> {
    let mut selected = world.balancing.select(PATH).expect("there is a route");
    Candidate::kept(name, move || {
        let _living = &world;
        let picked = (0..PICKS).filter(|_| selected.pick()).count();
        // A ring has entries so close to another one that no call before has found their endpoints, which few calls meet.
        assert!(picked + 10 > PICKS, "{name}: {picked} of {PICKS} calls have an endpoint");
    })
}

/// What follows from time, and from endpoints, and not from calls.
fn features(rounds: usize) {
    let mut samples = Samples::default();
    let mut keys: Vec<Arc<str>> = (0..10_000).map(|number| key(number).into()).collect();
    keys.sort();
    let mut outliers = World::new(10_000, 0, outlier_detection);
    let mut weighted = World::new(10_000, 0, weights);
    for round in 0..rounds {
        for (name, count) in [("ring of 10 endpoints", 10), ("ring of 10,000 endpoints", 10_000)] {
            let entries = samples.measure(name, 1, || build_ring(&keys[..count]));
            assert!((4_096..4_200).contains(&entries), "{entries}");
        }
        // Each endpoint has 10 calls; one of 20 endpoints fails all of its own.
        outliers.balancing.call(PATH, 100_000, |number| !(number % 10_000).is_multiple_of(20));
        outliers.sweep(("sweep of 10,000 endpoints", "longest slice of a sweep"), &mut samples);
        weighted.balancing.call(PATH, 10_000, |_| true);
        // Other weights than before.
        weighted.balancing.call(PATH, 1 + round as u32, |_| true);
        samples.measure("weights of 10,000 endpoints", 1, || {
            weighted.balancing.pass(Duration::from_secs(1));
        });
    }
    println!("\nms of CPU; medians of {rounds} rounds in turns\n\n| what | ms |\n|---|---:|");
    for name in [
        "ring of 10 endpoints",
        "ring of 10,000 endpoints",
        "sweep of 10,000 endpoints",
        "longest slice of a sweep",
        "weights of 10,000 endpoints",
    ] {
        println!("| {name} | {:.2} |", samples.median(name) / 1e6);
    }
}

fn changes(rounds: usize) {
    const SIZES: [(usize, usize, [&str; 4]); 3] = [
        (100, 0, ["leaves 100", "leaves 100 alone", "joins 100", "joins 100 alone"]),
        (10_000, 0, ["leaves 10,000", "leaves 10,000 alone", "joins 10,000", "joins 10,000 alone"]),
        (100, 1_000, ["leaves among", "leaves among alone", "joins among", "joins among alone"]),
    ];
    let mut worlds: Vec<_> = SIZES
        .iter()
        .map(|(count, others, _)| World::new(*count, *others, lb(LbPolicy::RoundRobin)))
        .collect();
    let mut samples = Samples::default();
    for _ in 0..rounds {
        for (world, (count, _, [leaves, leaves_alone, joins, joins_alone])) in worlds.iter_mut().zip(SIZES) {
            world.change(count - 1, (leaves, leaves_alone), &mut samples);
            world.change(count, (joins, joins_alone), &mut samples);
        }
    }
    println!("\nchanges of one endpoint, µs of CPU; medians of {rounds} rounds in turns\n");
    println!("| endpoints | other clusters | it leaves | beside 100 | it comes back | beside 100 |");
    println!("|---:|---:|---:|---:|---:|---:|");
    let [few_leave, few_leave_alone, few_join, few_join_alone] = SIZES[0].2;
    for (count, others, [leaves, leaves_alone, joins, joins_alone]) in SIZES {
        let of = |name| samples.median(name) / 1e3;
        println!(
            "| {count} | {others} | {:.1} ({:.1}) | {:.2} x ({:.2} x) | {:.1} ({:.1}) | {:.2} x ({:.2} x) |",
            of(leaves),
            of(leaves_alone),
            samples.ratio(leaves, few_leave),
            samples.ratio(leaves_alone, few_leave_alone),
            of(joins),
            of(joins_alone),
            samples.ratio(joins, few_join),
            samples.ratio(joins_alone, few_join_alone),
        );
    }
}

/// A channel with a cluster of some endpoints, all of which are connected, and with other clusters of ten.
struct World {
    feed: Feed,
    resolution: Resolution,
    balancing: Balancing,
    version: usize,
}

impl World {
    fn new(count: usize, others: usize, edit: impl Fn(&mut Cluster)) -> Self {
        let mut world = Self::unconnected(count, others, edit);
        assert_eq!(world.balancing.connect(), count + 10 * others, "each endpoint is connected");
        world
    }

    /// With a hash ring, of which each endpoint is connected.
    fn on_demand(count: usize) -> Self {
        let mut world = Self::unconnected(count, 0, ring_hash);
        world.balancing.connect_on_demand(PATH, 1_000_000);
        world
    }

    fn unconnected(count: usize, others: usize, edit: impl Fn(&mut Cluster)) -> Self {
        let feed = Feed::new(ApiType::AggregatedDeltaGrpc);
        let resolution = feed.client().resolve("xds:///shop");
        let names: Vec<_> = (0..=others).map(|number| format!("cluster-{number}")).collect();
        let routes = names.iter().rev().map(|name| match name.as_str() {
            "cluster-0" => route::prefix("").cluster(name),
            _ => route::path(format!("/{name}")).cluster(name),
        });
        let routes = route_config("routes").virtual_host(["*"], routes);
        let listener = listener("shop").inline_routes(routes).into_message().encode_to_vec();
        let clusters = names.iter().map(|name| {
            let made = cluster(name).edit(&edit).into_message();
            (name.as_str(), made.encode_to_vec())
        });
        let assignments = names
            .iter()
            .map(|name| (name.as_str(), assignment(name, if name == "cluster-0" { count } else { 10 })));
        answer(&feed, Listener::TYPE_URL, 1, response(1, Listener::TYPE_URL, [("shop", listener)]));
        answer(&feed, CLUSTER, names.len(), response(2, CLUSTER, clusters));
        answer(&feed, ENDPOINTS, names.len(), response(3, ENDPOINTS, assignments));
        let mut balancing = Balancing::new(Instant::now());
        balancing.handle_snapshot(latest(&resolution));
        Self { feed, resolution, balancing, version: 3 }
    }

    /// Sends an assignment with so many endpoints, and measures until the pickers are published: all of it, and the balancing alone.
    fn change(&mut self, count: usize, (whole, alone): (&'static str, &'static str), samples: &mut Samples) {
        self.version += 1;
        let changed = [("cluster-0", assignment("cluster-0", count))];
        let changed = response(self.version, ENDPOINTS, changed);
        let before = ratio::spent();
        self.feed.answer(changed);
        let snapshot = latest(&self.resolution);
        let resolved = ratio::spent();
        self.balancing.handle_snapshot(snapshot);
        self.balancing.connect();
        let published = ratio::spent();
        samples.add(whole, (published - before).as_nanos() as f64);
        samples.add(alone, (published - resolved).as_nanos() as f64);
    }

    /// Lets an interval of outlier detection end, and measures the sweep: all of it, and the longest of its slices.
    fn sweep(&mut self, (whole, longest): (&'static str, &'static str), samples: &mut Samples) {
        self.balancing.advance(Duration::from_secs(10));
        let mut slices = Vec::new();
        loop {
            let start = ratio::spent();
            let is_over = !self.balancing.handle_timeout();
            slices.push((ratio::spent() - start).as_nanos() as f64);
            if is_over {
                break;
            }
        }
        samples.add(whole, slices.iter().sum());
        samples.add(longest, slices.into_iter().fold(0.0, f64::max));
    }
}

fn lb(policy: LbPolicy) -> impl Fn(&mut Cluster) {
    move |cluster| cluster.lb_policy = policy.into()
}

fn ring_hash(cluster: &mut Cluster) {
    let size = Some(google::UInt64Value { value: 4_096 });
    let config = RingHashLbConfig { minimum_ring_size: size, maximum_ring_size: size, ..Default::default() };
    cluster.lb_policy = LbPolicy::RingHash.into();
    cluster.lb_config = Some(LbConfig::RingHashLbConfig(config));
}

fn weights(cluster: &mut Cluster) {
    let blackout_period = Some(google::Duration::default());
    let config = ClientSideWeightedRoundRobin { blackout_period, ..Default::default() };
    let package = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3";
    let type_url = format!("type.googleapis.com/{package}.ClientSideWeightedRoundRobin");
    let typed_config = Some(Any { type_url, value: config.encode_to_vec().into() });
    let extension = TypedExtensionConfig { typed_config, ..Default::default() };
    let policies = vec![Policy { typed_extension_config: Some(extension) }];
    cluster.load_balancing_policy = Some(LoadBalancingPolicy { policies });
}

fn outlier_detection(cluster: &mut Cluster) {
    let value = |value| Some(google::UInt32Value { value });
    cluster.outlier_detection = Some(OutlierDetection {
        success_rate_request_volume: value(5),
        failure_percentage_request_volume: value(5),
        enforcing_failure_percentage: value(100),
        ..Default::default()
    });
}

fn key(number: usize) -> String {
    SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 80)).to_string()
}

fn assignment(name: &str, count: usize) -> Vec<u8> {
    let addresses: Vec<_> = (0..count).map(key).collect();
    endpoints(name).locality("eu", "a", addresses.iter().map(String::as_str)).into_message().encode_to_vec()
}

/// A response of the incremental variant.
fn response<'a>(
    version: usize,
    type_url: &str,
    resources: impl IntoIterator<Item = (&'a str, Vec<u8>)>,
) -> Bytes {
    let wrapped = |(name, value): (&str, Vec<u8>)| Wrapped {
        name: name.to_owned(),
        version: version.to_string(),
        resource: Some(Any { type_url: type_url.to_owned(), value: value.into() }),
        ..Wrapped::default()
    };
    let response = DeltaDiscoveryResponse {
        nonce: version.to_string(),
        type_url: type_url.to_owned(),
        resources: resources.into_iter().map(wrapped).collect(),
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec().into()
}

/// Answers when so many names of the type were requested.
fn answer(feed: &Feed, type_url: &str, count: usize, response: Bytes) {
    let requested = Cell::new(0);
    feed.until_asked_for(count, |request| {
        let request = DeltaDiscoveryRequest::decode(request).expect("it is one");
        if request.type_url == type_url {
            requested.set(requested.get() + request.resource_names_subscribe.len());
        }
        requested.get()
    });
    feed.answer(response);
}

fn latest(resolution: &Resolution) -> Arc<Snapshot> {
    resolution.latest().expect("it is known").expect("it is there")
}

const PATH: &str = "/shop.Cart/Get";
/// Picks that are measured together.
const PICKS: usize = 1_000;
