//! What must hold when the faults have ended for long enough: everybody sees what the highest server has that can be
//! reached, and each server knows what is wanted of it, and is asked for nothing else.

use std::{collections::BTreeSet, time::Duration};

use super::{
    keys::Key,
    model::{All, Model, One},
    network::Network,
    parts::Seen,
    peer::Peer,
    script::{Mood, Ty},
};
use crate::error::{Code, WatchError};

impl Model {
    pub(super) fn check_rest(&self, network: &Network) {
        for authority in (0..network.lists.len()).filter(|authority| self.is_watched(*authority)) {
            self.check_agreement(authority, network);
        }
        for (id, peer) in network.peers.iter().enumerate() {
            self.check_subscription(id, peer, network);
        }
    }

    fn check_agreement(&self, authority: usize, network: &Network) {
        let active = network.active(authority).expect("it is watched");
        for higher in network.open(authority).iter().filter(|higher| **higher != active) {
            let peer = &network.peers[*higher];
            assert!(peer.mood != Mood::Fine || !self.has_subscribed(peer, authority), "{higher} is back");
        }
        let peer = &network.peers[active];
        let ones = self.ones.values().filter(|one| one.key.authority == authority);
        // If it has nothing that is wanted, it may have nothing to say, and it is not known that it is well again.
        // A single server always answers the request of a new stream.
        let has_answered = network.peers.len() == 1;
        let is_undetected =
            !has_answered && network.has_server_error(authority) && !self.has_subscribed(peer, authority);
        if peer.mood != Mood::Fine || is_undetected {
            ones.for_each(|one| assert!(one.seen.as_ref().and_then(Seen::error).is_some(), "{one:?}"));
            return;
        }
        for One { key, seen, .. } in ones {
            if !peer.gives(key.ty) {
                // That there is an error, or what another server sent before, is all that can be said.
                assert!(seen.is_some(), "{active} does not give {key:?}, and nothing is seen");
                continue;
            }
            let text = peer.text(key.ty, &key.name);
            assert!(
                fits(peer, key.ty, (text.as_deref(), seen.as_ref())),
                "{active} has {text:?} as {key:?}, seen is {seen:?}"
            );
        }
        for All { members, complete, warning, .. } in self.alls.values().filter(|_| authority == 0) {
            if !peer.knows(Ty::Full) {
                assert!(*complete || warning.is_some(), "{active} does not know the type of the wildcard");
                continue;
            }
            assert!(*complete && warning.is_none(), "everything is known");
            let of_type = peer.store.get(Ty::Full.url());
            let names: BTreeSet<_> = of_type.iter().map(|(name, _)| name).collect();
            for name in names.into_iter().chain(members.keys().map(String::as_str)) {
                let (text, seen) = (peer.text(Ty::Full, name), members.get(name));
                let key = Key::member(name);
                let shared = self.ones.values().find(|one| key.authority != 0 && one.key == key);
                if let Some(one) = shared.filter(|one| network.active(one.key.authority) == Some(active)) {
                    // Names whose authority has the same server are seen the same both ways.
                    assert!(
                        text.as_deref().is_none_or(|text| text == "bad") || seen == one.seen.as_ref(),
                        "{active} has {text:?} as the member {name}, seen is {seen:?}, and by its name {one:?}"
                    );
                    continue;
                }
                let gone = text.is_none() && seen.is_some_and(|seen| matches!(seen, Seen::Absent(_)));
                assert!(
                    !gone && fits(peer, Ty::Full, (text.as_deref(), seen)),
                    "{active} has {text:?} as the member {name}, seen is {seen:?}"
                );
            }
        }
    }

    /// Whether a server has something that is watched.
    fn has_subscribed(&self, peer: &Peer, authority: usize) -> bool {
        let mut ones = self.ones.values().map(|one| &one.key).filter(|key| key.authority == authority);
        let whole = authority == 0 && !self.alls.is_empty();
        ones.any(|key| peer.gives(key.ty) && peer.text(key.ty, &key.name).is_some())
            || (whole && peer.gives(Ty::Full) && !peer.store.get(Ty::Full.url()).is_empty())
    }

