//! The connections that picks request, on their way to the balancer.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::balance::connect_request::ConnectRequest;

/// A connection that a pick has requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Requested {
    /// That of a cluster, which is idle (CH3.22).
    Cluster(Arc<str>),
    /// That of an endpoint (CH3.33).
    Endpoint(ConnectRequest),
}

/// The requests that the balancer has not handled. Picks add to them from any thread.
#[derive(Debug, Default)]
pub(super) struct ConnectRequests {
    queue: Mutex<Queue>,
    on_request: OnRequest,
}

/// Is called when there are requests again.
#[derive(Clone, Default)]
pub(super) struct OnRequest(Option<Arc<dyn Fn() + Send + Sync>>);

/// Each request once, so that many picks of few endpoints do not fill the memory.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<Requested>,
    known: HashSet<Requested>,
}

impl ConnectRequests {
    pub(super) fn new(on_request: OnRequest) -> Self {
        Self { queue: Mutex::default(), on_request }
    }

    /// Adds a request.
    pub(super) fn add(&self, request: Requested) {
        let is_first = {
            let mut queue = self.lock();
            let is_first = queue.order.is_empty();
            if queue.known.insert(request.clone()) {
                queue.order.push_back(request);
            }
            is_first
        };
        // Unlocked: the function may poll commands.
        if let (true, Some(on_request)) = (is_first, &self.on_request.0) {
            on_request();
        }
    }

    /// The oldest request.
    pub(super) fn poll(&self) -> Option<Requested> {
        let mut queue = self.lock();
        let request = queue.order.pop_front()?;
        queue.known.remove(&request);
        Some(request)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnRequest {
    pub(super) fn new(on_request: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(on_request)))
    }
}

impl fmt::Debug for OnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRequest")
    }
}
