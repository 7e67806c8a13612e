//! The endpoints of a cluster.

use std::{collections::HashSet, num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{Context, Invalid, Metadata, Remarks, Resource, matcher::Fraction, parts, remarks, unexecuted};
use crate::base::type_url;
use crate::{
    pb::envoy::config::endpoint::v3::{self as pb, cluster_load_assignment::policy},
    wire::Fields,
};

mod endpoint;
mod leds;

pub use self::{
    endpoint::{Endpoint, HealthStatus},
    leds::LedsLocality,
};

use self::leds::LedsCollection;
pub use crate::config::Locality;

/// The endpoints of one cluster, by priority and locality.
///
/// An assignment without endpoints is valid; the cluster is then unreachable.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClusterLoadAssignment {
    /// The name, not empty: the `service_name` of clusters.
    pub cluster_name: Arc<str>,
    /// The priorities, the most preferred one first.
    pub priorities: Box<[Priority]>,
    /// The fractions of requests to drop.
    pub drops: Box<[DropOverload]>,
    /// The localities without a weight, in the order of the message. Clients of gRPC do not use them, and neither do channels and
    /// the picks of a snapshot; other applications may.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub unweighted_localities: Box<[UnweightedLocality]>,
    /// The localities whose endpoints are members of collections, in the order of the message.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub leds_localities: Box<[LedsLocality]>,
    /// What is not used of it.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

/// A locality without a weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UnweightedLocality {
    /// The locality, without any part if the server has sent none, as Consul.
    pub locality: Locality,
    /// The priority, which may have no other localities.
    pub priority: u32,
    /// The endpoints in any health state.
    pub endpoints: Box<[Endpoint]>,
    /// The metadata of the locality.
    pub metadata: Metadata,
}

/// A priority: localities that are used together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Priority {
    /// The localities, at least one; they are unique, and the sum of their weights is `u32::MAX` at most.
    pub localities: Box<[LocalityEndpoints]>,
}

/// The endpoints of one locality.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LocalityEndpoints {
    /// The locality.
    pub locality: Locality,
    /// The share of the requests, relative to the other localities of the priority.
    pub weight: NonZeroU32,
    /// The endpoints in any health state; the sum of their weights is `u32::MAX` at most.
    pub endpoints: Box<[Endpoint]>,
    /// The metadata of the locality.
    pub metadata: Metadata,
}

/// A fraction of requests to drop, such as for load shedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DropOverload {
    /// The category by which dropped requests are counted; not empty.
    pub category: Box<str>,
    /// The fraction in parts per million, 0 to 1,000,000.
    pub requests_per_million: u32,
}

impl Resource for ClusterLoadAssignment {
    const TYPE_URL: &'static str = type_url::ENDPOINTS;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let (assignment, remarks) = remarks::collect(|| {
            let assignment =
                parts::read::<pb::ClusterLoadAssignment, _>(bytes, |bytes| Self::read(bytes, cx))?;
            remarks::scan(&unexecuted::LOAD_ASSIGNMENT, bytes);
            Ok(assignment)
        })?;
        Ok(Self { remarks, ..assignment })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

impl ClusterLoadAssignment {
    /// Reads an assignment without copies of what is left out.
    fn read(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let (mut name, mut policy, mut count) = ("", None, 0);
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => name = field.text()?,
                2 => {
                    field.bytes()?;
                    // Counted alone: the localities are parsed in a second pass, into a list of the exact size.
                    count += 1;
                }
                4 => field.once(&mut policy)?,
                _ => {}
            }
        }
        if name.is_empty() {
            return Err(Invalid::field("cluster_name", "must not be empty"));
        }
        let drops = policy.map_or(Ok([].into()), DropOverload::read).map_err(|e| e.at("policy"))?;
        let Localities { priorities, unweighted, leds } = priorities(count, bytes, cx)?;
        Ok(Self {
            cluster_name: cx.share(name),
            priorities,
            drops,
            unweighted_localities: unweighted,
            leds_localities: leds,
            remarks: Remarks::default(),
        })
    }

    /// Returns all localities, the highest priority first.
    pub fn localities(&self) -> impl Iterator<Item = &LocalityEndpoints> {
        self.priorities.iter().flat_map(|priority| &priority.localities)
    }

    /// Returns the number of endpoints of localities without a weight, in any health state.
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn unweighted_endpoints(&self) -> usize {
        self.unweighted_localities.iter().map(|locality| locality.endpoints.len()).sum()
    }

    /// Returns all endpoints of localities with a weight in any health state, the highest priority first.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.localities().flat_map(|locality| &locality.endpoints)
    }
}

