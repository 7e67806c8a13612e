//! What servers do with requests. A request has the number of its plan in its first message, and in its headers if it has to be known
//! whether a peer has seen any of it.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Instant;

use super::network::lock;

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    /// The time before the response.
    pub(super) delay: Duration,
    /// Whether the response begins before the request has ended.
    pub(super) is_early: bool,
    /// The number of messages; `u32::MAX` never ends.
    pub(super) messages: u32,
    /// The bytes of a message.
    pub(super) size: usize,
    /// The time between messages.
    pub(super) gap: Duration,
    /// The largest DATA frame.
    pub(super) frame: usize,
    /// The bytes of the response's metadata.
    pub(super) metadata: usize,
    pub(super) end: PlanEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanEnd {
    /// Trailers with the status OK.
    Ok,
    /// A status alone, without messages.
    TrailersAlone,
    /// The stream is reset after the messages.
    Reset,
    /// Nothing follows the messages.
    Open,
}

/// What a peer reads of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) number: u32,
    pub(super) plan: Plan,
    pub(super) deadline: Option<Instant>,
}

/// The plans of all requests of a run.
#[derive(Debug, Default)]
pub(super) struct Plans {
    all: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    plan: Plan,
    /// When no peer may have the stream any more.
    deadline: Option<Instant>,
    /// How many times peers have read the request, or its headers.
    seen: AtomicUsize,
    /// The bytes of the request that peers have read.
    received: AtomicUsize,
}

impl Plan {
    /// A small response after a short time.
    pub(super) fn unary(delay: Duration) -> Self {
        Self {
            delay,
            is_early: false,
            messages: 1,
            size: 100,
            gap: Duration::ZERO,
            frame: 16 << 10,
            metadata: 0,
            end: PlanEnd::Ok,
        }
    }
}

impl Plans {
    /// Adds a plan, and returns the first message of the request.
    pub(super) fn add(&self, plan: Plan, deadline: Option<Instant>) -> (u32, Bytes) {
        let mut all = lock(&self.all);
        let number = all.len() as u32;
        all.push(Entry { plan, deadline, seen: AtomicUsize::new(0), received: AtomicUsize::new(0) });
        let mut message = BytesMut::with_capacity(PREFIX + 4);
        message.put_slice(&MESSAGE);
        message.put_u32(number);
        (number, message.freeze())
    }

    /// The plan of a request, from its first data; `None` if these are others.
    pub(super) fn read(&self, data: &[u8]) -> Option<Planned> {
        let number = data.strip_prefix(&MESSAGE)?.get(..4)?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let all = lock(&self.all);
        let entry = all.get(number as usize)?;
        entry.seen.fetch_add(1, Ordering::Relaxed);
        Some(Planned { number, plan: entry.plan, deadline: entry.deadline })
    }

    /// A peer has read the headers of the request with this number.
    pub(super) fn on_headers(&self, number: u32) {
        if let Some(entry) = lock(&self.all).get(number as usize) {
            entry.seen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A peer has read data of a request.
    pub(super) fn on_data(&self, number: u32, bytes: usize) {
        if let Some(entry) = lock(&self.all).get(number as usize) {
            entry.received.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The bytes of a request that peers have read.
    pub(super) fn received(&self, number: u32) -> usize {
        lock(&self.all).get(number as usize).map_or(0, |entry| entry.received.load(Ordering::Relaxed))
    }

    /// Whether any peer has read the headers or the beginning of the data of the request.
    pub(super) fn is_seen(&self, number: u32) -> bool {
        lock(&self.all).get(number as usize).is_some_and(|entry| entry.seen.load(Ordering::Relaxed) > 0)
    }
}

/// The prefix of the first message of a request.
const MESSAGE: [u8; PREFIX] = [0, 0, 0, 0, 4];
/// The length of a message's prefix in gRPC.
pub(super) const PREFIX: usize = 5;
