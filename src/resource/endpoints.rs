//! The endpoints of a cluster.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt, iter,
    net::SocketAddr,
    num::NonZeroU32,
    sync::Arc,
};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{Context, Invalid, Metadata, Resource, matcher::Fraction, parts};
use crate::pb::{
    envoy::config::{
        core::v3 as core,
        endpoint::v3::{self as endpoint, cluster_load_assignment::policy, lb_endpoint::HostIdentifier},
    },
    google::protobuf as google,
};

/// The endpoints of one cluster, by priority and locality.
///
/// An assignment without endpoints is valid: the cluster cannot be reached then.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClusterLoadAssignment {
    /// Its name, not empty: what clusters call `service_name`.
    pub cluster_name: Arc<str>,
    /// Groups of localities, the one to be used first in front.
    pub priorities: Box<[Priority]>,
    /// Parts of the requests that are to be dropped on purpose.
    pub drops: Box<[DropOverload]>,
}

/// Localities that are used at the same time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Priority {
    /// At least one, no locality twice; their weights add up to `u32::MAX` at most.
    pub localities: Box<[LocalityEndpoints]>,
}

/// Endpoints in one place.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LocalityEndpoints {
    /// The place.
    pub locality: Locality,
    /// Its part of the requests, in proportion to the other localities of the priority.
    pub weight: NonZeroU32,
    /// Its endpoints, of every health; their weights add up to `u32::MAX` at most.
    pub endpoints: Box<[Endpoint]>,
    /// What else the server says about the locality.
    pub metadata: Metadata,
}

/// A place; each part may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct Locality {
    /// Such as a region of a cloud.
    pub region: Box<str>,
    /// A zone in the region.
    pub zone: Box<str>,
    /// A part of the zone, such as a rack.
    pub sub_zone: Box<str>,
}

/// One server of a cluster; no address is that of two endpoints of an assignment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens too, such as its IPv6 address (A61).
    pub additional_addresses: Box<[SocketAddr]>,
    /// What the server knows of its health.
    pub health: HealthStatus,
    /// Its part of the requests, in proportion to the locality's other endpoints; 1 if not said.
    pub weight: NonZeroU32,
    /// Its name for TLS and for authority rewriting (A81), as the server wrote it.
    pub hostname: Option<Box<str>>,
    /// Where it stands on a hash ring, in place of its address (A76).
    pub hash_key: Option<Box<str>>,
    /// What else the server says about it.
    pub metadata: Metadata,
}

/// What a server knows of an endpoint's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum HealthStatus {
    /// Nothing; it is used like a healthy one.
    Unknown,
    /// It is well.
    Healthy,
    /// It does not answer as it should.
    Unhealthy,
    /// It is about to leave: nothing new is sent to it.
    Draining,
    /// It does not answer in time.
    Timeout,
    /// It answers, but others should be preferred.
    Degraded,
    /// A state that this client does not know.
    Unrecognized,
}

/// Requests to be dropped on purpose, such as to shed load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DropOverload {
    /// The name for the reason, under which drops are counted; not empty.
    pub category: Box<str>,
    /// The part of the requests, 0 to 1,000,000.
    pub requests_per_million: u32,
}

impl Resource for ClusterLoadAssignment {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

    fn parse(bytes: Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let from = endpoint::ClusterLoadAssignment::decode(bytes)?;
        if from.cluster_name.is_empty() {
            return Err(Invalid::field("cluster_name", "must not be empty"));
        }
        let drops = from.policy.unwrap_or_default().drop_overloads;
        let drops = parts::each("drop_overloads", drops, DropOverload::parse);
        Ok(Self {
            cluster_name: from.cluster_name.into(),
            drops: drops.map_err(|e| e.at("policy"))?,
            priorities: priorities(from.endpoints, cx)?,
        })
    }
}

/// An endpoint by itself, as members of collections are.
impl Resource for Endpoint {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
    const COLLECTION_TYPE_URL: Option<&'static str> =
        Some("type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection");

