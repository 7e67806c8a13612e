//! pick_first among the endpoints of a list (A62): one connection, to the first address that can be connected.
//!
//! The attempts to connect over the addresses are those of an endpoint (`balance::pick_first`): all endpoints of the list are one to
//! the levels above.

use std::sync::Arc;

use super::{EndpointPolicy, PickerEndpoints, PolicyPick, PolicyPicker, PolicyState, Tracking};
use crate::{
    balance::{
        addresses::shuffled,
        endpoint_spec::{EndpointSpec, Hostname},
        lists::config::EndpointList,
        pick_args::PickArgs,
        ready_endpoint::ReadyEndpoint,
        ready_set::ReadySet,
    },
    resource::LbPolicy,
};

/// Configuration of pick_first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PickFirst {
    /// The order of the endpoints is drawn by their weights (CH3.15).
    pub(in crate::balance) shuffle: bool,
}

/// Picks the only endpoint.
#[derive(Debug, Clone, Copy)]
pub(in crate::balance) struct TheOnly;

impl EndpointPolicy for PickFirst {
    const NAME: &'static str = "pick_first";

    type State<H> = TheOnly;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::PickFirst(settings) = configured else { return None };
        Some(Self { shuffle: settings.shuffle_address_list })
    }

    fn state<H>(&self, _: &EndpointList<'_>, _: Option<TheOnly>, _: &mut fastrand::Rng) -> TheOnly {
        TheOnly
    }

    fn members(&self, list: &EndpointList<'_>, random: &mut fastrand::Rng) -> Vec<EndpointSpec> {
        let endpoints: Vec<_> = match self.shuffle {
            true => shuffled(list.weighted(), random),
            false => list.endpoints().collect(),
        };
        // A connection without addresses would keep the list from counting as empty.
        if endpoints.is_empty() {
            return Vec::new();
        }
        let hostnames = endpoints.iter().flat_map(|endpoint| {
            let hostname = endpoint.hostname.iter();
            hostname.flat_map(|hostname| {
                endpoint.destinations().map(|destination| (destination, hostname.clone()))
            })
        });
        vec![EndpointSpec {
            key: list.key(),
            hostname: Hostname::Each(Arc::new(hostnames.collect())),
            destinations: endpoints.iter().flat_map(|endpoint| endpoint.destinations()).collect(),
            // A list of its own waits for the next pick (CH3.22); one of several localities is connected by what draws among these.
            reconnects: list.locality.is_some(),
        }]
    }

    fn shares_connection(&self) -> bool {
        true
    }
}

impl<H> PolicyState<H> for TheOnly {
    type Picker = Self;

    fn picker(&mut self, _: &PickerEndpoints<'_, H>) -> Self {
        Self
    }
}

impl<H> PolicyPicker<H> for TheOnly {
    #[inline]
    fn pick<'a>(&'a self, ready: &'a ReadySet<H>, _: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        PolicyPick::Endpoint(ready.at(0), Tracking::default())
    }

    fn without(&self, _: &ReadySet<H>, _: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        Self
    }
}
