//! The batches of a consumer with a store of its own.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use tokio::sync::oneshot;

use super::{
    command::Command,
    pool::Share,
    registry::{Registry, ResourceValue, SharedWatch, WatchValue},
    resource_selector::{self, ResourceSelector},
    watcher::Watcher,
};
use crate::{
    base::{Version, WatchId},
    engine::{BatchAnswer, BatchOutcome, batches::ErasedBatch},
    error::WatchError,
    resource::{Erased, Resource},
};

/// The changes of resources in batches, for a program with a store of its own, which decides on each response before the management
/// server is answered.
///
/// Created by [`Client::batches`](super::Client::batches). Each batch leads from what the program has to what the client has received;
/// the next one comes when it is answered. As a [`Stream`] it yields the batches. It ends when the client is shut down; dropping it
/// accepts what waits for it, and ends the subscription.
///
/// ```no_run
/// use std::{collections::HashMap, sync::Arc};
///
/// use xdskit::{Client, ResourceSelector, resource::Cluster};
///
/// async fn keep(client: &Client, store: &mut HashMap<Arc<str>, Arc<Cluster>>) {
///     let mut batches = client.batches::<Cluster>(ResourceSelector::All);
///     while let Some(batch) = batches.next().await {
///         for added in &batch.added {
///             store.insert(added.name.clone(), added.resource.clone());
///         }
///         for name in &batch.removed {
///             store.remove(name);
///         }
///         batch.accept(); // the server gets its ACK now
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Batches<T: Resource> {
    watcher: Watcher<NextBatch<T>>,
}

/// The subscriptions of a [`Batches`], to add names and remove them while another task reads the batches.
///
/// A store that fetches on demand subscribes when it is asked for a name that it lacks. The handle keeps neither the client nor the
/// consumer alive; without them its methods have no effect.
#[derive(Debug, Clone)]
pub struct BatchSubscriptions {
    registry: Weak<Registry>,
    watch_id: WatchId,
}

/// Changes of resources that belong together: those of one response, or what has changed otherwise.
///
/// It is answered once, by [`accept`](Self::accept), [`accept_with_warnings`](Self::accept_with_warnings) or [`reject`](Self::reject).
/// A batch that is dropped is accepted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch<T> {
    /// The resources that are new, or have changed. No name is in a batch twice.
    pub added: Vec<Added<T>>,
    /// The names of the resources that are gone.
    pub removed: Vec<Arc<str>>,
    /// The subscribed names that do not exist or cannot be had, as far as the last batch did not have that, each with the reason. If the
    /// consumer had the resource, it is among the removed ones as well.
    pub absent: Vec<(Arc<str>, WatchError)>,
    is_held: bool,
    is_complete: bool,
    warning: Option<WatchError>,
    answer: Answer,
}

/// A resource in a [`Batch`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Added<T> {
    /// The name of the resource.
    pub name: Arc<str>,
    /// Its version: of the resource itself, if the server assigns those, or of the response.
    pub version: Version,
    /// The resource, parsed and valid.
    pub resource: Arc<T>,
}

/// What an answer to a [`Batch`] leads to: a future with the [`BatchOutcome`], which need not be awaited.
///
/// The answer takes effect without it.
#[derive(Debug)]
pub struct BatchAnswered {
    outcome: oneshot::Receiver<BatchOutcome>,
}

/// The limits of responses that wait for the consumers of [`Client::batches`](super::Client::batches), and of what is pushed.
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::client::BatchLimits;
///
/// let limits = BatchLimits { timeout: Duration::from_secs(5), ..BatchLimits::default() };
/// assert_eq!(limits.waiting_bytes, 64 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The time for which a response waits for its consumers, before it is taken as accepted: 20 s by default.
    pub timeout: Duration,
    /// The maximum size in bytes of all responses that wait behind such a one on a stream: 64 MiB by default. By the response beyond it,
    /// the one that they wait for is taken as accepted.
    pub waiting_bytes: usize,
    /// The number of resources of a type that a server may send without having been asked for them
    /// ([`ResourceSelector::Pushed`]), also where nothing is consumed in batches: 100,000 by default. Those beyond are rejected.
    pub pushed_resources: usize,
}

