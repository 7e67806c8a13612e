//! Endpoint policies: the choice of an endpoint among those of a priority, or of one of its localities.
//!
//! A policy is one file and one line of the list `policies!` below. It implements three traits, each for one stage of its life:
//! [`EndpointPolicy`] is its configuration in a cluster, [`PolicyState`] what it keeps for a list of endpoints across updates, and
//! [`PolicyPicker`] the immutable picker that calls share. Applications write policies on the public interface of
//! `resource::load_balancing`, which `custom` executes; `maglev` is written on that interface, too.
//!
//! | policy | source | reads of the configuration | keeps across updates | connections | reads of a request |
//! |---|---|---|---|---|---|
//! | `pick_first` | A62 | shuffling | nothing | one for all endpoints | nothing |
//! | `round_robin` | gRPC | nothing | the position of the next pick | all at once | nothing |
//! | `least_request` | A48 | the number of endpoints to compare | nothing | all at once | draws, requests in flight |
//! | `weighted` | A58 | periods and the penalty of errors | the position and the schedule | all at once | reports of load |
//! | `ring_hash` | A42, A61, A76 | sizes, the header to hash | the ring | on demand | the hash |
//! | `maglev` | Envoy | the size of its table | the table | on demand | the hash |
//! | `custom` | the application | its own | its own | as it asks | as it asks |
//!
//! `subset` is no policy of that kind: random_subsetting leaves a part of the endpoints to the policy below it (A68).

pub(in crate::balance) mod custom;
pub(in crate::balance) mod least_request;
pub(in crate::balance) mod maglev;
pub(in crate::balance) mod pick_first;
pub(crate) mod ring_hash;
pub(in crate::balance) mod round_robin;
pub(in crate::balance) mod subset;
pub(in crate::balance) mod weighted;

use std::{fmt::Debug, sync::Arc, time::Instant};

use super::{
    connectivity::Connectivity,
    endpoint_spec::EndpointSpec,
    lists::config::EndpointList,
    locality_config::ClusterLists,
    pick_args::{CallAttributes, PickArgs},
    ready_endpoint::ReadyEndpoint,
    ready_set::{ReadySet, ReadySlots},
    stale_config::with_stale_cluster,
    weights::{WeightSettings, WeightState},
};
use crate::{
    error::Code,
    resource::{LbPolicy, load_balancing::AddedMetadata},
};

/// Configuration of a policy in a cluster.
pub(in crate::balance) trait EndpointPolicy: Sized {
    /// The name in status and logs, which is that of gRPC's service config where gRPC has the policy.
    const NAME: &'static str;

    /// What the policy keeps for a list of endpoints.
    type State<H>: PolicyState<H>;

    /// The policy, if the resource configures this one and the channel executes it.
    fn read(configured: &LbPolicy) -> Option<Self>;

    /// The policy within the limits of the channel.
    fn limited(self, _limits: &PolicyLimits) -> Self {
        self
    }

    /// The state for one list of endpoints. `before` is that of the list of the same locality in the configuration before, under the
    /// same type of policy.
    fn state<H>(
        &self,
        list: &EndpointList<'_>,
        before: Option<Self::State<H>>,
        random: &mut fastrand::Rng,
    ) -> Self::State<H>;

    /// The states for all lists of a priority, in their order; for policies whose lists share a budget of their cluster.
    fn states<H>(
        &self,
        lists: &[EndpointList<'_>],
        before: Vec<Option<Self::State<H>>>,
        _cluster: ClusterLists<'_>,
        random: &mut fastrand::Rng,
    ) -> Vec<Self::State<H>> {
        lists.iter().zip(before).map(|(list, before)| self.state(list, before, random)).collect()
    }

    /// The connections of a list: one for each endpoint, unless the policy has one for all of them.
    fn members(&self, list: &EndpointList<'_>, _random: &mut fastrand::Rng) -> Vec<EndpointSpec> {
        let reconnects = !self.connects_on_demand();
        list.endpoints().map(|endpoint| EndpointSpec { reconnects, ..EndpointSpec::of(endpoint) }).collect()
    }

    /// Whether all endpoints of a list have one connection together.
    fn shares_connection(&self) -> bool {
        false
    }

    /// Whether endpoints are connected when calls need them (A42), and not all at once.
    fn connects_on_demand(&self) -> bool {
        false
    }

    /// Whether pickers follow from the ready endpoints alone, so that a few endpoints of a list can be exchanged
    /// without another state of the policy.
    fn is_incremental(&self) -> bool {
        false
    }

    /// The settings of weights by load, if the policy has these.
    fn weights(&self) -> Option<&WeightSettings> {
        None
    }
}

/// What a policy keeps for a list of endpoints.
pub(in crate::balance) trait PolicyState<H> {
    /// The picker. It is cloned with the pickers of its cluster, so it shares what is large.
    type Picker: PolicyPicker<H> + Clone;

