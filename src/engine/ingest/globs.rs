//! The globs that the resources of a response are members of.
//!
//! A glob itself has no resource in a response. It is answered by the first member in it, and once for each response.

use std::sync::Arc;

use super::{
    super::{authorities::GlobPattern, store::Store},
    feed::Feed,
    pending_response::{MatchedGlob, PendingResponse},
};
use crate::{
    name::glob_of,
    protocol::{EntryId, SubId, Subscription},
};

/// The glob at the server that encloses the name of a received resource. The result is kept in the response.
pub(super) fn enclosing(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &Store,
    name: &str,
) -> Option<EntryId> {
    // Names of the older form have no globs (X15).
    if !store.members.has_globs() || !name.starts_with("xdstp:") {
        return None;
    }
    if !response.glob.as_ref().is_some_and(|glob| glob.pattern.matches(name)) {
        let glob = glob_of(name)?;
        let subscriptions = feed.subscriptions();
        let sub = subscriptions.find(&glob)?;
        let entry = subscriptions.get(sub)?.entry();
        if !store.get(entry).is_some_and(|entry| entry.is_glob) {
            return None;
        }
        let pattern = GlobPattern::of(&glob);
        response.glob =
            pattern.map(|pattern| MatchedGlob { pattern, sub, entry, answered: false, asked_again: false });
    }
    response.glob.as_ref().map(|glob| glob.entry)
}

/// Records that a response contains a member of a glob. True when the resource is a new member.
pub(super) fn on_member(
    response: &mut PendingResponse,
    feed: &mut Feed<'_>,
    store: &mut Store,
    id: SubId,
) -> bool {
    if !store.members.has_globs() {
        return false;
    }
    let Some(name) = feed.sub(id).map(|sub| sub.name().clone()) else { return false };
    if enclosing(response, feed, store, &name).is_none() {
        return false;
    }
    on_answered(response, feed, store);
    feed.sub(id).is_some_and(Subscription::join_glob)
}

/// The server confirms a member of a glob that has expired: the glob is requested again, since its members are not.
pub(super) fn request_again(response: &mut PendingResponse, feed: &mut Feed<'_>, store: &Store, name: &str) {
    if !enclosing(response, feed, store, name).is_some_and(|glob| feed.counts(store, glob)) {
        return;
    }
    response.outdated = true;
    if let Some(glob) = response.glob.as_mut().filter(|glob| !glob.asked_again) {
        glob.asked_again = true;
        let (ty, now) = (feed.ty(), feed.now());
        feed.machine_mut().request_again(ty, glob.sub, now);
    }
}

/// The server has sent something of the matched glob, so there is such a collection.
fn on_answered(response: &mut PendingResponse, feed: &mut Feed<'_>, store: &mut Store) {
    // Once for each response: a glob may have as many members as the response has resources.
    let Some(glob) = response.glob.as_mut().filter(|glob| !glob.answered) else { return };
    glob.answered = true;
    let (sub, entry) = (glob.sub, glob.entry);
    // It may have been released between two steps.
    let Some(sub) = feed.sub(sub) else { return };
    sub.on_answered_in(response.number);
    if !feed.counts(store, entry) {
        return;
    }
    // A glob is held without a value: its members are.
    let nothing = Arc::new(());
    feed.placement().update(store, entry, |entry| match entry.is_held() {
        true => entry.on_unchanged(&response.version, response.since()),
        false => entry.on_accepted(nothing, [][..].into(), response.update()),
    });
}
