//! Identity tokens of Google Cloud (A83): for which audience, when they are fetched, and how long they are used.

#[cfg(feature = "channel")]
mod fetch;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

#[cfg(feature = "channel")]
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

#[cfg(feature = "channel")]
use super::{Decision, FilterAttempt, FilterRequest, LocalReply, StreamFilter};
use super::{
    chain::{Compiled, Compiling, FilterSite},
    instances::InstanceState,
    token::{Token, TokenError},
};
#[cfg(feature = "channel")]
use crate::error::Code;
use crate::{
    backoff::Backoff,
    resource::{Cluster, http_filter::EffectiveFilter, metadata::MetadataValue},
};

/// Adds identity tokens to the requests to clusters that have an audience.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GcpAuthnFilter(Arc<IdentityTokens>);

/// The tokens of an instance of the filter, which all its routes share (CH5.13).
struct IdentityTokens {
    /// The name of the filter, under which clusters have their audiences.
    filter: Box<str>,
    /// The cache. Locked for lookups, never for a fetch.
    cache: Mutex<TokenCache>,
}

/// Tokens by their audiences. Of more audiences than permitted, those that were used last stay.
///
/// ```text
///   absent ── request ──▶ fetching ── on_fetched: Ok ──▶ valid until exp − 30 s, fetched again in the last 60 s
///                              ▲ └── on_fetched: Err ──▶ failed until the end of the backoff
///                              └───────── request ───────────┘
/// ```
struct TokenCache {
    /// The largest number of audiences, at least 1.
    capacity: usize,
    /// What is known of the audiences in use.
    entries: BTreeMap<Arc<str>, Entry>,
    /// Audiences by the number of their last use, the least recent one first.
    by_use: BTreeMap<u64, Arc<str>>,
    /// The number of the last use of any audience.
    uses: u64,
    /// Calls that wait for a fetch in progress, by audience. An audience is fetched once at a time, also if it was evicted
    /// meanwhile.
    fetching: BTreeMap<Arc<str>, Vec<OnToken>>,
}

/// The time at which a fetch has ended, on both clocks.
#[derive(Debug, Clone, Copy)]
struct FetchTime {
    /// The time by which tokens are used and fetched again.
    now: Instant,
    /// The time by which tokens expire, since 1970.
    since_1970: Duration,
}

/// The token of a call.
type TokenResult = Result<Arc<str>, TokenError>;

/// Delivers the token to a waiting call. Called outside of the lock of the cache.
type OnToken = Box<dyn FnOnce(TokenResult) + Send>;

/// How a request for a token is answered.
#[derive(Debug, PartialEq, Eq)]
enum TokenDecision {
    /// A valid token for the call, or the error that fails it.
    Now(TokenResult),
    /// A valid token for the call, which expires soon: the caller also fetches a newer one.
    NowAndFetch(Arc<str>),
    /// The call waits for the fetch that runs.
    Wait,
    /// The call waits for a fetch, which is to begin.
    Fetch,
}

/// The state of an audience.
#[derive(Default)]
struct Entry {
    /// The number of the last use, the key in `by_use`.
    last_use: u64,
    /// The token, and until when it is used: 30 s before its expiry.
    token: Option<(Arc<str>, Instant)>,
    /// The error of the last fetch, and until when no other begins.
    failure: Option<(TokenError, Instant)>,
    /// The delays between fetches; `None` after a success.
    backoff: Option<Backoff>,
}

