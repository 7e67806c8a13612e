//! Aliases: other names that a resource of the incremental variant is sent for (B2.19).
//!
//! ```text
//!   subscribe "a"  ──▶  server  ──▶  resource "x", aliases ["a"]     the entry of "a" gets the resource
//!                                    removed "x"                     the entry of "a" loses it, too
//!                                    resource "a"                    "a" is a name of its own from now on
//! ```

use super::{
    feed::Feed,
    located::{AliasClaims, Claim, LocatedResource, ResourceOp},
    pending_response::{PendingResponse, canonical},
};
use crate::invariant;

/// Finds the subscriptions of the aliases in a response (B2.19). They are looked for behind all names: a name belongs to the
/// resource that has it for its own, and otherwise to the first that has it for an alias. Another one cannot have it, and
/// only that claim is rejected (A46); an alias twice on one resource means no more than once.
pub(super) fn locate(response: &mut PendingResponse, feed: &mut Feed<'_>) {
    let envelope = response.envelope.clone();
    let AliasClaims { aliased, confirmed } = std::mem::take(&mut response.aliases);
    for Claim { own, found } in aliased {
        for alias in envelope.aliases(found.index as usize) {
            // No subscription has a name that is not valid.
            let Ok(alias) = canonical(envelope.text(alias)) else { continue };
            if *alias != *own {
                locate_one(response, feed, &own, &alias, found);
            }
        }
    }
    for Claim { own, found } in confirmed {
        locate_known(response, feed, &own, found);
    }
}

/// Finds the subscription of one alias. `own` is the name of the element; empty if it stands for nothing.
fn locate_one(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    own: &str,
    alias: &str,
    found: LocatedResource,
) {
    let subscriptions = feed.subscriptions();
    // The alias has no subscription.
    let Some(id) = subscriptions.find(alias) else { return };
    let Some(sub) = subscriptions.get_mut(id) else {
        invariant::broken("a name that is found has a subscription");
        return;
    };
    // All names are located, so that a mentioned one has a resource of its own, or an earlier claim.
    if sub.is_mentioned_in(response.number) {
        let first = response.located[sub.last_position() as usize];
        // Several elements may report the same alias as removed: they agree.
        let are_removed = first.op == ResourceOp::Removed && found.op == ResourceOp::Removed;
        if first.index != found.index && !are_removed {
            response.reject_alias(alias, &first, &found);
        }
        return;
    }
    response.of_all |= found.op != ResourceOp::Heartbeat && !sub.precedes_wildcard();
    sub.on_mentioned(response.number, response.located.len());
    response.located.push(LocatedResource { sub: Some(id), ..found });
    match own.is_empty() {
        true => subscriptions.aliases.forget(alias),
        false => subscriptions.aliases.record(alias, own),
    }
}

/// A resource was sent by its own name: that is no alias of another one any more.
pub(super) fn on_own_name(feed: &mut Feed<'_>, name: &str) {
    let aliases = &mut feed.subscriptions().aliases;
    if !aliases.is_empty() {
        aliases.forget(name);
    }
}

/// A removal by the resource's own name applies to its subscribed aliases as well. They are looked for behind all
/// others, since the response may redefine them.
pub(super) fn locate_removed(response: &mut PendingResponse, feed: &mut Feed<'_>) {
    if feed.subscriptions().aliases.is_empty() {
        return;
    }
    let envelope = response.envelope.clone();
    for (index, name) in envelope.removed().iter().enumerate() {
        // A name that is not valid was reported with the other names.
        let Ok(name) = canonical(envelope.text(*name)) else { continue };
        let removed = LocatedResource::new(envelope.len() + index, ResourceOp::Removed);
        locate_known(response, feed, &name, removed);
    }
}

/// Finds the subscriptions of the names that a resource was sent for before, unless the response contains them.
fn locate_known(response: &mut PendingResponse, feed: &mut Feed<'_>, own: &str, found: LocatedResource) {
    let subscriptions = feed.subscriptions();
    let subs: Vec<_> = subscriptions.aliases.of(own).filter_map(|alias| subscriptions.find(alias)).collect();
    for id in subs {
        let Some(sub) = subscriptions.get_mut(id).filter(|sub| !sub.is_mentioned_in(response.number)) else {
            continue;
        };
        sub.on_mentioned(response.number, response.located.len());
        response.located.push(LocatedResource { sub: Some(id), ..found });
    }
}