    /// The endpoint at an index of the list is in this state from now on. Returns whether the picker is outdated by that.
    ///
    /// Policies that read ready endpoints alone need not implement it: other pickers follow from each change of these.
    fn set_endpoint(&mut self, _index: usize, _state: impl FnOnce() -> EndpointState<H>) -> bool {
        false
    }

    /// The picker of the current endpoints, of which at least one is ready unless the policy connects on demand.
    fn picker(&mut self, endpoints: &PickerEndpoints<'_, H>) -> Self::Picker;

    /// Whether a picker would have other weights than the last one.
    fn has_new_weights(&self, _ready: Option<&ReadySet<H>>, _now: Instant) -> bool {
        false
    }

    /// Whether the policy of the application has panicked.
    fn is_broken(&self) -> bool {
        false
    }
}

/// The choice of an endpoint for each attempt. It is immutable but for counters, and calls use it without a lock.
pub(in crate::balance) trait PolicyPicker<H>: Sized {
    /// Chooses an endpoint. `ready` has at least one unless the policy connects on demand.
    fn pick<'a>(&'a self, ready: &'a ReadySet<H>, args: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H>;

    /// Whether a pick reads the request of the call, which is therefore to be kept until then.
    fn needs_request(&self, _draws: &CallAttributes) -> bool {
        false
    }

    /// Returns the picker without some of the ready endpoints.
    fn without(&self, ready: &ReadySet<H>, is_left_out: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self;
}

/// Result of [`PolicyPicker::pick`].
#[derive(Debug)]
pub(in crate::balance) enum PolicyPick<'a, H> {
    Endpoint(&'a Arc<ReadyEndpoint<H>>, Tracking),
    /// The endpoint, and headers that the policy of the application adds to the request.
    EndpointWithMetadata(&'a Arc<ReadyEndpoint<H>>, Tracking, Vec<AddedMetadata>),
    /// The attempt waits for the next picker.
    Wait,
    /// A fail-fast call fails with UNAVAILABLE and this reason.
    Fail(String),
    /// The policy of the application fails a fail-fast call with this status.
    FailAs(Code, Arc<str>),
    /// The policy of the application has panicked.
    Broken,
}

/// What is counted of an attempt because its policy asks for it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::balance) struct Tracking {
    /// The attempt counts as a request in flight of its endpoint.
    pub(in crate::balance) counts_request: bool,
    /// The report in the trailers is read, with this penalty of errors.
    pub(in crate::balance) penalty: Option<f64>,
}

/// State of an endpoint, with what a pick needs of it.
#[derive(Debug, Clone)]
pub(in crate::balance) enum EndpointState<H> {
    Ready(Arc<ReadyEndpoint<H>>),
    Idle,
    Connecting,
    /// The last attempt to connect failed, with this error.
    Failing(Option<Arc<str>>),
}

/// The reason of a pick whose endpoint cannot be reached, nor any other.
fn unreachable(error: Option<&str>, stale_config: Option<&str>) -> String {
    let error = error.unwrap_or("the endpoint is not used");
    let reason = format!("no endpoint can be reached, the error of the first is: {error}");
    with_stale_cluster(reason, stale_config)
}

/// Numbers of endpoints of a list by their states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::balance) struct StateCounts {
    pub(in crate::balance) ready: usize,
    pub(in crate::balance) connecting: usize,
    pub(in crate::balance) idle: usize,
    pub(in crate::balance) failing: usize,
}

/// What a picker is made from.
pub(in crate::balance) struct PickerEndpoints<'a, H> {
    /// The endpoints at their indexes, as far as they are ready.
    pub(in crate::balance) slots: &'a ReadySlots<H>,
    pub(in crate::balance) ready: &'a ReadySet<H>,
    pub(in crate::balance) counts: StateCounts,
    /// Why the configuration may be stale, for the messages of calls that fail (CH1.9).
    pub(in crate::balance) stale_config: Option<&'a Arc<str>>,
    pub(in crate::balance) now: Instant,
    /// Is called with the weights that a schedule is made from (CH3.47).
    pub(in crate::balance) on_weights: &'a dyn Fn(&[WeightState]),
}

/// Limits that the channel sets to policies.
#[derive(Debug, Clone, Copy)]
pub(in crate::balance) struct PolicyLimits {
    /// The largest number of entries of one hash table (CH3.28).
    pub(in crate::balance) table_entries: u32,
    /// The largest number of entries that the hash tables of a cluster have together (CH3.30).
    pub(in crate::balance) cluster_table_entries: u32,
}

/// Defines the enums over all policies, which pass each call on to the policy. Calls pick through them without a virtual call.
macro_rules! policies {
    ($($module:ident::$policy:ident,)+) => {
        /// Endpoint policy of a cluster, with its configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Policy {
            $($policy($module::$policy),)+
        }

        /// State of the policy of a list of endpoints.
        #[derive(Debug)]
        pub(in crate::balance) enum AnyState<H> {
            $($policy(<$module::$policy as EndpointPolicy>::State<H>),)+
        }

        /// Picker of the policy of a list of endpoints.
        #[derive(Debug)]
        pub(in crate::balance) enum AnyPicker<H> {
            $($policy(<<$module::$policy as EndpointPolicy>::State<H> as PolicyState<H>>::Picker),)+
        }

        impl Policy {
            /// See [`EndpointPolicy::read`].
            pub(in crate::balance) fn read(configured: &LbPolicy) -> Option<Self> {
                None$(.or_else(|| $module::$policy::read(configured).map(Self::$policy)))+
            }

            /// See [`EndpointPolicy::limited`].
            pub(in crate::balance) fn limited(self, limits: &PolicyLimits) -> Self {
                match self {
                    $(Self::$policy(policy) => Self::$policy(policy.limited(limits)),)+
                }
            }

            /// See [`EndpointPolicy::states`].
            pub(in crate::balance) fn states<H>(
                &self,
                lists: &[EndpointList<'_>],
                before: Vec<Option<AnyState<H>>>,
                cluster: ClusterLists<'_>,
                random: &mut fastrand::Rng,
            ) -> Vec<AnyState<H>> {
                match self {
                    $(Self::$policy(policy) => {
                        let of_policy = |state| if let AnyState::$policy(state) = state { Some(state) } else { None };
                        let before = before.into_iter().map(|state| state.and_then(of_policy)).collect();
                        let states = policy.states::<H>(lists, before, cluster, random);
                        states.into_iter().map(AnyState::$policy).collect()
                    })+
                }
            }

            /// See [`EndpointPolicy::members`].
            pub(in crate::balance) fn members(
                &self,
                list: &EndpointList<'_>,
                random: &mut fastrand::Rng,
            ) -> Vec<EndpointSpec> {
                match self {
                    $(Self::$policy(policy) => policy.members(list, random),)+
                }
            }

            /// The name in status and logs.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$policy(_) => $module::$policy::NAME,)+
                }
            }

            /// See [`EndpointPolicy::shares_connection`].
            pub(in crate::balance) fn shares_connection(&self) -> bool {
                match self {
                    $(Self::$policy(policy) => policy.shares_connection(),)+
                }
            }

            /// See [`EndpointPolicy::connects_on_demand`].
            pub(in crate::balance) fn connects_on_demand(&self) -> bool {
                match self {
                    $(Self::$policy(policy) => policy.connects_on_demand(),)+
                }
            }

            /// See [`EndpointPolicy::is_incremental`].
            pub(in crate::balance) fn is_incremental(&self) -> bool {
                match self {
                    $(Self::$policy(policy) => policy.is_incremental(),)+
                }
            }

            /// See [`EndpointPolicy::weights`].
            pub(crate) fn weights(&self) -> Option<&WeightSettings> {
                match self {
                    $(Self::$policy(policy) => policy.weights(),)+
                }
            }
        }

