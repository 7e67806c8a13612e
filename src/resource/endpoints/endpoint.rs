//! Endpoints.

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt, iter,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
};

use bytes::Bytes;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::super::{Context, Invalid, Metadata, Resource, parts, remarks, unexecuted};
use crate::{
    pb::envoy::config::{core::v3 as core, endpoint::v3 as pb},
    wire::Fields,
};

/// An endpoint of a cluster. Addresses are unique within an assignment.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The health, as reported by the management server.
    pub health: HealthStatus,
    /// The share of the requests, relative to the other endpoints of the locality; 1 by default.
    pub weight: NonZeroU32,
    /// The IP address.
    // Apart from the port: a `SocketAddr` alone has the 32 bytes of a whole endpoint, because of the scope of IPv6.
    ip: IpAddr,
    /// The port.
    port: u16,
    /// Rare fields; `None` if all are empty.
    more: Option<Box<More>>,
}

/// Fields that few endpoints have.
/// Behind one pointer: a mesh has many endpoints, and one without these fields takes 32 bytes.
#[derive(Clone, Default, PartialEq)]
struct More {
    /// The other addresses of the endpoint.
    additional_addresses: Box<[SocketAddr]>,
    /// The name of its host.
    hostname: Box<str>,
    /// Its metadata.
    metadata: Metadata,
}

/// The health of an endpoint, as reported by the management server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum HealthStatus {
    /// Unknown; treated as healthy.
    Unknown,
    /// Healthy.
    Healthy,
    /// Unhealthy: health checks fail.
    Unhealthy,
    /// Draining: no new requests are sent to it.
    Draining,
    /// Health checks time out.
    Timeout,
    /// Degraded: other endpoints should be preferred.
    Degraded,
    /// A state unknown to this client.
    Unrecognized,
}

/// The resource type of endpoints, for members of collections.
impl Resource for Endpoint {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
    const COLLECTION_TYPE_URL: Option<&'static str> =
        Some("type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection");

    /// The message has no name: endpoints are wrapped.
    fn name(_: &[u8]) -> Result<Cow<'_, str>, Invalid> {
        Err(Invalid::new("an endpoint has no name in it, and must be wrapped in a Resource"))
    }

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        parts::read::<pb::LbEndpoint, _>(bytes, |bytes| {
            let endpoint = Self::read(bytes, bytes, cx)?;
            // Its own addresses alone: as a member of a collection it is compared with others in `with_leds`.
            endpoint.check_addresses(&mut HashSet::new())?;
            Ok(endpoint)
        })
    }
}

impl Endpoint {
    /// An endpoint with addresses and a hostname alone, of weight 1.
    pub(crate) fn new(address: SocketAddr, additional_addresses: Box<[SocketAddr]>, hostname: &str) -> Self {
        Self {
            health: HealthStatus::Unknown,
            weight: NonZeroU32::MIN,
            ip: address.ip(),
            port: address.port(),
            more: More { additional_addresses, hostname: hostname.into(), ..More::default() }.boxed(),
        }
    }

    /// Returns the main address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Returns the additional addresses, such as an IPv6 address (A61).
    pub fn additional_addresses(&self) -> &[SocketAddr] {
        self.more.as_ref().map_or(&[], |more| &more.additional_addresses)
    }

