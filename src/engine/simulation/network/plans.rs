//! What the worlds of resolutions and times to live do beside scripts.

use std::time::Duration;

use super::{Network, Scheduled};
use crate::control_plane::session::Held;

impl<E> Network<E> {
    /// A server sends nothing of some types from now on, and everything of the others.
    pub(in crate::engine::simulation) fn hold(&mut self, server: usize, held: Held) {
        self.servers[server].held = held;
        self.serve(server);
    }

    /// Plans something for later.
    pub(in crate::engine::simulation) fn plan(&mut self, delay: Duration, event: E) {
        self.schedule(delay, Scheduled::Due(event));
    }

    /// Whether nothing more happens before the clock moves.
    pub(in crate::engine::simulation) fn is_idle(&self) -> bool {
        let next = self.future.first_key_value().map(|((at, _), _)| *at);
        let timeout = self.engine.poll_timeout().map(|(at, _)| at);
        next.into_iter().chain(timeout).all(|at| at > self.now)
    }
}
