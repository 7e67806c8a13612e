//! Lists with an index for the search of each request.

use std::{
    fmt,
    ops::Deref,
    slice,
    sync::{Arc, OnceLock},
};

use serde::{Serialize, Serializer};

use super::{Route, host_index::HostIndex, path_index::PathIndex};
use crate::resource::VirtualHost;

/// The routes of a [`VirtualHost`]: a slice, with a search whose time does not grow with its length.
///
/// It is immutable: above a certain length, the first search builds an index of the paths, which clones share.
#[derive(Clone)]
pub struct Routes {
    /// The routes in their order.
    all: Box<[Route]>,
    /// `None` for a list too short for an index.
    index: OnceLock<Option<Arc<PathIndex>>>,
}

/// The virtual hosts of a [`RouteConfiguration`](super::RouteConfiguration): a slice, with a search whose time does
/// not grow with its length.
///
/// It is immutable: above a certain number of domains, the first search builds an index of them, which clones share.
#[derive(Clone)]
pub struct VirtualHosts {
    /// The virtual hosts in their order.
    all: Box<[VirtualHost]>,
    /// `None` for a list too short for an index.
    index: OnceLock<Option<Arc<HostIndex>>>,
}

impl Routes {
    /// A list, whose index is made when it is first searched.
    pub(in crate::resource) fn new(all: Box<[Route]>) -> Self {
        Self { all, index: OnceLock::new() }
    }

    /// Returns the place of the first route for which `matches` returns true. `matches` is called with the index of each route in
    /// order, except for routes whose path cannot match.
    pub(crate) fn first(&self, path: &str, matches: impl Fn(usize, &Route) -> bool) -> Option<usize> {
        match self.index.get_or_init(|| PathIndex::new(&self.all).map(Arc::new)) {
            Some(index) => index.first(path, |place| matches(place, &self.all[place])),
            None => self.all.iter().enumerate().position(|(place, route)| matches(place, route)),
        }
    }
}

impl VirtualHosts {
    /// A list, whose index is made when it is first searched.
    pub(in crate::resource) fn new(all: Box<[VirtualHost]>) -> Self {
        Self { all, index: OnceLock::new() }
    }

    /// Returns the index of the virtual host whose domain matches a host best; the first among equals.
    pub(super) fn best(&self, host: &str) -> Option<usize> {
        if let Some(index) = self.index.get_or_init(|| HostIndex::new(&self.all).map(Arc::new)) {
            return index.best(host);
        }
        let fitting = self.all.iter().enumerate().filter_map(|(place, v)| Some((v.fit(host)?, place)));
        fitting.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, place)| place)
    }
}

/// Implements the traits that give a list the behavior of its slice.
macro_rules! as_slice {
    ($($list:ident of $entry:ty;)*) => {$(
        impl Deref for $list {
            type Target = [$entry];

            fn deref(&self) -> &[$entry] {
                &self.all
            }
        }

        impl<'a> IntoIterator for &'a $list {
            type Item = &'a $entry;
            type IntoIter = slice::Iter<'a, $entry>;

            fn into_iter(self) -> slice::Iter<'a, $entry> {
                self.all.iter()
            }
        }

        impl fmt::Debug for $list {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.all.fmt(f)
            }
        }

        impl PartialEq for $list {
            fn eq(&self, other: &Self) -> bool {
                self.all == other.all
            }
        }

        impl Serialize for $list {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.all.serialize(serializer)
            }
        }
    )*};
}

as_slice! {
    Routes of Route;
    VirtualHosts of VirtualHost;
}