/// The batch that was published last, until it is taken.
pub(super) struct NextBatch<T> {
    batch: Mutex<Option<Arc<ErasedBatch>>>,
    resource: PhantomData<fn() -> T>,
}

/// The answer to one batch. Dropping it accepts.
#[derive(Debug)]
struct Answer {
    /// Weak, since a batch does not keep the client alive.
    registry: Weak<Registry>,
    watch_id: WatchId,
    number: u64,
    is_sent: bool,
}

impl<T: Resource> Batches<T> {
    pub(super) fn new(watch: Arc<SharedWatch<NextBatch<T>>>, share: Option<Arc<Share>>) -> Self {
        Self { watcher: Watcher::new(watch, share) }
    }

    /// Waits for the next batch; `None` when the client is shut down.
    ///
    /// There is none before the last one is answered or dropped.
    ///
    /// # Cancel safety
    /// No batch is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Batch<T>> {
        poll_fn(|cx| self.poll_batch(cx)).await
    }

    /// Subscribes to more names: a single one, or a selection. What the consumer is subscribed to already has no effect.
    ///
    /// Their resources come in the next batches. A name that does not exist comes as [`absent`](Batch::absent).
    pub fn subscribe(&self, names: impl Into<ResourceSelector>) {
        self.subscriptions().subscribe(names);
    }

    /// Ends a subscription, which was begun with the same names. Its resources are removed by the next batch, unless another subscription
    /// of the consumer has them.
    pub fn unsubscribe(&self, names: impl Into<ResourceSelector>) {
        self.subscriptions().unsubscribe(names);
    }

    /// A handle to the subscriptions, for tasks other than the one that reads the batches.
    pub fn subscriptions(&self) -> BatchSubscriptions {
        let watch = self.watcher.watch();
        BatchSubscriptions { registry: Arc::downgrade(watch.registry()), watch_id: watch.id() }
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Batch<T>>> {
        loop {
            let Some(next) = ready!(self.watcher.poll_next(cx)) else { return Poll::Ready(None) };
            if let Some(batch) = next.take() {
                let watch = self.watcher.watch();
                let answer = Answer {
                    registry: Arc::downgrade(watch.registry()),
                    watch_id: watch.id(),
                    number: batch.number,
                    is_sent: false,
                };
                return Poll::Ready(Some(Batch::new(batch, answer)));
            }
        }
    }
}

impl BatchSubscriptions {
    /// Subscribes to more names, as [`Batches::subscribe`] does.
    pub fn subscribe(&self, names: impl Into<ResourceSelector>) {
        self.change(names.into(), true);
    }

    /// Ends a subscription, as [`Batches::unsubscribe`] does.
    pub fn unsubscribe(&self, names: impl Into<ResourceSelector>) {
        self.change(names.into(), false);
    }

    fn change(&self, names: ResourceSelector, is_subscribed: bool) {
        let names = resource_selector::some(names).into_owned();
        if let Some(registry) = self.registry.upgrade() {
            // An error means that the driver has ended, and the consumer with it.
            let _ = registry.order(Command::ChangeBatches { watch_id: self.watch_id, names, is_subscribed });
        }
    }
}

impl<T: Resource> Stream for Batches<T> {
    type Item = Batch<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_batch(cx)
    }
}

impl<T: Send + Sync + 'static> Batch<T> {
    fn new(batch: Arc<ErasedBatch>, answer: Answer) -> Self {
        let ErasedBatch { added, removed, absent, is_held, is_complete, warning, .. } =
            Arc::unwrap_or_clone(batch);
        let typed =
            |resource: Erased| resource.downcast().expect("a batch has resources of its consumer's type");
        let added = added.into_iter().map(|added| Added {
            name: added.name,
            version: added.version,
            resource: typed(added.resource),
        });
        Self { added: added.collect(), removed, absent, is_held, is_complete, warning, answer }
    }
}

