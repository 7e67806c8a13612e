//! What is seen of resources, and what their servers ever had.

use std::collections::{BTreeMap, BTreeSet};

use super::{keys::ResourceId, parts::Seen, script::Ty, server::SimServer};
use crate::error::WatchError;

/// Every text that a resource ever had on each server, with `None` for not being there, and which of them was seen last.
#[derive(Debug, Default)]
pub(super) struct History {
    texts: BTreeMap<(usize, Ty, String), Vec<Option<String>>>,
    seen: BTreeMap<ResourceId, Last>,
    /// What a server ever sent something of another type in place of.
    mistyped: BTreeSet<(usize, Ty, String)>,
}

/// What was seen of a resource, by whoever watched it.
#[derive(Debug, Default)]
struct Last {
    /// The last good text, and its server.
    good: Option<(usize, String)>,
    /// How much of each server's history there was when its last text was seen.
    places: BTreeMap<usize, usize>,
    /// The server had sent that before, and so did not have the current subscriptions.
    outdated: bool,
}

impl Seen {
    /// The error, if there is one.
    pub(super) fn error(&self) -> Option<&WatchError> {
        match self {
            Self::Present { warning, .. } => warning.as_ref(),
            Self::Absent(reason) => Some(reason),
        }
    }

    /// Whether something is known of the resource itself.
    pub(super) fn is_cached(&self) -> bool {
        match self {
            Self::Present { .. } => true,
            Self::Absent(reason) => !reason.is_of_server(),
        }
    }
}

impl History {
    pub(super) fn on_change(&mut self, server: usize, (ty, name): (Ty, &str), text: Option<String>) {
        self.texts.entry((server, ty, name.to_owned())).or_insert_with(|| vec![None]).push(text);
    }

    /// A server may have something else of everything.
    pub(super) fn on_restart(&mut self, id: usize, server: &SimServer) {
        for ((_, ty, name), texts) in self.texts.iter_mut().filter(|((other, ..), _)| *other == id) {
            let now = server.text(*ty, name);
            if texts.last() != Some(&now) {
                texts.push(now);
            }
        }
    }

    /// A good text is seen; gives its server if it was not the last one that was seen of the resource. No server's text
    /// returns to an earlier one.
    pub(super) fn on_good(&mut self, key: &ResourceId, text: &str, repeated: bool) -> Option<usize> {
        let (server, _) = text.split_once(' ').unwrap_or_else(|| panic!("{text:?} is seen of {key:?}"));
        let server = server.trim_start_matches('s').parse().expect("texts begin with their server");
        let history = self.texts.get(&(server, key.ty, key.name.clone())).map_or(&[][..], Vec::as_slice);
        let place = history.iter().rposition(|was| was.as_deref() == Some(text));
        let place = place.unwrap_or_else(|| panic!("{text:?} never was {key:?}"));
        let last = self.seen.entry(key.clone()).or_default();
        let before = last.places.insert(server, place);
        assert!(before <= Some(place), "{key:?} went back to {text:?}");
        let good = Some((server, text.to_owned()));
        if last.good == good {
            return None;
        }
        (last.good, last.outdated) = (good, repeated);
        Some(server)
    }

    /// Whether a server has not had a resource at some time since the last good text of it was seen.
    pub(super) fn was_gone(&self, server: usize, key: &ResourceId) -> bool {
        let Some(last) = self.seen.get(key) else { return true };
        let since = last.places.get(&server).copied().unwrap_or(0);
        let texts = self.texts.get(&(server, key.ty, key.name.clone()));
        last.outdated || texts.is_none_or(|texts| texts[since..].contains(&None))
    }

    /// Whether any server ever had a resource, valid or not.
    pub(super) fn is_known(&self, key: &ResourceId) -> bool {
        let mut texts = self.texts.iter().filter(|((_, ty, name), _)| *ty == key.ty && *name == key.name);
        texts.any(|(_, texts)| texts.iter().any(Option::is_some))
    }

    /// A server has sent something of another type in place of a resource.
    pub(super) fn on_mistyped(&mut self, server: usize, (ty, name): (Ty, &str)) {
        self.mistyped.insert((server, ty, name.to_owned()));
    }

    /// Whether a server ever had a resource that is invalid, or has sent something else in its place.
    pub(super) fn was_bad(&self, server: usize, key: &ResourceId) -> bool {
        let place = (server, key.ty, key.name.clone());
        let texts = self.texts.get(&place);
        self.mistyped.contains(&place)
            || texts.is_some_and(|texts| texts.iter().any(|text| text.as_deref() == Some("bad")))
    }
}
