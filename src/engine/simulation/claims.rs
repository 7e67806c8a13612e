//! Which resources the versions of a server stand for, as far as the client received them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    script::Ty,
    session::{Request, Response},
    stream_rules::Due,
};

/// What was delivered, by server, type and version: what the client may claim with that version.
#[derive(Debug, Default)]
pub(super) struct Claims {
    covered: BTreeMap<(usize, String), BTreeMap<String, Coverage>>,
    newest: BTreeMap<(usize, String), Coverage>,
}

/// What a version stands for.
#[derive(Debug, Clone, Default)]
struct Coverage {
    names: BTreeSet<String>,
    /// Everything was subscribed to.
    wildcard: bool,
}

impl Claims {
    /// A response was delivered while some names were subscribed to.
    pub(super) fn on_response(
        &mut self,
        server: usize,
        (response, due): (&Response, Due),
        subscribed: &BTreeSet<String>,
    ) {
        let Response::Sotw(message) = response else { return };
        if due == Due::Nack {
            return;
        }
        let key = (server, message.type_url.clone());
        let newest = self.newest.entry(key.clone()).or_default();
        let wildcard = subscribed.is_empty() || subscribed.contains("*");
        if message.type_url == Ty::Full.url() {
            // A response of this type is complete, so that it replaces what was known.
            newest.names.clear();
        } else {
            newest.names.retain(|name| wildcard || subscribed.contains(name));
        }
        newest.names.extend(response.good_names());
        for error in &message.resource_errors {
            newest
                .names
                .retain(|name| error.resource_name.as_ref().is_none_or(|denied| denied.name != *name));
        }
        newest.wildcard = wildcard;
        let versions = self.covered.entry(key).or_default();
        let covered = versions.entry(message.version_info.clone()).or_default();
        // A server may send the same again for names: what was sent for a wildcard was that still.
        let wildcard = covered.wildcard || newest.wildcard;
        *covered = Coverage { names: newest.names.clone(), wildcard };
    }

    /// The first request of a type on a stream claims no resource that is not held. `held` has the names of resources that came
    /// from this server.
    pub(super) fn check(&mut self, server: usize, request: &Request, held: &BTreeSet<String>) {
        match request {
            Request::Sotw(message) if message.version_info.is_empty() => {
                // What the server does not send now, it does not have.
                self.newest.remove(&(server, message.type_url.clone()));
            }
            Request::Sotw(message) => {
                let version = &message.version_info;
                let versions = self.covered.get(&(server, message.type_url.clone()));
                let covered = versions.and_then(|versions| versions.get(version));
                let covered = covered.unwrap_or_else(|| panic!("the version {version} never came"));
                let names = &message.resource_names;
                let wildcard = names.is_empty() || names.iter().any(|name| name == "*");
                assert!(!wildcard || covered.wildcard, "the version {version} was not sent for a wildcard");
                let mut claimed = covered.names.iter().filter(|name| wildcard || names.contains(name));
                let missing = claimed.find(|name| !held.contains(*name));
                assert_eq!(missing, None, "the version {version} is claimed, and this is not held");
            }
            Request::Delta(message) => {
                let mut claimed = message.initial_resource_versions.keys();
                let missing = claimed.find(|name| !held.contains(*name));
                assert_eq!(missing, None, "its version is claimed, and it is not held");
            }
        }
    }
}
