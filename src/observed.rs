//! [`Observed`] is what an application sees. The engine publishes its type-erased forms, since one queue and one cache serve
//! all types.

use std::{any::type_name, sync::Arc};

use crate::{
    base::{Erased, Version},
    error::WatchError,
};

/// The latest state of a watched resource.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Observed<T> {
    /// The state is unknown so far. A watch never yields this as an item of its stream.
    Pending,
    /// There is a usable resource.
    #[non_exhaustive]
    Present {
        /// The resource, parsed and valid.
        resource: Arc<T>,
        /// The version that the server assigned to it.
        version: Version,
        /// The reason why the resource may be stale: the last known good one is kept through rejected updates and outages.
        warning: Option<WatchError>,
        /// Where the resource comes from; `None` if the application has made it.
        source: Option<Arc<ResourceSource>>,
    },
    /// There is no resource; one that was present before must not be used any more.
    #[non_exhaustive]
    Absent {
        /// The reason why there is none.
        reason: WatchError,
    },
}

/// Where a resource comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceSource {
    /// The initial resources of the client (`ClientBuilder::initial_resources`): no management server has answered the name.
    Initial,
    /// A management server, or a file: the one that has sent these contents first. Another one that repeats them does not replace it.
    #[non_exhaustive]
    Server {
        /// The URI of the server, or the path of the file.
        uri: String,
        /// How the server named itself then (`control_plane.identifier`), at most 200 bytes.
        identifier: Option<Arc<str>>,
    },
}

impl<T> Observed<T> {
    /// The resource, if there is one, stale or not.
    pub fn resource(&self) -> Option<&Arc<T>> {
        match self {
            Self::Present { resource, .. } => Some(resource),
            Self::Pending | Self::Absent { .. } => None,
        }
    }

    /// The warning of a present resource, or the reason of an absent one.
    pub fn error(&self) -> Option<&WatchError> {
        match self {
            Self::Present { warning, .. } => warning.as_ref(),
            Self::Absent { reason } => Some(reason),
            Self::Pending => None,
        }
    }

    /// Where the resource comes from. `None` without one, and for one that the application has made.
    pub fn source(&self) -> Option<&ResourceSource> {
        match self {
            Self::Present { source, .. } => source.as_deref(),
            Self::Pending | Self::Absent { .. } => None,
        }
    }

    /// Whether there is a resource.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }

    /// Whether the absence of the resource is known.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// Whether nothing is known yet.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }
}

/// The type-erased form of [`Observed`].
///
/// It has no `Pending`: nothing is published before something is known.
#[derive(Debug, Clone)]
pub(crate) enum ErasedObserved {
    Present {
        resource: Erased,
        version: Version,
        warning: Option<WatchError>,
        source: Option<Arc<ResourceSource>>,
    },
    Absent {
        reason: WatchError,
    },
}

impl ErasedObserved {
    /// Whether another state is the same to a watch.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent { reason }, Self::Absent { reason: other }) => reason == other,
            (
                Self::Present { resource, version, warning, .. },
                Self::Present { resource: others, version: other, warning: theirs, .. },
            ) => Arc::ptr_eq(resource, others) && version == other && warning == theirs,
            (Self::Absent { .. }, Self::Present { .. }) | (Self::Present { .. }, Self::Absent { .. }) => {
                false
            }
        }
    }

    /// Restores the type. The registry of types ensures that it is the type that parsed the resource.
    // One client parses a type URL as one Rust type: watches of another one are refused when they begin.
    pub(crate) fn typed<T: Send + Sync + 'static>(self) -> Observed<T> {
        match self {
            Self::Absent { reason } => Observed::Absent { reason },
            Self::Present { resource, version, warning, source } => match resource.downcast() {
                Ok(resource) => Observed::Present { resource, version, warning, source },
                Err(_) => {
                    unreachable!("a resource of another type than {} was published for it", type_name::<T>())
                }
            },
        }
    }
}

/// [`erase`] of one type.
pub(crate) type Erase = fn(&Erased) -> Option<ErasedObserved>;

/// Removes the type of a published state again; `None` for [`Observed::Pending`], or a value of another kind.
pub(crate) fn erase<T: Send + Sync + 'static>(observed: &Erased) -> Option<ErasedObserved> {
    match observed.downcast_ref::<Observed<T>>()? {
        Observed::Pending => None,
        Observed::Absent { reason } => Some(ErasedObserved::Absent { reason: reason.clone() }),
        Observed::Present { resource, version, warning, source } => Some(ErasedObserved::Present {
            resource: resource.clone(),
            version: version.clone(),
            warning: warning.clone(),
            source: source.clone(),
        }),
    }
}

/// The state of a wildcard or collection: its members by name, with their type erased.
///
/// Successive states share the nodes of the map, so that a state of 10,000 members with one change costs that change, and a
/// watcher can keep it.
#[derive(Debug, Clone)]
pub(crate) struct ErasedMembers {
    /// Present, or absent because it was rejected. Removed members are not in it.
    pub(crate) map: imbl::OrdMap<Arc<str>, Member>,
    /// Whether the server has responded, so that a missing member does not exist. The protocol does not mark the end of a set:
    /// of a wildcard or glob this is its first response, of a list the known state of each entry.
    pub(crate) complete: bool,
    /// The reason why all members may be stale. Without members it is the reason why there are none.
    pub(crate) warning: Option<WatchError>,
    /// The type URL for errors of members.
    pub(crate) type_url: &'static str,
    /// The name of the collection; `*` for everything of the type.
    pub(crate) name: Arc<str>,
    /// The id of the node for errors of members.
    pub(crate) node: Arc<str>,
}

impl ErasedMembers {
    /// No members, with the reason.
    ///
    /// `complete` is false, since no server was asked. The warning ends the wait for members nevertheless.
    pub(crate) fn refused(reason: WatchError) -> Self {
        Self {
            map: imbl::OrdMap::new(),
            complete: false,
            type_url: reason.type_url(),
            name: reason.name().into(),
            node: reason.node_id().into(),
            warning: Some(reason),
        }
    }

    /// Whether another state is the same to a watch.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // By pointer: a map that was changed back would count as changed, which costs a publication, where a comparison would
        // cost all members each time.
        self.map.ptr_eq(&other.map)
            && self.complete == other.complete
            && self.warning == other.warning
            && self.name == other.name
    }
}

/// A member of [`ErasedMembers`]: an `Arc<Observed<T>>`.
///
/// Two are equal if they are the same allocation, so that states of a wildcard can be compared without their type.
///
/// The comparison of two maps skips shared nodes, and compares the values of the others.
#[derive(Debug, Clone)]
pub(crate) struct Member(pub(crate) Erased);

impl Member {
    /// Restores the type, as [`ErasedObserved::typed`] does.
    pub(crate) fn typed<T: Send + Sync + 'static>(&self) -> &Observed<T> {
        self.0.downcast_ref().expect("a member was made by the type of its wildcard")
    }

    /// Like [`typed`](Self::typed), shared.
    #[cfg(feature = "client")]
    pub(crate) fn to_typed<T: Send + Sync + 'static>(&self) -> Arc<Observed<T>> {
        self.0.clone().downcast().expect("a member was made by the type of its wildcard")
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
