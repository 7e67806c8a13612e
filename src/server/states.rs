//! The serving states of the listeners, and the callback of the application.

use std::net::SocketAddr;

use tokio::sync::watch;

use crate::serve::ServingState;

/// The latest states of all listeners, in the order in which they were added.
#[derive(Debug, Clone)]
pub(super) struct States {
    latest: watch::Sender<Vec<(SocketAddr, ServingState)>>,
    /// The numbers of connections of replaced configurations that have ended.
    drained: watch::Sender<Vec<u64>>,
}

/// The callback of an application for states.
pub(super) type OnState = Box<dyn FnMut(SocketAddr, &ServingState) + Send>;

/// The callback of an application for connections that have been drained.
pub(super) type OnDrained = Box<dyn FnMut(SocketAddr, u64) + Send>;

impl States {
    pub(super) fn new(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        let states: Vec<_> = addresses.map(|address| (address, ServingState::Starting)).collect();
        let drained = watch::Sender::new(vec![0; states.len()]);
        Self { latest: watch::Sender::new(states), drained }
    }

    /// Adds connections of a replaced configuration that have ended.
    pub(super) fn add_drained(&self, index: usize, connections: u64) {
        self.drained.send_modify(|drained| {
            if let Some(drained) = drained.get_mut(index) {
                *drained += connections;
            }
        });
    }

    /// Sets the state of a listener.
    pub(super) fn set(&self, index: usize, state: ServingState) {
        self.latest.send_modify(|states| {
            if let Some((_, latest)) = states.get_mut(index) {
                *latest = state;
            }
        });
    }

    pub(super) fn latest(&self) -> Vec<(SocketAddr, ServingState)> {
        self.latest.borrow().clone()
    }

    /// Waits until a condition holds for the state of each listener.
    pub(super) async fn wait_for(&self, mut condition: impl FnMut(&ServingState) -> bool) {
        let mut latest = self.latest.subscribe();
        // The sender is held by `self`.
        drop(latest.wait_for(|states| states.iter().all(|(_, state)| condition(state))).await);
    }

    /// Calls back with each state that a listener has when it is looked at, until all have stopped.
    pub(super) async fn call_back(self, mut on_state: OnState) {
        let mut latest = self.latest.subscribe();
        drop(self);
        let mut told: Vec<_> = latest.borrow_and_update().clone();
        for (_, state) in &mut told {
            *state = ServingState::Starting;
        }
        loop {
            // Cloned: nothing waits for the callback.
            let states = latest.borrow_and_update().clone();
            for ((address, state), (_, told)) in states.iter().zip(&mut told) {
                if state != told {
                    on_state(*address, state);
                    *told = state.clone();
                }
            }
            let is_over = states.iter().all(|(_, state)| *state == ServingState::Stopped);
            if is_over || latest.changed().await.is_err() {
                return;
            }
        }
    }

    /// Calls back when the last connection of a replaced configuration has ended, until the server is gone.
    pub(super) async fn call_back_drained(self, mut on_drained: OnDrained) {
        let (mut latest, states) = (self.drained.subscribe(), self.latest());
        drop(self);
        let mut told = vec![0; states.len()];
        loop {
            let drained = latest.borrow_and_update().clone();
            for (((address, _), drained), told) in states.iter().zip(drained).zip(&mut told) {
                if drained > *told {
                    on_drained(*address, drained - *told);
                    *told = drained;
                }
            }
            if latest.changed().await.is_err() {
                return;
            }
        }
    }
}
