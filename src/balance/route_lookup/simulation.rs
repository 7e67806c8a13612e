//! Lookups of many keys by a service that is slow, silent, fails, or sends huge responses, in virtual time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Answer, Decision, LookupId, LookupKey, LookupLimits, Lookups,
    lookups::tests::{SECOND, config},
};

/// What becomes of the lookups of a key.
#[derive(Debug, Clone, Copy)]
enum Service {
    /// A response at once.
    Quick,
    /// A response after up to 9 s.
    Slow,
    /// No response: the lookup channel ends the lookup after 10 s.
    Silent,
    /// A failure at once.
    Fails,
    /// A response with as much header data as the lookup channel lets pass.
    Huge,
}

struct World {
    lookups: Lookups,
    limits: LookupLimits,
    random: fastrand::Rng,
    now: Instant,
    /// The lookups under way, with their keys and when they end.
    under_way: BTreeMap<LookupId, (LookupKey, Instant, bool)>,
    /// How many calls have been sent, have waited, and have failed, of keys whose service is quick.
    quick: (usize, usize, usize),
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut config = config();
        config.stale_age = random.bool().then(|| SECOND * random.u32(1..100));
        config.cache_size_bytes = random.u32(1..200_000);
        config.default_target = random.bool().then(|| "spare".into());
        let mut limits = LookupLimits::new();
        if random.bool() {
            limits = limits
                .with_pending_lookups(random.usize(1..100))
                .with_cache_size(random.usize(1..100_000))
                .with_clusters(random.usize(3..200));
        }
        let lookups = Lookups::new(Arc::new(config), limits, random.u64(..));
        Self { lookups, limits, random, now: Instant::now(), under_way: BTreeMap::new(), quick: (0, 0, 0) }
    }

    fn service(number: u32) -> Service {
        [Service::Quick, Service::Slow, Service::Silent, Service::Fails, Service::Huge][number as usize % 5]
    }

    /// A call with one of the keys. The service of a key is known by its number.
    fn call(&mut self) {
        let number = self.random.u32(0..400);
        let key = LookupKey::of_path(&format!("/shop/{number}"));
        let is_pending = self.under_way.values().any(|(pending, ..)| *pending == key);
        let decision = self.lookups.decide(&key, self.now);
        if let Decision::Wait(id) = decision {
            // Either it is under way, or it has begun now and is polled below.
            assert_eq!(self.under_way.contains_key(&id), is_pending);
        }
        if matches!(Self::service(number), Service::Quick) {
            let (sent, waits, failed) = &mut self.quick;
            match decision {
                Decision::Route(_) => *sent += 1,
                Decision::Wait(_) => *waits += 1,
                Decision::Default(_) | Decision::Fail { .. } => *failed += 1,
            }
        }
        while let Some(lookup) = self.lookups.poll_lookup() {
            assert!(!self.under_way.values().any(|(pending, ..)| *pending == lookup.key), "it is repeated");
            let (delay, is_answered) = match Self::service(number) {
                Service::Quick | Service::Huge => (Duration::ZERO, true),
                Service::Slow => (SECOND.mul_f64(self.random.f64() * 9.0), true),
                Service::Silent => (SECOND * 10, false),
                Service::Fails => (Duration::ZERO, false),
            };
            self.under_way.insert(lookup.id, (lookup.key, self.now + delay, is_answered));
            if matches!(Self::service(number), Service::Huge) {
                let size = self.random.usize(0..64 << 10);
                self.end(lookup.id, Ok("x".repeat(size)));
            }
        }
    }

    /// Ends a lookup.
    fn end(&mut self, id: LookupId, result: Result<String, &str>) {
        self.under_way.remove(&id);
        let targets = (0..self.random.usize(1..4)).map(|_| format!("target{}", self.random.u8(..)).into());
        let targets: Box<[Arc<str>]> = targets.collect();
        let answer = |data: String| Answer { targets, header_data: data.into() };
        self.lookups.handle_result(id, result.map(answer).map_err(Into::into), self.now);
    }

    /// Lets time pass.
    fn pass(&mut self) {
        self.now += Duration::from_millis(self.random.u64(0..100));
        let due: Vec<_> = self.under_way.iter().filter(|(_, (_, at, _))| *at <= self.now).collect();
        let due: Vec<_> = due.into_iter().map(|(id, (_, _, is_answered))| (*id, *is_answered)).collect();
        for (id, is_answered) in due {
            self.end(id, if is_answered { Ok(String::new()) } else { Err("no response") });
        }
        if self.lookups.poll_timeout().is_some_and(|at| at <= self.now) {
            self.lookups.handle_timeout(self.now);
            assert!(self.lookups.poll_timeout().is_none_or(|at| at > self.now));
        }
        if self.random.u32(0..1000) == 0 {
            self.lookups.handle_ready();
        }
    }

    fn check(&mut self) {
        let (entries, size) = self.lookups.usage();
        let LookupLimits { cache_size, pending_lookups, clusters, .. } = self.limits;
        let largest = cache_size.min(self.lookups.config().cache_size_bytes as usize) + cache_size;
        assert!(size <= largest || entries == 1, "{size}");
        let pending = self.lookups.pending();
        assert!(pending <= pending_lookups && pending == self.under_way.len());
        if let Some(targets) = self.lookups.poll_targets() {
            // With the default target.
            assert!(targets.len() <= clusters.min(256) + 1);
        }
    }
}

#[test]
fn simulation_of_lookups_is_bounded_and_repeats_none() {
    for seed in 0..40 {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..3_000 {
                world.call();
                world.pass();
                world.check();
            }
            (world.quick, world.limits == LookupLimits::new())
        });
        let ((sent, waits, failed), has_room) = result.unwrap_or_else(|_| panic!("seed {seed}"));
        // Quick lookups are made in spite of the others: throttled ones are few, since most succeed. With low limits they may fail.
        assert!(
            !has_room || sent + waits > failed,
            "seed {seed}: {sent} sent, {waits} waited, {failed} failed"
        );
    }
}
