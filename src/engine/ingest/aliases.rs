//! Aliases: other names that a resource of the incremental variant is sent for (B2.19).

use super::{
    Step,
    pending_response::{Aliased, LocatedResource, ResourceOp, canonical},
};
use crate::invariant;

impl Step<'_> {
    /// Finds the subscriptions of the aliases in a response (B2.19). They are looked for behind all names: a name belongs to the
    /// resource that has it for its own, and otherwise to the first that has it for an alias. Another one cannot have it, and
    /// only that claim is rejected (A46); an alias twice on one resource means no more than once.
    pub(super) fn locate_aliases(&mut self) {
        let envelope = self.response.envelope.clone();
        for Aliased { own, found } in std::mem::take(&mut self.response.aliased) {
            for alias in envelope.aliases(found.index as usize) {
                // No subscription has a name that is not valid.
                let Ok(alias) = canonical(envelope.text(alias)) else { continue };
                if *alias != *own {
                    self.locate_alias(&own, &alias, found);
                }
            }
        }
        for Aliased { own, found } in std::mem::take(&mut self.response.confirmed) {
            self.find_known_aliases(&own, found);
        }
    }

    /// Finds the subscription of one alias. `own` is the name of the element; empty if it stands for nothing.
    fn locate_alias(&mut self, own: &str, alias: &str, found: LocatedResource) {
        let (server, ty) = (self.response.server(), self.response.ty());
        let Some(subscriptions) = self.authorities.subscriptions(server, ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        // The alias has no subscription.
        let Some(id) = subscriptions.find(alias) else { return };
        let Some(sub) = subscriptions.get_mut(id) else {
            invariant::broken("a name that is found has a subscription");
            return;
        };
        if sub.is_mentioned_in(self.response.number) {
            let first = self.response.located[sub.last_position() as usize];
            let are_removed = first.op == ResourceOp::Removed && found.op == ResourceOp::Removed;
            if first.index != found.index && !are_removed {
                self.response.reject_alias(alias, &first, &found);
            }
            return;
        }
        self.response.of_all |= found.op != ResourceOp::Heartbeat && !sub.precedes_wildcard();
        sub.on_mentioned(self.response.number, self.response.located.len());
        self.response.located.push(LocatedResource { sub: Some(id), ..found });
        match own.is_empty() {
            true => subscriptions.aliases.forget(alias),
            false => subscriptions.aliases.record(alias, own),
        }
    }

    /// A resource was sent by its own name: that is no alias of another one, if it was.
    pub(super) fn note_own_name(&mut self, name: &str) {
        let subscriptions = self.authorities.subscriptions(self.response.server(), self.response.ty);
        if let Some(subscriptions) = subscriptions.filter(|subscriptions| !subscriptions.aliases.is_empty()) {
            subscriptions.aliases.forget(name);
        }
    }

    /// A removal by the resource's own name applies to its subscribed aliases as well. They are looked for behind all
    /// others, since the response may redefine them.
    pub(super) fn locate_removed_aliases(&mut self) {
        let subscriptions = self.authorities.subscriptions(self.response.server(), self.response.ty);
        if subscriptions.is_none_or(|subscriptions| subscriptions.aliases.is_empty()) {
            return;
        }
        let envelope = self.response.envelope.clone();
        for (place, name) in envelope.removed().iter().enumerate() {
            // It was reported with the other names.
            let Ok(name) = canonical(envelope.text(*name)) else { continue };
            self.find_known_aliases(&name, LocatedResource::new(envelope.len() + place, ResourceOp::Removed));
        }
    }

    /// Finds the subscriptions of the names that a resource was sent for before, unless the response contains them.
    fn find_known_aliases(&mut self, own: &str, found: LocatedResource) {
        let Some(subscriptions) = self.authorities.subscriptions(self.response.server(), self.response.ty)
        else {
            return;
        };
        let subs: Vec<_> =
            subscriptions.aliases.of(own).filter_map(|alias| subscriptions.find(alias)).collect();
        for id in subs {
            let Some(sub) =
                subscriptions.get_mut(id).filter(|sub| !sub.is_mentioned_in(self.response.number))
            else {
                continue;
            };
            sub.on_mentioned(self.response.number, self.response.located.len());
            self.response.located.push(LocatedResource { sub: Some(id), ..found });
        }
    }
}
