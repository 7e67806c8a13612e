//! The caches of lookup services (RLS), whose sizes gauges read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use opentelemetry::KeyValue;

use super::LOOKUP_SERVICE;
use crate::channel::telemetry::CacheUsage;

/// The caches of all channels that have not ended.
#[derive(Debug, Default)]
pub(super) struct LookupCaches {
    caches: Mutex<Vec<Cache>>,
}

#[derive(Debug)]
struct Cache {
    labels: Labels,
    /// Weak, so that a cache that is gone has no last value.
    usage: Weak<CacheUsage>,
}

/// The target, the lookup service, and the id of the cache.
type Labels = [KeyValue; 3];

impl LookupCaches {
    /// Adds a cache.
    pub(super) fn add(&self, target: KeyValue, service: Arc<str>, usage: &Arc<CacheUsage>) {
        let labels = [
            target,
            KeyValue::new(LOOKUP_SERVICE, service),
            KeyValue::new(INSTANCE, uuid(fastrand::u128(..))),
        ];
        let mut caches = self.lock();
        caches.retain(|cache| cache.usage.strong_count() > 0);
        caches.push(Cache { labels, usage: Arc::downgrade(usage) });
    }

    /// The caches that are there.
    pub(super) fn all(&self) -> Vec<(Labels, Arc<CacheUsage>)> {
        let caches = self.lock();
        caches.iter().filter_map(|cache| Some((cache.labels.clone(), cache.usage.upgrade()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Cache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random UUID (RFC 9562, version 4).
fn uuid(random: u128) -> String {
    let version = random & !(0xf000 << 64) | 0x4000 << 64;
    let id = version & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        id >> 96,
        id >> 80 & 0xffff,
        id >> 64 & 0xffff,
        id >> 48 & 0xffff,
        id & 0xffff_ffff_ffff
    )
}

const INSTANCE: &str = "grpc.lb.rls.instance_uuid";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_uuids() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), "01234567-89ab-4def-8123-456789abcdef");
    }
}
