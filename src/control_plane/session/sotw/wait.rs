//! The wait for resources whose state is unknown.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::super::{
    super::store::Type,
    patience::{GATHERING, HOLDING, Patience},
};

/// The wait of a response that would imply the absence of resources whose state is unknown.
///
/// Only the names of the first request count: the absence of names that are added later on a stream has no effect on the
/// client at first.
#[derive(Debug, Clone, Default)]
pub(super) struct Wait {
    /// Names of the first request whose state is still unknown; `None` before that request.
    unknown: Option<BTreeSet<String>>,
    /// The resources that these names were compared with last, so that the next comparison costs the changes alone.
    compared: Option<Type>,
    /// Whether a subscribed name may have become known since that was last looked for.
    may_know_any: bool,
    /// Whether the client may have resources from earlier streams, by the version of its first request.
    may_hold: bool,
    /// Whether a wildcard waits for its completion.
    is_for_all: bool,
    /// The time of the wait.
    patience: Patience,
}

impl Wait {
    /// Creates the wait of a type, by the version of its first request.
    pub(super) fn new(version: &str) -> Self {
        Self { may_hold: !version.is_empty(), ..Self::default() }
    }

    /// Records the names of a request; returns whether it is the first one.
    pub(super) fn on_request(&mut self, names: &[String]) -> bool {
        let is_first = self.unknown.is_none();
        self.unknown.get_or_insert_with(|| names.iter().cloned().collect());
        is_first
    }

    /// Records a change of the subscribed names.
    pub(super) fn on_names_changed(&mut self, unsubscribed: &[String]) {
        self.may_know_any = true;
        for name in unsubscribed {
            if let Some(unknown) = &mut self.unknown {
                unknown.remove(name);
            }
        }
    }

    /// Drops the names that are known by now. Takes time linear in the changes, whatever the number of names.
    pub(super) fn compare(
        &mut self,
        now: &Type,
        is_for_all: bool,
        full_state: bool,
        is_subscribed: impl Fn(&str) -> bool,
    ) {
        self.is_for_all = is_for_all;
        let unknown = self.unknown.get_or_insert_default();
        if !full_state {
            // A missing resource of such a type is not deleted (B1.11).
            unknown.clear();
        }
        if unknown.is_empty() && !is_for_all {
            self.compared = None;
            return;
        }
        let before = self.compared.replace(now.clone());
        match before {
            None => {
                unknown.retain(|name| !now.knows(name));
                self.may_know_any = true;
            }
            Some(before) if before.version() == now.version() => {}
            Some(before) => {
                for name in changed(now, &before).filter(|name| now.knows(name)) {
                    unknown.remove(name);
                }
                self.may_know_any |= changed(now, &before).any(is_subscribed);
            }
        }
    }

    /// Updates the time. Returns the end of the wait, if there is one ahead.
    pub(super) fn handle_time(&mut self, now: Instant) -> Option<Instant> {
        match self.limit() {
            Some(limit) => self.patience.handle_time(now, limit),
            None => {
                self.patience.reset();
                None
            }
        }
    }

    /// Whether a response waits. `find` looks for something to send, at all names.
    pub(super) fn holds(&mut self, find: impl FnOnce() -> bool) -> bool {
        if self.limit().is_none() {
            return false;
        }
        let Self { patience, may_know_any, .. } = self;
        !patience.gives_up(|| {
            // The search visits all names, so that it is repeated only after a change of one of them.
            *may_know_any = *may_know_any && find();
            *may_know_any
        })
    }

    /// Returns the longest wait; `None` if nothing has to wait.
    fn limit(&self) -> Option<Duration> {
        let is_for_names = self.unknown.as_ref().is_some_and(|unknown| !unknown.is_empty());
        match () {
            () if self.is_for_all || (is_for_names && self.may_hold) => Some(HOLDING),
            () if is_for_names => Some(GATHERING),
            () => None,
        }
    }
}

/// Iterates over the names whose state has changed.
fn changed<'a>(now: &'a Type, before: &'a Type) -> impl Iterator<Item = &'a str> {
    let names = now.changed_since(before).chain(now.errors_changed_since(before));
    names.chain(now.known_since(before))
}