    /// There is none in the message: endpoints come wrapped.
    fn name(_: &[u8]) -> Result<Cow<'_, str>, Invalid> {
        Err(Invalid::new("an endpoint has no name in it, and must be wrapped in a Resource"))
    }

    fn parse(bytes: Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let endpoint = Self::from_message(endpoint::LbEndpoint::decode(bytes)?, cx)?;
        endpoint.check_addresses(&mut HashSet::new())?;
        Ok(endpoint)
    }
}

impl ClusterLoadAssignment {
    /// All localities, the highest priority first.
    pub fn localities(&self) -> impl Iterator<Item = &LocalityEndpoints> {
        self.priorities.iter().flat_map(|priority| &priority.localities)
    }

    /// All endpoints of every health, the highest priority first.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.localities().flat_map(|locality| &locality.endpoints)
    }
}

impl Endpoint {
    /// Whether new requests may be sent to it: its health is good, or not known.
    pub fn is_healthy(&self) -> bool {
        matches!(self.health, HealthStatus::Healthy | HealthStatus::Unknown)
    }

    /// All its addresses, the main one first.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        iter::once(self.address).chain(self.additional_addresses.iter().copied())
    }

    /// Rules E7 and E10 to E16.
    fn from_message(from: endpoint::LbEndpoint, cx: &Context<'_>) -> Result<Self, Invalid> {
        let Some(HostIdentifier::Endpoint(host)) = from.host_identifier else {
            return Err(Invalid::field("endpoint", "must be set"));
        };
        let parse =
            |address: Option<&core::Address>| parts::socket_addr(address).map_err(|e| e.at("address"));
        let address = parse(host.address.as_ref()).map_err(|e| e.at("endpoint"))?;
        let additional_addresses = parts::each("additional_addresses", host.additional_addresses, |other| {
            parse(other.address.as_ref())
        });
        let additional_addresses = additional_addresses.map_err(|e| e.at("endpoint"))?;
        let weight = from.load_balancing_weight.map_or(1, |weight| weight.value);
        let weight = NonZeroU32::new(weight).ok_or(Invalid::field(
            "load_balancing_weight",
            "must not be 0; leave out the endpoint instead",
        ))?;
        let metadata = Metadata::parse(from.metadata, cx).map_err(|e| e.at("metadata"))?;
        Ok(Self {
            address,
            additional_addresses,
            health: HealthStatus::of(from.health_status),
            weight,
            hostname: (!host.hostname.is_empty()).then(|| host.hostname.into()),
            hash_key: metadata.text("envoy.lb", "hash_key").filter(|key| !key.is_empty()).map(Into::into),
            metadata,
        })
    }

    /// Rule E9.
    fn check_addresses(&self, known: &mut HashSet<SocketAddr>) -> Result<(), Invalid> {
        for (i, address) in self.addresses().enumerate() {
            if !known.insert(address) {
                let reason = format!("{address} is already the address of another endpoint");
                let invalid = Invalid::field("address", reason);
                let additional = i.checked_sub(1);
                return Err(match additional {
                    Some(i) => invalid.at_index("additional_addresses", i).at("endpoint"),
                    None => invalid.at("endpoint"),
                });
            }
        }
        Ok(())
    }
}

/// As in gRPC's metrics: `{region="R", zone="Z", sub_zone="S"}` (A78).
impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, zone, sub_zone } = self;
        write!(f, "{{region={region:?}, zone={zone:?}, sub_zone={sub_zone:?}}}")
    }
}

impl HealthStatus {
    fn of(number: i32) -> Self {
        match core::HealthStatus::try_from(number) {
            Ok(core::HealthStatus::Unknown) => Self::Unknown,
            Ok(core::HealthStatus::Healthy) => Self::Healthy,
            Ok(core::HealthStatus::Unhealthy) => Self::Unhealthy,
            Ok(core::HealthStatus::Draining) => Self::Draining,
            Ok(core::HealthStatus::Timeout) => Self::Timeout,
            Ok(core::HealthStatus::Degraded) => Self::Degraded,
            Err(_) => Self::Unrecognized,
        }
    }
}

