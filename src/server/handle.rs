//! The handle of a running server.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{listener_task::Event, states::States};
use crate::serve::{ListenerStatus, ServingState};

/// A running server. Clones are handles of the same server, which is [shut down](Self::shutdown) with the last of them.
#[derive(Clone)]
#[must_use = "the server is shut down when its last handle is dropped"]
pub struct ServerHandle {
    inner: Arc<Inner>,
}

struct Inner {
    states: States,
    /// The tasks of the listeners.
    listeners: Vec<mpsc::UnboundedSender<Event>>,
}

impl ServerHandle {
    pub(super) fn new(states: States, listeners: Vec<mpsc::UnboundedSender<Event>>) -> Self {
        Self { inner: Arc::new(Inner { states, listeners }) }
    }

    /// The bound addresses of the listeners with their latest serving states, in the order in which they were added.
    pub fn states(&self) -> Vec<(SocketAddr, ServingState)> {
        self.inner.states.latest()
    }

    /// The bound addresses, in the order in which they were added.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.states().into_iter().map(|(address, _)| address).collect()
    }

    /// Waits until each listener serves, or the server is shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn serving(&self) {
        self.inner.states.wait_for(|state| state.is_serving() || is_shut_down(state)).await;
    }

    /// The status of each listener. Listeners that have stopped are left out.
    pub async fn status(&self) -> Vec<ListenerStatus> {
        let mut all = Vec::new();
        for listener in &self.inner.listeners {
            let (to, status) = oneshot::channel();
            if listener.send(Event::Status(to)).is_ok() {
                all.extend(status.await);
            }
        }
        all
    }

    /// Shuts the server down, and waits until its last request has ended: the ports are closed, and each connection is closed when the
    /// requests that have begun on it have ended, or after the [grace](super::ServerBuilder::drain_grace).
    ///
    /// All shutdowns may be called several times, in any order and state. One that ends sooner takes precedence.
    ///
    /// # Cancel safety
    /// Once the future was polled, the server shuts down even if the future is dropped.
    pub async fn shutdown(&self) {
        self.end(|| Event::ShutDown(None)).await;
    }

    /// Shuts the server down as [`shutdown`](Self::shutdown) does, and closes the connections that are left after a time.
    ///
    /// # Cancel safety
    /// Once the future was polled, the server shuts down even if the future is dropped.
    pub async fn shutdown_within(&self, time: Duration) {
        self.end(|| Event::ShutDown(Some(time))).await;
    }

    /// Shuts the server down, and closes all connections with the requests on them.
    ///
    /// # Cancel safety
    /// Once the future was polled, the server shuts down even if the future is dropped.
    pub async fn shutdown_now(&self) {
        self.end(|| Event::ShutDownNow).await;
    }

    /// Waits until the server has been shut down and its last connection has ended.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn stopped(&self) {
        self.inner.states.wait_for(|state| *state == ServingState::Stopped).await;
    }

    async fn end(&self, event: impl Fn() -> Event) {
        self.inner.send(event);
        self.stopped().await;
    }
}

impl Inner {
    fn send(&self, event: impl Fn() -> Event) {
        for listener in &self.listeners {
            // One that has stopped needs no order.
            drop(listener.send(event()));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.send(|| Event::ShutDown(None));
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle").field("states", &self.states()).finish_non_exhaustive()
    }
}

fn is_shut_down(state: &ServingState) -> bool {
    matches!(state, ServingState::Stopping | ServingState::Stopped)
}
