//! Lists that are searched for each request.

use std::{
    fmt,
    ops::Deref,
    slice,
    sync::{Arc, OnceLock},
};

use serde::{Serialize, Serializer};

use super::{Route, host_index::HostIndex, path_index::PathIndex};
use crate::resource::VirtualHost;

/// The routes of a [`VirtualHost`]: a slice, and a search in it that takes no longer when there are more of them.
///
/// They cannot be changed: from some routes on, the first search makes an index of their paths, and clones share it.
#[derive(Clone)]
pub struct Routes {
    all: Box<[Route]>,
    /// `None` for so few that there is no use in one.
    index: OnceLock<Option<Arc<PathIndex>>>,
}

/// The virtual hosts of a [`RouteConfiguration`](super::RouteConfiguration): a slice, and a search in it that takes no
/// longer when there are more of them.
///
/// They cannot be changed: from some domains on, the first search makes an index of them, and clones share it.
#[derive(Clone)]
pub struct VirtualHosts {
    all: Box<[VirtualHost]>,
    /// `None` for so few that there is no use in one.
    index: OnceLock<Option<Arc<HostIndex>>>,
}

impl Routes {
    pub(in crate::resource) fn new(all: Box<[Route]>) -> Self {
        Self { all, index: OnceLock::new() }
    }

    /// The first route that `matches` says a request for a path matches; it is told the route's place as well, and asked in
    /// their order, but not about routes for other paths.
    pub(crate) fn first(&self, path: &str, matches: impl Fn(usize, &Route) -> bool) -> Option<&Route> {
        let place = match self.index.get_or_init(|| PathIndex::new(&self.all).map(Arc::new)) {
            Some(index) => index.first(path, |place| matches(place, &self.all[place])),
            None => self.all.iter().enumerate().position(|(place, route)| matches(place, route)),
        };
        place.map(|place| &self.all[place])
    }
}

impl VirtualHosts {
    pub(in crate::resource) fn new(all: Box<[VirtualHost]>) -> Self {
        Self { all, index: OnceLock::new() }
    }

    /// The place of the one whose domain fits a host best; the first among equals.
    pub(super) fn best(&self, host: &str) -> Option<usize> {
        if let Some(index) = self.index.get_or_init(|| HostIndex::new(&self.all).map(Arc::new)) {
            return index.best(host);
        }
        let fitting = self.all.iter().enumerate().filter_map(|(place, v)| Some((v.fit(host)?, place)));
        fitting.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, place)| place)
    }
}

/// What a list does as the slice that it holds.
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
