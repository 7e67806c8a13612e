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
    /// A connection of an idle cluster (CH3.22).
    Cluster(Arc<str>),
    /// A connection to an endpoint (CH3.33).
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::balance::connect_request::ListId;

    #[test]
    fn ch3_33_each_connection_is_requested_once_until_commands_are_polled() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let requests = ConnectRequests::new(OnRequest::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let (shop, list, other) = ("shop".into(), ListId::default(), ListId::default());
        let of = |list: &ListId, index| Requested::Endpoint(ConnectRequest::of_list(&shop, list, index));
        let distinct = [Requested::Cluster(shop.clone()), of(&list, 0), of(&list, 1), of(&other, 0)];
        for _ in 0..2 {
            for request in distinct.iter().cycle().take(10_000) {
                requests.add(request.clone());
            }
            let polled: Vec<_> = std::iter::from_fn(|| requests.poll()).collect();
            assert_eq!(polled, distinct, "in the order of their first picks");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2, "once for all that wait");
    }
}
