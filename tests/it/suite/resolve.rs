//! Targets resolved by a client on a real connection to an embedded control plane.

mod content;
mod dns;
mod errors;
mod holds;
mod leds;
mod mesh;
mod on_demand;
mod scopes;
mod targets;
mod tree;

use std::{sync::Arc, time::Duration};

use self::mesh::*;
use crate::common::soon;
use xdskit::{
    Bootstrap, Client, Resolution, Snapshot, WatchError,
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config, scope},
    },
};
