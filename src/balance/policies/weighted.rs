//! weighted_round_robin on the client's side: picks in proportion to the weights that follow from reports of load (A58).

mod schedule;

use std::{sync::Arc, time::Instant};

use self::schedule::Schedule;
use super::{
    EndpointPolicy, PickerEndpoints, PolicyPick, PolicyPicker, PolicyState, Tracking, round_robin::Position,
};
use crate::{
    balance::{
        lists::config::EndpointList,
        pick_args::PickArgs,
        ready_endpoint::ReadyEndpoint,
        ready_set::ReadySet,
        weights::{EndpointWeight, WeightSettings, WeightState},
    },
    resource::LbPolicy,
};

/// Configuration of weighted_round_robin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weighted(pub(in crate::balance) Box<WeightSettings>);

/// The position of the next pick, and the schedule of the last picker.
#[derive(Debug)]
pub(in crate::balance) struct Schedules {
    settings: WeightSettings,
    position: Position,
    /// `None` where endpoints are picked in turns.
    last: Option<Arc<Schedule>>,
}

/// Picks by a schedule.
#[derive(Debug, Clone)]
pub(in crate::balance) struct ScheduledPicker {
    position: Position,
    /// `None` where endpoints are picked in turns.
    schedule: Option<Arc<Schedule>>,
    /// Penalty of errors in the reports of calls. `None` where these are not read, as endpoints report beside the calls (CH3.46).
    penalty: Option<f64>,
}

impl Schedules {
    /// The weights of ready endpoints at a time, in their order.
    fn weights<H>(&self, ready: &ReadySet<H>, now: Instant) -> Vec<WeightState> {
        let state = |weight: &Arc<EndpointWeight>| weight.state(&self.settings, now);
        let weights = ready.iter().map(|endpoint| endpoint.weight.as_ref());
        weights.map(|weight| weight.map_or(WeightState::NotYetUsable, state)).collect()
    }
}

impl EndpointPolicy for Weighted {
    const NAME: &'static str = "weighted_round_robin";

    type State<H> = Schedules;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::ClientSideWeightedRoundRobin(settings) = configured else { return None };
        Some(Self(Box::new((&**settings).into())))
    }

    fn state<H>(
        &self,
        _: &EndpointList<'_>,
        before: Option<Schedules>,
        random: &mut fastrand::Rng,
    ) -> Schedules {
        let position = before.map_or_else(|| Position::random(random), |before| before.position);
        // The schedule is for the ready endpoints of the list before, and the position for any.
        Schedules { settings: WeightSettings::clone(&self.0), position, last: None }
    }

    fn is_incremental(&self) -> bool {
        true
    }

    fn weights(&self) -> Option<&WeightSettings> {
        Some(&self.0)
    }
}

impl<H> PolicyState<H> for Schedules {
    type Picker = ScheduledPicker;

    fn picker(&mut self, endpoints: &PickerEndpoints<'_, H>) -> ScheduledPicker {
        let weights = self.weights(endpoints.ready, endpoints.now);
        (endpoints.on_weights)(&weights);
        self.last = Schedule::of(&weights).map(Arc::new);
        ScheduledPicker {
            position: self.position.clone(),
            schedule: self.last.clone(),
            penalty: self.settings.out_of_band.is_none().then_some(self.settings.penalty),
        }
    }

    fn has_new_weights(&self, ready: Option<&ReadySet<H>>, now: Instant) -> bool {
        let schedule = ready.and_then(|ready| Schedule::of(&self.weights(ready, now)));
        schedule.as_ref() != self.last.as_deref()
    }
}

impl<H> PolicyPicker<H> for ScheduledPicker {
    #[inline]
    fn pick<'a>(&'a self, ready: &'a ReadySet<H>, _: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        let index = match &self.schedule {
            Some(schedule) => schedule.pick(self.position.counter()),
            None => self.position.next(),
        };
        PolicyPick::Endpoint(ready.at(index), Tracking { penalty: self.penalty, ..Tracking::default() })
    }

    fn without(&self, ready: &ReadySet<H>, is_left_out: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        let left_out: Vec<_> = ready.iter().map(|endpoint| is_left_out(endpoint)).collect();
        let rest = |schedule: &Arc<Schedule>| Arc::new(schedule.without(|index| left_out[index]));
        Self { schedule: self.schedule.as_ref().map(rest), ..self.clone() }
    }
}
