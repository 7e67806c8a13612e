//! The choice of an endpoint for one attempt: an immutable state, counters, and draws.

mod attempt;

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub(crate) use self::attempt::Attempt;
#[cfg(feature = "channel")]
pub(crate) use self::attempt::Malformed;
use self::attempt::{Outcome, Reported};
use super::{
    breaker::Breaker,
    cluster_load::ClusterLoad,
    command::ConnectionId,
    connect_request::{ConnectRequest, ListId},
    connectivity::Connectivity,
    observer::{PickLabels, ServiceLabels},
    pick_args::{CallAttributes, PickArgs},
    policies::{AnyPicker, PolicyPick, Tracking},
    policy::Drop as DropShare,
    ready_endpoint::ReadyEndpoint,
    ready_set::ReadySet,
    session_endpoints::{HostPick, HostPicker},
};
use crate::error::Code;

/// The result of a pick.
#[derive(Debug)]
pub(crate) enum Pick<H> {
    /// The attempt is sent to this endpoint.
    Complete(Attempt<H>),
    /// The attempt waits for the next picker.
    Queue,
    /// The attempt waits for the next picker, and a connection is to be requested for the cluster.
    QueueAndConnect,
    /// A fail-fast call fails with UNAVAILABLE, any other waits for the next picker.
    Fail(Arc<str>),
    /// The policy of the application fails a fail-fast call with this status; any other waits for the next picker.
    FailAs(Code, Arc<str>),
    /// The policy of the application panicked. As before with INTERNAL, and the cluster is to be told as for a connection.
    Broken(Arc<str>),
    /// The call fails with UNAVAILABLE and is not retried.
    Drop(DropCause, Arc<str>),
    /// The call fails with INTERNAL and is not retried (CH13.11).
    Unknown(Arc<str>),
}

/// Why attempts are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropCause {
    /// The cluster does not exist any more (CH1.13).
    Gone,
    /// The server has an overload category drop a share of the requests (CH4.1).
    Overload,
    /// As many requests are running as the circuit breaker permits (CH4.4).
    CircuitBreaker,
}

/// What is known of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterPicker<H> {
    pub(crate) connectivity: Connectivity,
    pub(super) choice: Choice<H>,
    /// The position of the leaf in an aggregate; `None` for a cluster with endpoints of its own.
    pub(super) aggregate: Option<u32>,
}

/// The priorities that picks of a cluster wait for, from the outer policy to the inner one (A121).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ActivePriority {
    /// The position of the leaf in use in its aggregate, which is a priority policy over its leaves (A37, A75).
    pub(crate) aggregate: Option<u32>,
    /// The index of the priority of the leaf.
    pub(crate) priority: Option<u32>,
}

#[derive(Debug)]
pub(super) enum Choice<H> {
    /// The server says that there is no such cluster (CH1.13).
    Gone(Arc<str>),
    /// The cluster cannot be used for another reason.
    Unusable(Arc<str>),
    /// The configuration lacks it, although routes name it (CH13.11).
    Unknown(Arc<str>),
    /// The cluster, or the leaf of an aggregate.
    Leaf(Arc<LeafPicker<H>>),
}

/// A cluster with endpoints of its own.
#[derive(Debug)]
pub(super) struct LeafPicker<H> {
    pub(super) name: Arc<str>,
    /// The shares of dropped requests, in the order of their draws.
    pub(super) drops: Arc<[DropShare]>,
    pub(super) breaker: Arc<Breaker>,
    /// The maximum number of attempts that the breaker permits.
    pub(super) limit: u32,
    pub(super) connectivity: Connectivity,
    /// The index of the priority in use.
    pub(super) priority: Option<u32>,
    /// How an endpoint is picked after drops, the circuit breaker and cookies.
    pub(super) endpoints: Endpoints<H>,
    /// Endpoints that cookies lead to, if calls have sessions.
    pub(super) hosts: Option<HostPicker<H>>,
    /// Counters of the load reports, if the cluster's load is reported.
    pub(super) load: Option<Arc<ClusterLoad>>,
    /// The service of the cluster, for metrics.
    pub(super) service: Option<Arc<ServiceLabels>>,
}

/// The priority in use.
#[derive(Debug)]
pub(super) enum Endpoints<H> {
    /// Endpoints are being connected, and the attempt waits.
    Queue,
    /// Set once a pick requested the connection.
    Idle(AtomicBool),
    /// No endpoint can be reached, for this reason.
    Fail(Arc<str>),
    /// The endpoints with a connection, or hash rings, which have others as well.
    Ready(Localities<H>),
}

/// The ready localities, each with the sum of the weights up to it; one of them without regard to localities.
pub(super) type Localities<H> = Box<[(u64, EndpointPicker<H>)]>;

/// The ready endpoints of a list, and how one of them is chosen. At least one is ready, unless endpoints connect on demand.
#[derive(Debug)]
pub(super) struct EndpointPicker<H> {
    pub(super) policy: AnyPicker<H>,
    pub(super) ready: ReadySet<H>,
    /// The list that requests of connections name.
    pub(super) list: ListId,
}