        impl<H> AnyState<H> {
            /// See [`PolicyState::set_endpoint`].
            pub(in crate::balance) fn set_endpoint(
                &mut self,
                index: usize,
                endpoint: impl FnOnce() -> EndpointState<H>,
            ) -> bool {
                match self {
                    $(Self::$policy(state) => state.set_endpoint(index, endpoint),)+
                }
            }

            /// See [`PolicyState::picker`].
            pub(in crate::balance) fn picker(&mut self, endpoints: &PickerEndpoints<'_, H>) -> AnyPicker<H> {
                match self {
                    $(Self::$policy(state) => AnyPicker::$policy(state.picker(endpoints)),)+
                }
            }

            /// See [`PolicyState::has_new_weights`].
            pub(in crate::balance) fn has_new_weights(&self, ready: Option<&ReadySet<H>>, now: Instant) -> bool {
                match self {
                    $(Self::$policy(state) => state.has_new_weights(ready, now),)+
                }
            }

            /// See [`PolicyState::is_broken`].
            pub(in crate::balance) fn is_broken(&self) -> bool {
                match self {
                    $(Self::$policy(state) => PolicyState::<H>::is_broken(state),)+
                }
            }
        }

        impl<H> AnyPicker<H> {
            /// See [`PolicyPicker::pick`].
            #[inline]
            pub(in crate::balance) fn pick<'a>(
                &'a self,
                ready: &'a ReadySet<H>,
                args: &mut PickArgs<'_, '_>,
            ) -> PolicyPick<'a, H> {
                match self {
                    $(Self::$policy(picker) => picker.pick(ready, args),)+
                }
            }

            /// See [`PolicyPicker::needs_request`].
            pub(in crate::balance) fn needs_request(&self, attributes: &CallAttributes) -> bool {
                match self {
                    $(Self::$policy(picker) => PolicyPicker::<H>::needs_request(picker, attributes),)+
                }
            }

            /// See [`PolicyPicker::without`].
            pub(in crate::balance) fn without(
                &self,
                ready: &ReadySet<H>,
                is_left_out: &dyn Fn(&ReadyEndpoint<H>) -> bool,
            ) -> Self {
                match self {
                    $(Self::$policy(picker) => Self::$policy(picker.without(ready, is_left_out)),)+
                }
            }
        }

        // Derived, it would ask for transports that can be cloned.
        impl<H> Clone for AnyPicker<H> {
            fn clone(&self) -> Self {
                match self {
                    $(Self::$policy(picker) => Self::$policy(picker.clone()),)+
                }
            }
        }
    };
}

