use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    id::TypeId,
    interest::{Interest, Phase, Sub, SubId, put_bytes, put_text},
    let_go::LetGo,
    pace::Pace,
};
use crate::resource::Version;

/// The state of one type on one server in the state-of-the-world variant (rules B1).
///
/// Each request repeats all names; a response is answered by a request that carries its nonce. The version belongs to
/// the server and outlives the stream, everything else dies with it (B0.5).
#[derive(Debug)]
pub(crate) struct Sotw {
    type_url: &'static str,
    pub(crate) interest: Interest,
    /// The version of the last response without errors.
    version: Version,
    on_stream: OnStream,
    pace: Pace,
    /// For how long absence proves nothing of a name that was let go and asked for again.
    doubt: Duration,
    /// Names to ask for that no request of this stream has held yet.
    fresh: Vec<SubId>,
    /// Names let go that the server does not know of yet.
    leaving: Vec<SubId>,
}

/// What dies with the stream.
#[derive(Debug, Default)]
struct OnStream {
    requested: bool,
    /// A name was sent, so an empty list does not mean everything any more (B1.2 to B1.5).
    named: bool,
    nonce: String,
    let_go: LetGo,
    /// The names of the last request, as they went out.
    names: Bytes,
    /// Whether the server sends everything, as far as it was told.
    wildcard: bool,
    answers: VecDeque<Answer>,
    /// A response is being worked off; what is written before its answer would be taken for one.
    busy: bool,
}

/// The answer to one response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) nonce: String,
    /// What was wrong; without it the answer is an ACK.
    pub(crate) error: Option<String>,
    /// Not before this time, unless a request is written anyway: a server that repeats what was rejected has to wait.
    pub(crate) not_before: Instant,
}

/// A request, and what its being written means.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) ty: TypeId,
    pub(crate) fresh: Vec<SubId>,
    pub(crate) leaving: Vec<SubId>,
    /// The server was told of the end of the wildcard, or cannot be told.
    pub(crate) wildcard_left: bool,
}

impl Sotw {
    pub(crate) fn new(type_url: &'static str) -> Self {
        Self {
            type_url,
            interest: Interest::default(),
            version: Version::default(),
            on_stream: OnStream::default(),
            pace: Pace::default(),
            doubt: Duration::ZERO,
            fresh: Vec::new(),
            leaving: Vec::new(),
        }
    }

