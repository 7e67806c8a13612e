//! What is recorded of route lookup (RLS).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::balance::picker::Pick;

/// The cluster of a call that was looked up (RL15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupTarget {
    /// The lookup service.
    pub(crate) service: Arc<str>,
    /// The cluster.
    pub(crate) cluster: Arc<str>,
    /// Whether it is the default target, since there is no response.
    pub(crate) is_default: bool,
}

/// The result of a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickResult {
    Complete,
    Fail,
    Drop,
}

/// The size of the cache of a lookup service.
#[derive(Debug, Default)]
pub(crate) struct CacheUsage {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl PickResult {
    /// The result of a pick; `None` if the call waits for another one without a failure.
    pub(super) fn of<H>(pick: &Pick<H>) -> Option<Self> {
        match pick {
            Pick::Complete(_) => Some(Self::Complete),
            Pick::Fail(_) | Pick::FailAs(..) | Pick::Broken(_) | Pick::Unknown(_) => Some(Self::Fail),
            Pick::Drop(..) => Some(Self::Drop),
            Pick::Queue | Pick::QueueAndConnect => None,
        }
    }

    /// Its name in gRPC's metrics.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics have the names"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Drop => "drop",
        }
    }
}

impl CacheUsage {
    pub(crate) fn set(&self, entries: usize, bytes: usize) {
        self.entries.store(entries, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The number of entries.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics have the numbers"))]
    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The size of all entries in bytes.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics have the numbers"))]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
