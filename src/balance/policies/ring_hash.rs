//! ring_hash: an endpoint by the hash of the request (A42, A61, A76), which is connected when the first call needs it.

mod budget;
mod picker;
pub(crate) mod ring;

use std::{
    mem,
    sync::{Arc, atomic::AtomicBool},
};

use self::{
    budget::RingBudget,
    picker::{CHUNK, RingPicker, RingSlot},
    ring::{Ring, RingEndpoint, RingSizes},
};
use super::{EndpointPolicy, EndpointState, PickerEndpoints, PolicyLimits, PolicyState};
use crate::{
    balance::{lists::config::EndpointList, locality_config::ClusterLists, locality_config::EndpointConfig},
    resource::LbPolicy,
};

/// Configuration of ring_hash.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RingHash {
    pub(in crate::balance) sizes: RingSizes,
    /// The largest number of entries that the rings of a cluster have together (CH3.30).
    pub(in crate::balance) cluster_entries: u32,
    /// The header whose value is hashed instead of what the route's policies compute (A76).
    pub(in crate::balance) request_hash_header: Option<Arc<str>>,
}

/// A ring with the states of its endpoints.
#[derive(Debug)]
pub(in crate::balance) struct RingState<H> {
    ring: Arc<Ring>,
    header: Option<Arc<str>>,
    order: RankOrder,
    /// States of the endpoints, by rank.
    states: Vec<EndpointState<H>>,
    /// What pickers share of the states.
    chunks: Vec<Arc<[RingSlot<H>]>>,
    /// Chunks that are older than their states.
    changed: Vec<usize>,
}

/// The order of endpoints on a ring, which is that of their keys, and in the list of the configuration.
#[derive(Debug)]
struct RankOrder {
    /// The rank of the endpoint at each index of the list.
    ranks: Box<[u32]>,
    /// The index of the endpoint of each rank. Pickers share it.
    indexes: Arc<[u32]>,
}

impl RingHash {
    /// The state for endpoints with their weights. A ring of the same endpoints is taken over, and the one that follows a ring in use
    /// is built at once, so that no pick has to (CH3.31).
    fn state_of<H>(
        &self,
        endpoints: Vec<(&EndpointConfig, u64)>,
        sizes: RingSizes,
        before: Option<RingState<H>>,
    ) -> RingState<H> {
        let endpoints = endpoints.into_iter();
        let mut listed: Vec<_> = endpoints
            .map(|(endpoint, weight)| RingEndpoint { key: endpoint.hash_key(), weight })
            .zip(0_u32..)
            .collect();
        // By key, weight and index: the order of the list decides between equal endpoints alone (CH3.30).
        listed.sort_unstable();
        let mut ranks = vec![0; listed.len()];
        for (rank, (_, index)) in (0_u32..).zip(&listed) {
            ranks[*index as usize] = rank;
        }
        let (endpoints, indexes): (Vec<_>, Vec<_>) = listed.into_iter().unzip();
        // Most updates change neither keys nor weights, and to compare these costs far less than a ring (CH3.31).
        let ring = match before.map(|state| state.ring) {
            Some(ring) if ring.is_of(&endpoints, sizes) => ring,
            before => {
                let ring = Ring::new(endpoints.into(), sizes);
                if before.is_some_and(|before| before.is_built()) {
                    ring.build();
                }
                Arc::new(ring)
            }
        };
        // The endpoints set their states as they are listed, after this.
        let states = vec_of(ranks.len(), || EndpointState::Idle);
        let chunks = vec_of(ranks.len().div_ceil(CHUNK), || [].into());
        let changed = (0..chunks.len()).collect();
        let order = RankOrder { ranks: ranks.into(), indexes: indexes.into() };
        RingState { ring, header: self.request_hash_header.clone(), order, states, chunks, changed }
    }
}

impl EndpointPolicy for RingHash {
    const NAME: &'static str = "ring_hash";

    type State<H> = RingState<H>;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::RingHash(settings) = configured else { return None };
        Some(Self {
            sizes: RingSizes { min: settings.minimum_ring_size, max: settings.maximum_ring_size },
            cluster_entries: u32::MAX,
            request_hash_header: settings.request_hash_header.as_deref().map(Arc::from),
        })
    }

    /// Rings have at most `table_entries`, which is at least 1, and so many together as the limit of their cluster says. A single ring
    /// may have the former in any case.
    fn limited(self, limits: &PolicyLimits) -> Self {
        let (RingSizes { min, max }, cap) = (self.sizes, limits.table_entries);
        let sizes = RingSizes { min: min.min(cap), max: max.min(cap) };
        Self { sizes, cluster_entries: limits.cluster_table_entries.max(cap), ..self }
    }

    fn state<H>(
        &self,
        list: &EndpointList<'_>,
        before: Option<RingState<H>>,
        _: &mut fastrand::Rng,
    ) -> RingState<H> {
        self.state_of(list.weighted(), self.sizes, before)
    }

    fn states<H>(
        &self,
        lists: &[EndpointList<'_>],
        before: Vec<Option<RingState<H>>>,
        cluster: ClusterLists<'_>,
        _: &mut fastrand::Rng,
    ) -> Vec<RingState<H>> {
        let budget = RingBudget::of(self, cluster);
        let states = lists.iter().zip(before).map(|(list, before)| {
            let weighted = list.weighted();
            let sizes = budget.map_or(self.sizes, |budget| budget.sizes(weighted.len()));
            self.state_of(weighted, sizes, before)
        });
        states.collect()
    }

    fn connects_on_demand(&self) -> bool {
        true
    }
}

impl<H> PolicyState<H> for RingState<H> {
    type Picker = Arc<RingPicker<H>>;

    fn set_endpoint(&mut self, index: usize, state: impl FnOnce() -> EndpointState<H>) -> bool {
        let (rank, state) = (self.order.ranks[index] as usize, state());
        if self.states[rank].is_same(&state) {
            return false;
        }
        self.states[rank] = state;
        self.changed.push(rank / CHUNK);
        true
    }

    fn picker(&mut self, endpoints: &PickerEndpoints<'_, H>) -> Arc<RingPicker<H>> {
        self.changed.sort_unstable();
        self.changed.dedup();
        for chunk in mem::take(&mut self.changed) {
            let first = chunk * CHUNK;
            let states = &self.states[first..self.states.len().min(first + CHUNK)];
            // The slots of other chunks keep their flags, so that a connection is requested once for all pickers.
            self.chunks[chunk] = states.iter().map(RingSlot::of).collect();
        }
        Arc::new(RingPicker {
            ring: self.ring.clone(),
            header: self.header.clone(),
            indexes: self.order.indexes.clone(),
            chunks: self.chunks.iter().cloned().collect(),
            counts: endpoints.counts,
            stale_config: endpoints.stale_config.cloned(),
        })
    }
}

impl<H> RingSlot<H> {
    fn of(state: &EndpointState<H>) -> Self {
        match state {
            EndpointState::Ready(ready) => Self::Ready(ready.clone()),
            EndpointState::Idle => Self::Idle { is_requested: AtomicBool::new(false) },
            EndpointState::Connecting => Self::Connecting,
            EndpointState::Failing(error) => {
                Self::Failing(error.clone().unwrap_or_else(|| "the endpoint is not used".into()))
            }
        }
    }
}

fn vec_of<T>(count: usize, make: impl FnMut() -> T) -> Vec<T> {
    std::iter::repeat_with(make).take(count).collect()
}

#[cfg(test)]
mod tests;
