//! The resources that a client has from earlier streams.

use std::collections::BTreeSet;

use super::super::store::{Stored, canonical};

/// The resources of a type that a client has, as proven by its ACKs; see
/// [`skip_known_versions`](super::Behavior::skip_known_versions). All names are canonical.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// The version of the first request on the stream, until it is compared.
    claimed: String,
    /// The resources that were accepted on earlier streams and subscribed to until their end.
    before: BTreeSet<String>,
    /// The resources that were accepted on this stream and are still subscribed to.
    accepted: BTreeSet<String>,
    /// The resources of the unacknowledged response.
    sent: Vec<String>,
}

impl Memory {
    /// The state at the beginning of a new stream.
    pub(super) fn resumed(&self) -> Self {
        let before = self.before.union(&self.accepted).cloned().collect();
        Self { before, ..Self::default() }
    }

    /// Records the version of the first request of a type.
    pub(super) fn on_first_request(&mut self, version: &str) {
        // No server sends a longer one, so that it could only differ.
        if version.len() <= LONGEST_VERSION {
            version.clone_into(&mut self.claimed);
        }
    }

    /// Forgets the version of the first request, since the subscription has grown beyond its names.
    pub(super) fn forget_claim(&mut self) {
        self.claimed.clear();
    }

    /// Forgets resources that are no longer subscribed to.
    pub(super) fn on_names(&mut self, is_subscribed: impl Fn(&str) -> bool) {
        self.before.retain(|name| is_subscribed(name));
        self.accepted.retain(|name| is_subscribed(name));
    }

    /// Records the resources of a response.
    pub(super) fn on_sent<'a>(&mut self, resources: impl Iterator<Item = &'a Stored>) {
        self.sent = resources.map(|stored| canonical(stored.name()).into_owned()).collect();
    }

    /// Records the ACK or NACK of that response.
    pub(super) fn on_answer(&mut self, accepted: bool) {
        for name in std::mem::take(&mut self.sent) {
            if accepted {
                self.accepted.insert(name);
            } else {
                self.accepted.remove(&name);
                self.before.remove(&name);
            }
        }
    }

    /// Whether the first request needs no response, since the client has all of its resources.
    pub(super) fn take_skip(&mut self, version: &str, wildcard: bool, names: &[String]) -> bool {
        let claimed = std::mem::take(&mut self.claimed);
        let is_held = |name: &String| wildcard || self.before.contains(name);
        !claimed.is_empty() && claimed == version && names.iter().all(is_held)
    }
}

/// The longest version that is remembered, in bytes: it comes from a client.
const LONGEST_VERSION: usize = 4_096;