impl GcpAuthnFilter {
    /// The tokens are those of the filter with this name, whose cache has its configured size from now on (CH5.13).
    pub(super) fn compile(
        effective: EffectiveFilter<'_>,
        site: &FilterSite<'_, '_>,
        compiling: &mut Compiling<'_>,
    ) -> Compiled<Self> {
        let EffectiveFilter::GcpAuthn(config) = effective else { return Compiled::Unknown };
        let capacity = usize::try_from(config.cache_size).unwrap_or(usize::MAX);
        let make = || -> Option<InstanceState> { Some(IdentityTokens::new(&site.filter.name, capacity)) };
        let tokens = compiling.instances.of(site.filter, make);
        // States are kept by name and type, so this one is always of the type.
        let Some(tokens) = tokens.and_then(|tokens| tokens.downcast::<IdentityTokens>().ok()) else {
            return Compiled::Unknown;
        };
        tokens.set_capacity(capacity);
        Compiled::Filter(Self(tokens))
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for GcpAuthnFilter {
    /// The audience of the tokens for the cluster of the stream.
    type State = Arc<str>;

    /// Finds the audience of the cluster (CH5.12).
    fn on_request<'a>(
        &'a self,
        state: &'a mut Option<Arc<str>>,
        request: &'a mut FilterRequest<'_>,
    ) -> Decision<'a> {
        let Some(upstream) = &request.upstream else { return Decision::Continue };
        match self.0.audience(upstream.cluster(), upstream.cluster_resource().as_deref()) {
            Ok(audience) => {
                *state = audience;
                Decision::Continue
            }
            Err(reason) => Decision::Reply(LocalReply::misconfigured(reason)),
        }
    }

    fn has_credentials(&self, state: Option<&Arc<str>>) -> bool {
        state.is_some()
    }

    /// Adds a token as `authorization`. The token is fetched if there is none (CH5.14).
    fn credentials<'a>(
        &'a self,
        state: &'a mut Option<Arc<str>>,
        attempt: FilterAttempt<'a>,
    ) -> Decision<'a> {
        let Some(audience) = state else { return Decision::Continue };
        let FilterAttempt { headers, callbacks } = attempt;
        let (waiter, fetched) = fetch::fetched();
        let decision = self.0.lock().request(audience, callbacks.now(), waiter);
        let token = match decision {
            TokenDecision::Now(result) => result,
            TokenDecision::NowAndFetch(token) => {
                fetch::spawn(&self.0, audience, callbacks);
                Ok(token)
            }
            TokenDecision::Fetch | TokenDecision::Wait => {
                if decision == TokenDecision::Fetch {
                    fetch::spawn(&self.0, audience, callbacks);
                }
                return Decision::wait("the identity token is being fetched", async move {
                    authorize(headers, fetched.await)
                });
            }
        };
        authorize(headers, token).map_or_else(Decision::Reply, |()| Decision::Continue)
    }
}

/// Adds a token to headers.
///
/// # Errors
/// There is no token, or it cannot be a header.
#[cfg(feature = "channel")]
fn authorize(headers: &mut HeaderMap, token: TokenResult) -> Result<(), LocalReply> {
    // The code is UNAVAILABLE or UNAUTHENTICATED.
    let token = token.map_err(|TokenError { code, message }| LocalReply::new(code, message.to_string()))?;
    let malformed = || LocalReply::new(Code::Unauthenticated, "the identity token is malformed");
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| malformed())?;
    // Neither shown by `Debug` nor added to HPACK's table.
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(())
}

impl IdentityTokens {
    /// An empty cache for the filter of a name, with room for so many audiences.
    fn new(filter: &str, capacity: usize) -> Arc<Self> {
        Arc::new(Self { filter: filter.into(), cache: Mutex::new(TokenCache::new(capacity)) })
    }

    /// The audience of a cluster (CH5.12); `None` if its requests have no token.
    ///
    /// # Errors
    /// The reason why calls to the cluster fail with UNAVAILABLE.
    fn audience(&self, name: &str, cluster: Option<&Cluster>) -> Result<Option<Arc<str>>, String> {
        let filter = &self.filter;
        let Some(cluster) = cluster else {
            return Err(format!("HTTP filter {filter:?}: the configuration lacks the cluster {name}"));
        };
        match cluster.metadata.get(filter) {
            None => Ok(None),
            Some(MetadataValue::Audience { url }) => Ok(Some((&**url).into())),
            Some(MetadataValue::Address(_) | MetadataValue::Custom(_) | MetadataValue::Struct(_)) => Err(
                format!("HTTP filter {filter:?}: the metadata of cluster {name} under it are no Audience"),
            ),
        }
    }

    /// Locks the cache.
    fn lock(&self) -> MutexGuard<'_, TokenCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the largest number of audiences, as an update of the listener has it.
    fn set_capacity(&self, capacity: usize) {
        self.lock().set_capacity(capacity);
    }
}

