//! The rules of one stream, whatever its messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    family::{Family, Rule},
    script::Ty,
    session::{Request, Response},
};

/// How a response is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Ack,
    Nack,
    /// It depends on the subscriptions.
    Either,
}

/// The messages on a stream, checked against the rules.
#[derive(Debug, Default)]
pub(super) struct StreamRules {
    requests: usize,
    pending: usize,
    types: BTreeMap<String, OfType>,
    /// What was in responses that were rejected, also on the streams before, with its type: with which versions.
    rejected: BTreeMap<(String, Vec<Bytes>), Rejected>,
    /// How many responses of a type were to be rejected, or may have been, on all streams. They share a burst.
    rejections: BTreeMap<String, u32>,
}

/// How often a content was rejected, and in which versions: a server may send it again under ever new ones.
#[derive(Debug, Clone, Default)]
struct Rejected {
    versions: BTreeSet<String>,
    times: u32,
}

#[derive(Debug, Default)]
struct OfType {
    /// The responses that came, in order.
    responses: Vec<Received>,
    /// How many of them were answered, or need no answer since a later one was.
    answered: usize,
    /// Since when each name was requested.
    requested: BTreeMap<String, Instant>,
    /// The names of the last request, or in the incremental variant those that are subscribed to.
    names: BTreeSet<String>,
    /// When rejected content may be rejected again without any burst.
    again_at: Option<Instant>,
}

/// A response that came.
#[derive(Debug)]
struct Received {
    nonce: String,
    due: Due,
    /// What is in it, unless it must be accepted, and its version.
    content: Vec<Bytes>,
    version: String,
    /// Not sent for an answer of the client.
    is_repeated: bool,
}

impl StreamRules {
    /// The rules of the next stream to the same server: what was rejected before counts on it, too.
    pub(super) fn next(&self) -> Self {
        Self { rejected: self.rejected.clone(), rejections: self.rejections.clone(), ..Self::default() }
    }

    /// At most one request is on its way to the transport.
    pub(super) fn on_send(&mut self) {
        self.pending += 1;
        assert!(self.pending <= 1, "a request before the last one was taken");
    }

    /// Gives the names that are subscribed to.
    pub(super) fn on_response(
        &mut self,
        response: &Response,
        due: Due,
        is_repeated: bool,
    ) -> Option<&BTreeSet<String>> {
        // What was never requested is not answered (B0.7).
        let of_type = self.types.get_mut(response.type_url())?;
        let content = if due == Due::Ack { Vec::new() } else { response.content() };
        let (nonce, version) = (response.nonce().to_owned(), response.version());
        of_type.responses.push(Received { nonce, due, content, version, is_repeated });
        if due != Due::Ack {
            // Counted now, and not when the NACK is written: those that wait have their share of the burst, also if their stream ends first.
            *self.rejections.entry(response.type_url().to_owned()).or_default() += 1;
        }
        Some(&of_type.names)
    }

    /// The node comes first and once; nonces are those that came, and never go back; each response is answered once, and
    /// as it should be.
    pub(super) fn on_request(
        &mut self,
        request: &Request,
        family: &Family,
        now: Instant,
    ) -> Option<Answered> {
        self.pending -= 1;
        assert_eq!(request.has_node(), self.requests == 0, "B0.2: the node comes first, and once");
        self.requests += 1;
        request.check(!self.types.contains_key(request.type_url()));
        let of_type = self.types.entry(request.type_url().to_owned()).or_default();
        for name in request.names() {
            of_type.requested.entry(name.clone()).or_insert(now);
        }
        // B1.3: an empty list is a request for everything only as long as no name was sent on the stream.
        if request.names().is_empty() && of_type.requested.is_empty() {
            of_type.requested.insert(WILDCARD.to_owned(), now);
        }
        let (nonce, rejected) = (request.nonce(), request.error().is_some());
        of_type.on_names(request, rejected && family.has_rule(Rule::NackNames));
        let is_over_burst = self.rejections.get(request.type_url()).is_some_and(|count| *count >= AT_ONCE);
        let of_type_url = (request.type_url(), is_over_burst);
        let may_wait = |response: &Received| response.may_wait(of_type_url, &self.rejected);
        let answered = match request {
            Request::Sotw(_) => of_type.on_answer((nonce, rejected), may_wait),
            Request::Delta(_) => of_type.on_delta_answer((nonce, rejected), may_wait),
        };
        if answered == Some(Answered::Rejected) {
            let Received { content, version, is_repeated, .. } = &of_type.responses[of_type.answered - 1];
            let (content, version, is_repeated) = (content.clone(), version.clone(), *is_repeated);
            let is_released = of_type.is_released(request.type_url(), &self.rejected);
            let rejected = self.rejected.entry((request.type_url().to_owned(), content)).or_default();
            let is_new = rejected.versions.insert(version);
            rejected.times += 1;
            if is_new && rejected.times < AT_ONCE {
                of_type.again_at = None;
            }
            if rejected.times > 1 && !is_repeated && !is_released {
                of_type.on_rejected_again(now, family.has_rule(Rule::NackRate));
            }
        }
        answered
    }

