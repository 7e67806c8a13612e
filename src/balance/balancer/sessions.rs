//! Sessions, which need more of all clusters.

use std::time::Instant;

use super::Balancer;
#[cfg(any(test, feature = "fuzzing"))]
use crate::balance::command::{ConnectionId, Holder};

impl<H: Clone> Balancer<H> {
    /// Whether calls may have sessions from now on (CH8.16).
    pub(crate) fn set_sessions(&mut self, has_sessions: bool, now: Instant) {
        if std::mem::replace(&mut self.has_sessions, has_sessions) != has_sessions {
            for place in self.leaves.places() {
                self.with_leaf(place, now, |leaf, scope| leaf.set_sessions(has_sessions, scope));
            }
        }
    }

    /// Whether a connection is that of an endpoint which cookies alone lead to.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::balance) fn is_of_host(&self, connection: ConnectionId) -> bool {
        self.commands.owner_of(connection).is_some_and(|owner| owner.holder == Holder::SessionEndpoints)
    }
}
