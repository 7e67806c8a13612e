use std::{collections::HashMap, mem, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    aliases::Aliases,
    id::EntryId,
    request::{put_text, text_len},
    subscription::Subscription,
};
use crate::{capacity::Shrink, chunked_slab::ChunkedSlab};

/// The names of one type that are requested from one server, or sent by it.
///
/// Looking up, adding and unsubscribing a name are O(1). The list for the wire is kept encoded and sorted, and made
/// anew only when a request is written after a change.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The subscriptions in their slots. Growing does not move them, so that a million names cost no pause.
    subs: ChunkedSlab<Subscription>,
    /// The slot of each canonical name.
    by_name: HashMap<Arc<str>, SubId>,
    /// The subscribed names that are aliases of resources with another name; empty but in the incremental variant.
    pub(crate) aliases: Aliases,
    /// The subscriptions of the last list for the wire, sorted by name, and behind them the newer ones.
    listed: Vec<Listed>,
    /// The list for the wire; `None` after a change.
    encoded: Option<Bytes>,
    /// The number of names that are requested by name.
    named: usize,
    /// The wildcard is subscribed, whether or not it was requested.
    pub(crate) wildcard: bool,
    /// Resources count that the server sends without a request for them.
    pub(super) pushed: bool,
    /// A stream is needed for them alone, since a request that subscribes to nothing can be expressed.
    pub(super) opens_for_pushed: bool,
    /// The wildcard was unsubscribed, and the server has not been notified yet.
    pub(crate) wildcard_leaving: bool,
    /// The last request of the stream had the wildcard.
    pub(crate) sends_all: bool,
    /// The wildcard was requested, and all its resources were sent on this stream.
    pub(crate) received_all: bool,
    /// The serial number of the last subscription; it wraps around.
    next_serial: u32,
}

/// A slot in a [`Subscriptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubId(pub(crate) u32);

/// An entry of the list for the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    id: SubId,
    /// Slots are reused: a later subscription in the same slot has another serial number than the listed one.
    serial: u32,
}

impl Subscriptions {
    pub(crate) fn get(&self, id: SubId) -> Option<&Subscription> {
        self.subs.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: SubId) -> Option<&mut Subscription> {
        self.subs.get_mut(id.0)
    }

    /// The subscription of a canonical name.
    pub(crate) fn find(&self, name: &str) -> Option<SubId> {
        self.by_name.get(name).copied()
    }

    /// Puts a name in a request, as it was written if it is subscribed to (X2).
    pub(super) fn put_spelled(&self, name: Option<&str>, request: &mut BytesMut) {
        let Some(name) = name else { return };
        let sub = self.find(name).and_then(|id| self.get(id));
        put_text(3, sub.map_or(name, Subscription::spelling), request);
    }

