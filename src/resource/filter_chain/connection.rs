//! The choice of a filter chain by the addresses of a connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;

use super::SourceType;
use crate::resource::matcher::Cidr;

/// The addresses of an accepted connection, which determine its filter chain.
///
/// IPv4-mapped IPv6 addresses, as dual-stack sockets report them, count as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// The destination: the socket's local address.
    pub destination: SocketAddr,
    /// The source: the socket's peer address.
    pub source: SocketAddr,
}

/// The indexes of a listener's chains, arranged in the order of evaluation (A36-9): destination address, type of
/// source, source address, source port.
///
/// Each step takes the most specific condition that matches, without backtracking.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Chains(Ranges<Sources>);

/// The conditions of a chain, in the order of evaluation; `None` is any.
pub(super) struct Conditions {
    /// The destination address.
    pub(super) destination: Option<Cidr>,
    /// Where the connection comes from.
    pub(super) source_type: SourceType,
    /// The source address.
    pub(super) source: Option<Cidr>,
    /// The source port.
    pub(super) source_port: Option<u32>,
}

/// The source ranges for one destination, by the type of source.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sources {
    /// For connections from anywhere.
    any: Ranges<Ports>,
    /// For connections from the same host.
    local: Ranges<Ports>,
    /// For connections from other hosts.
    external: Ranges<Ports>,
}

/// Chains by the source port; `None` is any.
type Ports = BTreeMap<Option<u32>, usize>;

/// Values by address range, and one for all other addresses.
#[derive(Debug, Clone, PartialEq)]
struct Ranges<T> {
    /// The values by range; `None` is any address.
    values: BTreeMap<Option<Cidr>, T>,
    /// The prefix lengths in `values`.
    /// A lookup tries each of them, of which there are few.
    lengths: BTreeSet<u8>,
}

impl Connection {
    /// A connection from `peer` to the `local` address, as the accepted socket reports them.
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self { destination: local, source: peer }
    }

    /// Returns the type of its source; never [`SourceType::Any`].
    pub fn source_type(&self) -> SourceType {
        let source = self.source.ip().to_canonical();
        if source.is_loopback() || source == self.destination.ip().to_canonical() {
            SourceType::SameIpOrLoopback
        } else {
            SourceType::External
        }
    }
}

impl Chains {
    /// Sets the chain for these conditions; `false` if there is one already.
    /// A chain that was there is replaced: the caller rejects the listener.
    pub(super) fn add(&mut self, conditions: &Conditions, chain: usize) -> bool {
        let Conditions { destination, source_type, source, source_port } = *conditions;
        let sources = self.0.at(destination);
        let ranges = match source_type {
            SourceType::Any => &mut sources.any,
            SourceType::SameIpOrLoopback => &mut sources.local,
            SourceType::External => &mut sources.external,
        };
        ranges.at(source).insert(source_port, chain).is_none()
    }

    /// Reserves a destination without a chain of its own, so that no chain of a wider range is used. Returns whether
    /// it had none.
    pub(super) fn reserve(&mut self, destination: Cidr) -> bool {
        // `at` has made an entry, which from now on hides wider ranges.
        *self.0.at(Some(destination)) == Sources::default()
    }

    /// Returns the chain of a connection.
    pub(super) fn find(&self, connection: &Connection) -> Option<usize> {
        let sources = self.0.best(connection.destination.ip())?;
        let own = match connection.source_type() {
            SourceType::Any => &sources.any,
            SourceType::SameIpOrLoopback => &sources.local,
            SourceType::External => &sources.external,
        };
        // A36-9: no backtracking. Conditions for this type of source hide those for any, even if they do not match in the end.
        let ranges = if own.values.is_empty() { &sources.any } else { own };
        let ports = ranges.best(connection.source.ip())?;
        ports.get(&Some(connection.source.port().into())).or_else(|| ports.get(&None)).copied()
    }
}

impl<T: Default> Ranges<T> {
    /// Returns the value of a range, created if necessary; `None` is the value for all other addresses.
    fn at(&mut self, range: Option<Cidr>) -> &mut T {
        self.lengths.extend(range.map(|range| range.prefix_len()));
        self.values.entry(range).or_default()
    }

    /// Returns the value of the smallest range that contains an address.
    fn best(&self, address: IpAddr) -> Option<&T> {
        let address = address.to_canonical();
        // The longest prefix first. Lengths of IPv6 ranges are cut at 32 bits for an IPv4 address, which only repeats a lookup.
        let ranges = self.lengths.iter().rev().map(|length| Some(Cidr::new(address, *length)));
        ranges.chain([None]).find_map(|range| self.values.get(&range))
    }
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), lengths: BTreeSet::new() }
    }
}