impl<T> Batch<T> {
    /// Whether a response waits for the answer. Other batches have what the client holds already: the first one of a consumer that
    /// begins later, what has changed by a fallback, an expiry or an error, and what the consumer has missed. They cannot be rejected.
    pub fn awaits_answer(&self) -> bool {
        self.is_held
    }

    /// Whether the server has sent everything that is subscribed, and it is in this batch or those before. It becomes true by a batch of
    /// its own, which may have no resources.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Why the resources may be stale, or why there are none: the server is unreachable, or the subscription was refused.
    pub fn warning(&self) -> Option<&WatchError> {
        self.warning.as_ref()
    }

    /// Accepts all of it. The server gets its ACK when all consumers of the response have accepted it.
    pub fn accept(self) -> BatchAnswered {
        self.answer.send(BatchAnswer::default())
    }

    /// Accepts all of it, with warnings about some of its resources by their names. They are logged at `warn`: the protocol has no place
    /// for them, since a server takes any error beside an answer for a rejection.
    pub fn accept_with_warnings<N: Into<Arc<str>>, W: Into<String>>(
        self,
        warnings: impl IntoIterator<Item = (N, W)>,
    ) -> BatchAnswered {
        self.answer.send(BatchAnswer { warnings: by_name(warnings), ..BatchAnswer::default() })
    }

    /// Rejects some of its resources by their names, each with the reason, and accepts the others. The server gets a NACK with names
    /// and reasons, and the last good versions stay in use. A removal stays in effect; its rejection is part of the NACK alone.
    pub fn reject<N: Into<Arc<str>>, R: Into<String>>(
        self,
        reasons: impl IntoIterator<Item = (N, R)>,
    ) -> BatchAnswered {
        self.answer.send(BatchAnswer { rejected: by_name(reasons), ..BatchAnswer::default() })
    }
}

impl Answer {
    fn send(mut self, answer: BatchAnswer) -> BatchAnswered {
        let (reply, outcome) = oneshot::channel();
        self.order(answer, Some(reply));
        BatchAnswered { outcome }
    }

    fn order(&mut self, answer: BatchAnswer, reply: Option<oneshot::Sender<BatchOutcome>>) {
        let answer = BatchAnswer { number: self.number, ..answer };
        if !mem::replace(&mut self.is_sent, true)
            && let Some(registry) = self.registry.upgrade()
        {
            // An error means that the driver has ended, and the batch with it.
            let _ = registry.order(Command::AnswerBatch { watch_id: self.watch_id, answer, reply });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.order(BatchAnswer::default(), None);
    }
}

impl Future for BatchAnswered {
    type Output = BatchOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BatchOutcome> {
        // Without a reply the client was shut down.
        Pin::new(&mut self.outcome).poll(cx).map(|outcome| outcome.unwrap_or(BatchOutcome::TooLate))
    }
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(20), waiting_bytes: 64 << 20, pushed_resources: 100_000 }
    }
}

impl<T> NextBatch<T> {
    /// Takes the batch, so that the slot does not keep its resources.
    fn take(&self) -> Option<Arc<ErasedBatch>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Resource> WatchValue for NextBatch<T> {
    type Shared = ();

    fn from_erased(erased: Erased) -> Arc<Self> {
        let batch = erased.downcast().expect("what is published for a consumer is a batch");
        Arc::new(Self { batch: Mutex::new(Some(batch)), resource: PhantomData })
    }
}

impl<T: Resource> ResourceValue for NextBatch<T> {
    type Resource = T;

    /// The only batch of a consumer that was refused.
    fn refused(reason: WatchError) -> Self {
        let batch = ErasedBatch {
            number: 0,
            added: Vec::new(),
            removed: Vec::new(),
            absent: Vec::new(),
            is_held: false,
            is_complete: false,
            warning: Some(reason),
        };
        Self { batch: Mutex::new(Some(Arc::new(batch))), resource: PhantomData }
    }
}

/// Reasons or warnings by name. Of several for one name, the last one counts.
fn by_name<N: Into<Arc<str>>, R: Into<String>>(
    texts: impl IntoIterator<Item = (N, R)>,
) -> BTreeMap<Arc<str>, String> {
    texts.into_iter().map(|(name, text)| (name.into(), text.into())).collect()
}
