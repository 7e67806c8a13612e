//! What must hold whatever happens: a model beside the engine that is told everything and contradicts.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use super::{
    network::Network,
    rig::{Full, Part},
};
use crate::{
    base::WatchId,
    engine::simulation::parts::Seen,
    error::Code,
    observed::ErasedMembers,
    resource::{Erased, Resource},
    wire,
};

/// What was watched, changed and seen.
#[derive(Default)]
pub(super) struct Model {
    views: BTreeMap<WatchId, Watched>,
    /// Every text that a resource ever had, with `None` for not being there.
    history: BTreeMap<(&'static str, String), Vec<Option<String>>>,
}

struct Watched {
    type_url: &'static str,
    /// `None` for all names.
    name: Option<String>,
    /// How much of the history there was when the last good text was seen.
    last_good_at: usize,
    /// The server had sent that before, and so did not know what was wanted by now.
    last_good_outdated: bool,
    seen: Option<Seen>,
    members: BTreeMap<String, Seen>,
    complete: bool,
    stale: bool,
}

impl Model {
    pub(super) fn on_watch(&mut self, view: WatchId, type_url: &'static str, name: Option<String>) {
        let watched = Watched {
            type_url,
            name,
            last_good_at: 0,
            last_good_outdated: false,
            seen: None,
            members: BTreeMap::new(),
            complete: false,
            stale: false,
        };
        self.views.insert(view, watched);
    }

    pub(super) fn on_unwatch(&mut self, view: WatchId) {
        self.views.remove(&view);
    }

    pub(super) fn any_view(&self, random: &mut fastrand::Rng) -> Option<WatchId> {
        let views: Vec<_> = self.views.keys().copied().collect();
        (!views.is_empty()).then(|| views[random.usize(0..views.len())])
    }

    pub(super) fn on_change(&mut self, type_url: &'static str, name: &str, text: Option<String>) {
        self.history.entry((type_url, name.to_owned())).or_insert_with(|| vec![None]).push(text);
    }

    /// `repeated` says that the last response had come before.
    pub(super) fn on_notify(&mut self, view: WatchId, observed: &Erased, repeated: bool) {
        let Some(watched) = self.views.get_mut(&view) else { panic!("{view:?} is not watched") };
        let Some(name) = watched.name.clone() else { return watched.on_members(observed, &self.history) };
        let seen = Seen::of(observed);
        let history = self.history.get(&(watched.type_url, name)).map(Vec::as_slice).unwrap_or(&[None]);
        assert_ne!(watched.seen.as_ref(), Some(&seen), "the same is not told twice");
        match (&watched.seen, &seen) {
            (_, Seen::Present { text, .. }) => {
                seen.check_was_real(history);
                watched.last_good_at =
                    history.iter().rposition(|was| was.as_ref() == Some(text)).unwrap_or(0);
                watched.last_good_outdated = repeated;
            }
            (Some(Seen::Present { .. }), Seen::Absent(reason)) => {
                // The last good resource is never lost to bad news: the server must have deleted it.
                assert_eq!((watched.type_url, reason.code()), (Full::TYPE_URL, Code::NotFound), "{reason}");
                let deleted = history[watched.last_good_at..].contains(&None);
                // Or it was missing from a response right after it was let go and asked for again, and the server was
                // silent on it for as long as it may be on a name that is asked for.
                let silence = reason.reason().contains("in time");
                assert!(
                    deleted || silence || watched.last_good_outdated,
                    "it was there all the time: {reason}"
                );
            }
            (_, Seen::Absent(_)) => {}
        }
        watched.seen = Some(seen);
    }

    /// When the faults have ended for long enough: everybody sees what the server has, and it knows what is wanted.
    pub(super) fn check_convergence(&self, network: &Network<Infallible>) {
        for watched in self.views.values() {
            let now = network.store.get(watched.type_url);
            let text =
                |name: &str| now.resource(name).map(|stored| wire::string_field(stored.bytes(), 2).unwrap());
            if let Some(name) = &watched.name {
                check_agreement(watched, name, text(name), watched.seen.as_ref());
            } else {
                assert!(watched.complete && !watched.stale, "everything is known");
                let names: BTreeSet<_> = now.iter().map(|(name, _)| name).collect();
                assert_eq!(watched.members.keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
                watched
                    .members
                    .iter()
                    .for_each(|(name, seen)| check_agreement(watched, name, text(name), Some(seen)));
            }
        }
        if self.views.is_empty() {
            return;
        }
        let session = network.session().expect("somebody watches, so there is a stream");
        for type_url in [Full::TYPE_URL, Part::TYPE_URL] {
            self.check_subscription(type_url, session.subscribed(type_url));
            network.check_answered(type_url);
        }
    }

    fn check_subscription(&self, type_url: &str, subscribed: Vec<&str>) {
        let watched = self.views.values().filter(|watched| watched.type_url == type_url);
        let wanted: BTreeSet<_> = watched.map(|watched| watched.name.as_deref().unwrap_or("*")).collect();
        let subscribed = subscribed.into_iter().collect::<BTreeSet<_>>();
        // The end of a wildcard that was asked for by an empty list cannot be said (B1.3).
        let unsayable = wanted.is_empty() && subscribed == BTreeSet::from(["*"]);
        assert!(subscribed == wanted || unsayable, "{subscribed:?} is subscribed, {wanted:?} is wanted");
    }
}

impl Watched {
    fn on_members(
        &mut self,
        observed: &Erased,
        history: &BTreeMap<(&'static str, String), Vec<Option<String>>>,
    ) {
        let members = observed.downcast_ref::<ErasedMembers>().expect("a wildcard sees members");
        let seen = members.map.iter().map(|(name, observed)| (name.to_string(), Seen::of(&observed.0)));
        self.members = seen.collect();
        assert!(members.complete || !self.complete, "what is complete stays so");
        (self.complete, self.stale) = (members.complete, members.warning.is_some());
        for (name, seen) in &self.members {
            seen.check_was_real(&history[&(self.type_url, name.clone())]);
        }
    }
}

impl Seen {
    /// What is seen is good, and was once so on the server.
    fn check_was_real(&self, history: &[Option<String>]) {
        if let Self::Present { text, .. } = self {
            assert!(
                text != "bad" && history.iter().any(|was| was.as_deref() == Some(text)),
                "{text} never was"
            );
        }
    }
}

fn check_agreement(watched: &Watched, name: &str, text: Option<&str>, seen: Option<&Seen>) {
    let fits = match (text, seen) {
        (_, None) => false,
        (Some("bad"), Some(Seen::Present { warning, .. })) => {
            warning.as_ref().is_some_and(|warning| warning.code() == Code::InvalidArgument)
        }
        (Some("bad"), Some(Seen::Absent(reason))) => reason.code() == Code::InvalidArgument,
        (Some(text), Some(seen)) => *seen == Seen::Present { text: text.to_owned(), warning: None },
        (None, Some(Seen::Absent(reason))) => {
            reason.code() == Code::NotFound || watched.type_url == Part::TYPE_URL
        }
        // Of such a type nothing says that a resource is gone (B1.11).
        (None, Some(Seen::Present { .. })) => watched.type_url == Part::TYPE_URL,
    };
    assert!(fits, "the server has {text:?} as {name} of {}, seen is {seen:?}", watched.type_url);
}
