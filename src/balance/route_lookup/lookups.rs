//! The lookups of one plugin: which are made, and what calls do meanwhile.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    cache::{Answer, Cache, Failure, Held},
    key::LookupKey,
    limits::LookupLimits,
    throttle::Throttle,
};
use crate::{backoff::Backoff, resource::route_lookup::RouteLookup};

/// The state of a plugin.
///
/// After each change, [`poll_lookup`](Self::poll_lookup) and [`poll_targets`](Self::poll_targets) are to be called until `None`.
/// [`handle_timeout`](Self::handle_timeout) is to be called now and then, since nothing else removes what no call uses.
#[derive(Debug)]
pub(crate) struct Lookups {
    config: Arc<RouteLookup>,
    limits: LookupLimits,
    cache: Cache,
    /// The lookups under way: one for a key at most (RL6).
    by_key: BTreeMap<LookupKey, LookupId>,
    keys: BTreeMap<LookupId, LookupKey>,
    last: LookupId,
    throttle: Throttle,
    random: fastrand::Rng,
    /// The lookups that are not polled yet.
    queue: VecDeque<Lookup>,
    /// When expired entries are removed; `None` while there are no entries.
    purge_at: Option<Instant>,
    /// The default target is another one than at the last poll of targets.
    is_default_changed: bool,
    /// The targets of the cache at the last poll.
    targets: BTreeSet<Arc<str>>,
}

/// The number of a lookup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LookupId(u64);

/// A lookup to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) id: LookupId,
    pub(crate) key: LookupKey,
    /// The header data of the response that is to be refreshed; `None` if there is no usable response.
    pub(crate) stale: Option<Arc<str>>,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The call is sent to one of the targets.
    Route(Arc<Answer>),
    /// The call waits for the end of a lookup, and decides again.
    Wait(LookupId),
    /// There is no response: the call is sent to the default target.
    Default(Arc<str>),
    /// There is no response, and no default target: the call fails for the reason, or decides again at the time.
    Fail { reason: Arc<str>, retry_at: Instant },
}

impl Lookups {
    /// A plugin for which nothing is known. The seed is for backoff and throttling.
    pub(crate) fn new(config: Arc<RouteLookup>, limits: LookupLimits, seed: u64) -> Self {
        Self {
            cache: Cache::new(cache_size(&config, &limits), limits.cache_size),
            limits,
            is_default_changed: config.default_target.is_some(),
            config,
            by_key: BTreeMap::new(),
            keys: BTreeMap::new(),
            last: LookupId::default(),
            throttle: Throttle::default(),
            random: fastrand::Rng::with_seed(seed),
            queue: VecDeque::new(),
            purge_at: None,
            targets: BTreeSet::new(),
        }
    }

    /// The current configuration.
    pub(crate) fn config(&self) -> &Arc<RouteLookup> {
        &self.config
    }

    /// Replaces the configuration. With the same key builders the responses stay, with the ages that they had (RL10). Says whether
    /// another service is asked from now on, whose lookups are to be made on another channel.
    pub(crate) fn update(&mut self, config: Arc<RouteLookup>, now: Instant) -> bool {
        let before = mem::replace(&mut self.config, config);
        let size = cache_size(&self.config, &self.limits);
        if before.key_builders == self.config.key_builders {
            self.cache.resize(size, now);
        } else {
            self.cache.clear(size);
        }
        self.is_default_changed |= before.default_target != self.config.default_target;
        let is_other = before.lookup_service != self.config.lookup_service;
        if is_other {
            // Failures of another service say nothing about this one.
            self.throttle = Throttle::default();
            self.cache.reset_backoff();
        }
        is_other
    }

    /// Decides about a call.
    pub(crate) fn decide(&mut self, key: &LookupKey, now: Instant) -> Decision {
        let pending = self.by_key.get(key).copied();
        if let Some(entry) = self.cache.use_entry(key) {
            let backoff = entry.failure.as_ref().filter(|failure| failure.retry_at > now);
            let backoff = backoff.map(|failure| (failure.reason.clone(), failure.retry_at));
            if let Some(held) = entry.held.as_ref().filter(|held| held.expires_at > now) {
                let answer = held.answer.clone();
                let is_stale = held.stale_at.is_some_and(|at| at <= now);
                if is_stale && backoff.is_none() && pending.is_none() {
                    // A refresh may be throttled: the response serves until it expires (RL2).
                    let _ = self.start(key, Some(answer.header_data.clone()), now);
                }
                return Decision::Route(answer);
            }
            if let (None, Some((reason, retry_at))) = (pending, backoff) {
                return self.without_response(&format!("the last lookup has failed: {reason}"), retry_at);
            }
        }
        match pending.map_or_else(|| self.start(key, None, now), Ok) {
            Ok(id) => Decision::Wait(id),
            Err(reason) => self.without_response(&reason, now + LIMITED_INTERVAL),
        }
    }

