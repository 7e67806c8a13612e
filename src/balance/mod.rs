//! Load balancing without a transport: from the clusters of a [`Snapshot`](crate::Snapshot) to the endpoint of each request.
//!
//! A program with a transport of its own, such as a proxy, the driver of a database or a relay of datagrams, has its requests balanced as
//! those of a [`Channel`](../channel/struct.Channel.html) are: by the policies, priorities, localities, circuit breakers, drops and
//! outlier detection that the management server configures. This module does no I/O, reads no clock, and needs no runtime:
//!
//! - A [`Balancer`] has the state of one target. [Snapshots](Balancer::handle_resolution), the events of connections and the time go in;
//!   [`Command`]s to connect and to close come out, which the application executes.
//! - A [`Picker`] is what the balancer knows at one time. Threads [pick](Picker::pick) an endpoint for each [`PickRequest`] by it, without a
//!   lock.
//! - An [`Attempt`] is a request on its way to the picked endpoint. Its outcome counts for outlier detection, circuit breaker, policies and
//!   load reports.
//!
//! ```
//! use std::{net::SocketAddr, time::Instant};
//!
//! use xdskit::{
//!     Snapshot,
//!     balance::{Balancer, Command, Pick, PickRequest, Settings},
//!     lrs::Outcome,
//! };
//!
//! let now = Instant::now();
//! let mut balancer = Balancer::new(Settings::new(0x5eed)); // a random seed
//!
//! // The endpoints: here by hand, otherwise the snapshots of `Client::resolve`.
//! let addresses: [SocketAddr; 2] = ["10.0.0.1:80".parse()?, "10.0.0.2:80".parse()?];
//! let snapshot = Snapshot::builder("xds:///shop").cluster("shop", [addresses.as_slice()]).build(now)?;
//! balancer.handle_resolution(Ok(snapshot), now);
//!
//! // Execute the commands. What stands for a connection is the application's; here it is the address.
//! while let Some(command) = balancer.poll_command(now) {
//!     match command {
//!         Command::Connect { connection, target, .. } => {
//!             balancer.handle_connected(connection, target.address(), now);
//!         }
//!         other => println!("{other:?}"),
//!     }
//! }
//!
//! // Pick endpoints, on any thread.
//! let picker = balancer.poll_picker(now).expect("the snapshot is new");
//! match picker.pick(&PickRequest::to_cluster("shop", 0x5eed)) {
//!     Pick::Endpoint(mut attempt) => {
//!         println!("send to {}", attempt.connection());
//!         attempt.on_sent();
//!         attempt.finish(Outcome::Success);
//!     }
//!     Pick::Wait => println!("pick again by the next picker"),
//!     Pick::Fail(error) => println!("failed: {error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/BALANCE.md` in the repository explains the loop around a balancer, and the examples `udp_relay` and `tcp` are whole programs.

// The levels, from the top; `balancer` has the state of a target's clusters, and `public` its form for applications.
//
// | level | file |
// |---|---|
// | a cluster that routes name: the leaves of an aggregate in order of preference | `balancer`, `failover` |
// | a leaf, with endpoints of its own, all or a subset: priorities | `leaf`, `failover` |
// | a priority: localities by weight | `lists`, `ready_set` |
// | a list of endpoints: how one of them is chosen | `policies` |
// | an endpoint: addresses, of which one is connected | `cluster_endpoint`, `pick_first` |
// | an address: connections, backoff | `subchannel`, `backoff` |
// | the streams of its connections, and the attempts that wait for one | `stream_queue` |
//
// A connection belongs to a cluster, an address, and its `identity`: when the configuration changes, the endpoints that have the address
// now take it over (`released_connections`), and the endpoints of a replaced policy may go on for a while (`draining_policy`). Endpoints
// whose attempts fail more often than those of others count as failing for a while (`outlier`), and those that report more load are
// picked less often (`weights`, `weighing`).
//
// The endpoints that cookies of sessions name have connections beyond those of their policy, if calls need them (`session_endpoints`).
//
// Each is a state machine like the engine: events and the time go in, commands come out. The result is a `ClusterPicker` for each cluster,
// which is immutable: calls pick without a lock.

mod addresses;
pub(crate) mod backoff;
pub(crate) mod balancer;
pub(crate) mod breaker;
mod cluster_endpoint;
mod cluster_load;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
pub(crate) mod cluster_use;
mod clusters;
pub(crate) mod command;
mod configs;
pub(crate) mod connect_error;
pub(crate) mod connect_request;
mod connection_event;
pub(crate) mod connectivity;
mod connects;
mod deadlines;
pub(crate) mod disconnect;
mod draining_policy;
mod endpoint_spec;
mod failover;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
pub(crate) mod generation;
pub(crate) mod hash;
pub(crate) mod identity;
mod leaf;
mod lists;
mod load;
pub(crate) mod locality_config;
pub(crate) mod observer;
mod outlier;
pub(crate) mod pick_args;
pub(crate) mod pick_first;
pub(crate) mod picker;
pub(crate) mod policies;
pub(crate) mod policy;
mod public;
pub(crate) mod ready_endpoint;
mod ready_set;
mod released_connections;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
pub(crate) mod retry;
mod rotation;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
pub(crate) mod route_lookup;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
pub(crate) mod routes;
mod scope;
pub(crate) mod session_endpoints;
pub(crate) mod settings;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod simulation;
pub(crate) mod stale_config;
#[cfg(any(test, feature = "channel"))]
pub(crate) mod status;
pub(crate) mod stream_queue;
mod subchannel;
mod weighing;
pub(crate) mod weights;

pub use self::{
    command::ConnectionId,
    connectivity::Connectivity,
    public::{
        Attempt, Balancer, Command, ConnectTarget, InvalidLoadReport, Pick, PickError, PickRequest, Picker,
        Settings,
    },
    weights::LoadReport,
};