    /// Returns all addresses, the main one first.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + Clone {
        iter::once(self.address()).chain(self.additional_addresses().iter().copied())
    }

    /// Returns the name for TLS and for authority rewriting (A81), not empty.
    pub fn hostname(&self) -> Option<&str> {
        self.more.as_ref().map(|more| &*more.hostname).filter(|name| !name.is_empty())
    }

    /// Returns the key on a hash ring, which replaces the address (A76); not empty.
    pub fn hash_key(&self) -> Option<&str> {
        self.metadata().text("envoy.lb", "hash_key").filter(|key| !key.is_empty())
    }

    /// Returns the metadata.
    pub fn metadata(&self) -> &Metadata {
        const NONE: &Metadata = &Metadata::none();
        self.more.as_ref().map_or(NONE, |more| &more.metadata)
    }

    /// Returns whether new requests may be sent to the endpoint: it is healthy, or its health is unknown.
    pub fn is_healthy(&self) -> bool {
        matches!(self.health, HealthStatus::Healthy | HealthStatus::Unknown)
    }

    /// Reads an `LbEndpoint` by rules E7 and E10 to E16; it is a part of `whole`.
    pub(super) fn read(bytes: &[u8], whole: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let (mut host, mut name, mut metadata, mut weight) = (None, None, None, None);
        let mut health = 0;
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => field.once(&mut host)?,
                2 => health = field.varint()? as i32,
                3 => field.once(&mut metadata)?,
                4 => field.once(&mut weight)?,
                5 => name = Some(field.text()?),
                _ => {}
            }
        }
        // A name in place of the endpoint is not supported. If the message has both, the last one counts.
        let host =
            host.filter(|_| name.is_none()).ok_or_else(|| Invalid::field("endpoint", "must be set"))?;
        let (address, mut more) = More::read(host).map_err(|e| e.at("endpoint"))?;
        let weight = NonZeroU32::new(weight.map_or(Ok(1), parts::uint32_value)?).ok_or_else(|| {
            Invalid::field("load_balancing_weight", "must not be 0; leave out the endpoint instead")
        })?;
        more.metadata = Metadata::read(metadata, whole, cx).map_err(|e| e.at("metadata"))?;
        Ok(Self {
            health: HealthStatus::of(health),
            weight,
            ip: address.ip(),
            port: address.port(),
            more: more.boxed(),
        })
    }

    /// Rule E9.
    /// Adds the addresses to the known ones. An address that is known already is an error, at the path of its field.
    pub(super) fn check_addresses(&self, known: &mut HashSet<SocketAddr>) -> Result<(), Invalid> {
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

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Endpoint");
        f.field("address", &self.address());
        f.field("additional_addresses", &self.additional_addresses());
        f.field("health", &self.health).field("weight", &self.weight);
        f.field("hostname", &self.hostname()).field("metadata", self.metadata()).finish()
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_struct("Endpoint", 7)?;
        object.serialize_field("address", &self.address())?;
        object.serialize_field("additional_addresses", self.additional_addresses())?;
        object.serialize_field("health", &self.health)?;
        object.serialize_field("weight", &self.weight)?;
        object.serialize_field("hostname", &self.hostname())?;
        object.serialize_field("hash_key", &self.hash_key())?;
        object.serialize_field("metadata", self.metadata())?;
        object.end()
    }
}

impl More {
    /// Reads an `Endpoint`: its addresses and its name.
    fn read(bytes: &[u8]) -> Result<(SocketAddr, Self), Invalid> {
        let (mut address, mut hostname, mut additional) = (None, "", 0);
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => field.once(&mut address)?,
                2 => remarks::note_field(unexecuted::HEALTH_CHECK_CONFIG),
                3 => hostname = field.text()?,
                4 => {
                    field.bytes()?;
                    additional += 1;
                }
                _ => {}
            }
        }
        let address = read_address(address)?;
        // Of the exact size, which was counted above: there are many endpoints, and most have none.
        let mut additional_addresses = Vec::with_capacity(additional);
        for (i, bytes) in parts::repeated(bytes, 4).enumerate() {
            let mut address = None;
            for field in Fields::of(bytes) {
                let field = field?;
                if field.number == 1 {
                    field.once(&mut address)?;
                }
            }
            let address = read_address(address).map_err(|e| e.at_index("additional_addresses", i))?;
            additional_addresses.push(address);
        }
        let additional_addresses = additional_addresses.into();
        Ok((address, Self { additional_addresses, hostname: hostname.into(), ..Self::default() }))
    }

    /// The fields, unless all are empty.
    fn boxed(self) -> Option<Box<Self>> {
        let Self { additional_addresses, hostname, metadata } = &self;
        let is_empty = additional_addresses.is_empty() && hostname.is_empty() && metadata.is_empty();
        (!is_empty).then(|| Box::new(self))
    }
}

/// Reads the address of an endpoint.
fn read_address(bytes: Option<&[u8]>) -> Result<SocketAddr, Invalid> {
    parts::read_socket_addr(bytes).map_err(|e| e.at("address"))
}

impl HealthStatus {
    /// The status of a number; unknown numbers are no error.
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