impl<H> ClusterPicker<H> {
    /// Chooses the endpoint of an attempt (CH2.20): drops, circuit breaking, locality, endpoint.
    pub(crate) fn pick(&self, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        match &self.choice {
            Choice::Gone(reason) => Pick::Drop(DropCause::Gone, reason.clone()),
            Choice::Unusable(reason) => Pick::Fail(reason.clone()),
            Choice::Unknown(reason) => Pick::Unknown(reason.clone()),
            // Without a listener of metrics no label is made (CH9.20).
            Choice::Leaf(leaf) if args.attributes.labels.is_none() => leaf.pick_in_session(args),
            Choice::Leaf(leaf) => leaf.pick_with_labels(args),
        }
    }
}

impl<H> ClusterPicker<H> {
    /// Why picks fail, if all of them do.
    #[cfg(any(test, feature = "channel"))]
    pub(super) fn failure(&self) -> Option<&Arc<str>> {
        match &self.choice {
            Choice::Gone(reason) | Choice::Unusable(reason) | Choice::Unknown(reason) => Some(reason),
            Choice::Leaf(leaf) => match &leaf.endpoints {
                Endpoints::Fail(reason) => Some(reason),
                Endpoints::Queue | Endpoints::Idle(_) | Endpoints::Ready(_) => None,
            },
        }
    }

    /// The priorities in use.
    #[cfg(feature = "channel")]
    pub(super) fn priority(&self) -> ActivePriority {
        match &self.choice {
            Choice::Leaf(leaf) => ActivePriority { aggregate: self.aggregate, priority: leaf.priority },
            Choice::Gone(_) | Choice::Unusable(_) | Choice::Unknown(_) => ActivePriority::default(),
        }
    }

    /// Whether the policy looks at the request of a call.
    pub(super) fn needs_request(&self, attributes: &CallAttributes) -> bool {
        match &self.choice {
            Choice::Leaf(leaf) => match &leaf.endpoints {
                Endpoints::Ready(localities) => {
                    localities.iter().any(|(_, picker)| picker.policy.needs_request(attributes))
                }
                Endpoints::Queue | Endpoints::Idle(_) | Endpoints::Fail(_) => false,
            },
            Choice::Gone(_) | Choice::Unusable(_) | Choice::Unknown(_) => false,
        }
    }
}

impl<H> LeafPicker<H> {
    /// Picks, and notes what the attempt is labelled with (CH9.14): the leaf cluster, whatever the pick is, and the locality.
    fn pick_with_labels(&self, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        let pick = self.pick_in_session(args);
        let locality = match &pick {
            Pick::Complete(attempt) => attempt.endpoint.locality.clone(),
            Pick::Queue
            | Pick::QueueAndConnect
            | Pick::Fail(_)
            | Pick::FailAs(..)
            | Pick::Broken(_)
            | Pick::Drop(..)
            | Pick::Unknown(_) => None,
        };
        args.attributes.labels = Some(PickLabels {
            backend_service: Some(self.name.clone()),
            locality,
            service: self.service.clone(),
        });
        pick
    }

    /// Picks, and notes for the call's session to which endpoint it goes (CH8.13).
    #[inline]
    fn pick_in_session(&self, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        if args.attributes.session.is_none() {
            return self.pick(args);
        }
        let pick = self.pick(args);
        if let (Pick::Complete(attempt), Some(hosts), Some(session)) =
            (&pick, &self.hosts, &mut args.attributes.session)
        {
            hosts.note(attempt.endpoint.address, session);
        }
        pick
    }

    #[inline]
    fn pick(&self, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        // At the first pick of an attempt alone: otherwise, calls that wait would be dropped more often (CH4.2).
        if !mem::replace(&mut args.attributes.has_drawn_drops, true)
            && let Some(place) =
                self.drops.iter().position(|drop| args.random.u32(..1_000_000) < drop.per_million)
        {
            if let Some(load) = &self.load {
                load.on_drop(place);
            }
            let (name, category) = (&self.name, &self.drops[place].category);
            let reason = format!("cluster {name}: dropped by the overload category {category}");
            return Pick::Drop(DropCause::Overload, reason.into());
        }
        // Before the policy, whose counters a dropped attempt must not change; `complete` decides (CH4.5).
        if self.breaker.running() >= self.limit {
            return self.overflow();
        }
        match self.pick_host(args) {
            HostPick::Endpoint(endpoint) => return self.complete(endpoint, Tracking::default()),
            HostPick::Connect(_) | HostPick::Wait => return Pick::Queue,
            HostPick::Policy => {}
        }
        let localities = match &self.endpoints {
            Endpoints::Queue => return Pick::Queue,
            // The first pick alone requests the connection, so that the task gets one message of all that wait.
            Endpoints::Idle(is_requested) if is_requested.swap(true, Ordering::Relaxed) => {
                return Pick::Queue;
            }
            Endpoints::Idle(_) => return Pick::QueueAndConnect,
            Endpoints::Fail(reason) => return Pick::Fail(reason.clone()),
            Endpoints::Ready(localities) => localities,
        };
        self.pick_endpoint(locality(localities, args.random), args)
    }

