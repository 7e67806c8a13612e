//! What the worlds of resolutions and times to live do beside scripts.

use std::time::Duration;

use super::{Happening, Network};
use crate::control_plane::session::Held;

impl<E> Network<E> {
    /// A server says nothing of some types from now on, and all about the others.
    pub(in crate::engine::simulation) fn hold(&mut self, peer: usize, held: Held) {
        self.peers[peer].held = held;
        self.serve(peer);
    }

    /// Plans something for later.
    pub(in crate::engine::simulation) fn plan(&mut self, delay: Duration, event: E) {
        self.later(delay, Happening::Due(event));
    }

    /// Whether nothing more happens before the clock moves.
    pub(in crate::engine::simulation) fn is_idle(&self) -> bool {
        let next = self.future.first_key_value().map(|((at, _), _)| *at);
        let timeout = self.engine.poll_timeout().map(|(at, _)| at);
        next.into_iter().chain(timeout).all(|at| at > self.now)
    }
}
