//! What a simulated network is made of.

use std::time::Duration;

use super::family::{Family, ServerBehavior};
use crate::{
    config::{ApiType, Bootstrap, Node, Server},
    engine::Settings,
};

/// The conditions of the network while it is faulty.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkConditions {
    /// How many of a hundred connections are refused.
    pub(super) refusals: u32,
    /// How many of a hundred requests come late, since the server is slow to read.
    pub(super) late_requests: u32,
    /// How many of a hundred connections come about late, or are refused late.
    pub(super) late_connections: u32,
    /// How long anything is under way at most, whether it is faulty or not.
    pub(super) delay: Duration,
}

impl NetworkConditions {
    /// The network of several servers.
    pub(super) const FAULTY: Self =
        Self { refusals: 10, late_requests: 3, late_connections: 0, delay: DELAY };
    /// The network of one server.
    pub(super) const WORSE: Self = Self { refusals: 20, late_requests: 5, late_connections: 5, delay: DELAY };
    /// Nothing gets lost, and nothing is under way for longer than this.
    #[cfg(test)]
    pub(super) const fn calm(delay: Duration) -> Self {
        Self { refusals: 0, late_requests: 0, late_connections: 0, delay }
    }
}

/// What a network is made of.
pub(super) struct Setup {
    /// Decides on all that happens by chance.
    pub(super) seed: u64,
    pub(super) family: Family,
    pub(super) conditions: NetworkConditions,
    pub(super) bootstrap: Bootstrap,
    pub(super) settings: Settings,
    pub(super) servers: Vec<(ServerBehavior, Server)>,
    /// The servers of each authority, by their places among these.
    pub(super) lists: Vec<Vec<usize>>,
}

impl Setup {
    /// The only server of a bootstrap, for all authorities.
    pub(super) fn of_one(seed: u64, family: Family, api_type: ApiType) -> Self {
        let server = Server::new("127.0.0.1:1").insecure().api_type(api_type);
        let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server.clone()).build();
        let behavior = family.server_behavior((seed, 0), api_type.is_delta());
        Self {
            seed,
            family,
            conditions: NetworkConditions::WORSE,
            bootstrap: bootstrap.expect("it is valid"),
            settings: Settings::default(),
            servers: vec![(behavior, server.build().expect("it is valid"))],
            lists: vec![vec![0]],
        }
    }
}

/// How long anything is under way.
pub(super) const DELAY: Duration = Duration::from_millis(30);
/// How late a server may be to read.
pub(super) const LATE: Duration = Duration::from_secs(5);
/// How long a response of a slow server is under way at most: with the latest request, less than the time for which absence proves
/// nothing of a name that was unsubscribed and subscribed again.
pub(super) const SLOW: Duration = Duration::from_secs(9);
/// The longest life of a stream that flaps.
pub(super) const FLAPPING: Duration = Duration::from_secs(3);
/// The longest life of a stream that ends cleanly.
pub(super) const CLEAN_END: Duration = Duration::from_secs(60);
/// When it is given up to connect.
pub(super) const HANGING: Duration = Duration::from_secs(20);
/// When a dead connection is noticed.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(40);