    /// The endpoint that the policy chooses, or the reason why there is none.
    #[inline]
    fn pick_endpoint(&self, picker: &EndpointPicker<H>, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        let pick = picker.policy.pick(&picker.ready, args);
        if let Some(index) = args.attributes.take_requested() {
            args.attributes.connect = Some(ConnectRequest::of_list(&self.name, &picker.list, index));
        }
        let name = &self.name;
        match pick {
            PolicyPick::Endpoint(endpoint, tracking) => self.complete(endpoint, tracking),
            PolicyPick::EndpointWithMetadata(endpoint, tracking, metadata) => {
                let mut pick = self.complete(endpoint, tracking);
                if let Pick::Complete(attempt) = &mut pick {
                    attempt.metadata = metadata;
                }
                pick
            }
            PolicyPick::Wait => Pick::Queue,
            PolicyPick::Fail(reason) => Pick::Fail(format!("cluster {name}: {reason}").into()),
            PolicyPick::FailAs(code, message) => Pick::FailAs(code, message),
            PolicyPick::Broken => {
                Pick::Broken(format!("cluster {name}: the load balancing policy panicked").into())
            }
        }
    }

    /// The endpoint that the call's cookie names, or its connection (CH8.11).
    #[inline]
    fn pick_host(&self, args: &mut PickArgs<'_, '_>) -> HostPick<'_, H> {
        let (Some(hosts), Some(session)) = (&self.hosts, &args.attributes.session) else {
            return HostPick::Policy;
        };
        let pick = hosts.pick(session);
        if let HostPick::Connect(address) = pick {
            args.attributes.connect = Some(ConnectRequest::of_host(&self.name, address));
        }
        pick
    }

    /// The attempt on an endpoint, unless the circuit breaker has no place for it.
    #[inline]
    fn complete(&self, endpoint: &Arc<ReadyEndpoint<H>>, tracking: Tracking) -> Pick<H> {
        // Other calls may have taken the last place since the test in `pick`.
        if !endpoint.breaker.try_acquire(self.limit) {
            return self.overflow();
        }
        // After the breaker: a dropped attempt is none of the endpoint's.
        if tracking.counts_request {
            endpoint.load.begin();
        }
        let (endpoint, outcome) = (endpoint.clone(), Outcome::NoStream);
        let reported = self.load.as_ref().and_then(|load| load.endpoint(endpoint.address)).map(Reported::new);
        let Tracking { counts_request: has_load, penalty } = tracking;
        Pick::Complete(Attempt { endpoint, has_load, outcome, penalty, metadata: Vec::new(), reported })
    }

    /// The drop of an attempt by the circuit breaker, which is counted for load reports.
    fn overflow(&self) -> Pick<H> {
        if let Some(load) = &self.load {
            load.on_overflow();
        }
        let Self { name, limit, .. } = self;
        let reason =
            format!("cluster {name}: {limit} requests are running, the maximum of its circuit breaker");
        Pick::Drop(DropCause::CircuitBreaker, reason.into())
    }
}

/// A locality in proportion to its weight (CH3.49).
fn locality<'a, H>(
    localities: &'a [(u64, EndpointPicker<H>)],
    random: &mut fastrand::Rng,
) -> &'a EndpointPicker<H> {
    let [(_, only)] = localities else {
        let total = localities.last().map_or(1, |(sum, _)| *sum);
        let draw = random.u64(..total);
        // The last sum is above the draw, so there is a place.
        let place = localities.partition_point(|(sum, _)| *sum <= draw);
        return &localities[place].1;
    };
    only
}

/// The localities without some of their endpoints.
pub(super) fn ready_without<H>(
    localities: &Localities<H>,
    is_left_out: impl Fn(ConnectionId) -> bool,
) -> Localities<H> {
    let (mut before, mut sum) = (0, 0);
    let rest = localities.iter().filter_map(|(end, picker)| {
        // The sums are made anew, since they contain the localities that are left out.
        let weight = end - mem::replace(&mut before, *end);
        let picker = picker.without(&is_left_out)?;
        sum += weight;
        Some((sum, picker))
    });
    rest.collect()
}

impl<H> EndpointPicker<H> {
    /// Returns the picker without some of the ready endpoints, or `None` if none is left.
    fn without(&self, is_left_out: &impl Fn(ConnectionId) -> bool) -> Option<Self> {
        let kept = self.ready.iter().filter(|endpoint| !is_left_out(endpoint.connection));
        let ready: ReadySet<H> = kept.cloned().collect();
        let policy = self.policy.without(&self.ready, &|endpoint| is_left_out(endpoint.connection));
        (ready.len() > 0).then(|| Self { policy, ready, list: self.list.clone() })
    }
}

impl<H> Clone for EndpointPicker<H> {
    fn clone(&self) -> Self {
        Self { policy: self.policy.clone(), ready: self.ready.clone(), list: self.list.clone() }
    }
}

#[cfg(test)]
mod tests;
