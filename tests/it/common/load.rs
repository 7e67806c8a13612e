//! Calls that go on while a test changes something.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tonic::{Code, Status};

/// Tasks that make one call after the other until they are stopped.
#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    /// The calls that began in this epoch.
    answered: BTreeMap<String, usize>,
    /// All calls that failed.
    failed: Vec<(Code, String)>,
}

impl Load {
    /// Starts the tasks. A call returns the name of the backend that answered it.
    pub(crate) fn start<F>(tasks: usize, call: impl Fn() -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Result<String, Status>> + Send + 'static,
    {
        let shared = Arc::new(Shared::default());
        let tasks = (0..tasks).map(|_| tokio::spawn(run(shared.clone(), call.clone()))).collect();
        Self { shared, tasks }
    }

    /// Waits until the calls that began in a new epoch, by backend, fulfil a condition. Returns them.
    pub(crate) async fn until(
        &self,
        what: &str,
        mut condition: impl FnMut(&BTreeMap<String, usize>) -> bool,
    ) -> BTreeMap<String, usize> {
        self.begin_epoch();
        self.wait(what, |state| condition(&state.answered).then(|| state.answered.clone())).await
    }

    /// Waits until these backends, in the order of their names, answer all of 100 successive calls.
    pub(crate) async fn until_only(&self, backends: &[&str]) {
        let wait = async {
            loop {
                let answered =
                    self.until("100 calls", |answered| answered.values().sum::<usize>() >= 100).await;
                if answered.keys().map(String::as_str).eq(backends.iter().copied()) {
                    return;
                }
            }
        };
        let is_fulfilled = timeout(PATIENCE, wait).await.is_ok();
        assert!(is_fulfilled, "{backends:?} are not the only ones: {:?}", self.shared.state());
    }

    /// Waits until this many calls have failed.
    pub(crate) async fn until_failed(&self, calls: usize) {
        self.wait("failed calls", |state| (state.failed.len() >= calls).then_some(())).await;
    }

    async fn wait<T>(&self, what: &str, mut shown: impl FnMut(&State) -> Option<T>) -> T {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(shown) = shown(&self.shared.state()) {
                    return shown;
                }
                changed.await;
            }
        };
        match timeout(PATIENCE, wait).await {
            Ok(shown) => shown,
            Err(_) => panic!("{what} did not come: {:?}", self.shared.state()),
        }
    }

    /// The calls that failed so far.
    pub(crate) fn failed(&self) -> Vec<(Code, String)> {
        self.shared.state().failed.clone()
    }

    /// Lets running calls end. Returns all that failed.
    pub(crate) async fn stop(self) -> Vec<(Code, String)> {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        for task in self.tasks {
            timeout(PATIENCE, task).await.expect("a call does not end").expect("a call panicked");
        }
        std::mem::take(&mut self.shared.state().failed)
    }

    fn begin_epoch(&self) {
        let mut state = self.shared.state();
        state.epoch += 1;
        state.answered.clear();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }

    fn record(&self, epoch: u64, outcome: Result<String, Status>) {
        let mut state = self.state();
        match outcome {
            Ok(backend) if state.epoch == epoch => *state.answered.entry(backend).or_default() += 1,
            Ok(_) => {}
            Err(status) => state.failed.push((status.code(), status.message().to_owned())),
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

async fn run<F>(shared: Arc<Shared>, call: impl Fn() -> F)
where
    F: Future<Output = Result<String, Status>>,
{
    while !shared.is_stopped.load(Ordering::Relaxed) {
        let epoch = shared.state().epoch;
        shared.record(epoch, call().await);
        tokio::task::yield_now().await;
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
