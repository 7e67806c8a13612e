//! Heartbeats: responses that confirm resources with a TTL (B1.18, B2.16).
//!
//! A heartbeat is not an update: watches see nothing, and the version stays. What it confirms is the version that the server
//! considers held, which the client may have rejected or let expire; then the resource has to be requested once more, since
//! a server does not send what it considers held.

use super::{
    super::store::Store,
    feed::Feed,
    globs,
    located::LocatedResource,
    pending_response::{PendingResponse, canonical},
};
use crate::{cache::Entry, protocol::SubId};

/// Extends the TTL of a held resource, without a notification (B1.18, B2.16). For others it has no effect: it refers to a
/// state that was not accepted, or has expired. The server does not know that, and the request has to be repeated.
///
/// Which version a heartbeat confirms differs: that of the wrapper in the incremental variant, and in the state of the world
/// that of the response, or of the wrapper if it has one.
pub(super) fn apply(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    sub_id: SubId,
    located: LocatedResource,
) {
    let (ty, now) = (feed.ty(), feed.now());
    let is_delta = response.envelope.is_delta();
    // In the state of the world the version of the type is that of all its resources.
    let is_accepted = !is_delta && feed.channel().is_accepted(&response.version);
    // It may have been released between two steps.
    let Some(sub) = feed.sub(sub_id) else { return };
    let known = sub.version().clone();
    let (id, is_held) = (sub.entry(), sub.is_held());
    let is_same = match is_delta {
        true => known.as_str() == response.version_of(&located),
        false => {
            let held = store.get(id).and_then(Entry::held);
            let version = response.update_of(&located, &known).version;
            is_accepted || held.is_some_and(|(held, _)| *held == version)
        }
    };
    if !(is_held && is_same) {
        let is_expired = !is_held && store.get(id).is_some_and(Entry::is_expired);
        response.outdated |= is_expired || (is_held && !is_delta);
        if is_expired && response.ttl_of(&located).is_some() {
            feed.machine_mut().request_again(ty, sub_id, now);
        }
        return;
    }
    sub.on_answered();
    if feed.counts(store, id) {
        store.set_ttl(id, response.since(), response.ttl_of(&located));
    }
}

/// A heartbeat for a name that was not requested: under a wildcard or a glob, that of a member that has expired.
///
/// The name itself has no subscription that could be requested again, so that the collection is.
pub(super) fn apply_unknown(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &Store,
    located: LocatedResource,
) {
    // Without a TTL it confirms nothing that could have expired.
    if response.ttl_of(&located).is_none() {
        return;
    }
    let (ty, now) = (feed.ty(), feed.now());
    let wildcard = feed.memberships().wildcard_key(store, ty);
    let is_active = wildcard.is_some_and(|key| feed.is_active_in(key.group));
    let subscriptions = feed.subscriptions();
    if is_active && subscriptions.wildcard && subscriptions.sends_all {
        // No request on this stream makes a server send a member of a wildcard again.
        response.outdated = true;
        feed.machine_mut().request_again_on_another_stream(ty, now);
        return;
    }
    let envelope = response.envelope.clone();
    let wrapper_name = envelope.item(located.index as usize).wrapper_name;
    if let Ok(name) = canonical(envelope.text(wrapper_name)) {
        globs::request_again(response, feed, store, &name);
    }
}
