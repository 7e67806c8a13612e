use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;

use super::SourceType;
use crate::resource::matcher::Cidr;

/// A connection that a server has accepted, as far as it decides which chain it goes through.
///
/// IPv4 addresses that are written as IPv6, as sockets for both report them, count as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Where it goes to: the socket's local address.
    pub destination: SocketAddr,
    /// Where it comes from: the socket's peer address.
    pub source: SocketAddr,
}

/// The chains of a listener by their index, arranged in the order in which conditions are looked at (A36-9): where a
/// connection goes to, what kind of peer it comes from, where from, and from which port.
///
/// At each step the most specific condition that holds is taken, and there is no way back from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Chains(Ranges<Sources>);

/// What a chain is chosen by; `None` is anything.
pub(super) type Conditions = (Option<Cidr>, SourceType, Option<Cidr>, Option<u32>);

#[derive(Debug, Clone, PartialEq, Default)]
struct Sources {
    any: Ranges<Ports>,
    local: Ranges<Ports>,
    external: Ranges<Ports>,
}

type Ports = BTreeMap<Option<u32>, usize>;

/// Values by ranges of addresses, and one for all others.
#[derive(Debug, Clone, PartialEq)]
struct Ranges<T> {
    values: BTreeMap<Option<Cidr>, T>,
    /// The lengths of the prefixes in `values`.
    lengths: BTreeSet<u8>,
}

impl Connection {
    /// The connection from `peer` to the `local` address, as the accepted socket tells them.
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self { destination: local, source: peer }
    }

    /// What kind of peer it comes from; never [`SourceType::Any`].
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
    /// Sets the chain for all these connections; `false` if there is one already.
    pub(super) fn add(&mut self, (destination, source_type, source, port): Conditions, chain: usize) -> bool {
        let sources = self.0.at(destination);
        let ranges = match source_type {
            SourceType::Any => &mut sources.any,
            SourceType::SameIpOrLoopback => &mut sources.local,
            SourceType::External => &mut sources.external,
        };
        ranges.at(source).insert(port, chain).is_none()
    }

    /// Leaves connections to these addresses without a chain where they have none yet, even if there is one for a wider
    /// range. Tells whether they have none.
    pub(super) fn reserve(&mut self, destination: Cidr) -> bool {
        *self.0.at(Some(destination)) == Sources::default()
    }

    /// The chain that a connection goes through.
    pub(super) fn find(&self, connection: &Connection) -> Option<usize> {
        let sources = self.0.best(connection.destination.ip())?;
        let own = match connection.source_type() {
            SourceType::Any => &sources.any,
            SourceType::SameIpOrLoopback => &sources.local,
            SourceType::External => &sources.external,
        };
        let ranges = if own.values.is_empty() { &sources.any } else { own };
        let ports = ranges.best(connection.source.ip())?;
        ports.get(&Some(connection.source.port().into())).or_else(|| ports.get(&None)).copied()
    }
}

impl<T: Default> Ranges<T> {
    /// The value of a range, made if there is none; `None` is the one for all others.
    fn at(&mut self, range: Option<Cidr>) -> &mut T {
        self.lengths.extend(range.map(|range| range.prefix_len()));
        self.values.entry(range).or_default()
    }

    /// The value of the smallest range that holds an address.
    fn best(&self, address: IpAddr) -> Option<&T> {
        let address = address.to_canonical();
        let ranges = self.lengths.iter().rev().map(|length| Some(Cidr::new(address, *length)));
        ranges.chain([None]).find_map(|range| self.values.get(&range))
    }
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), lengths: BTreeSet::new() }
    }
}
