use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    super::store::{Store, Stored, Type},
    Answer, Settings, WILDCARD,
};
use crate::pb::{
    envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
    google::{protobuf::Any, rpc::Status},
};

/// One type on one stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    /// Names that are wanted, without `*`.
    names: BTreeSet<String>,
    wildcard: bool,
    /// A first request came (B2.4).
    begun: bool,
    /// What the client says that it holds, by name: the versions. Empty once it was compared with what there is.
    initial: BTreeMap<String, String>,
    /// Names of which something must be said.
    due: BTreeSet<String>,
    /// Everything that is wanted by the wildcard must be said.
    everything: bool,
    /// The resources when it was last decided what to say.
    seen: Option<Type>,
    /// The nonces and versions of responses that the client has not answered.
    awaiting: BTreeMap<String, String>,
}

impl Subscription {
    /// The answer to a response on its way, if this is one. Other nonces mean nothing (B2.11).
    pub(super) fn take_answer(&mut self, nonce: &str, error_detail: Option<Status>) -> Option<Answer> {
        let version = self.awaiting.remove(nonce)?;
        Some(match error_detail {
            None => Answer::Accepted { version },
            Some(status) => Answer::Rejected { version, code: status.code, message: status.message },
        })
    }

    pub(super) fn note_sent(&mut self, nonce: &str, version: &str) {
        self.awaiting.insert(nonce.to_owned(), version.to_owned());
    }

    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// Returns whether the name was not wanted before.
    pub(super) fn subscribe(&mut self, name: String) -> bool {
        if name == WILDCARD {
            self.initial.values_mut().for_each(String::clear);
            self.everything = true;
            return !std::mem::replace(&mut self.wildcard, true);
        }
        self.distrust(&name);
        let new = self.names.insert(name.clone());
        self.due.insert(name);
        new
    }

    /// Takes in what only the first request says, after the names to subscribe to; others may say it and are not heard
    /// (B2.2). Returns whether it turned out to be the wildcard.
    pub(super) fn begin(&mut self, named: bool, versions: BTreeMap<String, String>) -> bool {
        if std::mem::replace(&mut self.begun, true) {
            return false;
        }
        self.initial = versions;
        self.wildcard |= !named;
        self.everything |= !named;
        !named
    }

    /// Returns whether the name was wanted before.
    pub(super) fn unsubscribe(&mut self, name: &str) -> bool {
        if name == WILDCARD {
            self.everything = false;
            let Self { due, names, .. } = self;
            due.retain(|name| names.contains(name));
            return std::mem::replace(&mut self.wildcard, false);
        }
        let wanted = self.names.remove(name);
        if !self.wildcard {
            self.due.remove(name);
        } else if wanted {
            // The client cannot know whether the wildcard has it (B2.20).
            self.distrust(name);
            self.due.insert(name.to_owned());
        }
        wanted
    }

    /// What the client holds of a name is sent again, even if it is the same.
    fn distrust(&mut self, name: &str) {
        // No resource has an empty version.
        self.initial.get_mut(name).into_iter().for_each(String::clear);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.wildcard.then_some(WILDCARD).into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// The response that is due, without its nonce. What is in it is taken as said.
    pub(super) fn poll(
        &mut self,
        type_url: &str,
        store: &Store,
        settings: &Settings,
    ) -> Option<DeltaDiscoveryResponse> {
        let now = store.get(type_url);
        // The answer to a wildcard may hold nothing, which says that there is nothing (B2.28).
        let owed = self.everything;
        self.look(&now, |stored| store.version(stored.version()), settings);
        if self.due.is_empty() && !owed {
            return None;
        }
        let mut response = DeltaDiscoveryResponse {
            system_version_info: store.version(now.version()),
            type_url: type_url.to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        let limit = settings.max_per_response.map_or(usize::MAX, |limit| limit.max(1));
        for name in std::iter::from_fn(|| self.due.pop_first()).take(limit) {
            match now.resource(&name) {
                Some(stored) => response.resources.push(Resource {
                    version: store.version(stored.version()),
                    resource: Some(Any { type_url: type_url.to_owned(), value: stored.bytes().clone() }),
                    name,
                    ..Resource::default()
                }),
                None => response.removed_resources.push(name),
            }
        }
        Some(response)
    }

    /// Finds out what must be said of what there is now.
    fn look(&mut self, now: &Type, version: impl Fn(&Stored) -> String, settings: &Settings) {
        let seen = self.seen.replace(now.clone());
        // Before the first response everything that is wanted is due anyway.
        for name in seen.iter().flat_map(|seen| now.changed_since(seen)) {
            if self.wildcard || self.names.contains(name) {
                self.due.insert(name.to_owned());
            }
        }
        if std::mem::take(&mut self.everything) {
            self.due.extend(now.iter().map(|(name, _)| name.to_owned()));
        }
        for (name, held) in std::mem::take(&mut self.initial) {
            match now.resource(&name) {
                Some(stored) if !settings.ignore_initial_versions && version(stored) == held => {
                    self.due.remove(&name);
                }
                // It is due by whatever it is wanted.
                Some(_) => {}
                None => drop(self.due.insert(name)),
            }
        }
    }
}
