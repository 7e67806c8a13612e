//! The routes and pickers that the task of a channel publishes for calls, and the calls that wait for newer ones.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use tokio::{sync::oneshot, time::Instant};

use super::{
    connection::Handle,
    state::{ChannelState, States},
    telemetry::{Delay, DelayType},
};
use crate::{
    balance::{
        cluster_use::ClusterReference,
        connect_request::ConnectRequest,
        generation::Generation,
        observer::PickLabels,
        pick_args::{CallAttributes, PickArgs},
        picker::Pick,
    },
    resolve::RouteQuery,
};

/// The current generation, and the queue of the calls that wait for a newer one.
pub(super) struct PickerCell {
    /// The generation in use. Routes name clusters by their index, and pickers are found by it (CH11.2). Calls load it without a
    /// lock.
    generation: ArcSwap<Generation<Handle>>,
    /// The waiting calls. Calls that can be sent at once never lock it.
    queue: Mutex<Queue>,
    /// The state of the channel.
    pub(super) states: States,
    /// The number of calls that wait, for a generation, an endpoint or a stream.
    waiting: AtomicUsize,
}

/// A pick with the number of its generation, or `None` if the call is to pick by itself; and the inputs of the pick, which are
/// returned to the attempt.
pub(super) type Picked = (Option<(Pick<Handle>, u64)>, CallAttributes);

/// A call that has begun to wait, with its position in the order in which calls did so (CH1.11).
pub(super) struct QueuedCall<'a> {
    /// The cell whose count of waiting calls has this one.
    published: &'a PickerCell,
    /// The position, kept for all waits of the call.
    number: u64,
}

/// A wait of a call. Dropping it removes the call from the queue at once.
pub(super) struct Waiter<'a, T> {
    /// The cell in whose queue the call waits.
    published: &'a PickerCell,
    /// The position of the call, by which a drop finds the wait.
    number: u64,
    answer: oneshot::Receiver<T>,
}

/// A connection that was requested by a pick of a waiting call.
#[derive(Debug)]
pub(super) enum Connect {
    /// Of a cluster.
    Cluster(Arc<str>),
    /// Of one of its endpoints.
    Endpoint(ConnectRequest),
}

/// The channel was shut down, or its task has ended: [`PickerCell::closed`] has the reason.
#[derive(Debug)]
pub(super) struct ShutDown;

/// The waiting calls.
#[derive(Default)]
struct Queue {
    /// Waits by the position of their calls.
    calls: BTreeMap<u64, Waiting>,
    /// The position of the last call that began to wait.
    next: u64,
    /// The reason why no call can wait any more; `None` while calls can.
    closed: Option<Arc<str>>,
}

/// The subject of a wait.
enum Waiting {
    /// Newer routes, in which it selects its cluster.
    Routes(oneshot::Sender<()>),
    /// A newer picker of its cluster. Boxed, since each publication moves all waits.
    Picker(Box<PickerWait>),
}

/// A wait for a picker. The task picks for the call, so that only calls with an endpoint are woken.
struct PickerWait {
    /// The name of the cluster, to request a connection of it.
    cluster: Arc<str>,
    /// The index of the cluster in the generation.
    place: usize,
    /// The inputs of the pick.
    attributes: CallAttributes,
    /// Whether the call goes on waiting when a pick fails.
    waits_for_ready: bool,
    /// The reason of the last failed pick.
    reason: Option<Arc<str>>,
    /// Records what the call waits for, if somebody listens.
    delay: Option<Delay>,
    /// Wakes the call with its pick.
    answer: oneshot::Sender<Picked>,
}

impl PickerCell {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            generation: ArcSwap::from_pointee(Generation::waiting()),
            queue: Mutex::default(),
            states: States::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns the generation in use. The guard is for a moment: it must not be held across an await.
    pub(super) fn load(&self) -> Guard<Arc<Generation<Handle>>> {
        self.generation.load()
    }

    /// Publishes a generation, and picks again for the waiting calls that it concerns, in their order (CH1.11). Only calls whose
    /// wait is over are woken. Returns the connections that these picks have requested.
    pub(super) fn publish(&self, generation: Generation<Handle>) -> Vec<Connect> {
        let generation = Arc::new(generation);
        let before = self.generation.swap(generation.clone());
        // A call that begins to wait from now on sees the new generation first.
        self.lock().pick_anew(before.number(), &generation)
    }