    /// When a name was first requested.
    pub(super) fn requested(&self, ty: Ty, name: &str) -> Option<Instant> {
        let requested = &self.types.get(ty.url())?.requested;
        // A wildcard stands for names at a server that takes `*` for one.
        requested.get(name).or_else(|| requested.get(WILDCARD)).copied()
    }

    /// Whether a response of a type came.
    pub(super) fn is_answered(&self, type_url: &str) -> bool {
        self.types.get(type_url).is_some_and(|of_type| !of_type.responses.is_empty())
    }

    /// Whether the last request had a name.
    pub(super) fn requests(&self, ty: Ty, name: &str) -> bool {
        self.types.get(ty.url()).is_some_and(|of_type| of_type.names.contains(name))
    }

    pub(super) fn is_requested(&self, type_url: &str) -> bool {
        self.types.contains_key(type_url)
    }

    /// If a request can be written, nothing waits for an answer but what was rejected before.
    pub(super) fn check_answered_at_once(&self) {
        if self.pending == 0 {
            self.check_answered();
        }
    }

    /// Every response was answered, also what was rejected before.
    pub(super) fn check_all_answered(&self) {
        for (type_url, of_type) in &self.types {
            let unanswered: Vec<_> =
                of_type.responses[of_type.answered..].iter().map(|it| &it.nonce).collect();
            assert!(unanswered.is_empty(), "{unanswered:?} of {type_url} are not answered");
        }
    }

    /// Every response was answered, but for what was rejected before.
    pub(super) fn check_answered(&self) {
        for (type_url, of_type) in &self.types {
            let over_burst = self.rejections.get(type_url).is_some_and(|count| *count >= AT_ONCE);
            for it in &of_type.responses[of_type.answered..] {
                let (nonce, due) = (&it.nonce, it.due);
                let may_wait = it.may_wait((type_url, over_burst), &self.rejected);
                assert!(may_wait, "{nonce} of {type_url} is not answered: {due:?} is due");
            }
        }
    }
}

impl Received {
    /// Whether it is rejected in a way that the server was notified of before, so that its NACK has to wait, or be left out behind a
    /// newer one in the state of the world.
    fn may_wait(
        &self,
        (type_url, is_over_burst): (&str, bool),
        rejected: &BTreeMap<(String, Vec<Bytes>), Rejected>,
    ) -> bool {
        let same = rejected.get(&(type_url.to_owned(), self.content.clone()));
        let is_again = |it: &Rejected| it.versions.contains(&self.version) || it.times >= AT_ONCE;
        self.due != Due::Ack && (is_over_burst || same.is_some_and(is_again))
    }
}

/// The answer of a request to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Accepted,
    Rejected,
}