impl DropOverload {
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
    fn parse(
        from: endpoint::LocalityLbEndpoints,
        weight: NonZeroU32,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        let core::Locality { region, zone, sub_zone } =
            from.locality.ok_or(Invalid::field("locality", "must be set"))?;
        let endpoints =
            parts::each("lb_endpoints", from.lb_endpoints, |endpoint| Endpoint::from_message(endpoint, cx))?;
        let sum: u64 = endpoints.iter().map(|endpoint| u64::from(endpoint.weight.get())).sum();
        if sum > MAX_SUM {
            let reason = format!("the weights of the endpoints add up to {sum}, which is over {MAX_SUM}");
            return Err(Invalid::field("lb_endpoints", reason));
        }
        let locality = Locality { region: region.into(), zone: zone.into(), sub_zone: sub_zone.into() };
        let metadata = Metadata::parse(from.metadata, cx).map_err(|e| e.at("metadata"))?;
        Ok(Self { locality, weight, endpoints, metadata })
    }
}

/// Localities of one priority, each with its place in the message.
#[derive(Default)]
struct Draft {
    places: Vec<usize>,
    localities: Vec<LocalityEndpoints>,
}

/// Rules E1 to E6 and E9.
fn priorities(
    from: Vec<endpoint::LocalityLbEndpoints>,
    cx: &Context<'_>,
) -> Result<Box<[Priority]>, Invalid> {
    let mut drafts = BTreeMap::<u32, Draft>::new();
    for (i, locality) in from.into_iter().enumerate() {
        let weight = locality.load_balancing_weight.map(|google::UInt32Value { value }| value);
        // Without weight, a locality is skipped before any other check (decisions on E2).
        let Some(weight) = weight.and_then(NonZeroU32::new) else { continue };
        let draft = drafts.entry(locality.priority).or_default();
        draft.places.push(i);
        let parsed = LocalityEndpoints::parse(locality, weight, cx);
        draft.localities.push(parsed.map_err(|e| e.at_index("endpoints", i))?);
    }
    for (expected, (priority, draft)) in (0..).zip(&drafts) {
        if *priority != expected {
            let reason = format!("there is priority {priority}, but no priority {expected}");
            return Err(Invalid::field("priority", reason).at_index("endpoints", draft.places[0]));
        }
        draft.check(*priority)?;
    }
    check_addresses(&drafts)?;
    Ok(drafts.into_values().map(|draft| Priority { localities: draft.localities.into() }).collect())
}

/// Rule E9. Where an address is there twice, its place is looked for, and nowhere else.
fn check_addresses(drafts: &BTreeMap<u32, Draft>) -> Result<(), Invalid> {
    let localities = || drafts.values().flat_map(|draft| draft.places.iter().zip(&draft.localities));
    let endpoints = localities().flat_map(|(_, locality)| &locality.endpoints);
    let mut all: Vec<_> = endpoints.flat_map(Endpoint::addresses).collect();
    all.sort_unstable();
    if all.windows(2).all(|pair| pair[0] != pair[1]) {
        return Ok(());
    }
    let mut known = HashSet::new();
    for (place, locality) in localities() {
        for (i, endpoint) in locality.endpoints.iter().enumerate() {
            let checked = endpoint.check_addresses(&mut known);
            checked.map_err(|e| e.at_index("lb_endpoints", i).at_index("endpoints", *place))?;
        }
    }
    Ok(())
}

impl Draft {
    /// Rules E4 and E5.
    fn check(&self, priority: u32) -> Result<(), Invalid> {
        let sum: u64 = self.localities.iter().map(|locality| u64::from(locality.weight.get())).sum();
        if sum > MAX_SUM {
            let reason = format!(
                "the weights of the localities of priority {priority} add up to {sum}, which is over {MAX_SUM}"
            );
            return Err(Invalid::field("endpoints", reason));
        }
        let mut known = HashSet::with_capacity(self.localities.len());
        for (i, LocalityEndpoints { locality, .. }) in self.places.iter().zip(&self.localities) {
            if !known.insert(locality) {
                let reason = format!("{locality} is there twice in priority {priority}");
                return Err(Invalid::field("locality", reason).at_index("endpoints", *i));
            }
        }
        Ok(())
    }
}

const MAX_SUM: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests;
