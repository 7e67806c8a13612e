//! Ranges of IP addresses.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Serialize, Serializer};

use super::Invalid;
use crate::pb::envoy::config::core::v3::CidrRange;

/// A range of addresses, in JSON as text: `10.0.0.0/8`. The bits after the prefix are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The first address.
    address: IpAddr,
    /// The number of bits that all addresses have in common.
    prefix_len: u8,
}

impl Cidr {
    /// The range of addresses with the same first `prefix_len` bits as this one; with too long a prefix, the address
    /// alone.
    ///
    /// IPv4-mapped IPv6 is converted to IPv4 if the prefix includes the mapping: `::ffff:10.0.0.0/104` is
    /// `10.0.0.0/8`.
    pub fn new(address: IpAddr, prefix_len: u8) -> Self {
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if prefix_len >= MAPPED => {
                Self::masked(v4, prefix_len - MAPPED)
            }
            (address, _) => Self::masked(address, prefix_len),
        }
    }

    /// Returns the first address of the range.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits: at most 32 for IPv4, 128 for IPv6.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Returns whether an address is in the range; an IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::masked(address.to_canonical(), self.prefix_len).address == self.address
    }

    /// Rules S19 to S21; the ranges are sorted, without duplicates.
    pub(crate) fn parse_list(field: &str, ranges: &[CidrRange]) -> Result<Box<[Self]>, Invalid> {
        let ranges = ranges.iter().enumerate();
        let parsed: BTreeSet<_> = ranges
            .map(|(i, range)| Self::parse(range).map_err(|e| e.at_index(field, i)))
            .collect::<Result<_, _>>()?;
        Ok(parsed.into_iter().collect())
    }

    /// A prefix longer than the address is the whole address; an unset prefix is empty (A36-9).
    pub(crate) fn parse(range: &CidrRange) -> Result<Self, Invalid> {
        let address = range.address_prefix.parse().map_err(|_| {
            Invalid::field("address_prefix", format!("{:?} is no IP address", range.address_prefix))
        })?;
        let bits = range.prefix_len.map_or(0, |bits| bits.value);
        Ok(Self::new(address, u8::try_from(bits).unwrap_or(u8::MAX)))
    }

    /// The range that an address is in.
    fn masked(address: IpAddr, bits: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let prefix_len = bits.min(32);
                // `checked_shl` refuses to shift by all bits, as for an empty prefix: its mask is 0, and every address matches.
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
                Self { address: Ipv4Addr::from(u32::from(v4) & mask).into(), prefix_len }
            }
            IpAddr::V6(v6) => {
                let prefix_len = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
                Self { address: Ipv6Addr::from(u128::from(v6) & mask).into(), prefix_len }
            }
        }
    }
}

impl FromStr for Cidr {
    type Err = Invalid;

    /// Parses `10.0.0.0/8`, or a single address: `10.1.2.3`.
    ///
    /// # Errors
    /// The address is no IP address, or the length no number up to 255. A prefix longer than the address is the whole address.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::new(format!("{text:?} is no range of addresses"));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits.parse().map_err(|_| invalid())?),
            None => (text, u8::MAX),
        };
        Ok(Self::new(address.parse().map_err(|_| invalid())?, bits))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The number of bits before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED: u8 = 96;