impl DropOverload {
    /// Reads the drops in a `Policy`.
    fn read(policy: &[u8]) -> Result<Box<[Self]>, Invalid> {
        let drops = pb::cluster_load_assignment::Policy::decode(policy)?.drop_overloads;
        parts::each("drop_overloads", drops, Self::parse)
    }

    /// Rule E13.
    fn parse(from: policy::DropOverload) -> Result<Self, Invalid> {
        if from.category.is_empty() {
            return Err(Invalid::field("category", "must not be empty"));
        }
        let fraction = from.drop_percentage.ok_or(Invalid::new("must be set"));
        let fraction = fraction.and_then(Fraction::parse);
        Ok(Self {
            category: from.category.into(),
            requests_per_million: fraction.map_err(|e| e.at("drop_percentage"))?.per_million(),
        })
    }
}

impl LocalityEndpoints {
    /// Rules E2, E7 to E12 and E14 to E16; the locality is a part of `whole`.
    fn parse(
        from: &LocalityFields<'_>,
        weight: NonZeroU32,
        whole: &Bytes,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        let locality = from.locality.ok_or_else(|| Invalid::field("locality", "must be set"))?;
        let locality = read_locality(locality)?;
        let mut endpoints = Vec::with_capacity(from.count);
        for (i, bytes) in parts::repeated(from.bytes, 2).enumerate() {
            let endpoint = Endpoint::read(bytes, whole, cx);
            endpoints.push(endpoint.map_err(|e| e.at_index("lb_endpoints", i))?);
        }
        let sum: u64 = endpoints.iter().map(|endpoint: &Endpoint| u64::from(endpoint.weight.get())).sum();
        if sum > MAX_SUM {
            let reason = format!("the weights of the endpoints add up to {sum}, which is over {MAX_SUM}");
            return Err(Invalid::field("lb_endpoints", reason));
        }
        let metadata = Metadata::read(from.metadata, whole, cx).map_err(|e| e.at("metadata"))?;
        Ok(Self { locality, weight, endpoints: endpoints.into(), metadata })
    }
}

/// The fields of an encoded `LocalityLbEndpoints`.
#[derive(Clone)]
struct LocalityFields<'a> {
    /// The whole message.
    bytes: &'a [u8],
    /// Its name.
    locality: Option<&'a [u8]>,
    /// Its metadata.
    metadata: Option<&'a [u8]>,
    /// Its weight; `None` is 0.
    weight: Option<u32>,
    /// Its priority.
    priority: u32,
    /// Its endpoints are also in `load_balancer_endpoints`, or sent by LEDS.
    has_list: bool,
    /// The collection of its endpoints.
    leds: Option<&'a [u8]>,
    /// The number of endpoints.
    count: usize,
}

impl<'a> LocalityFields<'a> {
    /// Reads the fields, without the endpoints.
    fn read(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let mut fields = Self {
            bytes,
            locality: None,
            metadata: None,
            weight: None,
            priority: 0,
            has_list: false,
            leds: None,
            count: 0,
        };
        let mut weight = None;
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => field.once(&mut fields.locality)?,
                2 => {
                    field.bytes()?;
                    fields.count += 1;
                }
                3 => field.once(&mut weight)?,
                // Truncated, as decoders do with numbers of 32 bits.
                5 => fields.priority = field.varint()? as u32,
                // Not supported and not used, but the message must be well-formed.
                7 => {
                    drop(pb::locality_lb_endpoints::LbEndpointList::decode(field.bytes()?)?);
                    fields.has_list = true;
                }
                8 => {
                    drop(pb::LedsClusterLocalityConfig::decode(field.bytes()?)?);
                    fields.leds = Some(field.bytes()?);
                }
                9 => field.once(&mut fields.metadata)?,
                _ => {}
            }
        }
        fields.weight = weight.map(parts::uint32_value).transpose()?;
        Ok(fields)
    }
}

