//! A constant load of calls, counted by backend and by the phase of their beginning.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{sync::watch, task::JoinSet};
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery};

use super::{
    Balanced,
    backend::{GREET, Texts},
    shares::{PHASES, Shares},
};

pub(crate) const EACH_PHASE: usize = 1_000;
pub(crate) const AT_A_TIME: usize = 32;

/// The running callers.
pub(crate) struct Load {
    state: Arc<State>,
    callers: JoinSet<()>,
}

struct State {
    last: AtomicUsize,
    progress: watch::Sender<Progress>,
    shares: Mutex<Shares>,
}

/// The progress of calls, which belong to the phase in which they begin.
#[derive(Debug, Default)]
struct Progress {
    phase: usize,
    /// The running calls of each phase.
    open: [usize; PHASES],
    answered: usize,
}

impl Load {
    pub(crate) fn start(service: &Balanced) -> Self {
        let state = Arc::new(State {
            last: AtomicUsize::new(0),
            progress: watch::Sender::default(),
            shares: Mutex::default(),
        });
        let caller = |_| state.clone().call(service.clone());
        Self { callers: (0..AT_A_TIME).map(caller).collect(), state }
    }

    /// Waits until this many calls are completed.
    pub(crate) async fn wait_for(&self, calls: usize) {
        self.state.wait_for(|progress| progress.answered >= calls).await;
    }

    /// Begins a phase, and waits until all calls of earlier phases are completed. Other calls continue in the
    /// meantime.
    pub(crate) async fn begin(&self, phase: usize) {
        self.state.progress.send_modify(|progress| progress.phase = phase);
        self.state.wait_for(|progress| progress.open[..phase].iter().all(|open| *open == 0)).await;
    }

    /// Waits until all calls are completed.
    pub(crate) async fn end(mut self) -> Result<Shares, tokio::task::JoinError> {
        while let Some(caller) = self.callers.join_next().await {
            caller?;
        }
        Ok(self.state.shares.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl State {
    async fn wait_for(&self, condition: impl FnMut(&Progress) -> bool) {
        self.progress.subscribe().wait_for(condition).await.expect("its sender is ours");
    }

    async fn call(self: Arc<Self>, service: Balanced) {
        let mut client = Grpc::new(service);
        loop {
            let number = self.last.fetch_add(1, Ordering::SeqCst);
            if number >= EACH_PHASE * PHASES {
                return;
            }
            // If the client receives a change very late, the calls of the next phase must wait for it.
            self.wait_for(|progress| number < EACH_PHASE * (progress.phase + 1)).await;
            let mut phase = 0;
            self.progress.send_modify(|progress| {
                phase = progress.phase;
                progress.open[phase] += 1;
            });
            let answer = greet(&mut client).await;
            self.shares.lock().unwrap_or_else(PoisonError::into_inner).count(phase, answer);
            self.progress.send_modify(|progress| {
                progress.open[phase] -= 1;
                progress.answered += 1;
            });
        }
    }
}

async fn greet(client: &mut Grpc<Balanced>) -> Result<String, String> {
    client.ready().await.map_err(|error| error.to_string())?;
    let (request, path) = (Request::new("who are you?".to_owned()), PathAndQuery::from_static(GREET));
    match client.unary(request, path, Texts).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(status.to_string()),
    }
}