    /// Whether something of a type is wanted of a server.
    fn wants(&self, ty: Ty, peer: usize, network: &Network) -> bool {
        let mut ones = self.ones.values().map(|one| &one.key).filter(|key| key.ty == ty);
        ones.any(|key| network.open(key.authority).contains(&peer))
            || (ty == Ty::Full && !self.alls.is_empty() && network.open(0).contains(&peer))
    }

    fn check_subscription(&self, id: usize, peer: &Peer, network: &Network) {
        if !self.is_needed(id, network) {
            return assert!(peer.open.is_none() && peer.attempt.is_none(), "nothing is wanted of {id}");
        }
        // Streams end whenever that is requested.
        let is_ended = Ty::ALL.into_iter().any(|ty| !peer.knows(ty) && self.wants(ty, id, network));
        if is_ended && peer.open.as_ref().is_none_or(|open| network.now < open.since + SETTLED) {
            return;
        }
        // It may be wanted no more since that ended the last one.
        let knows_all = Ty::ALL.into_iter().all(|ty| peer.knows(ty));
        if !knows_all && peer.open.is_none() && peer.ended_at.is_some_and(|at| network.now < at + PAUSE) {
            return;
        }
        let Some(open) = &peer.open else {
            return assert_ne!(peer.mood, Mood::Fine, "something is wanted of {id}");
        };
        // The longest delay of an answer has passed.
        if network.peers.len() == 1 {
            open.dialogue.check_all_answered();
        }
        open.dialogue.check_answered();
        for ty in Ty::ALL.into_iter().filter(|ty| peer.knows(*ty)) {
            let ones = self.ones.values().map(|one| &one.key).filter(|key| key.ty == ty);
            let ones = ones.filter(|key| network.open(key.authority).contains(&id));
            let all =
                (ty == Ty::Full && !self.alls.is_empty() && network.open(0).contains(&id)).then_some("*");
            let expected: BTreeSet<_> = ones.map(|key| key.name.as_str()).chain(all).collect();
            let subscribed: BTreeSet<_> = open.talk.subscribed(ty.url()).into_iter().collect();
            // The end of a wildcard that was asked for by an empty list cannot be said (B1.3), nor to a server that knows no `*`, or
            // one that does not care.
            let behavior = &peer.settings.behavior;
            let legacy = behavior.legacy_wildcard_only
                || behavior.keeps_wildcard
                || (!peer.is_delta() && expected.is_empty());
            let inexpressible = legacy
                && subscribed.iter().all(|name| *name == "*" || expected.contains(name))
                && expected.is_subset(&subscribed);
            assert!(
                subscribed == expected || inexpressible,
                "{id} is asked for {subscribed:?}, not for {expected:?}"
            );
        }
    }
}

/// The longest pause between streams that end.
const PAUSE: Duration = Duration::from_secs(150);

/// How long after its beginning all is requested on a stream of a server that ends streams for a type, which makes requests
/// of different types a second apart.
const SETTLED: Duration = Duration::from_secs(4);

/// Whether what is seen is what a server that can be reached has.
fn fits(peer: &Peer, ty: Ty, (text, seen): (Option<&str>, Option<&Seen>)) -> bool {
    let features = peer.server.features;
    match (text, seen) {
        (_, None) => false,
        (Some("bad"), Some(seen)) => {
            let lost = matches!(seen, Seen::Absent(_));
            seen.error().is_some_and(WatchError::is_rejected) && (lost || !features.fail_on_data_errors)
        }
        (Some(text), Some(seen)) => *seen == Seen::Present { text: text.to_owned(), warning: None },
        (None, Some(Seen::Absent(reason))) => {
            // What a server claimed without its store stays as it was rejected or denied.
            let is_deletion = ty == Ty::Part
                || peer.slandered
                || features.resource_timer_is_transient_error
                || reason.code() == Code::NotFound;
            is_deletion && !reason.is_of_server()
        }
        // Of such a type nothing says that a resource is gone (B1.11).
        (None, Some(Seen::Present { warning, .. })) if ty == Ty::Part && !peer.is_delta() => {
            !warning.as_ref().is_some_and(WatchError::is_of_server)
        }
        (None, Some(Seen::Present { warning, .. })) => {
            let keeps = features.ignore_resource_deletion && !features.fail_on_data_errors;
            let gone = |code: Code| matches!(code, Code::NotFound | Code::Unavailable);
            keeps && warning.as_ref().is_some_and(|warning| gone(warning.code()) && !warning.is_of_server())
        }
    }
}
