//! What must hold when the faults have ended for long enough: every watch shows the
//! resources of the highest server that is reachable, and each server has exactly the current subscriptions.

use std::{collections::BTreeSet, time::Duration};

use super::{
    keys::ResourceId,
    model::{All, Model, One},
    network::Network,
    parts::{INITIAL, Seen},
    script::{ServerMode, Ty},
    server::SimServer,
};
use crate::error::{Code, WatchError};

impl Model {
    pub(super) fn check_convergence(&self, network: &Network) {
        for authority in (0..network.lists.len()).filter(|authority| self.is_watched(*authority)) {
            self.check_agreement(authority, network);
        }
        for (id, server) in network.servers.iter().enumerate() {
            self.check_subscription(id, server, network);
        }
    }

    fn check_agreement(&self, authority: usize, network: &Network) {
        let active = network.active(authority).expect("it is watched");
        for higher in network.open(authority).iter().filter(|higher| **higher != active) {
            let server = &network.servers[*higher];
            assert!(
                server.mode != ServerMode::Normal || !self.has_subscribed(server, authority),
                "{higher} is back"
            );
        }
        let server = &network.servers[active];
        let ones = self.ones.values().filter(|one| one.key.authority == authority);
        // If it has no subscribed resource, it may have nothing to send, and its recovery is not detected.
        // A single server always answers the request of a new stream.
        let has_answered = network.servers.len() == 1;
        let is_undetected =
            !has_answered && network.has_server_error(authority) && !self.has_subscribed(server, authority);
        if server.mode != ServerMode::Normal || is_undetected {
            ones.for_each(|one| assert!(one.seen.as_ref().and_then(Seen::error).is_some(), "{one:?}"));
            return;
        }
        for One { key, seen, .. } in ones {
            if !server.serves(key.ty) {
                // There is an error, or the resource of another server; no more is certain.
                assert!(seen.is_some(), "{active} does not serve {key:?}, and nothing is seen");
                continue;
            }
            let text = server.text(key.ty, &key.name);
            assert!(
                fits(server, key.ty, (text.as_deref(), seen.as_ref())),
                "{active} has {text:?} as {key:?}, seen is {seen:?}"
            );
        }
        for All { members, complete, warning, .. } in self.alls.values().filter(|_| authority == 0) {
            if !server.supports(Ty::Full) {
                assert!(*complete || warning.is_some(), "{active} does not support the type of the wildcard");
                continue;
            }
            let is_good = |warning: &WatchError| server.contradicts_store && warning.is_rejected();
            assert!(*complete && warning.as_ref().is_none_or(is_good), "everything is known");
            let of_type = server.store.get(Ty::Full.url());
            let names: BTreeSet<_> = of_type.iter().map(|(name, _)| name).collect();
            for name in names.into_iter().chain(members.keys().map(String::as_str)) {
                let (text, seen) = (server.text(Ty::Full, name), members.get(name));
                let key = ResourceId::member(name);
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
                    !gone && fits(server, Ty::Full, (text.as_deref(), seen)),
                    "{active} has {text:?} as the member {name}, seen is {seen:?}"
                );
            }
        }
    }

    /// Whether a server has something that is watched.
    fn has_subscribed(&self, server: &SimServer, authority: usize) -> bool {
        let mut ones = self.ones.values().map(|one| &one.key).filter(|key| key.authority == authority);
        let whole = authority == 0 && !self.alls.is_empty();
        ones.any(|key| server.serves(key.ty) && server.text(key.ty, &key.name).is_some())
            || (whole && server.serves(Ty::Full) && !server.store.get(Ty::Full.url()).is_empty())
    }

    /// Whether there are subscriptions of a type at a server.
    fn subscribes(&self, ty: Ty, server: usize, network: &Network) -> bool {
        let mut ones = self.ones.values().map(|one| &one.key).filter(|key| key.ty == ty);
        ones.any(|key| network.open(key.authority).contains(&server))
            || (ty == Ty::Full && !self.alls.is_empty() && network.open(0).contains(&server))
    }

    fn check_subscription(&self, id: usize, server: &SimServer, network: &Network) {
        if !self.is_needed(id, network) {
            return assert!(server.open.is_none() && server.attempt.is_none(), "{id} has no subscriptions");
        }
        // Streams end whenever that is requested.
        let is_ended = Ty::ALL.into_iter().any(|ty| !server.supports(ty) && self.subscribes(ty, id, network));
        if is_ended && server.open.as_ref().is_none_or(|open| network.now < open.since + SETTLED) {
            return;
        }
        // The subscription may have ended since that ended the last stream.
        let knows_all = Ty::ALL.into_iter().all(|ty| server.supports(ty));
        if !knows_all && server.open.is_none() && server.ended_at.is_some_and(|at| network.now < at + PAUSE) {
            return;
        }
        let Some(open) = &server.open else {
            return assert_ne!(server.mode, ServerMode::Normal, "{id} has subscriptions");
        };
        // The longest delay of an answer has passed.
        if network.servers.len() == 1 {
            open.rules.check_all_answered();
        }
        open.rules.check_answered();
        for ty in Ty::ALL.into_iter().filter(|ty| server.supports(*ty)) {
            let ones = self.ones.values().map(|one| &one.key).filter(|key| key.ty == ty);
            let ones = ones.filter(|key| network.open(key.authority).contains(&id));
            let all =
                (ty == Ty::Full && !self.alls.is_empty() && network.open(0).contains(&id)).then_some("*");
            let expected: BTreeSet<_> = ones.map(|key| key.name.as_str()).chain(all).collect();
            let subscribed: BTreeSet<_> = open.session.subscribed(ty.url()).into_iter().collect();
            // The end of a wildcard of an empty list cannot be expressed (B1.3), nor to a server that does not support `*`, or
            // one that ignores it.
            let behavior = &server.settings.behavior;
            let legacy = behavior.legacy_wildcard_only
                || behavior.keeps_wildcard
                || (!server.is_delta() && expected.is_empty());
            let inexpressible = legacy
                && subscribed.iter().all(|name| *name == "*" || expected.contains(name))
                && expected.is_subset(&subscribed);
            // At a server that may take `*` for a name, the wildcard stands for all names (B1.23).
            let is_covered = !server.is_delta()
                && ["*"].iter().all(|all| subscribed.contains(all) && expected.contains(all))
                && subscribed.is_subset(&expected);
            assert!(
                subscribed == expected || inexpressible || is_covered,
                "{id} has subscriptions to {subscribed:?}, not to {expected:?}"
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
fn fits(server: &SimServer, ty: Ty, (text, seen): (Option<&str>, Option<&Seen>)) -> bool {
    let features = server.config.features;
    match (text, seen) {
        (_, None) => false,
        (Some("bad"), Some(seen)) => {
            let lost = matches!(seen, Seen::Absent(_));
            seen.error().is_some_and(WatchError::is_rejected) && (lost || !features.fail_on_data_errors)
        }
        // What a server rejected of what was sent against its store, it need not send again.
        (Some(text), Some(Seen::Present { text: seen, warning: Some(warning) })) => {
            server.contradicts_store && warning.is_rejected() && seen == text
        }
        (Some(text), Some(seen)) => *seen == Seen::Present { text: text.to_owned(), warning: None },
        // A server that has nothing of a type need not send a response of it, nor one of the names that it lacks.
        (None, Some(Seen::Present { text, warning })) if text == INITIAL => {
            warning.as_ref().is_some_and(|warning| !warning.is_of_server())
        }
        (None, Some(Seen::Absent(reason))) => {
            // What a server sent against its store stays rejected or absent.
            let is_deletion = ty == Ty::Part
                || server.contradicts_store
                || features.resource_timer_is_transient_error
                || reason.code() == Code::NotFound;
            is_deletion && !reason.is_of_server()
        }
        // No response of such a type implies that a resource was removed (B1.11).
        (None, Some(Seen::Present { warning, .. })) if ty == Ty::Part && !server.is_delta() => {
            !warning.as_ref().is_some_and(WatchError::is_of_server)
        }
        (None, Some(Seen::Present { warning, .. })) => {
            let keeps = features.ignore_resource_deletion && !features.fail_on_data_errors;
            let gone = |code: Code| matches!(code, Code::NotFound | Code::Unavailable);
            keeps && warning.as_ref().is_some_and(|warning| gone(warning.code()) && !warning.is_of_server())
        }
    }
}
