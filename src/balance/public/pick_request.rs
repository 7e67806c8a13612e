//! What a pick is made for.

use crate::{balance::hash::hash, resolve::RouteQuery};

/// A request for which an endpoint is picked: see [`Picker::pick`](super::Picker::pick).
///
/// All draws of its picks are computed from its random number: a request that waits, and is picked again, is not dropped more often
/// for that. It borrows its values and allocates nothing.
///
/// ```
/// use xdskit::{balance::PickRequest, resolve::RouteQuery};
///
/// // A cluster by its name, with the hash of what is to stay at one endpoint.
/// let random = 0x5eed; // of a generator
/// let datagram = PickRequest::to_cluster("game", random).with_hashed(b"192.0.2.7:4000");
///
/// // The cluster and the hash of the route.
/// let query = RouteQuery::new("/cart/add", random).with_header("x-user", "ada");
/// let request = PickRequest::by_route(&query);
/// ```
#[derive(Debug, Clone)]
pub struct PickRequest<'a> {
    pub(super) destination: Destination<'a>,
    hash: Option<u64>,
    random: u64,
    attempt: u32,
}

/// What leads to the cluster of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Destination<'a> {
    Cluster(&'a str),
    Route(&'a RouteQuery<'a>),
}

impl<'a> PickRequest<'a> {
    /// A request to a cluster of this name, which has to be in the snapshot. `random` is a number for this request, uniformly
    /// distributed over all of `u64`.
    pub fn to_cluster(name: &'a str, random: u64) -> Self {
        Self { destination: Destination::Cluster(name), hash: None, random, attempt: 0 }
    }

    /// A request to the cluster that the route of the query leads to, with the hash of the route's hash policies and the random
    /// number of the query.
    ///
    /// The route and the picked cluster alone have an effect. Filters, timeouts and retries are the application's: see
    /// [`Snapshot::route`](crate::Snapshot::route).
    pub fn by_route(query: &'a RouteQuery<'a>) -> Self {
        Self { destination: Destination::Route(query), hash: None, random: query.random_number(), attempt: 0 }
    }

    /// Sets the hash by which the policies `ring_hash` and `maglev` pick, in place of that of the route. Without either, the hash is
    /// random.
    #[must_use]
    pub fn with_hash(mut self, hash: u64) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Sets the [hash](Self::with_hash) to that of some bytes: XXH64, as for the values of headers (A42).
    #[must_use]
    pub fn with_hashed(self, bytes: &[u8]) -> Self {
        self.with_hash(hash(bytes))
    }

    /// Sets the number of attempts that the request had before: 0 by default. A later attempt has the cluster and the hash of the
    /// first one, and draws of its own.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The hash that was set.
    pub(super) fn hash(&self) -> Option<u64> {
        self.hash
    }

    /// The generator of the draws of each pick.
    pub(super) fn random(&self) -> fastrand::Rng {
        // An odd factor, so that attempts have different seeds; that of the first one is not that of the routing.
        let attempt = u64::from(self.attempt) + 1;
        fastrand::Rng::with_seed(self.random ^ attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Passes the query that the policies of applications see, without a copy of it.
    pub(super) fn with_query<T>(&self, run: impl FnOnce(&RouteQuery<'_>) -> T) -> T {
        match self.destination {
            Destination::Cluster(_) => run(&RouteQuery::new("", self.random)),
            Destination::Route(query) => run(query),
        }
    }
}
