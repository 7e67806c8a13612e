//! The resources that a response does not contain.
//!
//! Absence is decided by a number: each subscription has that of the last response that mentioned it. So a response of ten
//! thousand clusters is compared with the subscriptions in one pass, and needs no set of names.

use super::{
    super::{authorities::Missed, store::Store},
    feed::Feed,
    pending_response::PendingResponse,
};
use crate::protocol::Extent;

/// Deletes the resources that a response of a full-state type does not contain (B1.10), unless the response is a heartbeat
/// (B1.19), or holds something without a name that may be the missing resource.
pub(super) fn apply(response: &mut PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    if !feed.machine().source_key().capabilities().remote {
        give_up_unwritten(response, feed, store);
    }
    let full_state = store.ty(feed.ty()).full_state() && !response.envelope.is_delta();
    if !full_state || response.is_heartbeat() || response.verdict.is_nameless() {
        return;
    }
    let extent = if response.is_narrow { Extent::Narrow } else { feed.channel().extent() };
    let subscriptions = feed.subscriptions();
    let mut any = false;
    // One pass over the names, whatever the response has: the cost of full-state types.
    for (_, sub) in subscriptions.iter_mut() {
        any |= sub.on_complete_response(response.number, extent);
    }
    if !any {
        return;
    }
    response.is_applied = true;
    // A resource that this server has never sent is held because of another one, and this one may not have got the request for
    // it yet when it wrote the response: its does-not-exist timer decides.
    let never_seen = subscriptions
        .iter()
        .filter(|(_, sub)| sub.is_missing() && sub.was_there() && !sub.was_ever_mentioned());
    let never_seen: Vec<_> = never_seen.map(|(id, sub)| (id, sub.entry())).collect();
    let now = feed.now();
    for (sub, entry) in never_seen {
        let is_glob = store.get(entry).is_some_and(|entry| entry.is_glob);
        if !is_glob && feed.counts(store, entry) {
            feed.channel_mut().doubt(sub, now);
        }
    }
    let (at, update) = (feed.at(), response.update());
    feed.absence().on_missed(store, at, Missed { why: "has deleted it", update, now });
    feed.absence().on_missing_after_unreadable(store, at, now);
}

/// A resource that was never received and is not in a file does not exist, without a timer: the file is complete.
///
/// Something without a name in the file may be the resource, and then nothing is known of it.
fn give_up_unwritten(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    if response.verdict.is_nameless() {
        return;
    }
    let mut unwritten = Vec::new();
    for (_, sub) in feed.subscriptions().iter_mut() {
        if sub.on_absent_from_file(response.number) {
            unwritten.push(sub.entry());
        }
    }
    let (server, now) = (feed.server(), feed.now());
    for entry in unwritten {
        feed.absence().on_timed_out(store, server, entry, now);
    }
}