policies! {
    pick_first::PickFirst,
    round_robin::RoundRobin,
    least_request::LeastRequest,
    weighted::Weighted,
    ring_hash::RingHash,
    maglev::Maglev,
    custom::Custom,
}

impl<H> EndpointState<H> {
    pub(in crate::balance) fn of(
        connectivity: Connectivity,
        ready: Option<&Arc<ReadyEndpoint<H>>>,
        error: Option<&Arc<str>>,
    ) -> Self {
        match (connectivity, ready) {
            (Connectivity::Ready, Some(ready)) => Self::Ready(ready.clone()),
            (Connectivity::Idle, _) => Self::Idle,
            (Connectivity::TransientFailure, _) => Self::Failing(error.cloned()),
            // Ready without a connection for pickers is not pickable yet.
            (Connectivity::Connecting | Connectivity::Ready, _) => Self::Connecting,
        }
    }

    /// Whether a pick sees no difference between two states.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(one), Self::Ready(other)) => Arc::ptr_eq(one, other),
            (Self::Failing(one), Self::Failing(other)) => one == other,
            (Self::Idle, Self::Idle) | (Self::Connecting, Self::Connecting) => true,
            (Self::Ready(_) | Self::Idle | Self::Connecting | Self::Failing(_), _) => false,
        }
    }
}

impl StateCounts {
    /// The number of endpoints in a state.
    pub(in crate::balance) fn of(&mut self, connectivity: Connectivity) -> &mut usize {
        match connectivity {
            Connectivity::Ready => &mut self.ready,
            Connectivity::Connecting => &mut self.connecting,
            Connectivity::Idle => &mut self.idle,
            Connectivity::TransientFailure => &mut self.failing,
        }
    }

    /// The state of the list where all endpoints connect at once: the best state of any endpoint (CH3.11).
    pub(in crate::balance) fn best(self) -> Connectivity {
        match self {
            Self { ready: 1.., .. } => Connectivity::Ready,
            Self { connecting: 1.., .. } => Connectivity::Connecting,
            Self { idle: 1.., .. } => Connectivity::Idle,
            Self { .. } => Connectivity::TransientFailure,
        }
    }

    /// The state of the list where endpoints connect on demand. Two failures are enough for a failure, as an idle endpoint may never
    /// be tried (CH3.36).
    pub(in crate::balance) fn on_demand(self) -> Connectivity {
        match self {
            Self { ready: 1.., .. } => Connectivity::Ready,
            Self { failing: 2.., .. } => Connectivity::TransientFailure,
            Self { connecting: 1.., .. } | Self { failing: 1, idle: 1.., .. } => Connectivity::Connecting,
            Self { idle: 1.., .. } => Connectivity::Idle,
            Self { .. } => Connectivity::TransientFailure,
        }
    }

    /// Whether no endpoint is ready, or may become so by the attempts and requests of now.
    pub(in crate::balance) fn have_all_failed(self) -> bool {
        self.ready + self.connecting + self.idle == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch3_36_a_ring_fails_with_two_endpoints_unless_one_is_ready() {
        let of =
            |ready, connecting, idle, failing| StateCounts { ready, connecting, idle, failing }.on_demand();
        assert_eq!(of(1, 1, 1, 2), Connectivity::Ready);
        assert_eq!(of(0, 1, 1, 2), Connectivity::TransientFailure);
        assert_eq!(of(0, 1, 1, 1), Connectivity::Connecting);
        assert_eq!(of(0, 0, 1, 1), Connectivity::Connecting, "one failed, and another is to be tried");
        assert_eq!(of(0, 1, 1, 0), Connectivity::Connecting);
        assert_eq!(of(0, 0, 2, 0), Connectivity::Idle);
        assert_eq!(of(0, 0, 0, 1), Connectivity::TransientFailure, "it is the only one");
        assert_eq!(of(0, 0, 0, 0), Connectivity::TransientFailure);
    }
}
