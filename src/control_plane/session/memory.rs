use std::collections::BTreeSet;

use super::super::store::{Stored, canonical};

/// Which resources of a type a client holds, as its ACKs prove; see
/// [`skip_known_versions`](super::Behavior::skip_known_versions). All names are canonical.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// The version of the first request on the stream, until it is compared.
    claimed: String,
    /// What was accepted on earlier streams and was subscribed to until their end.
    before: BTreeSet<String>,
    /// The same on this stream.
    accepted: BTreeSet<String>,
    /// The resources of the response without an answer.
    sent: Vec<String>,
}

impl Memory {
    /// What a new stream begins with.
    pub(super) fn resumed(&self) -> Self {
        let before = self.before.union(&self.accepted).cloned().collect();
        Self { before, ..Self::default() }
    }

    pub(super) fn on_first_request(&mut self, version: &str) {
        version.clone_into(&mut self.claimed);
    }

    /// More is wanted than in the first request, for which the version was told.
    pub(super) fn forget_claim(&mut self) {
        self.claimed.clear();
    }

    pub(super) fn on_names(&mut self, wants: impl Fn(&str) -> bool) {
        self.before.retain(|name| wants(name));
        self.accepted.retain(|name| wants(name));
    }

    pub(super) fn on_sent<'a>(&mut self, resources: impl Iterator<Item = &'a Stored>) {
        self.sent = resources.map(|stored| canonical(stored.name()).into_owned()).collect();
    }

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

    /// Whether nothing has to be sent for the first request, since the client holds all of it.
    pub(super) fn take_skip(&mut self, version: &str, (wildcard, names): (bool, &[String])) -> bool {
        let claimed = std::mem::take(&mut self.claimed);
        let is_held = |name: &String| wildcard || self.before.contains(name);
        !claimed.is_empty() && claimed == version && names.iter().all(is_held)
    }
}
