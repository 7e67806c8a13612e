//! least_request: the least loaded of some ready endpoints at random (A48).

use std::sync::{
    Arc,
    atomic::{Ordering, compiler_fence},
};

use super::{EndpointPolicy, PickerEndpoints, PolicyPick, PolicyPicker, PolicyState, Tracking};
use crate::{
    balance::{
        lists::config::EndpointList, pick_args::PickArgs, ready_endpoint::ReadyEndpoint, ready_set::ReadySet,
    },
    resource::LbPolicy,
};

/// Configuration of least_request. It is its own state and picker, as the requests in flight are counted at the endpoints.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeastRequest {
    /// The number of endpoints to compare, at least 2.
    pub(in crate::balance) choice_count: u8,
}

impl LeastRequest {
    /// The endpoint with the fewest requests in flight of some at random, and the first of these drawn among equal ones (CH3.39).
    fn least_loaded<'a, H>(
        &self,
        ready: &'a ReadySet<H>,
        random: &mut fastrand::Rng,
    ) -> &'a Arc<ReadyEndpoint<H>> {
        let mut best = ready.slot(random.usize(..ready.len()));
        for _ in 1..self.choice_count {
            // Drawn with replacement, as in A48: one endpoint may be drawn twice.
            let other = ready.slot(random.usize(..ready.len()));
            if other.load.running() < best.load.running() {
                // Keeps this a branch: the processor predicts it, and fetches the endpoint while it waits for the counters.
                compiler_fence(Ordering::Acquire);
                best = other;
            }
        }
        &best.endpoint
    }
}

impl EndpointPolicy for LeastRequest {
    const NAME: &'static str = "least_request";

    type State<H> = Self;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::LeastRequest(settings) = configured else { return None };
        Some(Self { choice_count: settings.choice_count })
    }

    fn state<H>(&self, _: &EndpointList<'_>, _: Option<Self>, _: &mut fastrand::Rng) -> Self {
        self.clone()
    }

    fn is_incremental(&self) -> bool {
        true
    }
}

impl<H> PolicyState<H> for LeastRequest {
    type Picker = Self;

    fn picker(&mut self, _: &PickerEndpoints<'_, H>) -> Self {
        self.clone()
    }
}

impl<H> PolicyPicker<H> for LeastRequest {
    #[inline]
    fn pick<'a>(&'a self, ready: &'a ReadySet<H>, args: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        let endpoint = self.least_loaded(ready, args.random);
        PolicyPick::Endpoint(endpoint, Tracking { counts_request: true, ..Tracking::default() })
    }

    fn without(&self, _: &ReadySet<H>, _: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        self.clone()
    }
}
