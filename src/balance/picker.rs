//! The choice of an endpoint for one attempt: an immutable state, counters, and draws.

use std::{
    mem,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};

use super::{
    breaker::Breaker,
    connectivity::Connectivity,
    policy::{Drop as DropShare, Policy},
    ready_set::ReadySet,
};

/// An endpoint with a connection. `H` is what the transport sends requests with.
#[derive(Debug)]
pub(crate) struct ReadyEndpoint<H> {
    pub(crate) handle: H,
    pub(crate) address: SocketAddr,
    pub(crate) hostname: Option<Arc<str>>,
    pub(super) load: Arc<Load>,
}

/// What is counted for an endpoint, as long as it is listed (CH3.39).
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Load {
    running: AtomicU32,
}

/// The result of a pick.
#[derive(Debug)]
pub(crate) enum Pick<H> {
    /// The attempt is sent to this endpoint.
    Complete(Attempt<H>),
    /// The attempt waits for the next picker.
    Queue,
    /// As before, and a connection is to be requested for the cluster.
    QueueAndConnect,
    /// A fail-fast call fails with UNAVAILABLE, any other waits for the next picker.
    Fail(Arc<str>),
    /// The call fails with UNAVAILABLE and is not retried.
    Drop(Arc<str>),
}

/// An attempt that is counted from the pick until this is dropped (CH4.6).
#[derive(Debug)]
pub(crate) struct Attempt<H> {
    pub(crate) endpoint: Arc<ReadyEndpoint<H>>,
    breaker: Arc<Breaker>,
}

/// What an attempt remembers over its picks.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    /// The shares of dropped requests are drawn once (CH4.2).
    has_drawn_drops: bool,
}

/// What is known of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterPicker<H> {
    pub(crate) connectivity: Connectivity,
    pub(super) choice: Choice<H>,
}

#[derive(Debug)]
pub(super) enum Choice<H> {
    /// The server says that there is no such cluster (CH1.13).
    Gone(Arc<str>),
    /// It cannot be used for another reason.
    Unusable(Arc<str>),
    /// The cluster, or the leaf of an aggregate.
    Leaf(Arc<LeafPicker<H>>),
}

/// A cluster with endpoints of its own.
#[derive(Debug)]
pub(super) struct LeafPicker<H> {
    pub(super) name: Arc<str>,
    pub(super) drops: Arc<[DropShare]>,
    pub(super) breaker: Arc<Breaker>,
    pub(super) limit: u32,
    pub(super) connectivity: Connectivity,
    pub(super) endpoints: Endpoints<H>,
}

/// The priority in use.
#[derive(Debug)]
pub(super) enum Endpoints<H> {
    Queue,
    /// Set once a pick requested the connection.
    Idle(AtomicBool),
    Fail(Arc<str>),
    Ready(Localities<H>),
}

/// The ready localities, each with the sum of the weights up to it; one of them without regard to localities.
pub(super) type Localities<H> = Box<[(u64, EndpointPicker<H>)]>;

/// The ready endpoints of a locality, at least one.
#[derive(Debug)]
pub(super) struct EndpointPicker<H> {
    pub(super) policy: Policy,
    pub(super) ready: ReadySet<H>,
    /// Lives longer than the picker, so that a change does not begin at the first endpoint again (CH3.26).
    pub(super) next: Arc<AtomicUsize>,
}

impl<H> ClusterPicker<H> {
    /// Chooses the endpoint of an attempt (CH2.20): drops, circuit breaking, locality, endpoint.
    pub(crate) fn pick(&self, draws: &mut Draws, random: &mut fastrand::Rng) -> Pick<H> {
        match &self.choice {
            Choice::Gone(reason) => Pick::Drop(reason.clone()),
            Choice::Unusable(reason) => Pick::Fail(reason.clone()),
            Choice::Leaf(leaf) => leaf.pick(draws, random),
        }
    }
}

impl<H> LeafPicker<H> {
    fn pick(&self, draws: &mut Draws, random: &mut fastrand::Rng) -> Pick<H> {
        if !mem::replace(&mut draws.has_drawn_drops, true)
            && let Some(drop) = self.drops.iter().find(|drop| random.u32(..1_000_000) < drop.per_million)
        {
            let (name, category) = (&self.name, &drop.category);
            return Pick::Drop(format!("cluster {name}: dropped by the overload category {category}").into());
        }
        if self.breaker.running() >= self.limit {
            return Pick::Drop(self.overflow());
        }
        let endpoint = match &self.endpoints {
            Endpoints::Queue => return Pick::Queue,
            Endpoints::Idle(is_requested) if is_requested.swap(true, Ordering::Relaxed) => {
                return Pick::Queue;
            }
            Endpoints::Idle(_) => return Pick::QueueAndConnect,
            Endpoints::Fail(reason) => return Pick::Fail(reason.clone()),
            Endpoints::Ready(localities) => locality(localities, random).pick(random),
        };
        if !self.breaker.try_acquire(self.limit) {
            return Pick::Drop(self.overflow());
        }
        endpoint.load.running.fetch_add(1, Ordering::Relaxed);
        Pick::Complete(Attempt { endpoint: endpoint.clone(), breaker: self.breaker.clone() })
    }

    fn overflow(&self) -> Arc<str> {
        let Self { name, limit, .. } = self;
        format!("cluster {name}: {limit} requests are running, the maximum of its circuit breaker").into()
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
        let place = localities.partition_point(|(sum, _)| *sum <= draw);
        return &localities[place].1;
    };
    only
}

/// The localities without some of their endpoints.
pub(super) fn ready_without<H>(
    localities: &Localities<H>,
    is_left_out: impl Fn(SocketAddr) -> bool,
) -> Localities<H> {
    let (mut before, mut sum) = (0, 0);
    let rest = localities.iter().filter_map(|(end, picker)| {
        let weight = end - mem::replace(&mut before, *end);
        let ready: ReadySet<H> = picker.ready.iter().filter(|it| !is_left_out(it.address)).cloned().collect();
        (ready.len() > 0).then(|| {
            sum += weight;
            (sum, EndpointPicker { policy: picker.policy.clone(), ready, next: picker.next.clone() })
        })
    });
    rest.collect()
}

impl<H> EndpointPicker<H> {
    fn pick(&self, random: &mut fastrand::Rng) -> &Arc<ReadyEndpoint<H>> {
        let ready = &self.ready;
        match self.policy {
            Policy::PickFirst { .. } => ready.at(0),
            Policy::RoundRobin => ready.at(self.next.fetch_add(1, Ordering::Relaxed)),
            Policy::LeastRequest { choice_count } => {
                let mut best = ready.at(random.usize(..ready.len()));
                for _ in 1..choice_count {
                    let other = ready.at(random.usize(..ready.len()));
                    if other.load.running() < best.load.running() {
                        best = other;
                    }
                }
                best
            }
        }
    }
}

impl Load {
    /// The attempts under way.
    pub(crate) fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }
}

impl<H> Clone for EndpointPicker<H> {
    fn clone(&self) -> Self {
        Self { policy: self.policy.clone(), ready: self.ready.clone(), next: self.next.clone() }
    }
}

impl<H> Drop for Attempt<H> {
    fn drop(&mut self) {
        self.endpoint.load.running.fetch_sub(1, Ordering::Relaxed);
        self.breaker.release();
    }
}

#[cfg(test)]
mod tests;
