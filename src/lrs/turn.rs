//! The reports of one interval, built and written in slices.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    destination::ReportKey,
    response::Order,
    server_loads::{Part, ServerLoads, Slice},
    settings::LoadSettings,
};

/// The reports of one interval.
#[derive(Debug)]
pub(super) struct Turn {
    /// The response by which the reports are made, also if another one arrives meanwhile.
    order: Arc<Order>,
    /// The keys without a report so far.
    rest: Rest,
    /// Requests that are built and not passed on.
    parts: VecDeque<Part>,
    /// The part that was passed to the transport, which has not accepted it yet.
    in_flight: Option<Part>,
    /// The number of keys in the written requests.
    keys: usize,
    /// The size of the written requests in bytes.
    bytes: usize,
}

/// The keys of a turn that have no report so far.
#[derive(Debug)]
enum Rest {
    /// No report was built yet.
    All,
    /// The keys behind this one, in their order.
    After(ReportKey),
    /// All reports were built.
    Nothing,
}

/// The last report that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastReport {
    /// When the last of its requests was accepted by the transport.
    pub(crate) at: Instant,
    /// The number of clusters in it.
    pub(crate) clusters: usize,
    /// Its size, of all its requests.
    pub(crate) bytes: usize,
}

impl Turn {
    /// Begins the reports that a response has requested.
    pub(super) fn new(order: Arc<Order>) -> Self {
        Self { order, rest: Rest::All, parts: VecDeque::new(), in_flight: None, keys: 0, bytes: 0 }
    }

    /// Whether a slice of the reports is to be built now.
    pub(super) fn has_work(&self) -> bool {
        // A slow server does not fill the memory: no more is built than is written next.
        !matches!(self.rest, Rest::Nothing) && self.parts.len() < 2
    }

    /// Builds a slice of the reports.
    pub(super) fn build(&mut self, loads: &mut ServerLoads, settings: &LoadSettings, now: Instant) {
        let after = match &self.rest {
            Rest::All => None,
            Rest::After(key) => Some(key.clone()),
            Rest::Nothing => return,
        };
        let Slice { parts, last } = loads.take(after.as_ref(), &self.order, now, settings);
        self.parts.extend(parts);
        self.rest = last.map_or(Rest::Nothing, Rest::After);
    }

    /// Whether the transport has not accepted the last request yet.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether all requests were passed to the transport.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.rest, Rest::Nothing) && self.parts.is_empty()
    }

    /// Returns the next request, which is in flight from now on.
    pub(super) fn poll_request(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        Some(self.in_flight.insert(part).message.clone())
    }

    /// Handles that the transport has accepted the request in flight, and returns its reports.
    pub(super) fn on_written(&mut self) -> Option<Part> {
        let part = self.in_flight.take()?;
        self.keys += part.len();
        self.bytes += part.message.len();
        Some(part)
    }

    /// Returns the written report up to now.
    pub(super) fn written(&self, at: Instant) -> LastReport {
        LastReport { at, clusters: self.keys, bytes: self.bytes }
    }
}
