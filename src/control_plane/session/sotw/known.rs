//! The names whose resources were sent, at a server that keeps them for as long as the stream lasts.

use std::collections::BTreeSet;

/// What go-control-plane knows of a stream up to 0.13.1: names that were sent are new no more, also after an unsubscription.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownNames {
    names: BTreeSet<String>,
    /// The version of the newest request that added one of them.
    requested_with: Option<String>,
}

impl KnownNames {
    /// Handles the resources of a response.
    pub(super) fn on_sent<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.names.extend(names.map(str::to_owned));
    }

    /// Handles a name that a request with a version adds; returns whether it is known.
    pub(super) fn on_added(&mut self, name: &str, version: &str) -> bool {
        let is_known = self.names.contains(name);
        if is_known {
            self.requested_with = Some(version.to_owned());
        }
        is_known
    }

    /// Whether known names were requested with another version than the present one, so that there is a response.
    pub(super) fn take_outdated(&mut self, version: impl FnOnce() -> String) -> bool {
        self.requested_with.take().is_some_and(|requested| requested != version())
    }
}
