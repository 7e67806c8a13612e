//! maglev: an endpoint by the hash of the request, from a table that each endpoint has a share of (the Maglev paper, section 3.4, with
//! Envoy's weights).
//!
//! A table of 65,537 entries spreads requests more evenly than a ring of 4,096, and a change of the endpoints moves a few more of
//! them. The policy is written on the public interface alone; [`CustomBalancer`] executes it as one of an application.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::{Arc, OnceLock},
};

use twox_hash::XxHash64;

use super::{
    EndpointPolicy, PolicyLimits,
    custom::{Custom, CustomBalancer},
};
use crate::{
    balance::{lists::config::EndpointList, locality_config::ClusterLists},
    resource::{
        LbPolicy, Locality,
        load_balancing::{
            self as public, CustomPolicy, EndpointBalancer, EndpointPick, EndpointPicker, EndpointState,
            Maglev as Settings, PickRequest, PolicyEndpoint, is_prime,
        },
    },
};

/// Configuration of maglev.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Maglev {
    settings: Settings,
    /// The largest number of entries that the tables of a cluster have together.
    cluster_entries: u64,
}

/// The table for the current endpoints.
#[derive(Debug)]
struct Balancer {
    settings: Settings,
    table: Arc<Table>,
}

/// A table, and what is known of its endpoints.
#[derive(Debug)]
struct Picker {
    table: Arc<Table>,
    /// States of the endpoints, by the indexes of the list.
    states: Box<[EndpointState]>,
    /// All endpoints fail, so that a pick need not search the table for one that does not.
    have_all_failed: bool,
}

/// Which endpoint each entry belongs to. The entries are built when a pick needs them: a cluster may have a table for each of its
/// localities, most of which are never used.
#[derive(Debug)]
struct Table {
    /// The number of entries, which is a prime.
    size: u32,
    /// In the order of the list.
    endpoints: Box<[Share]>,
    entries: OnceLock<Box<[u32]>>,
}

/// The share of an endpoint.
#[derive(Debug, Clone, PartialEq)]
struct Share {
    key: Box<str>,
    /// Relative to those of the others.
    weight: f64,
}

impl public::EndpointPolicy for Settings {
    fn balancer(&self, _: u64) -> Box<dyn EndpointBalancer> {
        Box::new(Balancer {
            settings: self.clone(),
            table: Arc::new(Table::new(self.table_size, Vec::new())),
        })
    }

    fn connects_on_demand(&self) -> bool {
        true
    }
}

impl EndpointBalancer for Balancer {
    fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker> {
        if !self.table.is_of(endpoints, &self.settings) {
            let next = Table::new(self.settings.table_size, shares(endpoints, &self.settings));
            // The table that follows one in use is built at once, so that no pick has to.
            if self.table.entries.get().is_some() {
                next.entries();
            }
            self.table = Arc::new(next);
        }
        Box::new(Picker::new(self.table.clone(), endpoints.iter().map(PolicyEndpoint::state).collect()))
    }
}

impl Picker {
    fn new(table: Arc<Table>, states: Box<[EndpointState]>) -> Self {
        let have_all_failed = states.iter().all(|state| *state == EndpointState::Failing);
        Self { table, states, have_all_failed }
    }
}

impl EndpointPicker for Picker {
    /// The endpoint of the hash's entry, or of the next entry whose endpoint does not fail, as on a ring (CH3.33).
    fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick {
        let entries = self.table.entries();
        if entries.is_empty() {
            return EndpointPick::Wait;
        }
        let first = (request.hash() % entries.len() as u64) as usize;
        let (before, after) = entries.split_at(first);
        let mut failing = None;
        for index in after.iter().chain(before).map(|index| *index as usize) {
            match self.states.get(index) {
                Some(EndpointState::Ready) => return EndpointPick::Endpoint(index),
                Some(EndpointState::Idle) => {
                    request.connect(index);
                    return EndpointPick::Wait;
                }
                Some(EndpointState::Connecting) | None => return EndpointPick::Wait,
                Some(EndpointState::Failing) => {
                    failing.get_or_insert(index);
                    if self.have_all_failed {
                        break;
                    }
                }
            }
        }
        failing.map_or(EndpointPick::Wait, EndpointPick::Unreachable)
    }
}

/// The weights of endpoints in the order of the list, relative to each other.
fn weights(endpoints: &[PolicyEndpoint], settings: &Settings) -> Vec<f64> {
    if !settings.locality_weighted {
        return endpoints.iter().map(|endpoint| f64::from(endpoint.weight())).collect();
    }
    let mut sums: BTreeMap<&Locality, f64> = BTreeMap::new();
    for endpoint in endpoints {
        *sums.entry(endpoint.locality()).or_default() += f64::from(endpoint.weight());
    }
    let weight = |endpoint: &PolicyEndpoint| {
        f64::from(endpoint.locality_weight()) * f64::from(endpoint.weight()) / sums[endpoint.locality()]
    };
    endpoints.iter().map(weight).collect()
}

/// The shares of endpoints in the order of the list.
fn shares(endpoints: &[PolicyEndpoint], settings: &Settings) -> Vec<Share> {
    let keys = endpoints.iter().map(PolicyEndpoint::hash_key);
    keys.zip(weights(endpoints, settings)).map(|(key, weight)| Share { key: key.into(), weight }).collect()
}

impl Table {
    fn new(size: u32, endpoints: Vec<Share>) -> Self {
        Self { size, endpoints: endpoints.into(), entries: OnceLock::new() }
    }

