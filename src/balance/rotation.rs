//! Connections that were made with certificates which have been replaced since (CH7.7).

use std::collections::BTreeSet;

use super::{command::ConnectionId, identity::Rotation};

/// Certificates that were replaced, and the attempts to connect that may have used those before.
pub(super) struct Rotated<'a> {
    pub(super) of: &'a Rotation,
    pub(super) running: &'a BTreeSet<ConnectionId>,
}