impl TokenCache {
    fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            fetching: BTreeMap::new(),
        }
    }

    /// Sets the largest number of audiences. A lower one removes entries at once.
    fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.max(1);
        self.evict(self.capacity);
    }

    /// Handles a call that needs a token. `waiter` is called with the outcome if the call has to wait.
    fn request(&mut self, audience: &Arc<str>, now: Instant, waiter: OnToken) -> TokenDecision {
        let is_fetching = self.fetching.contains_key(audience);
        let entry = self.touch(audience);
        let failure =
            entry.failure.as_ref().filter(|(_, until)| *until > now).map(|(error, _)| error.clone());
        if let Some((token, until)) = entry.token.as_ref().filter(|(_, until)| *until > now) {
            let token = token.clone();
            // After a failed refresh the valid token serves on, and the next fetch waits for the backoff.
            if *until - now >= REFRESH || is_fetching || failure.is_some() {
                return TokenDecision::Now(Ok(token));
            }
            // No call waits for the refresh.
            self.fetching.insert(audience.clone(), Vec::new());
            return TokenDecision::NowAndFetch(token);
        }
        if let Some(waiters) = self.fetching.get_mut(audience) {
            waiters.push(waiter);
            return TokenDecision::Wait;
        }
        if let Some(error) = failure {
            return TokenDecision::Now(Err(error));
        }
        self.fetching.insert(audience.clone(), vec![waiter]);
        TokenDecision::Fetch
    }

    /// A fetch has ended. Returns the calls that waited for it, to be
    /// called with the result.
    fn on_fetched(
        &mut self,
        audience: &Arc<str>,
        outcome: Result<Token, TokenError>,
        at: FetchTime,
        random: &mut fastrand::Rng,
    ) -> (Vec<OnToken>, TokenResult) {
        let FetchTime { now, since_1970 } = at;
        let waiters = self.fetching.remove(audience).unwrap_or_default();
        let outcome = outcome.and_then(|token| match token.expiry.checked_sub(since_1970) {
            // The expiry is of the wall clock, and the cache runs by the monotonic one: only the difference is used, so that a
            // clock that is set later changes nothing.
            Some(left) if !left.is_zero() => Ok((token.text, left.min(LONGEST).saturating_sub(EARLY))),
            // A further fetch without a delay would most likely give the same one.
            _ => Err(TokenError::unauthenticated(audience, "it has expired")),
        });
        let result = outcome.as_ref().map(|(token, _)| token.clone()).map_err(Clone::clone);
        // An entry that was evicted while it was fetched is not made again; the calls that wait get the token nevertheless.
        if let Some(entry) = self.entries.get_mut(audience) {
            match outcome {
                Ok((token, left)) => {
                    entry.token = Some((token, now + left));
                    (entry.failure, entry.backoff) = (None, None);
                }
                Err(error) => {
                    let backoff = entry.backoff.get_or_insert_default();
                    entry.failure = Some((error, now + backoff.next(random)));
                }
            }
        }
        (waiters, result)
    }

    /// Returns the entry of an audience as the most recently used one, made if there is none.
    fn touch(&mut self, audience: &Arc<str>) -> &mut Entry {
        match self.entries.get(audience) {
            Some(entry) => drop(self.by_use.remove(&entry.last_use)),
            None => self.evict(self.capacity - 1),
        }
        self.uses += 1;
        self.by_use.insert(self.uses, audience.clone());
        let entry = self.entries.entry(audience.clone()).or_default();
        entry.last_use = self.uses;
        entry
    }

    /// Removes the least recently used entries down to `limit`.
    fn evict(&mut self, limit: usize) {
        while self.entries.len() > limit
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

impl fmt::Debug for IdentityTokens {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let audiences: Vec<_> = self.lock().entries.keys().cloned().collect();
        f.debug_struct("IdentityTokens").field("filter", &self.filter).field("audiences", &audiences).finish()
    }
}

/// The tokens are those of the filter with the name.
impl PartialEq for IdentityTokens {
    fn eq(&self, other: &Self) -> bool {
        self.filter == other.filter
    }
}

/// How long before its expiry a token is used no more (A83).
const EARLY: Duration = Duration::from_secs(30);
/// A token that is used no longer than this is fetched anew while it is used (A83).
const REFRESH: Duration = Duration::from_secs(60);
/// Longer times of validity are as good as this one.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);

#[cfg(test)]
mod tests;