    /// Ends all waits, now and later, for a reason. Only the first call has an effect.
    pub(super) fn close(&self, reason: impl Into<Arc<str>>) {
        let mut queue = self.lock();
        queue.closed.get_or_insert(reason.into());
        queue.calls.clear();
    }

    /// Handles the end of the task without a shutdown: waiting and later calls fail for a reason.
    pub(super) fn fail(&self, reason: String) {
        self.close(reason);
        // A call that has seen the routes before finds the queue closed.
        self.generation.store(Arc::new(Generation::waiting()));
        self.states.set(ChannelState::Shutdown);
    }

    /// Returns the reason why no call can wait any more, once that is so.
    pub(super) fn closed(&self) -> Option<Arc<str>> {
        self.lock().closed.clone()
    }

    /// Gives a call a position in the queue, unless as many calls wait as permitted (CH1.12).
    pub(super) fn enqueue(&self, limit: usize) -> Option<QueuedCall<'_>> {
        // CH1.12: compared and counted in one step, so that calls at the same time cannot exceed the limit.
        let more = |waiting| (waiting < limit).then(|| waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let mut queue = self.lock();
        queue.next += 1;
        Some(QueuedCall { published: self, number: queue.next })
    }

    /// Returns the number of waiting calls.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The number of calls that wait for a picker of their clusters.
    #[cfg(test)]
    pub(super) fn waiting_for_pickers(&self) -> usize {
        self.lock().calls.values().filter(|waiting| matches!(waiting, Waiting::Picker(_))).count()
    }

    /// Lets calls see another generation, without its publication.
    #[cfg(test)]
    pub(super) fn replace(&self, generation: Arc<Generation<Handle>>) -> Arc<Generation<Handle>> {
        self.generation.swap(generation)
    }

    /// Locks the queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> QueuedCall<'a> {
    /// Waits for routes that are newer than those of generation `seen`. `None` if they are there already.
    pub(super) fn wait_for_routes(&self, seen: u64) -> Result<Option<Waiter<'a, ()>>, ShutDown> {
        let mut queue = self.published.lock();
        if queue.closed.is_some() {
            return Err(ShutDown);
        }
        // Compared under the lock of the queue: a generation that is published meanwhile finds this call in the queue, or is seen
        // here.
        if self.published.load().routes_since() > seen {
            return Ok(None);
        }
        let (sender, answer) = oneshot::channel();
        queue.calls.insert(self.number, Waiting::Routes(sender));
        Ok(Some(Waiter { published: self.published, number: self.number, answer }))
    }

    /// Waits for a picker that is newer than that of generation `seen`, and for a pick by it that ends the wait. Returns the
    /// attributes if there is such a picker already.
    pub(super) fn wait_for_picker(
        &self,
        cluster: &ClusterReference,
        seen: u64,
        attributes: CallAttributes,
        waits_for_ready: bool,
    ) -> Result<Result<Waiter<'a, Picked>, CallAttributes>, ShutDown> {
        let mut queue = self.published.lock();
        if queue.closed.is_some() {
            return Err(ShutDown);
        }
        // Compared under the lock of the queue, as in `wait_for_routes`.
        if self.published.load().picker_since(cluster.place()) > seen {
            return Ok(Err(attributes));
        }
        let (sender, answer) = oneshot::channel();
        let (cluster, place) = (cluster.name().clone(), cluster.place());
        let (reason, delay) = (None, None);
        let wait = PickerWait { cluster, place, attributes, waits_for_ready, reason, delay, answer: sender };
        queue.calls.insert(self.number, Waiting::Picker(Box::new(wait)));
        Ok(Ok(Waiter { published: self.published, number: self.number, answer }))
    }
}