/// Reads the name of a locality.
fn read_locality(bytes: &[u8]) -> Result<Locality, Invalid> {
    let (mut region, mut zone, mut sub_zone) = ("", "", "");
    for field in Fields::of(bytes) {
        let field = field?;
        match field.number {
            1 => region = field.text()?,
            2 => zone = field.text()?,
            3 => sub_zone = field.text()?,
            _ => {}
        }
    }
    // An error of the resource: `Locality::new` would panic.
    if bytes.len() > u32::MAX as usize {
        return Err(Invalid::new("the name of a locality is longer than 4 GiB"));
    }
    Ok(Locality::new(region, zone, sub_zone))
}

/// A locality with its priority, and its position in the message.
struct Draft {
    /// The priority.
    priority: u32,
    /// The position in the message.
    place: usize,
    /// The locality.
    locality: LocalityEndpoints,
}

impl UnweightedLocality {
    /// Parses a locality that load balancing ignores (E3). It is not validated: malformed parts are left out.
    fn parse(from: &LocalityFields<'_>, whole: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let named = LocalityFields { locality: Some(from.locality.unwrap_or_default()), ..from.clone() };
        let LocalityEndpoints { locality, endpoints, metadata, .. } =
            LocalityEndpoints::parse(&named, NonZeroU32::MIN, whole, cx)?;
        Ok(Self { locality, priority: from.priority, endpoints, metadata })
    }
}

/// The localities of an assignment.
struct Localities {
    /// The localities by priority.
    priorities: Box<[Priority]>,
    /// Localities without a weight, which get no requests.
    unweighted: Box<[UnweightedLocality]>,
    /// Localities whose endpoints are in collections.
    leds: Box<[LedsLocality]>,
}

/// Rules E1 to E6 and E9, for an assignment of `count` localities.
fn priorities(count: usize, assignment: &Bytes, cx: &Context<'_>) -> Result<Localities, Invalid> {
    let (mut drafts, mut unweighted, mut leds) = (Vec::with_capacity(count), Vec::new(), Vec::new());
    for (place, bytes) in parts::repeated(assignment, 2).enumerate() {
        let fields = LocalityFields::read(bytes)?;
        note_list(&fields, place);
        // Without weight, a locality is skipped before any other check (E2, E3).
        let Some(weight) = NonZeroU32::new(fields.weight.unwrap_or(0)) else {
            let message = pb::LocalityLbEndpoints::decode(bytes)?;
            let kept = UnweightedLocality::parse(&fields, assignment, cx).or_else(|_| {
                // In an unusual encoding, fields are read as a decoder does.
                let encoded = Bytes::from(message.encode_to_vec());
                UnweightedLocality::parse(&LocalityFields::read(&encoded)?, &encoded, cx)
            });
            let kept =
                kept.and_then(|kept| if fields.weight.is_none() { Ok(kept) } else { Err(zero_weight()) });
            let reason = match &kept {
                Ok(kept) => {
                    let lacks = if message.locality.is_none() { ", and no locality" } else { "" };
                    Invalid::new(format!(
                        "no load_balancing_weight{lacks} (endpoints: {})",
                        kept.endpoints.len()
                    ))
                }
                Err(reason) => reason.clone().and("; the locality has no weight"),
            };
            remarks::leave_out(reason.at_index("endpoints", place));
            unweighted.extend(kept);
            continue;
        };
        let locality = LocalityEndpoints::parse(&fields, weight, assignment, cx);
        let mut locality = locality.map_err(|e| e.at_index("endpoints", place))?;
        // A95-2: the members of the collection are the only endpoints.
        if fields.leds.is_some() {
            locality.endpoints = [].into();
        }
        if let Some((collection, source)) = leds_of(&fields, place, cx) {
            let (priority, locality) = (fields.priority, locality.locality.clone());
            leds.push(LedsLocality { priority, locality, collection, source });
        }
        drafts.push(Draft { priority: fields.priority, place, locality });
    }
    // A stable sort keeps the order of localities within a priority.
    drafts.sort_by_key(|draft| draft.priority);
    for (expected, drafts) in (0..).zip(drafts.chunk_by(|one, next| one.priority == next.priority)) {
        let Draft { priority, place, .. } = drafts[0];
        if priority != expected {
            let reason = format!("there is priority {priority}, but no priority {expected}");
            return Err(Invalid::field("priority", reason).at_index("endpoints", place));
        }
        check_localities(drafts)?;
    }
    check_addresses(&drafts)?;
    Ok(Localities { priorities: grouped(drafts), unweighted: unweighted.into(), leds: leds.into() })
}

