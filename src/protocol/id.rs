use std::fmt;

/// A management server of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId(pub(crate) u32);

/// One attempt to hold a stream to a management server. Attempts of one server are numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId {
    /// The server.
    pub(crate) server: ServerId,
    /// The number of the attempt.
    pub(crate) attempt: u64,
}

/// A type of resource, numbered in the order of first use by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(pub(crate) u16);

/// A resource in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(pub(crate) u32);

/// The servers of one authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) u32);

/// A type of resource with its URL, of which a machine makes the state of the type at its first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedType {
    pub(crate) id: TypeId,
    /// The type URL of v3, whatever the version of the server's API.
    pub(crate) url: &'static str,
}

/// A type of resource in a group. The group has at most one wildcard for it, whatever the number of its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeInGroup {
    /// The servers of an authority.
    pub(crate) group: GroupId,
    /// The type.
    pub(crate) ty: TypeId,
}

/// A type of resource at a server: the unit that has subscriptions, a version and a nonce of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeAtServer {
    /// The server.
    pub(crate) server: ServerId,
    /// The type.
    pub(crate) ty: TypeId,
}

impl TypeId {
    /// The index in tables by type.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.server.0, self.attempt)
    }
}
