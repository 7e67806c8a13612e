use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// What the server was told is not wanted any more, on one stream.
///
/// Two things go wrong when it is asked for again soon. The request that let it go may have been dropped as outdated
/// (B1.8), so that asking for it says nothing new, and the server sends nothing. And a response to that request, which
/// lacks it although it exists, may be on its way (B1.13).
#[derive(Debug, Default)]
pub(crate) struct LetGo {
    names: HashMap<Arc<str>, Told>,
    /// When the names were let go, the oldest first. Some of them were again since.
    order: VecDeque<(Instant, Arc<str>)>,
    wildcard: Option<Told>,
    /// How many responses were the newest one when they were answered.
    answered: u64,
    /// Something is wanted again that the server may not know to be let go.
    has_come_back: bool,
}

/// When the server was told last.
#[derive(Debug, Clone, Copy)]
struct Told {
    at: Instant,
    /// How many responses had been answered by then.
    answered: u64,
}

impl LetGo {
    /// A request goes out without a name that the one before held. Names that were let go longer than `doubt` ago may
    /// be forgotten.
    pub(crate) fn on_name_let_go(&mut self, name: Arc<str>, doubt: Duration, now: Instant) {
        self.names.insert(name.clone(), Told { at: now, answered: self.answered });
        self.order.push_back((now, name));
        while let Some((at, name)) = self.order.front().filter(|(at, _)| *at + doubt <= now) {
            if self.names.get(name).is_some_and(|told| told.at == *at) {
                self.names.remove(name);
            }
            self.order.pop_front();
        }
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(2 * self.names.len());
            self.order.shrink_to(2 * self.order.len());
        }
    }

    /// The same of the wildcard.
    pub(crate) fn on_wildcard_let_go(&mut self, now: Instant) {
        self.wildcard = Some(Told { at: now, answered: self.answered });
    }

    /// A name is wanted: true when absence proves nothing of it, because it was let go less than `doubt` ago, by itself
    /// or with the wildcard, of which it may have been a member.
    pub(crate) fn on_name_wanted(&mut self, name: &str, doubt: Duration, now: Instant) -> bool {
        self.has_come_back |= self.is_name_unheard(name);
        let told = [self.names.get(name), self.wildcard.as_ref()];
        told.into_iter().flatten().any(|told| now < told.at + doubt)
    }

    /// The wildcard is wanted.
    pub(crate) fn on_wildcard_wanted(&mut self) {
        self.has_come_back |= self.is_wildcard_unheard();
    }

    /// The newest response is answered, which no server drops: what the answer does not name is let go for good.
    pub(crate) fn on_answered(&mut self) {
        self.answered += 1;
        self.has_come_back = false;
    }

    /// Whether an answer has to do without something, which is asked for anew in the request after it.
    pub(crate) fn has_come_back(&self) -> bool {
        self.has_come_back
    }

    /// The name that was let go last, if any was.
    pub(crate) fn last_name(&self) -> Option<&str> {
        self.order.back().map(|(_, name)| &**name)
    }

    /// Whether a name was let go, but the server may not have heard of that.
    pub(crate) fn is_name_unheard(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|told| told.answered == self.answered)
    }

    /// The same of the wildcard.
    pub(crate) fn is_wildcard_unheard(&self) -> bool {
        self.wildcard.is_some_and(|told| told.answered == self.answered)
    }
}
