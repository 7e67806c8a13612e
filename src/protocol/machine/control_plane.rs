//! What a server says of itself in its responses.

use std::sync::Arc;

use super::super::envelope::Envelope;
use crate::error::shortened;

/// The identity of a server, as its last response with one has it.
#[derive(Debug, Default)]
pub(crate) struct ControlPlaneInfo {
    /// `control_plane.identifier`, cut; empty if the message has none. `None` before a response with that message.
    pub(crate) identifier: Option<Arc<str>>,
    /// `system_version_info` of the incremental variant, cut; `None` if it was never set.
    pub(crate) system_version: Option<Arc<str>>,
}

impl ControlPlaneInfo {
    /// Reads a response.
    pub(super) fn on_response(&mut self, envelope: &Envelope) {
        if let Some(identifier) = envelope.control_plane() {
            replace(&mut self.identifier, identifier);
        }
        if envelope.is_delta() && !envelope.version().is_empty() {
            replace(&mut self.system_version, envelope.version());
        }
    }
}

/// Replaces a text. Most responses have the last one again, which costs no allocation unless it was cut.
fn replace(known: &mut Option<Arc<str>>, text: &str) {
    if known.as_deref() != Some(text) {
        *known = Some(shortened(text, LONGEST).into());
    }
}

/// The longest text that is kept, in bytes.
const LONGEST: usize = 200;
