//! The responses in progress on a connection, for what must not depend on applications that poll them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use slab::Slab;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::inbound::Inbound;
use crate::background::{TaskEnd, supervise};

/// A response in progress, as its connection uses it.
pub(in crate::channel) trait OpenResponse: Send + Sync {
    /// Ends the response at its deadline.
    fn exceed_deadline(&self);

    /// Merges the unread data, so that each byte takes one byte of memory, whatever frames it came in (CH15.10).
    fn compact(&self);

    /// Returns the number of received bytes that the application has not read.
    fn unread(&self) -> usize;
}

/// The responses in progress on a connection. Each ends at its deadline, whoever holds it (CH2.14): one task for a connection,
/// and not a timer for each call.
#[derive(Debug)]
pub(in crate::channel) struct Responses {
    /// Locked for insertions and removals, never while a response is ended.
    registry: Mutex<Registry>,
    /// Notified of a deadline before the one that the task waits for.
    earlier: Notify,
    /// The runtime of the connection.
    runtime: Handle,
    /// Counts of what the connection receives.
    inbound: Arc<Inbound>,
}

/// The registration of a response, until it is dropped.
#[derive(Debug)]
pub(in crate::channel) struct Registration {
    responses: Arc<Responses>,
    /// The key in the registry.
    key: usize,
    deadline: Option<Instant>,
}

/// The registered responses.
#[derive(Debug, Default)]
struct Registry {
    /// Weak, since responses own their registrations.
    all: Slab<Weak<dyn OpenResponse>>,
    /// Deadlines with the keys of their responses.
    deadlines: BTreeSet<(Instant, usize)>,
    /// The deadline that the task waits for; `None` while there is no task.
    awaited: Option<Instant>,
    /// Whether the connection has ended: the task then ends with the last response, not with its deadline.
    is_closed: bool,
}

impl Responses {
    /// Creates an empty registry. To be called within the runtime of the connection.
    pub(super) fn new(inbound: Arc<Inbound>) -> Arc<Self> {
        let (registry, earlier, runtime) = (Mutex::default(), Notify::new(), Handle::current());
        Arc::new(Self { registry, earlier, runtime, inbound })
    }

    /// The counts of what the connection receives.
    pub(super) fn inbound(&self) -> &Inbound {
        &self.inbound
    }

    /// Counts bytes of a response that the application has read; `read` is the result of the last call. Returns the value for the
    /// next one.
    pub(in crate::channel) fn on_consumed(&self, bytes: usize, read: u64) -> u64 {
        self.inbound.on_consumed(bytes);
        self.inbound.on_response_read(read + bytes as u64)
    }

    /// Registers a response, which ends at its deadline.
    pub(in crate::channel) fn register(
        self: &Arc<Self>,
        response: Weak<dyn OpenResponse>,
        deadline: Option<Instant>,
    ) -> Registration {
        let mut registry = self.lock();
        let key = registry.all.insert(response);
        if let Some(deadline) = deadline {
            registry.deadlines.insert((deadline, key));
            // The task is not woken for later deadlines: calls in sequence, each with the same timeout, cost no wake.
            match registry.awaited {
                Some(awaited) if awaited <= deadline => {}
                Some(_) => self.earlier.notify_one(),
                None => {
                    registry.awaited = Some(deadline);
                    self.runtime.spawn(self.clone().supervised());
                }
            }
        }
        Registration { responses: self.clone(), key, deadline }
    }

    /// Handles the end of the connection. Responses that applications hold end at their deadlines nevertheless.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.earlier.notify_one();
    }

    /// Merges the small DATA frames of all responses (CH15.10).
    pub(super) fn compact(&self) {
        self.upgrade_all().iter().for_each(|response| response.compact());
        self.inbound.on_compacted();
    }

    /// The number of bytes that wait to be read.
    pub(in crate::channel) fn unread(&self) -> u64 {
        self.upgrade_all().iter().map(|response| response.unread() as u64).sum()
    }

    /// The responses under way, to be used without the lock.
    fn upgrade_all(&self) -> Vec<Arc<dyn OpenResponse>> {
        self.lock().all.iter().filter_map(|(_, response)| response.upgrade()).collect()
    }

    /// The task of deadlines. If it panics, the next response with a deadline begins another one.
    fn supervised(self: Arc<Self>) -> impl Future<Output = ()> {
        let responses = self.clone();
        supervise("deadlines of a connection", self.expire(), move |end| {
            if let TaskEnd::Panicked(_) = end {
                responses.lock().awaited = None;
            }
        })
    }

    /// Ends responses at their deadlines, until there is no deadline.
    async fn expire(self: Arc<Self>) {
        loop {
            let (due, next) = self.take_due(Instant::now());
            due.iter().for_each(|response| response.exceed_deadline());
            // A response must not outlive its body for as long as this task sleeps.
            drop(due);
            let Some(next) = next else { return };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// The responses whose deadlines have passed, and the next deadline.
    fn take_due(&self, now: Instant) -> (Vec<Arc<dyn OpenResponse>>, Option<Instant>) {
        let mut registry = self.lock();
        let mut due = Vec::new();
        while let Some((_, key)) = registry.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            registry.deadlines.pop_first();
            due.extend(registry.all.get(key).and_then(Weak::upgrade));
        }
        registry.awaited = registry.deadlines.first().map(|(at, _)| *at);
        (due, registry.awaited)
    }

    /// Locks the registry.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of responses under way.
    #[cfg(test)]
    pub(in crate::channel) fn len(&self) -> usize {
        self.lock().all.len()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut registry = self.responses.lock();
        // The key is still that of this response: nothing else removes one.
        registry.all.try_remove(self.key);
        if let Some(deadline) = self.deadline {
            registry.deadlines.remove(&(deadline, self.key));
            if registry.is_closed && registry.deadlines.is_empty() {
                self.responses.earlier.notify_one();
            }
        }
    }
}
