//! Connections that were made with certificates which have been replaced since (CH7.7).

use std::time::Instant;

use super::Balancer;
use crate::balance::{identity::Rotation, leaf::Rotated};

impl<H: Clone> Balancer<H> {
    /// Certificates were replaced: the connections that were made with those before are replaced, and those of other providers stay.
    pub(crate) fn on_rotation(&mut self, of: &Rotation, now: Instant) {
        // Attempts that have not begun use the certificates that are there when they do.
        let running = self.connects.running();
        let rotation = Rotated { of, running: &running };
        for place in self.leaves.places() {
            self.with_leaf(place, now, |leaf, scope| leaf.on_rotation(&rotation, scope));
        }
    }
}
