//! Load balancing by an application with a transport of its own: the public module alone, with virtual time.

mod config;
mod connections;
mod outcomes;
mod picks;
mod reports;
mod world;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use xdskit::{
    balance::{Connectivity, LoadReport, Pick, PickError, PickRequest, Settings},
    lrs::Outcome,
    resolve::{RouteQuery, SnapshotBuilder},
    testing::resources::{
        EndpointsBuilder, cluster, endpoints, lb_policy, listener, outlier_detection, route, route_config,
    },
};

use self::world::{Peer, World, address, shop};
