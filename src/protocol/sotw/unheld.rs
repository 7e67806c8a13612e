use super::super::{
    sent_names::SentNames,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
};

/// What a server has sent on a stream that is not held, so that no version is claimed with it (B1.21).
#[derive(Debug, Default)]
pub(super) struct Unheld {
    /// The names, as far as they are told apart.
    sent: SentNames,
    /// Some subscribed name may be one of these, or its resource was rejected or dropped.
    may_lack: bool,
    /// A change has requested such names, and no ACK has followed: a server drops the change if a response crosses it (B1.8).
    was_requested: bool,
}

impl Unheld {
    /// A name was let go, and its resource is not held any more.
    pub(super) fn on_released(&mut self, sub: &Subscription) {
        if sub.was_ever_mentioned() {
            self.sent.add(sub.name());
        }
    }

    /// A resource came that nothing is subscribed to.
    pub(super) fn on_skipped(&mut self, name: &str) {
        self.sent.add(name);
    }

    /// Whether another skipped resource makes a difference.
    pub(super) fn has_room(&self) -> bool {
        self.sent.has_room()
    }

    /// A resource was rejected or dropped, or what the version stands for is forgotten.
    pub(super) fn on_lost(&mut self) {
        self.may_lack = true;
    }

    /// The first request of the stream is written: the server has sent nothing on it.
    pub(super) fn on_first_request(&mut self) {
        self.may_lack = false;
    }

    /// A change has requested such names without a version.
    pub(super) fn on_requested(&mut self) {
        self.was_requested = true;
    }

    /// The newest response is answered by an ACK.
    pub(super) fn on_acknowledged(&mut self) {
        self.was_requested = false;
    }

    /// Whether a change has requested such names, and the next ACK answers a response that may have crossed it.
    pub(super) fn was_requested(&self) -> bool {
        self.was_requested
    }

    /// Whether the server may have missed the request of a name that it may have sent before: with the version of an ACK, it may
    /// consider the name known.
    pub(super) fn may_be_missed(&self, sub: &Subscription) -> bool {
        self.was_requested && sub.is_requested() && sub.is_unanswered() && self.is_lacked(sub)
    }

    /// Whether the server has sent a name on this stream.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.sent.contains(name)
    }

    /// The subscriptions among `ids` whose names the server may have sent before, and whose resources are not held.
    pub(super) fn sent_of<'a>(
        &'a self,
        ids: &'a [SubId],
        subscriptions: &'a Subscriptions,
    ) -> impl Iterator<Item = &'a Subscription> {
        let subs = ids.iter().filter_map(|id| subscriptions.get(*id));
        subs.filter(|sub| self.is_lacked(sub))
    }

    /// Whether the server may have sent a subscribed name before whose resource is not held.
    pub(super) fn is_lacked(&self, sub: &Subscription) -> bool {
        sub.is_named() && !self.is_own(sub) && self.is_sent(sub) && !sub.is_known_missing()
    }

    /// Whether the accepted version stands for something subscribed that is not held. What an accepted response shows to be
    /// missing is no such thing.
    pub(super) fn is_lacking(&mut self, subscriptions: &Subscriptions) -> bool {
        if !self.may_lack {
            return false;
        }
        let mut subs = subscriptions.iter().map(|(_, sub)| sub);
        let is_lacking = subs.any(|sub| {
            let is_subscribed = sub.is_named() || sub.is_wildcard_member();
            is_subscribed && !self.is_own(sub) && !sub.is_known_missing() && self.is_sent(sub)
        });
        // The search goes through all names. It is repeated only if it has found something, or after another loss.
        self.may_lack = is_lacking;
        is_lacking
    }

    /// Whether the held resource of a name may be this server's. The resource of a name that was let go and is new again is one of
    /// another server, which it was served by meanwhile.
    fn is_own(&self, sub: &Subscription) -> bool {
        sub.holds_own() && (sub.was_ever_mentioned() || !self.sent.may_contain(sub.name()))
    }

    /// Whether the server may have sent a name on this stream.
    fn is_sent(&self, sub: &Subscription) -> bool {
        sub.was_ever_mentioned() || self.sent.may_contain(sub.name())
    }
}