    /// All subscriptions, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SubId, &Subscription)> + Clone {
        self.subs.iter().map(|(id, sub)| {
            #[cfg(test)]
            crate::scans::add_one();
            (SubId(id), sub)
        })
    }

    /// All subscriptions, to change them. It costs an iteration, which tests count.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SubId, &mut Subscription)> {
        self.subs.iter_mut().map(|(id, sub)| {
            #[cfg(test)]
            crate::scans::add_one();
            (SubId(id), sub)
        })
    }

    /// The names that are requested by name, in the order of the last request, and behind them the newer ones.
    pub(crate) fn listed(&self) -> impl Iterator<Item = SubId> {
        self.listed.iter().map(|listed| listed.id)
    }

    /// The number of names that are requested by name.
    pub(crate) fn named(&self) -> usize {
        self.named
    }

    /// Whether there is a subscription without a response, on this stream or before.
    pub(crate) fn is_owed_something(&self) -> bool {
        let mut subs = self.iter().map(|(_, sub)| sub);
        subs.clone().any(Subscription::is_owed)
            || (self.wildcard && !self.received_all && !subs.any(Subscription::is_held))
    }

    /// Whether there are no subscriptions.
    pub(crate) fn is_empty(&self) -> bool {
        self.named == 0 && !self.wildcard && !self.opens_for_pushed
    }

    /// Whether the server sends everything, according to the requests so far, and its resources count.
    pub(crate) fn requests_all(&self) -> bool {
        self.wildcard || self.wildcard_leaving
    }

    /// Whether resources count that were not requested by name: of the wildcard, or pushed.
    pub(crate) fn takes_all(&self) -> bool {
        self.requests_all() || self.pushed
    }

    /// Whether resources count that were neither requested by name nor by the wildcard, and no others without a name.
    pub(crate) fn takes_pushed_alone(&self) -> bool {
        self.pushed && !self.requests_all()
    }

    /// Whether a resource that is sent is a member of what is not requested by name: what is pushed has none of the names that are
    /// requested, unless it had the resource before.
    pub(crate) fn admits(&self, sub: Option<&Subscription>) -> bool {
        let is_asked_for = sub.is_some_and(|sub| sub.is_named() && !sub.is_wildcard_member());
        self.requests_all() || (self.pushed && !is_asked_for)
    }

    /// The number of resources that were not requested by name.
    pub(crate) fn unrequested(&self) -> usize {
        self.by_name.len().saturating_sub(self.named)
    }

    /// Adds a name that is not there yet.
    pub(crate) fn insert(&mut self, name: Arc<str>, entry: EntryId) -> SubId {
        self.next_serial = self.next_serial.wrapping_add(1);
        let sub = Subscription::new(name.clone(), entry, self.next_serial);
        let id = SubId(self.subs.insert(sub));
        self.by_name.insert(name, id);
        id
    }

    /// Subscribes by name; false when it was so before.
    pub(crate) fn name(&mut self, id: SubId) -> bool {
        let Some(sub) = self.subs.get_mut(id.0) else { return false };
        if sub.set_named(true) {
            return false;
        }
        self.named += 1;
        self.encoded = None;
        self.listed.push(Listed { id, serial: sub.serial() });
        if self.listed.len() > 2 * self.named + 64 {
            // Without a stream the list is not written, so it is cleared here of removed names.
            self.tidy();
        }
        true
    }

    /// Unsubscribes by name.
    pub(crate) fn unname(&mut self, id: SubId) {
        let Some(sub) = self.subs.get_mut(id.0) else { return };
        if sub.set_named(false) {
            self.named -= 1;
            self.encoded = None;
        }
    }

    /// Subscribes to everything. The resources so far count if the server was not notified of the unsubscription in between.
    pub(crate) fn subscribe_all(&mut self) {
        self.received_all &= mem::take(&mut self.wildcard_leaving);
        self.wildcard = true;
    }

    /// Names that the wildcard stood for are to be requested by themselves: all of them that the server has not answered.
    pub(crate) fn request_again(&mut self) -> Vec<SubId> {
        let unanswered = self.iter_mut().filter(|(_, sub)| sub.is_unanswered());
        unanswered
            .map(|(id, sub)| {
                // A request of the wildcard that is on its way has none of them, and begins no time.
                sub.on_unrequested();
                sub.on_subscribed(None);
                id
            })
            .collect()
    }

    /// The wildcard is requested from the server as well: answers that it still owes are no sign that it sends everything.
    pub(crate) fn on_wildcard_requested(&mut self) {
        for (_, sub) in self.iter_mut() {
            sub.on_wildcard_requested();
        }
    }

    /// Unconfirmed resources are not going to be confirmed. For those that the server has sent itself, that is certain
    /// only if it answers.
    pub(crate) fn on_quiet(&mut self, has_answered: bool) {
        self.iter_mut().for_each(|(_, sub)| sub.on_quiet(has_answered));
    }

    /// The state of the stream ends.
    pub(crate) fn on_stream_closed(&mut self) {
        (self.sends_all, self.received_all) = (false, false);
        self.iter_mut().for_each(|(_, sub)| sub.on_stream_closed());
    }

    /// Forgets it altogether.
    pub(crate) fn remove(&mut self, id: SubId) {
        self.unname(id);
        if let Some(sub) = self.subs.remove(id.0) {
            self.by_name.remove(&**sub.name());
            self.by_name.shrink_if_sparse();
            self.aliases.forget(sub.name());
        }
    }

    /// The names as the `resource_names` of a request, encoded, sorted; without the wildcard.
    pub(crate) fn names(&mut self) -> Bytes {
        if let Some(encoded) = &self.encoded {
            return encoded.clone();
        }
        self.tidy();
        let subs = self.listed.iter().filter_map(|listed| alive(&self.subs, listed));
        // It is kept, so that it is allocated at its exact size.
        let mut buffer = BytesMut::with_capacity(subs.clone().map(|sub| text_len(sub.spelling())).sum());
        subs.for_each(|sub| put_text(3, sub.spelling(), &mut buffer));
        // Sorted, it is equal for equal sets of names, so that variants compare requests by their bytes.
        let encoded = buffer.freeze();
        self.encoded = Some(encoded.clone());
        encoded
    }

    /// The names without some of them, encoded anew each time: only the answer before a resubscription has such a list.
    pub(crate) fn names_without(&mut self, left_out: impl Fn(&str) -> bool) -> Bytes {
        self.tidy();
        let mut buffer = BytesMut::new();
        let subs = self.listed.iter().filter_map(|listed| alive(&self.subs, listed));
        subs.filter(|sub| !left_out(sub.name())).for_each(|sub| put_text(3, sub.spelling(), &mut buffer));
        buffer.freeze()
    }

    /// Sorts the list, and removes deleted names; one that was added again is listed twice until then.
    fn tidy(&mut self) {
        let subs = &self.subs;
        self.listed.retain(|listed| alive(subs, listed).is_some());
        // A sorted run and a short tail: the sort finds and merges them.
        self.listed
            .sort_by(|a, b| alive(subs, a).map(|sub| sub.name()).cmp(&alive(subs, b).map(|sub| sub.name())));
        self.listed.dedup();
        self.listed.shrink_if_sparse();
    }
}

