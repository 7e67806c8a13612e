//! Heartbeats: responses that confirm resources with a TTL (B1.18, B2.16).

use super::{
    Step,
    pending_response::{LocatedResource, canonical},
};
use crate::{cache::Entry, invariant, protocol::SubId};

impl Step<'_> {
    /// Extends the TTL of a held resource, without a notification (B1.18, B2.16). For others it has no effect: it refers to a
    /// state that was not accepted, or has expired. The server does not know that, and the request has to be repeated.
    pub(super) fn apply_heartbeat(&mut self, sub_id: SubId, located: LocatedResource) -> usize {
        let (server, ty) = (self.response.server(), self.response.ty());
        let is_delta = self.response.envelope.is_delta();
        // In the state of the world the version of the type is that of all its resources.
        let is_accepted =
            !is_delta && self.authorities.server_mut(server).machine.is_accepted(ty, &self.response.version);
        let Some(subscriptions) = self.authorities.subscriptions(server, ty) else {
            invariant::broken("a type that is answered was requested");
            return 1;
        };
        // It may have been released between two steps.
        let Some(sub) = subscriptions.get_mut(sub_id) else { return 1 };
        let known = sub.version().clone();
        let (id, is_held) = (sub.entry(), sub.is_held());
        let is_same = match is_delta {
            true => known.as_str() == self.response.version_of(&located),
            false => {
                let held = self.store.get(id).and_then(Entry::held);
                let version = self.response.update_of(&located, &known).version;
                is_accepted || held.is_some_and(|(held, _)| *held == version)
            }
        };
        if !(is_held && is_same) {
            let is_expired = !is_held && self.store.get(id).is_some_and(Entry::is_expired);
            self.response.outdated |= is_expired || (is_held && !is_delta);
            if is_expired && self.response.ttl_of(&located).is_some() {
                self.authorities.server_mut(server).machine.request_again(ty, sub_id, self.now);
            }
            return 1;
        }
        sub.on_answered();
        if self.authorities.placement().counts(self.store, id, server) {
            self.store.set_ttl(id, self.response.since(), self.response.ttl_of(&located));
        }
        1
    }

    /// A heartbeat for a name that was not requested: under a wildcard or a glob, that of a member that has expired.
    pub(super) fn apply_unknown_heartbeat(&mut self, next: usize) -> usize {
        let (server, ty) = (self.response.server(), self.response.ty());
        if self.response.ttl_of(&self.response.located[next]).is_none() {
            return 1;
        }
        let is_active = self
            .authorities
            .memberships()
            .wildcard_key(self.store, ty)
            .is_some_and(|key| self.authorities.groups().active(key.group) == server);
        let Some(subscriptions) = self.authorities.subscriptions(server, ty) else {
            invariant::broken("a type that is answered was requested");
            return 1;
        };
        if is_active && subscriptions.wildcard && subscriptions.sends_all {
            self.response.outdated = true;
            self.authorities.server_mut(server).machine.request_again_on_another_stream(ty, self.now);
            return 1;
        }
        let envelope = self.response.envelope.clone();
        let wrapper_name = envelope.item(self.response.located[next].index as usize).wrapper_name;
        if let Ok(name) = canonical(envelope.text(wrapper_name)) {
            self.ask_glob_again(&name);
        }
        1
    }
}
