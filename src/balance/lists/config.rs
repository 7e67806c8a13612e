//! The lists of endpoints that policies choose from.

use crate::{
    balance::{
        endpoint_spec::EndpointKey,
        locality_config::{EndpointConfig, LocalityConfig},
    },
    resource::Locality,
};

/// The endpoints of a priority, or of one of its localities if these are drawn by weight before.
#[derive(Debug)]
pub(in crate::balance) struct EndpointList<'a> {
    /// Index of the priority; 0 is the preferred one.
    pub(in crate::balance) priority: usize,
    /// `None` for all localities of the priority together.
    pub(in crate::balance) locality: Option<&'a Locality>,
    /// The weight of the locality.
    pub(in crate::balance) weight: u32,
    /// The only locality, or all of the priority.
    localities: &'a [LocalityConfig],
}

impl<'a> EndpointList<'a> {
    /// The lists of a priority: one for each locality if `by_locality`, and otherwise one for all.
    pub(in crate::balance) fn all(
        priority: usize,
        localities: &'a [LocalityConfig],
        by_locality: bool,
    ) -> Vec<Self> {
        if !by_locality {
            return vec![Self { priority, locality: None, weight: 1, localities }];
        }
        let each = localities.chunks(1).map(|one| Self {
            priority,
            locality: Some(&one[0].locality),
            weight: one[0].weight,
            localities: one,
        });
        each.collect()
    }

    /// The endpoints in their order.
    pub(in crate::balance) fn endpoints(&self) -> impl DoubleEndedIterator<Item = &'a EndpointConfig> {
        self.localities.iter().flat_map(|locality| &locality.endpoints)
    }

    /// The endpoints in their order, each with its locality.
    pub(in crate::balance) fn with_localities(
        &self,
    ) -> impl Iterator<Item = (&'a LocalityConfig, &'a EndpointConfig)> {
        let localities = self.localities.iter();
        localities.flat_map(|locality| locality.endpoints.iter().map(move |endpoint| (locality, endpoint)))
    }

    /// The key of a connection for all endpoints of the list together.
    pub(in crate::balance) fn key(&self) -> EndpointKey {
        EndpointKey::All { priority: self.priority, locality: self.locality.map(ToString::to_string) }
    }

    /// Each endpoint with its share of the list: that of the locality in the list times that of the endpoint in the locality, as
    /// fractions of 2³¹ (CH3.50). A subset of a locality has its part of that share alone.
    pub(in crate::balance) fn weighted(&self) -> Vec<(&'a EndpointConfig, u64)> {
        // A locality whose subset is in several places counts in each: that scales all shares alike.
        let sum: u64 = self.localities.iter().map(|locality| u64::from(locality.weight)).sum();
        let mut weighted = Vec::new();
        for locality in self.localities {
            let share = u64::from(locality.weight) * ONE / sum.max(1);
            for endpoint in &locality.endpoints {
                let weight = u64::from(endpoint.weight) * ONE / locality.endpoint_weights.max(1);
                // Both factors are at most 2³¹, so the product fits in 64 bits. A weight of 0 would leave the endpoint out
                // (A113).
                weighted.push((endpoint, ((share * weight) >> 31).max(1)));
            }
        }
        weighted
    }
}

/// 1 as a fraction of 2³¹ (CH3.50).
const ONE: u64 = 1 << 31;

#[cfg(test)]
mod tests;
