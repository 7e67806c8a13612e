//! The last phase: the collections are completed, and the server is answered.
//!
//! The order within the phase: the errors that the server has sent for names; whether it may have taken the wildcard for a
//! name; absences, which depend on that; completion; and the answer, which is due for each response, also if nothing of it was
//! used.

use std::collections::BTreeSet;

use super::{
    super::{counts::ReceivedCounts, store::Store},
    feed::Feed,
    located::LocatedResource,
    pending_response::PendingResponse,
};
use crate::protocol::{Digests, ResponseOutcome, SubId, Subscription};

/// Whether the server may take the wildcard for a name: it has sent nothing but what is subscribed by name. Where a response
/// need not have everything, that is so only until the wildcard was answered.
///
/// It may be a coincidence: the server may have nothing else. So a narrow response is only in doubt, and the next one or the end
/// of a second decides (`Channel::doubt_wildcard`).
pub(super) fn find_narrow(response: &mut PendingResponse, feed: &mut Feed<'_>, store: &Store) {
    let is_spelled = feed.channel().is_wildcard_spelled();
    if response.envelope.is_delta() || !is_spelled || response.is_heartbeat() {
        return;
    }
    response.is_narrow = is_narrow(response, feed, store);
    match response.is_narrow {
        true => feed.channel_mut().doubt_wildcard(response.since()),
        false => response.may_have_crossed_star = feed.channel_mut().trust_wildcard(),
    }
}

/// Whether a response has nothing but what is subscribed by name, although the wildcard was requested as `*`.
pub(super) fn is_narrow(response: &PendingResponse, feed: &mut Feed<'_>, store: &Store) -> bool {
    if !feed.channel().is_wildcard_spelled() || response.verdict.is_nameless() {
        return false;
    }
    let ty = feed.ty();
    let subscriptions = feed.subscriptions();
    let is_named = |located: &LocatedResource| {
        let sub = located.sub.and_then(|sub| subscriptions.get(sub));
        sub.is_some_and(Subscription::is_named) || !located.op.is_there()
    };
    response.located.iter().all(is_named) && (store.ty(ty).full_state() || !subscriptions.received_all)
}

/// Completes the wildcard if the server has sent all its resources of the type.
///
/// In the incremental variant nothing marks the last response to a wildcard. The first one that has something of it counts, or
/// the end of a quiet time.
pub(super) fn complete(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    let at = feed.at();
    if response.lacks_wildcard {
        return feed.unanswered().on_wildcard_answered(store, at);
    }
    if response.is_narrow {
        // What it stands for is seen when something else follows, or nothing.
        return;
    }
    let subscriptions = feed.subscriptions();
    let received_before = subscriptions.received_all && response.envelope.is_delta();
    // Also while the end of the wildcard is not written: it may be subscribed again before.
    subscriptions.received_all = subscriptions.takes_all()
        && subscriptions.sends_all
        && (received_before || response.is_complete_set());
    let undecided = subscriptions.takes_all() && subscriptions.sends_all;
    let received_all = undecided && subscriptions.received_all;
    feed.unanswered().on_wildcard_answered(store, at);
    if received_all {
        feed.absence().complete_all(store, at.server, at.ty);
    } else if undecided {
        // It may be complete or not: known when nothing follows.
        feed.channel_mut().await_quiet(response.since());
    }
}

/// An accepted response has all resources of a type: initial ones that nobody watches are obsolete. Those in use are decided by their
/// does-not-exist timers, since the response may have crossed their request.
pub(super) fn end_initial(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    let ty = feed.ty();
    let is_full = store.ty(ty).full_state() && !response.envelope.is_delta() && !response.is_heartbeat();
    if store.initial().is_empty() || !is_full || !response.verdict.is_accepted() {
        return;
    }
    let watched = store.iter().filter(|(_, entry)| entry.ty == ty && entry.initial_bytes().is_some());
    let watched: BTreeSet<_> = watched.map(|(_, entry)| entry.name.clone()).collect();
    let type_url = store.type_url(ty);
    for authority in feed.served_authorities() {
        store.initial_mut().forget_type(type_url, authority.as_deref(), |name| watched.contains(name));
    }
}

/// Answers the server, and keeps what the next response is compared with. Returns the number of its resources.
pub(super) fn conclude(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
) -> ReceivedCounts {
    store.keep_buffer(response.buffer.take());
    let is_outdated = response.is_heartbeat() && is_outdated(response, feed);
    // The digests distinguish a repeated rejection from another one. An accepted response needs none, and they cost a pass over it.
    let digests = match response.verdict.is_accepted() {
        true => Digests::default(),
        false => Digests::of(&response.envelope),
    };
    let outcome = ResponseOutcome {
        ty: response.ty,
        stream: response.stream,
        nonce: response.envelope.nonce().to_owned(),
        version: response.version.clone(),
        error: response.verdict.take_error(),
        digests,
        is_outdated,
        is_unattributed: response.verdict.is_unattributed(),
        is_applied: response.is_applied,
    };
    // Nothing of such a response counts, nor does its order.
    if !response.verdict.is_duplicate() {
        feed.set_order(response.located.iter().map(|located| located.sub.unwrap_or(NOWHERE)).collect());
    }
    let (ty, now) = (feed.ty(), feed.now());
    feed.machine_mut().conclude(outcome, now);
    if response.lacks_wildcard {
        feed.machine_mut().ask_for_all_on_another_stream(ty, now);
    } else if response.may_have_crossed_star {
        feed.machine_mut().try_wildcard_on_another_stream(ty, now);
    }
    feed.drain_events(store);
    response.verdict.received()
}

/// Whether a response of heartbeats is of a version that was not accepted. It confirms those resources alone that are held in
/// versions of their own, and does not stand for the others of the type.
fn is_outdated(response: &PendingResponse, feed: &Feed<'_>) -> bool {
    let is_delta = response.envelope.is_delta();
    response.outdated || !(is_delta || feed.channel().is_accepted(&response.version))
}

/// A slot that no subscription has.
const NOWHERE: SubId = SubId(u32::MAX);
