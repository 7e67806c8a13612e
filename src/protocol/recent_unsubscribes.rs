use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// The recent unsubscriptions that were sent to the server, on one stream.
///
/// Two things go wrong at a resubscription soon after. The request that unsubscribed may have been dropped as outdated
/// (B1.8), so that the next one changes nothing for the server, and it sends nothing. And a response to that request,
/// which lacks the resource although it exists, may be in flight (B1.13).
#[derive(Debug, Default)]
pub(crate) struct RecentUnsubscribes {
    /// The last unsubscription of each name. Looked up by name only; the order is in `order`.
    names: HashMap<Arc<str>, Unsubscribe>,
    /// The names in the order of their unsubscription, the oldest first. Some of them were unsubscribed again since.
    order: VecDeque<(Instant, Arc<str>)>,
    /// The last end of the wildcard on the stream.
    wildcard: Option<Unsubscribe>,
    /// The number of responses that were the newest one when they were answered.
    answered: u64,
    /// A response was received since that may have been sent before the last of these answers was read, so that the
    /// server has dropped that.
    is_crossed: bool,
    /// A name is subscribed again whose unsubscription the server may have missed.
    was_resubscribed: bool,
}

/// The last notification of the server.
#[derive(Debug, Clone, Copy)]
struct Unsubscribe {
    /// The time of the request.
    at: Instant,
    /// The number of responses that had been answered by then.
    answered: u64,
    /// The repetitions left for crossing responses: without a limit, a server that always sends something would never end them.
    left: u8,
}

impl RecentUnsubscribes {
    /// A request is sent without a name of the one before. Names that were unsubscribed longer than `doubt` ago may be
    /// forgotten.
    pub(crate) fn on_name_unsubscribed(&mut self, name: Arc<str>, doubt: Duration, now: Instant) {
        self.names.insert(name.clone(), Unsubscribe { at: now, answered: self.answered, left: REPETITIONS });
        self.order.push_back((now, name));
        while let Some((at, name)) = self.order.front().filter(|(at, _)| *at + doubt <= now) {
            if self.names.get(name).is_some_and(|sent| sent.at == *at) {
                self.names.remove(name);
            }
            self.order.pop_front();
        }
        // After a fallback as many names as a client has may be unsubscribed at once.
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(2 * self.names.len());
            self.order.shrink_to(2 * self.order.len());
        }
    }

    /// A request is sent that ends the wildcard.
    pub(crate) fn on_wildcard_unsubscribed(&mut self, now: Instant) {
        self.wildcard = Some(Unsubscribe { at: now, answered: self.answered, left: REPETITIONS });
    }

    /// A request is sent without a subscribed name, since the server may have missed its unsubscription, or its subscription.
    pub(crate) fn on_name_held_back(&mut self, name: Arc<str>, doubt: Duration, now: Instant) {
        // The count of repetitions goes on: it is the same unsubscription.
        let left = self.names.get(&name).map_or(REPETITIONS, |sent| sent.left).saturating_sub(1);
        self.on_name_unsubscribed(name.clone(), doubt, now);
        if let Some(sent) = self.names.get_mut(&name) {
            sent.left = left;
        }
    }

    /// A request is sent without the subscribed wildcard, since the server may have missed its end.
    pub(crate) fn on_wildcard_held_back(&mut self, now: Instant) {
        let left = self.wildcard.map_or(0, |sent| sent.left.saturating_sub(1));
        self.wildcard = Some(Unsubscribe { at: now, answered: self.answered, left });
    }

    /// A response was received.
    pub(crate) fn on_response(&mut self, doubt: Duration, now: Instant) {
        let last = self.order.back().map(|(at, _)| *at);
        let last = last.max(self.wildcard.map(|sent| sent.at));
        self.is_crossed = last.is_some_and(|at| now < at + doubt);
    }

    /// A name is subscribed: true when absence proves nothing of it, because it was unsubscribed less than `doubt` ago,
    /// by itself or with the wildcard, of which it may have been a member.
    pub(crate) fn on_name_subscribed(&mut self, name: &str, doubt: Duration, now: Instant) -> bool {
        self.was_resubscribed |= self.may_have_missed_name(name);
        let sent = [self.names.get(name), self.wildcard.as_ref()];
        sent.into_iter().flatten().any(|sent| now < sent.at + doubt)
    }

    /// The wildcard is subscribed.
    pub(crate) fn on_wildcard_subscribed(&mut self) {
        self.was_resubscribed |= self.may_have_missed_wildcard();
    }

    /// The newest response is answered, which no server drops: the names that are not in the answer are unsubscribed for good.
    pub(crate) fn on_answered(&mut self) {
        self.answered += 1;
        (self.was_resubscribed, self.is_crossed) = (false, false);
    }

    /// Whether an answer has to omit a name, which is subscribed again in the request after it.
    pub(crate) fn was_resubscribed(&self) -> bool {
        self.was_resubscribed
    }

    /// The name that was unsubscribed last, if there is one.
    pub(crate) fn last_name(&self) -> Option<&str> {
        self.order.back().map(|(_, name)| &**name)
    }

    /// Names that were unsubscribed by an answer that the server may have dropped, since a response crossed it, newest first.
    pub(crate) fn crossed_names(&self) -> impl Iterator<Item = &str> {
        let sent = |name: &Arc<str>| self.names.get(name).filter(|sent| sent.answered + 1 >= self.answered);
        let recent = self.order.iter().rev().filter(|_| self.is_crossed).map(|(_, name)| name);
        recent
            .take_while(move |name| sent(name).is_some())
            .filter(|name| self.is_name_crossed(name))
            .map(|name| &**name)
    }

    /// Whether a request went without a subscribed name lately.
    pub(crate) fn was_held_back(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|sent| sent.left < REPETITIONS)
    }

    /// Whether a name was unsubscribed by an answer that a response crossed, so that the server may have dropped it.
    pub(crate) fn is_name_crossed(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|sent| self.is_unsubscribe_crossed(sent))
    }

    /// Whether the wildcard was ended by an answer that a response crossed, so that the server may have dropped it.
    pub(crate) fn is_wildcard_crossed(&self) -> bool {
        self.wildcard.is_some_and(|sent| self.is_unsubscribe_crossed(&sent))
    }

    /// Whether an unsubscription was in the last answer, and a response came since that may have been sent before that was read.
    fn is_unsubscribe_crossed(&self, sent: &Unsubscribe) -> bool {
        self.is_crossed && sent.left > 0 && sent.answered + 1 == self.answered
    }

    /// Whether a name was unsubscribed, but the server may have missed that.
    pub(crate) fn may_have_missed_name(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|sent| sent.answered == self.answered)
    }

    /// Whether the wildcard was ended, but the server may have missed that.
    pub(crate) fn may_have_missed_wildcard(&self) -> bool {
        self.wildcard.is_some_and(|sent| sent.answered == self.answered)
    }
}

