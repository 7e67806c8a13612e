//! The endpoints that outlier detection looks at, as long as they are listed.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    Tracked,
    outcomes::{Counts, Outcomes},
};
use crate::{
    balance::locality_config::{EndpointConfig, LocalityConfig},
    resource::OutlierDetection,
};

/// The endpoints of a cluster.
///
/// Sweeps walk them by their places, side by side in memory. An endpoint keeps its place, and one that leaves gives it to one that comes.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    all: Vec<Option<Endpoint>>,
    /// Places without an endpoint.
    free: Vec<usize>,
    /// The place of each, by its sorted addresses.
    places: BTreeMap<Arc<[SocketAddr]>, usize>,
    /// How many of the endpoints are ejected.
    ejected: usize,
}

/// An endpoint, in one cache line.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Sorted.
    addresses: Arc<[SocketAddr]>,
    outcomes: Arc<Outcomes>,
    /// What sweeps have taken of the outcomes.
    taken: Counts,
    /// The begin of the sweep that ejected the endpoint; `None` while it is not ejected.
    ejected_at: Option<Instant>,
    /// What the time of an ejection is multiplied by: more with each ejection, and less with each interval without one.
    multiplier: u32,
    /// In how many places of the configuration.
    listed: u32,
}

impl Endpoints {
    /// The number of endpoints.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many of them are ejected.
    pub(super) fn ejected(&self) -> usize {
        self.ejected
    }

    /// Endpoints from a place on. Some places have none.
    pub(super) fn from(&mut self, place: usize) -> &mut [Option<Endpoint>] {
        self.all.get_mut(place..).unwrap_or_default()
    }

    /// The endpoint of a place.
    pub(super) fn at(&self, place: usize) -> Option<&Endpoint> {
        self.all.get(place)?.as_ref()
    }

    /// The endpoint with these sorted addresses.
    pub(super) fn get(&self, addresses: &[SocketAddr]) -> Option<&Endpoint> {
        self.at(*self.places.get(addresses)?)
    }

    /// Ejects the endpoint of a place.
    pub(super) fn eject(&mut self, place: usize, now: Instant) {
        if let Some(Some(it)) = self.all.get_mut(place)
            && it.ejected_at.replace(now).is_none()
        {
            it.multiplier = it.multiplier.saturating_add(1);
            self.ejected += 1;
        }
    }

    /// Ends the ejection of the endpoint of a place, if its time is over. An endpoint that is not ejected has had an interval
    /// without an ejection.
    pub(super) fn end_interval(
        &mut self,
        place: usize,
        config: &OutlierDetection,
        now: Instant,
    ) -> Option<Arc<[SocketAddr]>> {
        let it = self.all.get_mut(place)?.as_mut()?;
        if it.ejected_at.is_none() {
            it.multiplier = it.multiplier.saturating_sub(1);
            return None;
        }
        // Strictly later, as in A50.
        it.ejected_until(config).filter(|until| now > *until)?;
        it.ejected_at = None;
        self.ejected -= 1;
        Some(it.addresses.clone())
    }

    /// Takes note of the endpoints of the next configuration; returns the places of those that have left. Endpoints at the beginning
    /// and the end of a priority that are as before are not looked at.
    pub(super) fn list(
        &mut self,
        before: &[Vec<LocalityConfig>],
        next: &[Vec<LocalityConfig>],
    ) -> Vec<usize> {
        let mut removed = Vec::new();
        for priority in 0..before.len().max(next.len()) {
            let (old, new) = (endpoints(before, priority), endpoints(next, priority));
            let is_same =
                |(one, other): &(&EndpointConfig, &EndpointConfig)| one.addresses == other.addresses;
            let first = old.clone().zip(new.clone()).take_while(is_same).count();
            let (old, new): (Vec<_>, Vec<_>) = (old.skip(first).collect(), new.skip(first).collect());
            let last = old.iter().rev().copied().zip(new.iter().rev().copied()).take_while(is_same).count();
            new[..new.len() - last].iter().for_each(|endpoint| self.add(&sorted(&endpoint.addresses)));
            removed.extend_from_slice(&old[..old.len() - last]);
        }
        // Only now, so that an endpoint with another place is never without one.
        removed.into_iter().filter_map(|endpoint| self.unlist(&sorted(&endpoint.addresses))).collect()
    }

    fn add(&mut self, addresses: &[SocketAddr]) {
        if let Some(place) = self.places.get(addresses) {
            if let Some(it) = &mut self.all[*place] {
                it.listed += 1;
            }
            return;
        }
        let it = Endpoint::new(addresses.into());
        let addresses = it.addresses.clone();
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[place] = Some(it);
        self.places.insert(addresses, place);
    }

    /// Returns the place that the endpoint had, if it has left. An ejected one does not count as ejected any more (CH3.71, CH13.1).
    fn unlist(&mut self, addresses: &[SocketAddr]) -> Option<usize> {
        let place = *self.places.get(addresses)?;
        let it = self.all[place].as_mut()?;
        it.listed -= 1;
        if it.listed > 0 {
            return None;
        }
        self.ejected -= usize::from(it.ejected_at.is_some());
        self.all[place] = None;
        self.free.push(place);
        self.places.remove(addresses);
        Some(place)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Endpoints {
    /// In the order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.places.values().filter_map(|place| self.at(*place))
    }
}

impl Endpoint {
    fn new(addresses: Arc<[SocketAddr]>) -> Self {
        Self {
            addresses,
            outcomes: Arc::default(),
            taken: Counts::default(),
            ejected_at: None,
            multiplier: 0,
            listed: 1,
        }
    }

    /// Sorted.
    pub(super) fn addresses(&self) -> &Arc<[SocketAddr]> {
        &self.addresses
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.ejected_at.is_some()
    }

    /// The counters and the state of the endpoint, for the lists.
    pub(super) fn tracked(&self) -> Tracked {
        Tracked { outcomes: self.outcomes.clone(), is_ejected: self.is_ejected() }
    }

    /// The end of its ejection, if it has one.
    pub(super) fn ejected_until(&self, config: &OutlierDetection) -> Option<Instant> {
        // The longest time is not shorter than the base, whatever is configured (A50-1).
        let longest = config.base_ejection_time.max(config.max_ejection_time);
        let time = config.base_ejection_time.saturating_mul(self.multiplier).min(longest);
        self.ejected_at?.checked_add(time)
    }

    /// Ends its interval, and gives what was counted in it.
    pub(super) fn take(&mut self) -> Counts {
        self.outcomes.take_since(&mut self.taken)
    }
}

/// The endpoints of a priority.
fn endpoints(
    priorities: &[Vec<LocalityConfig>],
    priority: usize,
) -> impl Iterator<Item = &EndpointConfig> + Clone {
    let localities = priorities.get(priority).map(Vec::as_slice).unwrap_or_default();
    localities.iter().flat_map(|locality| &locality.endpoints)
}

/// Addresses in ascending order, copied only if they are not sorted yet.
fn sorted(addresses: &[SocketAddr]) -> Cow<'_, [SocketAddr]> {
    if addresses.is_sorted() {
        return addresses.into();
    }
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.into()
}
