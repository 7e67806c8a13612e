//! The rules of one stream, whatever is said on it.

use std::{collections::BTreeMap, time::Instant};

use super::{
    script::Ty,
    talk::{Request, Response},
};

/// How a response is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Ack,
    Nack,
    /// It depends on what the client wants.
    Either,
}

/// What was said on a stream.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    requests: usize,
    pending: usize,
    types: BTreeMap<String, OfType>,
}

#[derive(Debug, Default)]
struct OfType {
    /// The nonces that came, in order.
    nonces: Vec<(String, Due)>,
    /// How many of them were answered, or need no answer since a later one was.
    answered: usize,
    /// Since when which names were ever asked for.
    asked: BTreeMap<String, Instant>,
}

impl Dialogue {
    /// At most one request is on its way to the transport.
    pub(super) fn on_send(&mut self) {
        self.pending += 1;
        assert!(self.pending <= 1, "a request before the last one was taken");
    }

    pub(super) fn on_response(&mut self, response: &Response, due: Due) {
        // What was never asked for is not answered (B0.7).
        if let Some(of_type) = self.types.get_mut(response.type_url()) {
            of_type.nonces.push((response.nonce().to_owned(), due));
        }
    }

    /// The node comes first and once; nonces are those that came, and never go back; each response is answered once, and
    /// as it should be.
    pub(super) fn on_request(&mut self, request: &Request, now: Instant) -> Option<Answered> {
        self.pending -= 1;
        assert_eq!(request.has_node(), self.requests == 0, "B0.2: the node comes first, and once");
        self.requests += 1;
        request.check(!self.types.contains_key(request.type_url()));
        let of_type = self.types.entry(request.type_url().to_owned()).or_default();
        for name in request.names() {
            of_type.asked.entry(name.clone()).or_insert(now);
        }
        let (nonce, rejected) = (request.nonce(), request.error().is_some());
        match request {
            Request::Sotw(_) => of_type.on_answer(nonce, rejected),
            Request::Delta(_) => of_type.on_delta_answer(nonce, rejected),
        }
    }

    /// When a name was first asked for.
    pub(super) fn asked(&self, ty: Ty, name: &str) -> Option<Instant> {
        self.types.get(ty.url())?.asked.get(name).copied()
    }

    pub(super) fn is_requested(&self, ty: Ty) -> bool {
        self.types.contains_key(ty.url())
    }

    /// Every response was answered.
    pub(super) fn check_answered(&self) {
        for (type_url, of_type) in &self.types {
            assert_eq!(of_type.answered, of_type.nonces.len(), "every response of {type_url} is answered");
        }
    }
}

/// What a request said of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Accepted,
    Rejected,
}

impl OfType {
    /// Each response is answered once, in order, and none for another.
    fn on_delta_answer(&mut self, nonce: &str, rejected: bool) -> Option<Answered> {
        if nonce.is_empty() {
            assert!(!rejected, "B2.10: only answers reject");
            return None;
        }
        let (expected, due) = self.nonces.get(self.answered).expect("it was answered before");
        assert_eq!(nonce, expected, "answers keep the order of responses");
        assert!(*due != if rejected { Due::Ack } else { Due::Nack }, "{nonce}: {due:?} is due");
        self.answered += 1;
        Some(if rejected { Answered::Rejected } else { Answered::Accepted })
    }

    fn on_answer(&mut self, nonce: &str, rejected: bool) -> Option<Answered> {
        if nonce.is_empty() {
            assert!(self.answered == 0 && !rejected, "B1.7: a nonce is kept");
            return None;
        }
        let place = self.nonces.iter().rposition(|(other, _)| other == nonce).expect("it came") + 1;
        assert!(self.answered <= place, "the nonce went back");
        let due = self.nonces[place - 1].1;
        let repeated = self.nonces.iter().filter(|(other, _)| other == nonce).count() > 1;
        if place == self.answered {
            assert!(!rejected || repeated, "it was answered before");
            return None;
        }
        let skipped = self.nonces[self.answered..place - 1].iter();
        for (other, due) in skipped {
            assert!(*due != Due::Nack || other == nonce, "the rejection of {other} is lost");
        }
        // A request that was under way carries the nonce of the first time.
        let wrong = if rejected { Due::Ack } else { Due::Nack };
        assert!(repeated || due != wrong, "{nonce}: {due:?} is due");
        self.answered = place;
        Some(if rejected { Answered::Rejected } else { Answered::Accepted })
    }
}
