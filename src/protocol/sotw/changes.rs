//! Changes of the subscribed names: what the next request has of them.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{
    super::{
        subscription::Subscription,
        subscriptions::Subscriptions,
        variant::{Variant, Written},
    },
    OnStream, Sotw,
    requested_names::{Refilled, Spelling},
};

impl Sotw {
    /// The next request has the newly subscribed names.
    fn put_subscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written) {
        written.subscribed = std::mem::take(&mut self.subscribed);
        for id in &written.subscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| sub.is_named()) {
                sub.on_requested();
            }
        }
    }

    /// The wildcard is new, and the accepted version came for names: it may stand for nothing, and be the current one.
    fn is_wildcard_uncovered(&self, subscriptions: &Subscriptions) -> bool {
        let is_new = subscriptions.wildcard && !self.on_stream.names.has_wildcard();
        is_new && self.on_stream.requested && !self.covers_all
    }

    /// The next request is without the unsubscribed names.
    fn put_unsubscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written, now: Instant) {
        written.wildcard_left = std::mem::take(&mut subscriptions.wildcard_leaving);
        written.unsubscribed = std::mem::take(&mut self.unsubscribed);
        // Otherwise the wildcard stood for the names.
        let were_listed = !self.on_stream.names.encoded().is_empty();
        for id in &written.unsubscribed {
            // Names that were subscribed again before are in the list.
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| !sub.is_named()) {
                sub.on_unrequested();
                if were_listed {
                    let recent = &mut self.on_stream.recent_unsubscribes;
                    recent.on_name_unsubscribed(sub.name().clone(), self.doubt, now);
                }
            }
        }
    }

    /// Whether something is subscribed again whose unsubscription the server may have missed.
    fn was_resubscribed(&self, subscriptions: &Subscriptions) -> bool {
        let recent = &self.on_stream.recent_unsubscribes;
        let is_awaited = |name: &str| {
            let sub = subscriptions.find(name).and_then(|id| subscriptions.get(id));
            sub.is_some_and(Subscription::is_unanswered)
        };
        recent.was_resubscribed()
            || (subscriptions.wildcard && !subscriptions.received_all && recent.is_wildcard_crossed())
            || recent.crossed_names().any(is_awaited)
    }

    /// Whether an ACK has to be without a name that the server may have sent before (B1.21).
    fn is_request_missed(&self, subscriptions: &Subscriptions) -> bool {
        self.on_stream.unheld.was_requested()
            && subscriptions.iter().any(|(_, sub)| self.was_request_missed(sub))
    }

    /// Whether the server may have missed the request of a name, and would be silent about it after an answer that has it. A name is
    /// held back for that once.
    fn was_request_missed(&self, sub: &Subscription) -> bool {
        let OnStream { unheld, recent_unsubscribes, .. } = &self.on_stream;
        unheld.may_be_missed(sub) && !recent_unsubscribes.was_held_back(sub.name())
    }

    /// Leaves the names out of the next request that were resubscribed too early, and returns them: responses lack them then.
    fn hold_back(&mut self, subscriptions: &mut Subscriptions, now: Instant) -> BTreeSet<Arc<str>> {
        let recent = &self.on_stream.recent_unsubscribes;
        let may_be_missed = |sub: &Subscription| {
            let is_crossed = || sub.is_unanswered() && recent.is_name_crossed(sub.name());
            let is_unsubscribe_missed = || recent.may_have_missed_name(sub.name()) || is_crossed();
            sub.is_named() && (is_unsubscribe_missed() || self.was_request_missed(sub))
        };
        let held_back = subscriptions.iter().filter(|(_, sub)| may_be_missed(sub));
        let held_back: Vec<_> = held_back.map(|(id, _)| id).collect();
        let recent = &mut self.on_stream.recent_unsubscribes;
        let mut names = BTreeSet::new();
        for id in &held_back {
            if let Some(sub) = subscriptions.get_mut(*id) {
                if sub.is_answered() {
                    // The next response may lack it, and the one after it, as the server has sent it before (B1.22).
                    self.on_stream.unheld.on_skipped(sub.name());
                }
                sub.on_held_back(now + self.doubt);
                recent.on_name_held_back(sub.name().clone(), self.doubt, now);
                names.insert(sub.name().clone());
            }
        }
        // What was sent before does not ride on an answer either, unless it does so since a request before: it would be unsubscribed.
        let is_left_out = |sub: &Subscription| !sub.is_requested() && self.on_stream.unheld.is_lacked(sub);
        for id in &self.subscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| is_left_out(sub)) {
                if sub.is_answered() {
                    // Its absence from the next response is no deletion.
                    sub.on_held_back(now + self.doubt);
                }
                names.insert(sub.name().clone());
            }
        }
        self.subscribed.extend(held_back);
        names
    }

    /// Adopts the newest names for this and the following requests, without those that are held back.
    fn refill(
        &mut self,
        subscriptions: &mut Subscriptions,
        held_back: Option<&BTreeSet<Arc<str>>>,
        now: Instant,
    ) -> Refilled {
        let spelling = Spelling {
            is_first: !self.on_stream.requested,
            is_star_a_name: self.is_star_a_name,
            is_version_claimed: self.on_stream.version_sent,
            held_back,
            is_wildcard_uncovered: self.is_wildcard_uncovered(subscriptions),
        };
        let OnStream { names, recent_unsubscribes, .. } = &mut self.on_stream;
        names.refill(subscriptions, recent_unsubscribes, spelling, now)
    }

    /// Puts the names into the next request that are to be in it. It is `answering` if the server does not drop it as outdated.
    pub(super) fn put_names(
        &mut self,
        subscriptions: &mut Subscriptions,
        answering: bool,
        written: &mut Written,
        now: Instant,
    ) -> Refilled {
        // It may have dropped the request that unsubscribed a name as outdated (B1.8). If the answer, which it accepts, had that
        // name again, nothing would have changed for it, and it would send nothing. So a request after the answer has it.
        let is_uncovered = self.is_wildcard_uncovered(subscriptions);
        let subscribes_sent = self.on_stream.unheld.sent_of(&self.subscribed, subscriptions).next().is_some();
        let is_ack = !self.on_stream.answers.is_empty();
        let held_back = answering
            && (self.was_resubscribed(subscriptions) || (is_ack && self.is_request_missed(subscriptions)));
        let is_separate = is_ack && (subscribes_sent || is_uncovered);
        let changed =
            !held_back && !is_separate && self.change_due(subscriptions).is_some_and(|due| due <= now);
        let mut refilled = Refilled::Whole;
        if held_back {
            self.put_unsubscribed(subscriptions, written, now);
            let names = self.hold_back(subscriptions, now);
            self.refill(subscriptions, Some(&names), now);
            self.batcher.on_change(now);
        } else if changed {
            if subscribes_sent {
                // No response crosses the first request.
                if self.on_stream.requested {
                    self.on_stream.unheld.on_requested();
                }
                self.on_stream.unheld.on_lost();
            }
            if is_uncovered {
                self.forget_version();
            }
            self.put_unsubscribed(subscriptions, written, now);
            refilled = self.refill(subscriptions, None, now);
            if refilled != Refilled::InPart {
                self.put_subscribed(subscriptions, written);
                self.batcher.on_written(subscriptions.named(), now);
            }
        }
        let OnStream { unheld, names, requested, .. } = &mut self.on_stream;
        let has_dropped = subscriptions.wildcard && self.has_dropped;
        let mut is_lacking = || has_dropped || names.has_stand_in() || unheld.is_lacking(subscriptions);
        if *requested && !is_ack && is_lacking() {
            self.forget_version();
        }
        refilled
    }

    /// The time at which a change of the names is due.
    pub(super) fn change_due(&self, subscriptions: &Subscriptions) -> Option<Instant> {
        let due = self.batcher.due(subscriptions.named())?;
        Some(if subscriptions.wildcard { self.on_stream.empty_list.due(due) } else { due })
    }
}
