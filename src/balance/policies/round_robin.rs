//! round_robin: one ready endpoint after the other, in the order of the configuration.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{EndpointPolicy, PickerEndpoints, PolicyPick, PolicyPicker, PolicyState, Tracking};
use crate::{
    balance::{
        lists::config::EndpointList, pick_args::PickArgs, ready_endpoint::ReadyEndpoint, ready_set::ReadySet,
    },
    resource::LbPolicy,
};

/// Configuration of round_robin, which has no settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoundRobin;

/// Number of the next pick. It outlives pickers, so that an update does not begin at the first endpoint again (CH3.26).
#[derive(Debug, Clone, Default)]
pub(in crate::balance) struct Position(Arc<AtomicUsize>);

impl Position {
    /// Begins anywhere, since all clients would begin with the same endpoint otherwise (CH3.26).
    pub(super) fn random(random: &mut fastrand::Rng) -> Self {
        Self(Arc::new(random.u32(..).try_into().unwrap_or(0).into()))
    }

    /// The number of a pick.
    #[inline]
    pub(super) fn next(&self) -> usize {
        // The counter wraps around in time, which puts one turn out of order.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The counter, for orders that take several numbers at once.
    pub(super) fn counter(&self) -> &AtomicUsize {
        &self.0
    }
}

impl EndpointPolicy for RoundRobin {
    const NAME: &'static str = "round_robin";

    type State<H> = Position;

    fn read(configured: &LbPolicy) -> Option<Self> {
        matches!(configured, LbPolicy::RoundRobin).then_some(Self)
    }

    fn state<H>(
        &self,
        _: &EndpointList<'_>,
        before: Option<Position>,
        random: &mut fastrand::Rng,
    ) -> Position {
        before.unwrap_or_else(|| Position::random(random))
    }

    fn is_incremental(&self) -> bool {
        true
    }
}

impl<H> PolicyState<H> for Position {
    type Picker = Self;

    fn picker(&mut self, _: &PickerEndpoints<'_, H>) -> Self {
        self.clone()
    }
}

impl<H> PolicyPicker<H> for Position {
    #[inline]
    fn pick<'a>(&'a self, ready: &'a ReadySet<H>, _: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        PolicyPick::Endpoint(ready.at(self.next()), Tracking::default())
    }

    fn without(&self, _: &ReadySet<H>, _: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        self.clone()
    }
}