    pub(crate) fn type_url(&self) -> &'static str {
        self.type_url
    }

    /// Whether a request for the type was written on this stream; what comes without is not ours (B0.7).
    pub(crate) fn is_requested(&self) -> bool {
        self.on_stream.requested
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Whether answers or names wait for being written, be it later.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.on_stream.answers.is_empty()
            || !self.leaving.is_empty()
            || self.interest.wildcard_leaving
            || self.on_stream.busy
    }

    /// A name is asked for. Shortly after it was let go (`doubt` says how shortly) a response may be on its way that lacks
    /// it although it exists (B1.13).
    pub(crate) fn on_named(&mut self, sub: SubId, doubt: Duration, now: Instant) {
        self.doubt = doubt;
        if let Some(sub) = self.interest.get_mut(sub).filter(|sub| !sub.is_settled()) {
            let doubtful = self.on_stream.let_go.on_name_wanted(&sub.name, doubt, now);
            sub.doubt_until = doubtful.then(|| now + doubt);
            // Its timer, if it had one, ended when it was let go.
            sub.phase = Phase::New;
        }
        self.fresh.push(sub);
        self.pace.on_change(now);
    }

    pub(crate) fn on_unnamed(&mut self, sub: SubId, now: Instant) {
        self.leaving.push(sub);
        self.pace.on_change(now);
    }

    /// Everything is asked for. If the server does not know yet that it was not, nothing has happened.
    pub(crate) fn on_wildcard(&mut self, now: Instant) {
        if !self.interest.wildcard_leaving {
            self.on_stream.let_go.on_wildcard_wanted();
        }
        self.interest.wildcard = true;
        self.interest.wildcard_leaving = false;
        self.interest.told_all = false;
        self.pace.on_change(now);
    }

    /// Everything is asked for no longer.
    pub(crate) fn on_wildcard_ended(&mut self, now: Instant) {
        self.interest.wildcard = false;
        self.interest.wildcard_leaving = true;
        self.pace.on_change(now);
    }

    /// A stream begins: everything is to be asked for again (B1.5, B1.6).
    pub(crate) fn on_stream_opened(&mut self, now: Instant) {
        self.on_stream = OnStream::default();
        self.pace.reset();
        self.fresh = self.interest.iter().filter(|(_, sub)| sub.named).map(|(id, _)| id).collect();
        if !self.interest.is_empty() {
            self.pace.on_change(now);
        }
    }

    /// The stream is gone, and with it the need to let names go in writing: returns those.
    pub(crate) fn on_stream_closed(&mut self) -> Vec<SubId> {
        self.on_stream = OnStream::default();
        self.fresh.clear();
        (self.interest.sends_all, self.interest.told_all) = (false, false);
        self.interest.iter_mut().for_each(|(_, sub)| (sub.asked, sub.missed) = (false, false));
        std::mem::take(&mut self.leaving)
    }

    /// A response came; nothing of the type is written until it is answered.
    pub(crate) fn on_response(&mut self) {
        self.on_stream.busy = true;
    }

    /// A response is answered. A newer answer replaces an ACK that is not written yet, never a NACK.
    pub(crate) fn on_answer(&mut self, answer: Answer) {
        self.on_stream.busy = false;
        if self.on_stream.answers.back().is_some_and(|last| last.error.is_none()) {
            self.on_stream.answers.pop_back();
        }
        self.on_stream.answers.push_back(answer);
    }

    /// A response without errors: its version counts from now on, also on later streams.
    pub(crate) fn on_accepted(&mut self, version: &Version) {
        self.version = version.clone();
    }

    /// When there is something to write; in the past when it is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.on_stream.busy {
            return None;
        }
        let answer = self.on_stream.answers.front().map(|answer| answer.not_before);
        let change = self.pace.due(self.interest.named());
        match (answer, change) {
            (Some(answer), Some(change)) => Some(answer.min(change)),
            (due, None) | (None, due) => due,
        }
    }

    /// Whether what is due is an answer.
    pub(crate) fn is_answer_due(&self, now: Instant) -> bool {
        !self.on_stream.busy && self.on_stream.answers.front().is_some_and(|answer| answer.not_before <= now)
    }

    /// Makes the request that is due; `None` when there turns out to be nothing to say.
    ///
    /// Its names are the newest, unless a run of changes is held back by the pace: then they are those of the last
    /// request, since every new name in an answer would call for a response, and that for an answer.
    pub(crate) fn write(
        &mut self,
        ty: TypeId,
        node: Option<&Bytes>,
        now: Instant,
    ) -> (Option<Bytes>, Written) {
        let answering = !self.on_stream.answers.is_empty();
        // It may have dropped the request that let something go as outdated (B1.8). If the answer, which it takes, named
        // that again, nothing would have changed for it, and it would send nothing. So a request after the answer does.
        let held_back = answering && self.on_stream.let_go.has_come_back();
        let changed = !held_back && self.pace.due(self.interest.named()).is_some_and(|due| due <= now);
        let mut written = Written { ty, fresh: Vec::new(), leaving: Vec::new(), wildcard_left: false };
        let mut silent = false;
        if held_back {
            self.let_go(&mut written, now);
            self.hold_back(now);
            self.refill(true, now);
            self.pace.on_change(now);
        } else if changed {
            self.let_go(&mut written, now);
            self.ask(&mut written);
            silent = self.refill(false, now);
            self.pace.on_written(self.interest.named(), now);
        }
        let answer = self.on_stream.answers.pop_front();
        if answer.is_some() && self.on_stream.answers.is_empty() {
            self.on_stream.let_go.on_answered();
        }
        if silent && answer.is_none() {
            return (None, written);
        }
        let mut error = None;
        let mut version = self.version.clone();
        if let Some(answer) = answer {
            self.on_stream.nonce = answer.nonce;
            (version, error) = (answer.version, answer.error);
        }
        self.on_stream.requested = true;
        (Some(self.encode(version.as_str(), node, error.as_deref())), written)
    }

    /// Whether asking for everything would be no news for the server, although we have forgotten what it sent: the end
    /// of a legacy wildcard could not be said.
    pub(crate) fn is_wildcard_stuck(&self) -> bool {
        self.on_stream.wildcard && !self.interest.takes_all()
    }

    /// The next request names what is wanted anew.
    fn ask(&mut self, written: &mut Written) {
        written.fresh = std::mem::take(&mut self.fresh);
        for id in &written.fresh {
            if let Some(sub) = self.interest.get_mut(*id).filter(|sub| sub.named) {
                sub.asked = true;
            }
        }
    }

    /// The next request is without what is not wanted any more.
    fn let_go(&mut self, written: &mut Written, now: Instant) {
        written.wildcard_left = std::mem::take(&mut self.interest.wildcard_leaving);
        written.leaving = std::mem::take(&mut self.leaving);
        for id in &written.leaving {
            // What came back before is in the list.
            if let Some(sub) = self.interest.get_mut(*id).filter(|sub| !sub.named) {
                sub.asked = false;
                self.on_stream.let_go.on_name_let_go(sub.name.clone(), self.doubt, now);
            }
        }
    }

    /// The next request is without what came back too early. That makes responses without it, whatever was sent before.
    fn hold_back(&mut self, now: Instant) {
        let let_go = &mut self.on_stream.let_go;
        let unheard = |sub: &Sub| sub.named && let_go.is_name_unheard(&sub.name);
        let held_back: Vec<_> =
            self.interest.iter().filter(|(_, sub)| unheard(sub)).map(|(id, _)| id).collect();
        for id in &held_back {
            if let Some(sub) = self.interest.get_mut(*id) {
                sub.doubt_until = Some(now + self.doubt);
                sub.asked = false;
                let_go.on_name_let_go(sub.name.clone(), self.doubt, now);
            }
        }
        self.fresh.extend(held_back);
    }

    /// Takes over the newest names for this and the following requests, without what is `held_back`. True when that
    /// says nothing to the server: there is no way to end the legacy wildcard but by naming something (B1.3).
    fn refill(&mut self, held_back: bool, now: Instant) -> bool {
        let Self { interest, on_stream, .. } = self;
        let let_go = &mut on_stream.let_go;
        let wildcard = interest.wildcard && !(held_back && let_go.is_wildcard_unheard());
        let sorted = match held_back {
            true => interest.names_without(|name| let_go.is_name_unheard(name)),
            false => interest.names(),
        };
        let had_wildcard = std::mem::replace(&mut on_stream.wildcard, wildcard);
        interest.sends_all = wildcard;
        let mut names = BytesMut::new();
        if wildcard && (on_stream.named || !sorted.is_empty()) {
            put_text(3, "*", &mut names);
        }
        names.extend_from_slice(&sorted);
        on_stream.names = names.freeze();
        on_stream.named |= !on_stream.names.is_empty();
        let silent = !on_stream.named && !wildcard;
        if silent {
            // The server sends everything still, until something is named.
            on_stream.wildcard = had_wildcard;
        } else if had_wildcard && !wildcard {
            let_go.on_wildcard_let_go(now);
        }
        silent
    }

    fn encode(&self, version: &str, node: Option<&Bytes>, error: Option<&str>) -> Bytes {
        let stream = &self.on_stream;
        let mut request = BytesMut::with_capacity(stream.names.len() + 256);
        let mut put_unless_empty = |field, text: &str| {
            if !text.is_empty() {
                put_text(field, text, &mut request);
            }
        };
        put_unless_empty(1, version);
        put_unless_empty(4, self.type_url);
        put_unless_empty(5, &stream.nonce);
        if let Some(node) = node {
            put_bytes(2, node, &mut request);
        }
        request.put_slice(&stream.names);
        if let Some(error) = error {
            let mut status = BytesMut::with_capacity(error.len() + 8);
            status.put_slice(&[0x08, INVALID_ARGUMENT]);
            put_text(2, error, &mut status);
            put_bytes(6, &status, &mut request);
        }
        request.freeze()
    }
}

/// The code of every NACK.
const INVALID_ARGUMENT: u8 = 3;
