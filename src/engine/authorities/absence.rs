//! Resources that a server was due to send and did not.

use std::time::Instant;

use super::{
    super::{
        failure::not_found_hint,
        store::{Store, Which},
    },
    Authorities,
};
use crate::{
    cache::Update,
    error::{Blame, Code, WatchError},
    invariant,
    protocol::{ServerId, TypeId},
    resource::Version,
};

impl Authorities {
    /// A resource that a server was due to send and did not is gone, if its answers count. `why` describes the response or event.
    pub(in crate::engine) fn on_missed(
        &mut self,
        store: &mut Store,
        (server, ty): (ServerId, TypeId),
        why: &str,
        (update, now): (&Update, Instant),
    ) {
        let state = &mut self.servers[server];
        let policy = state.policy;
        let Some(subscriptions) = state.machine.subscriptions_mut(ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let missed = subscriptions.iter().filter(|(_, sub)| sub.is_missing() && sub.was_there());
        let missed: Vec<_> = missed.map(|(id, sub)| (id, sub.entry())).collect();
        for (sub, id) in missed {
            // The absence of the members of a glob implies that the glob is empty.
            let is_glob = store.get(id).is_some_and(|entry| entry.is_glob);
            if is_glob
                || !self.counts(store, id, server)
                || !self.servers[server].machine.is_gone(ty, sub, now)
            {
                continue;
            }
            let Some(entry) = store.get(id) else {
                invariant::broken("a resource that is acted on has an entry");
                continue;
            };
            let machine = &self.servers[server].machine;
            let source = machine.source();
            let message = match machine.source_key().capabilities().remote {
                true => format!("xDS server {source} {why}{}", not_found_hint(machine)),
                false => format!("{source} does not hold it any more"),
            };
            let error = WatchError::new(Code::NotFound, Blame::Peer, store.subject(entry), message);
            self.update(store, id, |entry| entry.on_deleted(error, policy, update.clone()));
            self.leave_collections(store, id);
        }
    }

    /// A server was quiet for a while. A resource that is held since an earlier stream, in a version that was not sent
    /// to the server, and that was not sent again, is gone; and the responses to a wildcard request are complete.
    pub(super) fn on_quiet(&mut self, store: &mut Store, server: ServerId, ty: TypeId, now: Instant) {
        if let Some(subscriptions) = self.servers[server]
            .machine
            .subscriptions_mut(ty)
            .filter(|subscriptions| !subscriptions.received_all)
        {
            subscriptions.received_all = subscriptions.wildcard && subscriptions.sends_all;
            if subscriptions.received_all {
                self.complete_all(store, server, ty);
            }
        }
        let update = Update { version: Version::default(), at: now };
        self.on_missed(store, (server, ty), "did not send it again", (&update, now));
    }

    /// A server has sent all its resources of a type.
    pub(in crate::engine) fn complete_all(&mut self, store: &mut Store, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                store.members.complete(&(group, ty, Which::All));
            }
        }
    }
}