impl OfType {
    /// A server may ignore the names of a NACK, so that it `must_change_nothing`.
    fn on_names(&mut self, request: &Request, must_change_nothing: bool) {
        match request {
            Request::Sotw(message) => {
                let names = message.resource_names.iter().cloned().collect();
                let before = std::mem::replace(&mut self.names, names);
                assert!(
                    !must_change_nothing || before == self.names,
                    "a NACK has other names than {before:?}: {:?}",
                    self.names
                );
            }
            Request::Delta(message) => {
                let (subscribed, unsubscribed) =
                    (&message.resource_names_subscribe, &message.resource_names_unsubscribe);
                let changes_nothing = subscribed.is_empty() && unsubscribed.is_empty();
                assert!(
                    !must_change_nothing || changes_nothing,
                    "a NACK changes names: {subscribed:?}, {unsubscribed:?}"
                );
                self.names.extend(subscribed.iter().cloned());
                self.names.retain(|name| !unsubscribed.contains(name));
            }
        }
    }

    /// Whether a response came since that is answered at once, or may be: what was to be rejected before it waits no longer. The
    /// server sent that without waiting for an answer.
    fn is_released(&self, type_url: &str, rejected: &BTreeMap<(String, Vec<Bytes>), Rejected>) -> bool {
        self.responses[self.answered..].iter().any(|later| {
            later.due != Due::Nack || !rejected.contains_key(&(type_url.to_owned(), later.content.clone()))
        })
    }

    fn on_rejected_again(&mut self, now: Instant, is_bounded: bool) {
        let at = self.again_at.map_or(now, |at| at.max(now)) + REJECTION;
        assert!(!is_bounded || at <= now + BURST * REJECTION, "the same is rejected too often");
        self.again_at = Some(at);
    }

    /// Each response is answered once, and none for another: in order, but for rejections that have to wait.
    fn on_delta_answer(
        &mut self,
        (nonce, rejected): (&str, bool),
        may_wait: impl Fn(&Received) -> bool,
    ) -> Option<Answered> {
        if nonce.is_empty() {
            assert!(!rejected, "B2.10: only answers reject");
            return None;
        }
        let unanswered = &mut self.responses[self.answered..];
        let wrong = if rejected { Due::Ack } else { Due::Nack };
        let is_it = |response: &Received| response.nonce == nonce && response.due != wrong;
        let place = unanswered.iter().position(is_it);
        let place =
            place.unwrap_or_else(|| panic!("{nonce} was answered before, or otherwise: {unanswered:?}"));
        let skipped = unanswered[..place].iter().find(|response| !may_wait(response));
        assert!(skipped.is_none(), "answers keep the order of responses: {nonce} is behind {skipped:?}");
        // In front of those that wait, so that the answered ones stay a prefix.
        unanswered[..=place].rotate_right(1);
        self.answered += 1;
        Some(if rejected { Answered::Rejected } else { Answered::Accepted })
    }

    fn on_answer(
        &mut self,
        (nonce, rejected): (&str, bool),
        may_wait: impl Fn(&Received) -> bool,
    ) -> Option<Answered> {
        if nonce.is_empty() {
            assert!(self.answered == 0 && !rejected, "B1.7: a nonce is kept");
            return None;
        }
        let responses = &self.responses;
        // A repeated response has the nonce of the first one: a request answers all that came with it.
        let place = responses.iter().rposition(|other| other.nonce == nonce).expect("it came") + 1;
        assert!(self.answered <= place, "the nonce went back");
        let due = responses[place - 1].due;
        let repeated = responses.iter().filter(|other| other.nonce == nonce).count() > 1;
        if place == self.answered {
            assert!(!rejected || repeated, "it was answered before");
            return rejected.then_some(Answered::Rejected);
        }
        let skipped = responses[self.answered..place - 1].iter();
        for it in skipped {
            let other = &it.nonce;
            let is_answered = it.due != Due::Nack || other == nonce || may_wait(it);
            assert!(is_answered, "the rejection of {other} is lost");
        }
        // A request that was under way carries the nonce of the first time.
        let wrong = if rejected { Due::Ack } else { Due::Nack };
        assert!(repeated || due != wrong, "{nonce}: {due:?} is due");
        self.answered = place;
        Some(if rejected { Answered::Rejected } else { Answered::Accepted })
    }
}

const WILDCARD: &str = "*";
/// How often content that was rejected before is rejected again, and how often in a burst: with a margin, as requests may be
/// late.
const REJECTION: Duration = Duration::from_millis(900);
const BURST: u32 = 14;
/// How often content is rejected at once that comes under ever new versions.
const AT_ONCE: u32 = 10;
