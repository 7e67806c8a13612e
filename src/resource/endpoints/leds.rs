//! Localities whose endpoints are resources of their own (LEDS, A95).

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use prost::Message;
use serde::Serialize;

use super::{
    super::{Context, Invalid, config_source::ResourceConfigSource, parts},
    ClusterLoadAssignment, Endpoint, Locality, MAX_SUM, Resource,
};
use crate::{name::ResourceName, pb::envoy::config::endpoint::v3 as pb};

/// A locality whose endpoints are the members of a collection: a glob, or a list.
///
/// A resolution watches the collection, and its snapshots have the endpoints in their place. In the assignment itself the
/// locality has none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LedsLocality {
    /// The index of the priority.
    pub priority: u32,
    /// The locality, which is one of the priority.
    pub locality: Locality,
    /// The name of the collection, of which the members are [`Endpoint`]s.
    pub collection: Arc<str>,
    /// The config source of the collection, if it is not the server of the assignment.
    #[serde(skip)]
    pub source: Option<Arc<ResourceConfigSource>>,
}

/// The collection of a locality, and its source.
pub(super) type LedsCollection = (Arc<str>, Option<Arc<ResourceConfigSource>>);

/// Reads a `LedsClusterLocalityConfig`.
pub(super) fn read(bytes: &[u8], cx: &Context<'_>) -> Result<LedsCollection, Invalid> {
    let message = pb::LedsClusterLocalityConfig::decode(bytes)?;
    let source =
        ResourceConfigSource::parse(message.leds_config.as_ref(), cx).map_err(|e| e.at("leds_config"))?;
    let invalid = |reason: String| Invalid::field("leds_collection_name", reason);
    let text = &message.leds_collection_name;
    let name = ResourceName::parse(text).map_err(|e| invalid(e.to_string()))?;
    let endpoint = parts::message_name(Endpoint::TYPE_URL);
    let list = Endpoint::COLLECTION_TYPE_URL.map(parts::message_name);
    let is_of_endpoints = match name.resource_type() {
        Some(named) if name.is_glob() => named == endpoint,
        Some(named) => Some(named) == list,
        None => false,
    };
    match name.directives() {
        None if is_of_endpoints => Ok((name.spelling().into(), source)),
        // The alternative is a part of the name that is watched.
        Some(directives) if is_of_endpoints && directives.entry().is_none() => {
            Ok((text.as_str().into(), source))
        }
        None | Some(_) => {
            Err(invalid(format!("{text:?} is neither a glob collection nor a list collection of {endpoint}")))
        }
    }
}

impl ClusterLoadAssignment {
    /// The assignment with the endpoints of collections, by priority and locality. Of those that break a rule of assignments
    /// together (E8, E9) the later ones are left out.
    pub(crate) fn with_leds(&self, endpoints: BTreeMap<(u32, &Locality), Vec<Endpoint>>) -> Self {
        // A copy: the cache keeps the assignment as it was sent, and each change of a collection completes it anew.
        let mut completed = self.clone();
        let mut known: HashSet<SocketAddr> = self.endpoints().flat_map(Endpoint::addresses).collect();
        // Remarked at the end: the loop borrows the localities of `completed`.
        let mut left_out = Vec::new();
        for ((priority, locality), endpoints) in endpoints {
            let of_priority =
                usize::try_from(priority).ok().and_then(|index| completed.priorities.get_mut(index));
            let mut localities = of_priority.into_iter().flat_map(|priority| &mut priority.localities);
            // The parser has checked that there is one.
            let Some(place) = localities.find(|place| place.locality == *locality) else { continue };
            let (mut kept, mut sum) = (Vec::with_capacity(endpoints.len()), 0_u64);
            for endpoint in endpoints {
                let with = sum + u64::from(endpoint.weight.get());
                let taken = endpoint.addresses().find(|address| known.contains(address));
                if let Some(address) = taken {
                    left_out
                        .push((locality, format!("{address} is already the address of another endpoint")));
                } else if with > MAX_SUM {
                    left_out.push((locality, format!("the weights of the endpoints are over {MAX_SUM}")));
                } else {
                    known.extend(endpoint.addresses());
                    sum = with;
                    kept.push(endpoint);
                }
            }
            place.endpoints = kept.into();
        }
        for (locality, reason) in left_out {
            completed.remarks.leave_out(Invalid::field("leds_localities", format!("{locality}: {reason}")));
        }
        completed
    }
}