/// The subscription of an entry of the list, if it is the one that was listed, and is still requested by name.
fn alive<'a>(subs: &'a ChunkedSlab<Subscription>, listed: &Listed) -> Option<&'a Subscription> {
    subs.get(listed.id.0).filter(|sub| sub.serial() == listed.serial && sub.is_named())
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::pb::envoy::service::discovery::v3::DiscoveryRequest;

    fn names(subscriptions: &mut Subscriptions) -> Vec<String> {
        DiscoveryRequest::decode(subscriptions.names()).unwrap().resource_names
    }

    fn add(subscriptions: &mut Subscriptions, name: &str) -> SubId {
        let id = subscriptions.insert(name.into(), EntryId(0));
        assert!(subscriptions.name(id));
        id
    }

    #[test]
    fn names_are_sorted_and_complete() {
        let mut subscriptions = Subscriptions::default();
        let b = add(&mut subscriptions, "b");
        add(&mut subscriptions, "c");
        add(&mut subscriptions, "a");
        assert_eq!(names(&mut subscriptions), ["a", "b", "c"]);
        subscriptions.unname(b);
        add(&mut subscriptions, "aa");
        assert_eq!(names(&mut subscriptions), ["a", "aa", "c"]);
        assert_eq!(subscriptions.named(), 3);
    }

    #[test]
    fn a_name_that_goes_and_comes_back_stands_once() {
        let mut subscriptions = Subscriptions::default();
        let a = add(&mut subscriptions, "a");
        subscriptions.unname(a);
        assert!(subscriptions.name(a));
        assert!(!subscriptions.name(a));
        assert_eq!(names(&mut subscriptions), ["a"]);
        subscriptions.remove(a);
        add(&mut subscriptions, "z");
        add(&mut subscriptions, "a");
        assert_eq!(names(&mut subscriptions), ["a", "z"]);
        assert!(subscriptions.find("a").is_some() && subscriptions.find("b").is_none());
    }

    /// Found by the simulation of operations: seed 174,344.
    #[test]
    fn what_was_held_when_it_was_requested_is_not_owed_when_another_server_removes_it() {
        let mut subscriptions = Subscriptions::default();
        let id = add(&mut subscriptions, "a");
        assert!(subscriptions.is_owed_something());
        let sub = subscriptions.get_mut(id).unwrap();
        sub.set_held(true);
        sub.on_requested();
        assert!(!sub.on_request_sent(), "what is held has no timer");
        assert!(!subscriptions.is_owed_something());
        subscriptions.get_mut(id).unwrap().set_held(false);
        assert!(!subscriptions.is_owed_something(), "nothing is awaited");
        subscriptions.get_mut(id).unwrap().on_timer_started(1);
        assert!(subscriptions.is_owed_something());
    }
}
