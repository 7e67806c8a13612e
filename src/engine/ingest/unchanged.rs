//! The fast path for unchanged resources: most of a response of the state of the world is as it was in the last one, in
//! the same order.
//!
//! An element that is, byte for byte, the held bytes of the predicted resource is that resource: its name is in those
//! bytes. So one comparison determines both its name and that it is unchanged, and nothing else of it is read. In
//! another order its name is searched for, and only the comparison remains.

use std::ops::Range;

use tracing::trace;

use super::{
    super::store::Store,
    feed::Feed,
    located::{LocatedResource, ResourceOp},
    pending_response::PendingResponse,
};
use crate::escape::Escaped;

/// Records the elements in a range of the response as long as they are unchanged. Returns the index of the first that may not be.
///
/// It stops at the first difference, where the caller reads one name and tries again: the predictor then knows where the order
/// continues.
pub(super) fn locate(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &Store,
    range: Range<usize>,
) -> usize {
    // In the incremental variant a resource comes in a wrapper with its version, and is sent because it has changed.
    if response.envelope.is_delta() {
        return range.start;
    }
    let (subscriptions, order) = feed.subscriptions_and_order();
    let to = range.end.min(response.envelope.len());
    for index in range.start..to {
        // A resource that is not predicted is searched for by its name.
        let Some(sub_id) = response.predictor.next(order) else { return index };
        let Some(sub) = subscriptions.get_mut(sub_id) else { return index };
        let held = store.get(sub.entry()).and_then(|entry| entry.bare_bytes());
        let is_same = held.is_some_and(|held| response.envelope.is_bare(index, held));
        if !is_same || sub.is_mentioned_in(response.number) {
            return index;
        }
        response.predictor.on_right();
        sub.on_mentioned(response.number, response.located.len());
        response.of_all |= !sub.precedes_wildcard();
        let same = LocatedResource::new(index, ResourceOp::Same);
        response.located.push(LocatedResource { sub: Some(sub_id), ..same });
    }
    to
}

/// Confirms the unchanged resources in a range of the located ones, as long as nothing else follows from that. Returns the index
/// of the first that needs more.
///
/// What is confirmed here is not published and not logged above `trace`. Its time of confirmation is set, which a status
/// shows.
pub(super) fn confirm(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    range: Range<usize>,
) -> usize {
    // A member of a glob answers the glob, a TTL is to be extended, and an earlier stream confirms nothing on this one.
    if response.is_late || store.members.has_globs() || store.has_ttls() {
        return range.start;
    }
    let server = feed.server();
    let (subscriptions, groups) = feed.subscriptions_and_groups();
    let (requests_all, pushed) = (subscriptions.requests_all(), subscriptions.takes_all());
    for (located, next) in response.located[range.clone()].iter().zip(range.clone()) {
        // It has no subscription.
        let Some(sub) = located.sub else { return next };
        // It may have been removed between two steps.
        let Some(sub) = subscriptions.get_mut(sub).filter(|sub| sub.is_mentioned_at(response.number, next))
        else {
            return next;
        };
        let joins = !sub.is_wildcard_member() && (requests_all || (pushed && !sub.is_named()));
        let Some(entry) = store.get_mut(sub.entry()).filter(|_| !joins) else {
            return next;
        };
        let is_same = match located.op {
            ResourceOp::Same => true,
            ResourceOp::Resource if !located.is_wrapped => {
                entry.bare_bytes() == Some(response.envelope.bytes(located.value))
            }
            ResourceOp::Resource
            | ResourceOp::Redirect
            | ResourceOp::Removed
            | ResourceOp::Heartbeat
            | ResourceOp::Unusable => false,
        };
        if !is_same {
            return next;
        }
        // The versions that other servers have of the resource would have to be forgotten.
        let is_alone = groups.get(entry.group).active() == server && !entry.subscriptions.are_several();
        if !is_alone || !entry.confirm(&response.version, response.since()) {
            return next;
        }
        sub.on_answered();
        trace!(name = %Escaped(&entry.name), version = %Escaped(&response.version), "resource unchanged");
        response.verdict.on_valid();
    }
    range.end
}
