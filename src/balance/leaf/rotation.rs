//! Connections that were made with certificates which have been replaced since (CH7.7).

use std::collections::BTreeSet;

use super::{Leaf, Scope};
use crate::balance::{command::ConnectionId, identity::Rotation};

/// Certificates that were replaced, and the attempts to connect that may have used those before.
pub(in crate::balance) struct Rotated<'a> {
    pub(in crate::balance) of: &'a Rotation,
    pub(in crate::balance) running: &'a BTreeSet<ConnectionId>,
}

impl<H: Clone> Leaf<H> {
    /// Certificates were replaced. Connections that were made with those before are outdated, each of which serves calls until one that
    /// replaces it is ready.
    pub(in crate::balance) fn on_rotation(&mut self, rotation: &Rotated<'_>, scope: &mut Scope<'_>) {
        for member in self.member_places() {
            if self.members.get(member).is_some_and(|endpoint| endpoint.is_of(rotation.of)) {
                self.with_member(member, scope, |endpoint, scope| endpoint.on_rotation(rotation, scope));
            }
        }
        self.rotate_hosts(rotation, scope);
    }
}
