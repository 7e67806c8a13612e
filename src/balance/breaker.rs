//! Circuit breaking: the number of requests under way to a cluster (A32).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

/// The requests under way to a cluster, of all channels (CH4.7).
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// The attempts from their picks to the ends of their streams.
    running: AtomicU32,
}

/// The circuit breakers that are in use.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    /// Weak, since breakers end with the pickers and attempts that refer to them. Tasks of channels lock the map, calls never.
    by_cluster: Mutex<BTreeMap<Key, Weak<Breaker>>>,
}

/// The cluster, and the name of its endpoints' resource.
type Key = (Arc<str>, Arc<str>);

impl Breaker {
    /// The number of requests under way.
    pub(crate) fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Counts a request if there are fewer than the limit: at no instant are there more (CH4.5).
    pub(super) fn try_acquire(&self, limit: u32) -> bool {
        // One step: a test apart from the count would let calls of other threads exceed the limit (CH13.4).
        let more = |running| (running < limit).then(|| running + 1);
        self.running.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Who takes the place sees what was counted before (CH2.23).
    pub(super) fn release(&self) {
        self.running.fetch_sub(1, Ordering::Release);
    }
}

impl Breakers {
    /// The breaker of a cluster. It is the same as long as anything refers to it.
    pub(super) fn of(&self, cluster: &Arc<str>, service_name: &Arc<str>) -> Arc<Breaker> {
        let mut by_cluster = self.lock();
        let key = (cluster.clone(), service_name.clone());
        if let Some(breaker) = by_cluster.get(&key).and_then(Weak::upgrade) {
            return breaker;
        }
        // At each insertion, so that the map is bounded by the breakers in use (CH11.12).
        by_cluster.retain(|_, breaker| breaker.strong_count() > 0);
        let breaker = Arc::<Breaker>::default();
        by_cluster.insert(key, Arc::downgrade(&breaker));
        breaker
    }

    /// The requests under way to a cluster, whatever its endpoints' resource is.
    #[cfg(test)]
    pub(crate) fn running(&self, cluster: &str) -> u32 {
        let by_cluster = self.lock();
        let breakers = by_cluster.iter().filter(|((name, _), _)| &**name == cluster);
        breakers.filter_map(|(_, breaker)| breaker.upgrade()).map(|breaker| breaker.running()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<Breaker>>> {
        self.by_cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn ch4_5_ch13_4_at_no_instant_more_requests_run_than_the_limit() {
        let (breaker, most) = (Breaker::default(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if breaker.try_acquire(3) {
                            most.fetch_max(breaker.running(), Ordering::Relaxed);
                            breaker.release();
                        }
                    }
                });
            }
        });
        assert_eq!(breaker.running(), 0);
        assert!((1..=3).contains(&most.into_inner()));
    }

    #[test]
    fn ch4_7_the_breaker_of_a_cluster_lives_as_long_as_it_is_used() {
        let breakers = Breakers::default();
        let (shop, eds): (Arc<str>, Arc<str>) = ("shop".into(), "shop-endpoints".into());
        let one = breakers.of(&shop, &eds);
        assert!(one.try_acquire(1));
        assert!(!breakers.of(&shop, &eds).try_acquire(1), "it is the same");
        assert!(breakers.of(&shop, &"other".into()).try_acquire(1));
        drop(one);
        assert_eq!(breakers.of(&shop, &eds).running(), 0, "nothing referred to it");
        assert_eq!(breakers.lock().len(), 1, "those that are not used are removed");
    }

    #[test]
    fn ch4_8_a_lower_limit_leaves_running_requests_alone() {
        let breaker = Breaker::default();
        assert!(breaker.try_acquire(2) && breaker.try_acquire(2));
        assert!(!breaker.try_acquire(1));
        breaker.release();
        assert!(!breaker.try_acquire(1));
        breaker.release();
        assert!(breaker.try_acquire(1));
        assert!(!breaker.try_acquire(0));
    }
}
