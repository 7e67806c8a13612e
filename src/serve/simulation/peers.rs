//! The peers of a server, and the resources that a management server sends.

use std::{sync::Arc, time::Instant};

use crate::{
    pb::envoy::config::core::v3::{address::Address as Kind, socket_address::PortSpecifier},
    resource::{Listener, RouteConfiguration},
    serve::{
        ChainId, RoutedRequest,
        fixture::{
            chain, chain_from, inline, listener, listener_message, parse, rds, routes, routes_message,
        },
    },
};

/// A connection, as its peer and the shell have it.
pub(super) struct Peer {
    pub(super) chain: ChainId,
    /// The number of the swap before which it was accepted.
    pub(super) generation: u64,
    /// When its handshake ends; `None` is never.
    pub(super) established_at: Option<Instant>,
    pub(super) is_established: bool,
    /// When it was ordered to drain.
    pub(super) drained_at: Option<Instant>,
    /// When it ends, since it vanishes or has drained.
    pub(super) ends_at: Option<Instant>,
    /// How many seconds it takes to end when it drains; `None` is for ever.
    pub(super) drain_time: Option<u64>,
    /// Its requests in progress, with the names of the routes that they began with.
    pub(super) requests: Vec<(RoutedRequest, Box<str>)>,
    /// Whether the server has closed it.
    pub(super) is_closed: bool,
    pub(super) is_neighbor: bool,
}

/// The resources of a management server, each in several versions.
pub(super) struct Resources {
    pub(super) listeners: Vec<Arc<Listener>>,
    pub(super) routes: Vec<Arc<RouteConfiguration>>,
}

impl Resources {
    pub(super) fn new() -> Self {
        let own = |prefix: &str| inline(routes_message("", &[("*", &[prefix])]));
        let mut elsewhere = listener_message(vec![chain("a", own("/"))]);
        if let Some(Kind::SocketAddress(socket)) = &mut elsewhere.address.as_mut().unwrap().address {
            socket.port_specifier = Some(PortSpecifier::PortValue(1));
        }
        let listeners = vec![
            listener(vec![chain("a", own("/"))]),
            listener(vec![chain("a", own("/a"))]),
            listener(vec![chain("a", rds("r"))]),
            listener(vec![chain("a", rds("r")), chain_from("b", "10.0.0.0/8", rds("s"))]),
            listener(vec![chain_from("b", "10.0.0.0/8", rds("s")), chain("c", rds("t"))]),
            listener(vec![chain_from("b", "10.0.0.0/8", rds("s"))]),
            parse(&elsewhere),
        ];
        let names = ["r", "s", "t"];
        let versions = names.iter().flat_map(|name| [routes(name, &["/"]), routes(name, &["/a"])]);
        Self { listeners, routes: versions.collect() }
    }
}
