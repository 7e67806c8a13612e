//! Load balancing without I/O: from the clusters of a snapshot to the connection of each call.
//!
//! [`Balancer`](balancer::Balancer) is the state of a channel's clusters. The levels below it, from the top:
//!
//! | level | file |
//! |---|---|
//! | a cluster that routes name: the leaves of an aggregate in order of preference | `balancer`, `failover` |
//! | a leaf, with endpoints of its own, all or a subset: priorities | `leaf`, `failover` |
//! | a priority: localities by weight | `lists`, `ready_set` |
//! | a list of endpoints: how one of them is chosen | `policies` |
//! | an endpoint: addresses, of which one is connected | `cluster_endpoint`, `pick_first` |
//! | an address: connections, backoff | `subchannel`, `backoff` |
//! | the streams of its connections, and the attempts that wait for one | `stream_queue` |
//!
//! A connection belongs to a cluster, an address, and its `identity`: when the configuration changes, the endpoints that have the address now take it
//! over (`released_connections`), and the endpoints of a replaced policy may go on for a while (`draining_policy`). Endpoints whose attempts fail more often
//! than those of others count as failing for a while (`outlier`), and those that report more load are picked less often (`weights`,
//! `weighing`).
//!
//! The endpoints that cookies of sessions name have connections beyond those of their policy, if calls need them (`session_endpoints`).
//!
//! Each is a state machine like the engine: events and the time go in, [`Command`](command::Command)s come out. The result is a
//! [`ClusterPicker`](picker::ClusterPicker) for each cluster, which is immutable: calls pick without a lock.

mod addresses;
pub(crate) mod backoff;
pub(crate) mod balancer;
pub(crate) mod breaker;
mod cluster_endpoint;
mod cluster_load;
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
pub(crate) mod ready_endpoint;
mod ready_set;
mod released_connections;
pub(crate) mod retry;
mod rotation;
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