/// How often one unsubscription is repeated.
const REPETITIONS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBT: Duration = Duration::from_secs(15);

    #[test]
    fn an_end_is_in_doubt_again_when_a_response_may_have_crossed_its_request() {
        let now = Instant::now();
        let mut recent_unsubscribes = RecentUnsubscribes::default();
        recent_unsubscribes.on_name_unsubscribed("a".into(), DOUBT, now);
        recent_unsubscribes.on_answered();
        assert!(
            !recent_unsubscribes.may_have_missed_name("a") && !recent_unsubscribes.is_name_crossed("a"),
            "no server drops the newest answer"
        );
        recent_unsubscribes.on_response(DOUBT, now);
        assert!(recent_unsubscribes.is_name_crossed("a"), "unless it had sent something newer");
        assert_eq!(recent_unsubscribes.crossed_names().collect::<Vec<_>>(), ["a"]);
        recent_unsubscribes.on_answered();
        assert!(!recent_unsubscribes.is_name_crossed("a"), "the next answer went without it, too");
    }

    #[test]
    fn a_response_crosses_no_request_that_is_older_than_it_can_be_under_way() {
        let now = Instant::now();
        let mut recent_unsubscribes = RecentUnsubscribes::default();
        recent_unsubscribes.on_name_unsubscribed("a".into(), DOUBT, now);
        recent_unsubscribes.on_wildcard_unsubscribed(now);
        recent_unsubscribes.on_answered();
        recent_unsubscribes.on_response(DOUBT, now + DOUBT);
        assert!(!recent_unsubscribes.is_name_crossed("a") && !recent_unsubscribes.is_wildcard_crossed());
    }

    #[test]
    fn an_end_is_repeated_a_few_times_on_a_server_that_always_sends_something() {
        let now = Instant::now();
        let mut recent_unsubscribes = RecentUnsubscribes::default();
        recent_unsubscribes.on_name_unsubscribed("a".into(), DOUBT, now);
        recent_unsubscribes.on_wildcard_unsubscribed(now);
        let mut repetitions = (0, 0);
        for _ in 0..100 {
            recent_unsubscribes.on_answered();
            recent_unsubscribes.on_response(DOUBT, now);
            if recent_unsubscribes.is_name_crossed("a") {
                recent_unsubscribes.on_name_held_back("a".into(), DOUBT, now);
                repetitions.0 += 1;
            }
            if recent_unsubscribes.is_wildcard_crossed() {
                recent_unsubscribes.on_wildcard_held_back(now);
                repetitions.1 += 1;
            }
        }
        assert_eq!(repetitions, (REPETITIONS, REPETITIONS));
    }
}