    /// The next lookup to be made. Its result is to be passed to [`handle_result`](Self::handle_result), whatever happens to it.
    pub(crate) fn poll_lookup(&mut self) -> Option<Lookup> {
        self.queue.pop_front()
    }

    /// A lookup has ended with a response, or has failed for a reason.
    pub(crate) fn handle_result(&mut self, id: LookupId, result: Result<Answer, Arc<str>>, now: Instant) {
        let Some(key) = self.keys.remove(&id) else { return };
        self.by_key.remove(&key);
        self.throttle.handle_result(result.is_ok(), now);
        let limit = self.limits.clusters;
        let result = result.and_then(|answer| match self.cache.targets_with(&answer) <= limit {
            true => Ok(answer),
            false => Err(format!("the responses have more than {limit} targets together").into()),
        });
        match result {
            Ok(answer) => {
                let stale_at = self.config.stale_age.map(|age| now + age);
                let expires_at = now + self.config.max_age;
                self.cache.store(key, Held { answer: Arc::new(answer), stale_at, expires_at }, now);
            }
            Err(reason) => {
                let random = &mut self.random;
                let failure = |backoff: Option<Backoff>| {
                    let mut backoff = backoff.unwrap_or_default();
                    let delay = backoff.next(random);
                    Failure { reason, backoff, retry_at: now + delay, expires_at: now + 2 * delay }
                };
                self.cache.store_failure(key, failure, now);
            }
        }
        self.purge_at.get_or_insert(now + PURGE_INTERVAL);
    }

    /// The lookup channel is ready again after a failure: all backoffs end (RL4).
    pub(crate) fn handle_ready(&mut self) {
        self.cache.reset_backoff();
    }

    /// When expired responses are removed.
    #[cfg(test)]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.purge_at
    }

    /// Removes expired responses, if that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.purge_at.is_some_and(|at| at <= now) {
            self.cache.remove_expired(now);
            self.purge_at = (!self.cache.is_empty()).then(|| now + PURGE_INTERVAL);
        }
    }

    /// The clusters that calls may be sent to, if they are others than the last time.
    pub(crate) fn poll_targets(&mut self) -> Option<BTreeSet<Arc<str>>> {
        let change = self.cache.take_change();
        if change.is_none() && !mem::take(&mut self.is_default_changed) {
            return None;
        }
        self.is_default_changed = false;
        if let Some(targets) = change {
            self.targets = targets;
        }
        let default = self.config.default_target.as_deref().map(Arc::from);
        Some(self.targets.iter().cloned().chain(default).collect())
    }

    /// Begins a lookup.
    ///
    /// # Errors
    /// The lookup is not made.
    fn start(
        &mut self,
        key: &LookupKey,
        stale: Option<Arc<str>>,
        now: Instant,
    ) -> Result<LookupId, Cow<'static, str>> {
        let LookupLimits { key_size, pending_lookups, .. } = self.limits;
        if key.size() > key_size {
            return Err(format!(
                "the path and the keys of the request have {} bytes, and {key_size} at most are looked up",
                key.size()
            )
            .into());
        }
        if self.keys.len() >= pending_lookups {
            return Err(format!("{pending_lookups} lookups are under way, the maximum").into());
        }
        if self.throttle.throttles(now, self.random.f64()) {
            return Err("the lookup was throttled, since lookups have failed".into());
        }
        self.last.0 += 1;
        let id = self.last;
        self.by_key.insert(key.clone(), id);
        self.keys.insert(id, key.clone());
        self.queue.push_back(Lookup { id, key: key.clone(), stale });
        Ok(id)
    }

    /// The decision about a call without a response (RL7).
    fn without_response(&self, reason: &str, retry_at: Instant) -> Decision {
        let RouteLookup { lookup_service, default_target, .. } = &*self.config;
        match default_target {
            Some(target) => Decision::Default(target.as_ref().into()),
            None => {
                let reason = format!("route lookup by {lookup_service}: {reason}").into();
                Decision::Fail { reason, retry_at }
            }
        }
    }

    /// The number of entries of the cache, and their size in bytes.
    pub(crate) fn usage(&self) -> (usize, usize) {
        #[cfg(test)]
        self.check();
        self.cache.usage()
    }

    /// The number of lookups under way.
    pub(crate) fn pending(&self) -> usize {
        self.keys.len()
    }

    #[cfg(test)]
    fn check(&self) {
        assert_eq!(self.by_key.len(), self.keys.len());
        self.cache.check();
    }
}

/// The size of the cache in bytes, which the configuration and a limit bound.
fn cache_size(config: &RouteLookup, limits: &LookupLimits) -> usize {
    limits.cache_size.min(config.cache_size_bytes as usize)
}

/// When a call whose lookup was not made decides again, if it waits for ready.
const LIMITED_INTERVAL: Duration = Duration::from_secs(1);
/// The time between removals of expired responses, as in gRPC.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
pub(super) mod tests;
