//! What a server says of itself in its responses.

use std::sync::Arc;

use super::super::envelope::Envelope;
use crate::{error::shortened, observed::ResourceSource};

/// The identity of a server, as its last response with one has it.
#[derive(Debug, Default)]
pub(crate) struct ControlPlaneInfo {
    /// `control_plane.identifier`, cut; empty if the message has none. `None` before a response with that message.
    pub(crate) identifier: Option<Arc<str>>,
    /// `system_version_info` of the incremental variant, cut; `None` if it was never set.
    pub(crate) system_version: Option<Arc<str>>,
    /// The server as the source of resources, by its last identifier; made for the first of them.
    source: Option<Arc<ResourceSource>>,
}

impl ControlPlaneInfo {
    /// Reads a response.
    pub(super) fn on_response(&mut self, envelope: &Envelope) {
        if let Some(identifier) = envelope.control_plane()
            && replace(&mut self.identifier, identifier)
        {
            self.source = None;
        }
        if envelope.is_delta() && !envelope.version().is_empty() {
            replace(&mut self.system_version, envelope.version());
        }
    }

    /// The server as the source of its resources, which share it.
    pub(super) fn as_source(&mut self, uri: impl FnOnce() -> String) -> Arc<ResourceSource> {
        let identifier = self.identifier.clone().filter(|identifier| !identifier.is_empty());
        self.source.get_or_insert_with(|| Arc::new(ResourceSource::Server { uri: uri(), identifier })).clone()
    }
}

/// Replaces a text. Most responses have the last one again, which costs no allocation unless it is cut.
/// True when it differs.
fn replace(known: &mut Option<Arc<str>>, text: &str) -> bool {
    let text = shortened(text, LONGEST);
    let differs = known.as_deref() != Some(&*text);
    if differs {
        *known = Some(text.into());
    }
    differs
}

/// The longest text that is kept, in bytes.
const LONGEST: usize = 200;