    /// Whether the endpoints have the keys and the weights of this table, in the same order.
    fn is_of(&self, endpoints: &[PolicyEndpoint], settings: &Settings) -> bool {
        let keys = endpoints.iter().map(PolicyEndpoint::hash_key);
        self.endpoints.len() == endpoints.len()
            && keys.eq(self.endpoints.iter().map(|share| &*share.key))
            && weights(endpoints, settings).into_iter().eq(self.endpoints.iter().map(|share| share.weight))
    }

    /// The index of the endpoint of each entry; empty without endpoints.
    fn entries(&self) -> &[u32] {
        self.entries.get_or_init(|| fill(&self.endpoints, self.size))
    }
}

/// Gives endpoints the entries of a table in turns: each takes the next free entry of a permutation of its own. An endpoint of less
/// weight than the greatest is passed over in so many of the turns as it lacks of that.
fn fill(endpoints: &[Share], size: u32) -> Box<[u32]> {
    if endpoints.is_empty() {
        return [].into();
    }
    let size = u64::from(size);
    // The table does not depend on the order of the list, which may change with each update.
    let mut order: Vec<_> = (0_u32..).zip(endpoints).collect();
    order.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    let mut turns: Vec<_> = order.into_iter().map(|(index, share)| Turns::new(index, share, size)).collect();
    // Above 0, so that each entry makes the next one of its endpoint due later.
    let greatest = endpoints.iter().map(|share| share.weight).fold(f64::MIN_POSITIVE, f64::max);
    let mut entries = vec![FREE; size as usize];
    // By round and place, so that rounds in which endpoints of little weight are passed over cost nothing.
    let mut queue: BinaryHeap<_> = (0..turns.len()).map(|place| Reverse((1_u64, place))).collect();
    for _ in 0..size {
        let Some(Reverse((round, place))) = queue.pop() else { break };
        let turn = &mut turns[place];
        let entry = turn.next_free(&entries, size);
        entries[entry] = turn.index;
        turn.due += greatest;
        queue.push(Reverse((turn.next_round(round), place)));
    }
    entries.into()
}

/// The entries that an endpoint prefers, one after the other, and when it takes the next one.
#[derive(Debug)]
struct Turns {
    index: u32,
    weight: f64,
    /// The endpoint takes an entry when its weight times the number of rounds is as much.
    due: f64,
    next: u64,
    /// The distance between the entries that it tries: 1 to `size` − 1.
    step: u64,
}

impl Turns {
    fn new(index: u32, share: &Share, size: u64) -> Self {
        let key = share.key.as_bytes();
        // A step from 1 to `size` − 1 leads to each entry once, since the size is a prime.
        let (next, step) = (XxHash64::oneshot(0, key) % size, XxHash64::oneshot(1, key) % (size - 1) + 1);
        Self { index, weight: share.weight, due: 0.0, next, step }
    }

    /// The first round after one in which it takes an entry.
    fn next_round(&self, round: u64) -> u64 {
        // Casts of what is too large saturate.
        ((self.due / self.weight).ceil() as u64).max(round.saturating_add(1))
    }

    /// The next free entry of the permutation, which has all entries, since the size is a prime. There is one.
    fn next_free(&mut self, entries: &[u32], size: u64) -> usize {
        loop {
            let entry = self.next as usize;
            self.next = (self.next + self.step) % size;
            if entries[entry] == FREE {
                return entry;
            }
        }
    }
}

impl Maglev {
    /// The policy of a list, whose table is smaller than configured if those of its cluster would be too large together.
    fn of_list(&self, endpoints: usize, all: usize) -> Custom {
        let share = self.cluster_entries * endpoints as u64 / all.max(1) as u64;
        let size = u64::from(self.settings.table_size).min(share);
        let settings = Settings { table_size: prime_below(size), ..self.settings.clone() };
        Custom(CustomPolicy::executed::<Settings>(crate::resource::Custom::new(settings)))
    }
}

impl EndpointPolicy for Maglev {
    const NAME: &'static str = "maglev";

    type State<H> = CustomBalancer;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::Maglev(settings) = configured else { return None };
        Some(Self { settings: settings.clone(), cluster_entries: u64::MAX })
    }

    /// A cluster may have one table of the default size in any case.
    fn limited(self, limits: &PolicyLimits) -> Self {
        Self { cluster_entries: u64::from(limits.cluster_table_entries).max(DEFAULT_TABLE_SIZE), ..self }
    }

    fn state<H>(
        &self,
        list: &EndpointList<'_>,
        before: Option<CustomBalancer>,
        random: &mut fastrand::Rng,
    ) -> CustomBalancer {
        self.of_list(1, 1).state::<H>(list, before, random)
    }

    fn states<H>(
        &self,
        lists: &[EndpointList<'_>],
        before: Vec<Option<CustomBalancer>>,
        cluster: ClusterLists<'_>,
        random: &mut fastrand::Rng,
    ) -> Vec<CustomBalancer> {
        let localities = cluster.priorities.iter().flatten();
        let all = localities.map(|locality| locality.endpoints.len()).sum();
        let states = lists.iter().zip(before).map(|(list, before)| {
            self.of_list(list.endpoints().count(), all).state::<H>(list, before, random)
        });
        states.collect()
    }

    fn connects_on_demand(&self) -> bool {
        true
    }
}

/// The greatest prime that is at most this number, or 2.
fn prime_below(size: u64) -> u32 {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    (2..=size).rev().find(|size| is_prime(*size)).unwrap_or(2)
}

/// An entry that no endpoint has yet.
const FREE: u32 = u32::MAX;
/// The table of Envoy's default, which a cluster may always have.
const DEFAULT_TABLE_SIZE: u64 = 65_537;

#[cfg(test)]
mod tests;