/// The error of an endpoint of weight 0.
fn zero_weight() -> Invalid {
    Invalid::field("load_balancing_weight", "is 0")
}

/// Remarks that endpoints of a locality in a list of their own are left out.
fn note_list(fields: &LocalityFields<'_>, place: usize) {
    if fields.has_list {
        let reason = "not supported; its endpoints are left out";
        remarks::leave_out(Invalid::field("load_balancer_endpoints", reason).at_index("endpoints", place));
    }
}

/// The collection of the endpoints of a locality (A95-2); one that cannot be watched is left out.
fn leds_of(fields: &LocalityFields<'_>, place: usize, cx: &Context<'_>) -> Option<LedsCollection> {
    let read = leds::read(fields.leds?, cx).map_err(|invalid| {
        remarks::leave_out(invalid.at("leds_cluster_locality_config").at_index("endpoints", place));
    });
    read.ok()
}

/// Groups localities that are sorted by priority, without gaps.
fn grouped(drafts: Vec<Draft>) -> Box<[Priority]> {
    // E6: without gaps, there is one priority more than the number of the last.
    let mut priorities = Vec::with_capacity(drafts.last().map_or(0, |last| last.priority as usize + 1));
    let mut drafts = drafts.into_iter();
    while let Some(first) = drafts.as_slice().first() {
        let priority = first.priority;
        let size = drafts.as_slice().iter().take_while(|draft| draft.priority == priority).count();
        let mut localities = Vec::with_capacity(size);
        localities.extend(drafts.by_ref().take(size).map(|draft| draft.locality));
        priorities.push(Priority { localities: localities.into() });
    }
    priorities.into()
}

/// Rules E4 and E5, for the localities of one priority.
fn check_localities(drafts: &[Draft]) -> Result<(), Invalid> {
    let sum: u64 = drafts.iter().map(|draft| u64::from(draft.locality.weight.get())).sum();
    if sum > MAX_SUM {
        // `chunk_by` yields no empty chunk.
        let priority = drafts[0].priority;
        let reason = format!(
            "the weights of the localities of priority {priority} add up to {sum}, which is over {MAX_SUM}"
        );
        return Err(Invalid::field("endpoints", reason));
    }
    if are_distinct(drafts.iter().map(|draft| &draft.locality.locality)) {
        return Ok(());
    }
    let mut known = HashSet::new();
    for Draft { priority, place, locality: LocalityEndpoints { locality, .. } } in drafts {
        if !known.insert(locality) {
            let reason = format!("{locality} is there twice in priority {priority}");
            return Err(Invalid::field("locality", reason).at_index("endpoints", *place));
        }
    }
    Ok(())
}

/// Rule E9. The position of a duplicate is only searched for once a duplicate is found.
fn check_addresses(drafts: &[Draft]) -> Result<(), Invalid> {
    let endpoints = drafts.iter().flat_map(|draft| &draft.locality.endpoints);
    if are_distinct(endpoints.flat_map(Endpoint::addresses)) {
        return Ok(());
    }
    let mut known = HashSet::new();
    for Draft { place, locality, .. } in drafts {
        for (i, endpoint) in locality.endpoints.iter().enumerate() {
            let checked = endpoint.check_addresses(&mut known);
            checked.map_err(|e| e.at_index("lb_endpoints", i).at_index("endpoints", *place))?;
        }
    }
    Ok(())
}

/// Whether no value is there twice.
fn are_distinct<T: Ord>(all: impl Iterator<Item = T> + Clone) -> bool {
    // Servers often send addresses in order, or a single one.
    if all.clone().is_sorted_by(|one, next| one < next) {
        return true;
    }
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

/// The limit of the sum of weights.
const MAX_SUM: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests;