impl<T> Waiter<'_, T> {
    /// Waits for the end of the wait.
    ///
    /// # Cancel safety
    /// Dropping the future loses no answer; dropping the waiter does.
    pub(super) async fn answer(&mut self) -> Result<T, ShutDown> {
        (&mut self.answer).await.map_err(|_| ShutDown)
    }

    /// Returns the reason of the last failed pick, while the call waits.
    pub(super) fn reason(&self) -> Option<Arc<str>> {
        match self.published.lock().calls.get(&self.number)? {
            Waiting::Routes(_) => None,
            Waiting::Picker(wait) => wait.reason.clone(),
        }
    }

    /// Records the delay of an attempt as long as it waits.
    pub(super) fn set_delay(&self, delay: Delay) {
        if let Some(Waiting::Picker(wait)) = self.published.lock().calls.get_mut(&self.number) {
            wait.delay = Some(delay);
        }
    }

    /// Returns the labels of the last pick, while the call waits.
    pub(super) fn labels(&self) -> Option<PickLabels> {
        match self.published.lock().calls.get(&self.number)? {
            Waiting::Routes(_) => None,
            Waiting::Picker(wait) => wait.attributes.labels.clone(),
        }
    }
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        // If it is not there, it was answered; a pick that nobody reads is released with the answer.
        self.published.lock().calls.remove(&self.number);
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        self.published.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Ends the waits for what is newer than generation `before`.
    fn pick_anew(&mut self, before: u64, current: &Generation<Handle>) -> Vec<Connect> {
        let mut connects = Vec::new();
        let mut random = fastrand::Rng::new();
        // CH1.11: the order of the map is that in which calls began to wait.
        let waiting = mem::take(&mut self.calls).into_iter();
        self.calls = waiting
            .filter_map(|(number, waiting)| {
                let waiting = match waiting {
                    Waiting::Routes(answer) if current.routes_since() > before => {
                        // A call that has gone takes itself out of the queue, and so has no answer to read.
                        let _ = answer.send(());
                        return None;
                    }
                    Waiting::Picker(wait) if current.picker_since(wait.place) > before => {
                        Waiting::Picker(wait.pick(current, &mut random, &mut connects)?)
                    }
                    waiting @ (Waiting::Routes(_) | Waiting::Picker(_)) => waiting,
                };
                Some((number, waiting))
            })
            .collect();
        connects
    }
}

impl PickerWait {
    /// Picks for the call. Returns the wait if it goes on.
    fn pick(
        mut self: Box<Self>,
        current: &Generation<Handle>,
        random: &mut fastrand::Rng,
        connects: &mut Vec<Connect>,
    ) -> Option<Box<Self>> {
        if current.needs_request(self.place, &self.attributes) {
            // The policy sees the request, which the call has.
            let Self { attributes, answer, .. } = *self;
            let _ = answer.send((None, attributes));
            return None;
        }
        let request = RouteQuery::new("/", 0);
        if let Some(session) = &mut self.attributes.session {
            session.begin_pick(Instant::now().into_std());
        }
        let mut args = PickArgs { attributes: &mut self.attributes, random, request: &request };
        let pick = current.pick(self.place, &mut args);
        connects.extend(self.attributes.take_connect_request().map(Connect::Endpoint));
        match pick {
            Pick::Queue => {
                self.connecting(current);
                self.reason = None;
            }
            Pick::QueueAndConnect => {
                self.connecting(current);
                connects.push(Connect::Cluster(self.cluster.clone()));
            }
            Pick::Fail(reason) | Pick::FailAs(_, reason) if self.waits_for_ready => {
                if let Some(delay) = &mut self.delay {
                    delay.change(DelayType::PickerFailing, reason.to_string());
                }
                self.reason = Some(reason)
            }
            // A broken policy wakes its call even if that waits for ready: the call reports it to the task.
            pick @ (Pick::Complete(_)
            | Pick::Fail(_)
            | Pick::FailAs(..)
            | Pick::Broken(_)
            | Pick::Drop(..)
            | Pick::Unknown(_)) => {
                if let (Some(delay), Pick::Complete(_)) = (&mut self.delay, &pick) {
                    delay.complete();
                }
                let Self { attributes, answer, .. } = *self;
                // A pick that nobody reads any more is released here.
                let _ = answer.send((Some((pick, current.number())), attributes));
                return None;
            }
        }
        Some(self)
    }

    /// Records that the call waits for a connection.
    fn connecting(&mut self, current: &Generation<Handle>) {
        if let Some(delay) = &mut self.delay {
            let kind = DelayType::Connecting(current.priority(self.place));
            delay.change(kind, connecting_reason(&self.cluster));
        }
    }
}

/// The reason of a delay until there is a connection.
pub(super) fn connecting_reason(cluster: &str) -> String {
    format!("cluster {cluster}: waiting for an endpoint to connect")
}
