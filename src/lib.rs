//! An xDS client library for applications that are not proxies.
//!
//! A service in a mesh receives its configuration (listeners, routes, clusters, endpoints) from a management server. This crate
//! connects to that server and provides each resource as a typed, validated and current value: the last known good one, with the
//! error of a later update if there is one. With the feature `channel` it also sends the calls of an application to the endpoints,
//! as that configuration says; without it, it connects to management servers alone.
//!
//! # Resolving a target
//!
//! [`Client::resolve`](client/struct.Client.html#method.resolve) turns a target into a [`Snapshot`] of the whole tree of listener, routes, clusters
//! and endpoints, and keeps it up to date. Each request is routed against the latest snapshot:
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use xdskit::{Client, RouteQuery, Snapshot, config::Bootstrap};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::builder(Bootstrap::from_env()?).build()?; // the file in GRPC_XDS_BOOTSTRAP
//!     let mut shop = client.resolve("xds:///shop");
//!     for _ in 0..5 {
//!         let snapshot = shop.ready().await?; // the latest one
//!         println!("send it to {:?}", choose(&snapshot, fastrand::u64(..)));
//!     }
//!     Ok(())
//! }
//!
//! /// Matches the routes, then picks a cluster and one of its usable endpoints by weight.
//! fn choose(snapshot: &Snapshot, random: u64) -> Option<SocketAddr> {
//!     let request = RouteQuery::new("/cart/add", random).with_header("x-user", "ada");
//!     let cluster = snapshot.route(&request)?.pick_cluster()?;
//!     Some(cluster.pick_endpoint(random)?.address())
//! }
//! ```
//!
//! # Watching a resource
//!
//! [`Client::watch`](client/struct.Client.html#method.watch) follows a single resource. A watch yields its latest state; intermediate states are
//! skipped, not queued:
//!
//! ```no_run
//! use xdskit::{Client, Observed, config::Bootstrap, resource::Cluster};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::builder(Bootstrap::from_env()?).build()?;
//!     let mut shop = client.watch::<Cluster>("shop");
//!     while let Some(state) = shop.next().await {
//!         match &*state {
//!             Observed::Present { resource, warning: None, .. } => println!("current: {resource:?}"),
//!             Observed::Present { warning: Some(error), .. } => println!("last known good: {error}"),
//!             Observed::Absent { reason, .. } => println!("absent: {reason}"),
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Modules
//!
//! | module | feature | contents |
//! |---|---|---|
//! | [`client`](client/index.html) | `client` | the client, its watches and resolutions |
//! | [`resolve`] | | snapshots of targets: routing of requests, clusters, endpoints |
//! | [`resource`] | | the typed resources, and the trait for types of your own |
//! | [`config`] | | the configuration of a client as values, and a builder of it |
//! | [`bootstrap`] | | reading of bootstraps in the formats of gRPC and Envoy |
//! | [`name`] | | names of resources: old-style and `xdstp://` |
//! | [`error`] | | the errors of watches and resolutions |
//! | [`transport`](transport/index.html) | `client` | connections to management servers, credentials, and the trait for transports of your own |
//! | [`discover`](discover/index.html) | `tower` | the endpoints of a cluster as services for tower's load balancers |
//! | [`csds`](csds/index.html) | `csds` | the client status service, for tools such as `grpcdebug` |
//! | [`metrics`](metrics/index.html) | `metrics` | gRPC's metrics of xDS clients, by OpenTelemetry |
//! | [`control_plane`](control_plane/index.html) | `control-plane` | an embeddable management server |
//! | [`testing`](testing/index.html) | `test-util` | a management server for the tests of your application, with faults, expectations and builders |
//! | [`pb`](pb/index.html) | `unstable-pb` | the protobuf messages; exempt from semantic versioning |
//! | [`cli`](cli/index.html) | `cli` | the code of the command-line tool `xdskit`; not a stable API |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `client` | yes | the client, on tokio, tonic and hyper |
//! | `tls` | yes | TLS to management servers, by rustls with the system's roots |
//! | `tower` | no | the endpoints of a cluster as a `tower::discover::Discover` |
//! | `csds` | no | the client status service on tonic |
//! | `metrics` | no | metrics, by the API of OpenTelemetry |
//! | `json` | no | messages as JSON, YAML and protobuf text |
//! | `files` | no | files as sources of resources; enables `json` |
//! | `rest` | no | management servers polled over REST; enables `json` |
//! | `control-plane` | no | the management server; enables `unstable-pb` |
//! | `test-util` | no | the tools for tests; enables `control-plane` |
//! | `unstable-pb` | no | the protobuf messages as a public module |
//! | `cli` | no | the command-line tool `xdskit` |
//!
//! Without features the crate consists of the bootstrap, names, typed resources and snapshots, and does not depend on tokio.

// Marks each public item behind a feature with the feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "client"),
    allow(dead_code, unreachable_pub, reason = "the client is what drives the engine")
)]

#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
#[cfg_attr(
    not(feature = "channel"),
    allow(dead_code, unreachable_pub, reason = "the channel is what drives it")
)]
mod balance;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod base;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod cache;
mod capacity;
mod chunked_slab;
#[cfg(any(feature = "client", feature = "control-plane"))]
mod codec;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod engine;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod escape;
#[cfg(feature = "json")]
#[cfg_attr(
    not(all(feature = "files", feature = "control-plane")),
    allow(dead_code, reason = "files and REST use a part of it each")
)]
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod format;
mod invariant;
mod observed;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod protocol;
#[cfg(test)]
mod scans;
mod wire;

pub mod bootstrap;
#[cfg(feature = "channel")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod channel;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "client")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod client;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod config;
#[cfg(feature = "control-plane")]
pub mod control_plane;
#[cfg(all(any(test, feature = "fuzzing"), not(feature = "control-plane")))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the simulated world needs its session and store alone"
)]
mod control_plane;
#[cfg(feature = "csds")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod csds;
#[cfg(feature = "tower")]
pub mod discover;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "metrics")]
pub mod metrics;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod name;
#[cfg(not(feature = "unstable-pb"))]
mod pb;
#[cfg(feature = "unstable-pb")]
pub mod pb;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
pub mod resolve;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
pub mod resource;
#[cfg(feature = "test-util")]
pub mod testing;
#[cfg(feature = "client")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod transport;

#[cfg(feature = "channel")]
pub use channel::Channel;
#[cfg(feature = "client")]
pub use client::{Client, Resolution, ResourceSelector, Watch, WatchAll};
pub use config::{Bootstrap, Target};
pub use error::WatchError;
pub use observed::Observed;
pub use resolve::{RouteQuery, Snapshot};
pub use resource::Resource;

/// The examples of the README, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the document, compiled.
#[cfg(all(doctest, feature = "csds", feature = "metrics"))]
#[doc = include_str!("../docs/OPERATING.md")]
struct Operating;

/// The example of the document, compiled and run.
#[cfg(all(doctest, feature = "client", feature = "test-util"))]
#[doc = include_str!("../docs/TESTING.md")]
struct Testing;

/// The example of the guide, compiled.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../docs/guides/traffic-director.md")]
struct TrafficDirector;
