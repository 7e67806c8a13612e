//! Rejections that no single resource of a response is the cause of: the names that they concern (B0.23).
//!
//! ```text
//!   a name occurs twice              nothing is applied: the error is that of each subscribed name in the response
//!   something has no name            it may be what a name waits for: the error is that of each such name; and of what is
//!                                    held of a full-state type and should have been in the response
//! ```
//!
//! What is held stays, whatever the policy: it is not known to have been replaced by anything bad. The does-not-exist time of
//! a name that waits goes on, and decides if a response is accepted before its end.

use std::borrow::Cow;

use super::{super::store::Store, feed::Feed, pending_response::PendingResponse};
use crate::{
    cache::Policy,
    error::{WatchError, short_type},
    name::ResourceName,
    protocol::{EntryId, Span, Subscription},
    resource::Invalid,
};

/// Distributes the error of a response that was not only rejected because of resources whose names are known.
pub(super) fn reject_unattributed(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    if !response.verdict.is_unattributed() {
        return;
    }
    let text = response.verdict.problems();
    let reason = match response.verdict.is_duplicate() {
        true => Invalid::new(format!("the response was rejected as a whole: {text}")),
        false => Invalid::new(format!("the response has something without a name: {text}")),
    };
    if response.verdict.is_duplicate() {
        reject_mentioned(response, feed, store, &reason);
    }
    if response.verdict.is_nameless() {
        reject_waiting(response, feed, store, &reason);
    }
    let at = feed.at();
    feed.unanswered().on_wildcard_rejected(store, at, &reason);
}

/// An error with the code of success, in place of a resource, is no error: its rejection is the error of the name.
pub(super) fn reject_error_of(
    response: &PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    name: Span,
) {
    let name = response.envelope.text(name);
    let name = ResourceName::canonicalize(name).unwrap_or(Cow::Borrowed(name));
    let subscriptions = feed.subscriptions();
    let id = subscriptions.find(&name);
    // The name has no subscription.
    let Some(sub) = id.and_then(|id| subscriptions.get_mut(id)) else { return };
    sub.on_answered_in(response.number);
    let entry = sub.entry();
    reject_entry(response, feed, store, entry, &Invalid::field("error_detail", NO_ERROR));
}

/// A glob has members, and no resource of its own: one by its name is rejected (X15).
pub(super) fn reject_glob(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    id: EntryId,
) {
    let reason = Invalid::new("the name is that of a collection (a glob), which has no resource of its own");
    if let Some(about) = store.get(id).map(|entry| store.subject(entry)) {
        let place = format!("{} {:?}", short_type(about.type_url), about.name);
        response.verdict.reject(&place, &reason);
    }
    // Members that were sent are still there.
    if store.get(id).is_some_and(|entry| !entry.is_held()) {
        reject_entry(response, feed, store, id, &reason);
    }
}

/// Gives the error to each subscribed name in the response. They count as answered: the server has them, if in bad shape.
fn reject_mentioned(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store, reason: &Invalid) {
    let subscriptions = feed.subscriptions();
    let mut entries = Vec::new();
    for located in &response.located {
        let sub = located.sub.and_then(|sub| subscriptions.get_mut(sub));
        if let Some(sub) = sub.filter(|sub| sub.is_mentioned_in(response.number)) {
            // So that no does-not-exist timer takes the name for missing.
            sub.on_answered();
            entries.push(sub.entry());
        }
    }
    entries.into_iter().for_each(|entry| reject_entry(response, feed, store, entry, reason));
}

/// Gives the error to each name that may be the one without a name.
fn reject_waiting(response: &PendingResponse, feed: &mut Feed<'_>, store: &mut Store, reason: &Invalid) {
    let is_whole = store.ty(feed.ty()).full_state() && !response.envelope.is_delta();
    let is_concerned = |sub: &Subscription| match sub.is_held() {
        true => is_whole,
        false => sub.is_awaited_from_server(),
    };
    let concerned = feed
        .subscriptions()
        .iter()
        .filter(|(_, sub)| !sub.is_mentioned_in(response.number) && is_concerned(sub))
        .map(|(_, sub)| sub.entry());
    let concerned: Vec<_> = concerned.collect();
    for entry in concerned {
        // Members of a glob that is held may be missing, not the glob itself.
        let is_glob = store.get(entry).is_some_and(|entry| entry.is_glob && entry.is_held());
        if !is_glob {
            reject_entry(response, feed, store, entry, reason);
        }
    }
}

/// Gives the error to one entry, if the server's answers count for it.
fn reject_entry(
    response: &PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    id: EntryId,
    reason: &Invalid,
) {
    if !feed.counts(store, id) {
        return;
    }
    let Some(about) = store.get(id).map(|entry| store.subject(entry)) else { return };
    let error = WatchError::rejected(about, reason.clone());
    feed.placement().update(store, id, |entry| entry.on_rejected(error, KEEP, response.update()));
}

/// The last known good resource wins over an error that may be another's.
const KEEP: Policy = Policy { keep_deleted: true, fail_on_data_errors: false };

/// The rejection of an error without a code.
pub(super) const NO_ERROR: &str = "must be non-OK";
