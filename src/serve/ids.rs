//! The numbers of connections and chains.

/// A connection of the listening socket. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(super) u64);

/// A filter chain of a configuration; equal chains of successive configurations are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChainId(pub(super) u64);
