//! The streams of load reports to all servers of a client.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    encode,
    loads::Loads,
    settings::LoadSettings,
    stream::{History, LoadCommand, LoadStream, LoadStreamState},
    turn::LastReport,
};
use crate::{
    config::{Server, TransportApiVersion},
    protocol::{ServerId, StreamEvent, StreamId},
};

/// All streams of load reports, without I/O.
///
/// Events go in by [`handle_event`](Self::handle_event), [`handle_timeout`](Self::handle_timeout) and, when
/// [`Loads::take_changed`] says so, [`handle_change`](Self::handle_change). After each, [`poll_command`](Self::poll_command) is
/// called until it yields `None`; [`poll_timeout`](Self::poll_timeout) then returns the next deadline, in the past if there is work
/// left. With no handle there is no stream and no deadline.
#[derive(Debug)]
pub(crate) struct Reporting {
    /// The loads of the client, which handles change at any time.
    loads: Arc<Loads>,
    /// The settings of the client.
    settings: Arc<LoadSettings>,
    /// The first request of each stream, which has the node.
    first_request: Bytes,
    /// Seeds the backoffs of the streams.
    random: fastrand::Rng,
    /// Streams by the index of their server; a new server gets its stream at the next change.
    streams: Vec<LoadStream>,
}

/// The server and the method that a stream is opened to.
#[derive(Debug, Clone)]
pub(crate) struct LoadTarget {
    pub(crate) server: Arc<Server>,
    /// The path of the method.
    pub(crate) method: &'static str,
}

/// The state of the stream to a server, for the status of a client.
#[derive(Debug, Clone)]
pub(crate) struct LoadStreamReport {
    /// The server of the stream.
    pub(crate) server: Arc<Server>,
    /// The state at present.
    pub(crate) state: LoadStreamState,
    /// When the stream came into this state.
    pub(crate) since: Instant,
    /// The requested interval of reports; `None` without a response.
    pub(crate) interval: Option<std::time::Duration>,
    /// The number of clusters that the server has named; `None` for all, or without a response.
    pub(crate) wanted: Option<usize>,
    /// The last request with reports; `None` before the first one.
    pub(crate) last_report: Option<LastReport>,
    /// The number of requests with reports that the transport has accepted, over all streams to the server.
    pub(crate) reports_sent: u64,
    /// The size of all reports that were sent, in bytes.
    pub(crate) report_bytes: u64,
    /// How many times the stream failed.
    pub(crate) failures: u64,
    /// The number of keys and localities that were dropped without a report (LR6.6).
    pub(crate) dropped_residues: u64,
    /// The number of values of metrics that were dropped (LR8.7).
    pub(crate) dropped_metrics: u64,
}

impl Reporting {
    /// `node` is the encoded node of the client.
    pub(crate) fn new(loads: Arc<Loads>, node: &[u8], seed: u64) -> Self {
        let settings = Arc::new(loads.settings().clone());
        Self {
            loads,
            settings,
            first_request: encode::first_request(node).freeze(),
            random: fastrand::Rng::with_seed(seed),
            streams: Vec::new(),
        }
    }

    pub(crate) fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }

    /// Handles that handles came or went, or that the configuration of a cluster changed.
    pub(crate) fn handle_change(&mut self, now: Instant) {
        let loads = self.loads.clone();
        let mut state = loads.lock();
        state.sweep(&self.settings, now);
        for index in self.streams.len()..state.servers.len() {
            let id = ServerId(index.try_into().unwrap_or(u32::MAX));
            let (first_request, settings) = (self.first_request.clone(), self.settings.clone());
            self.streams.push(LoadStream::new(id, first_request, settings, self.random.u64(..), now));
        }
        for (stream, loads) in self.streams.iter_mut().zip(&mut state.servers) {
            stream.handle_change(loads, now);
        }
    }

    /// Handles an event of a stream.
    pub(crate) fn handle_event(&mut self, event: StreamEvent, now: Instant) {
        let index = event.stream().server.0 as usize;
        let mut state = self.loads.lock();
        if let Some((stream, loads)) = self.streams.get_mut(index).zip(state.servers.get_mut(index)) {
            stream.handle_event(event, loads, now);
        }
    }

    /// Handles the due timers.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        // Each stream with work builds one slice under the lock (LR7.3), and stays due until all slices are built.
        let mut state = self.loads.lock();
        for (stream, loads) in self.streams.iter_mut().zip(&mut state.servers) {
            stream.handle_timeout(loads, now);
        }
    }

    /// Sends the last reports and ends all streams (LR6.8). To be driven until [`is_closed`](Self::is_closed).
    pub(crate) fn shut_down(&mut self, now: Instant) {
        let mut state = self.loads.lock();
        for (stream, loads) in self.streams.iter_mut().zip(&mut state.servers) {
            stream.shut_down(loads, now);
        }
    }

    /// Whether all streams have ended, after [`shut_down`](Self::shut_down).
    pub(crate) fn is_closed(&self) -> bool {
        self.streams.iter().all(LoadStream::is_closed)
    }

    /// Returns the next command; `None` until the next event.
    /// Commands to one server are in order; those to different servers are independent of each other.
    pub(crate) fn poll_command(&mut self) -> Option<LoadCommand> {
        self.streams.iter_mut().find_map(LoadStream::poll_command)
    }

    /// Returns the next time for [`handle_timeout`](Self::handle_timeout); in the past if there is work left.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.streams.iter().filter_map(LoadStream::poll_timeout).min()
    }

    /// Where a stream goes to.
    pub(crate) fn target(&self, stream: StreamId) -> Option<LoadTarget> {
        let server = self.loads.lock().servers.get(stream.server.0 as usize)?.server.clone();
        let method = match server.transport_api_version {
            TransportApiVersion::V3 => METHOD,
            TransportApiVersion::V2 => METHOD_V2,
        };
        Some(LoadTarget { server, method })
    }

    /// Returns the state of each stream.
    pub(crate) fn status(&self) -> Vec<LoadStreamReport> {
        let state = self.loads.lock();
        let streams = self.streams.iter().zip(&state.servers);
        let report = |(stream, loads): (&LoadStream, &super::server_loads::ServerLoads)| {
            let History { reports_sent, report_bytes, failures, last_report } = *stream.history();
            LoadStreamReport {
                server: loads.server.clone(),
                state: stream.state(),
                since: stream.since(),
                interval: stream.order().map(|order| order.interval),
                wanted: stream.order().and_then(|order| order.wanted()),
                last_report,
                reports_sent,
                report_bytes,
                failures,
                dropped_residues: loads.dropped_residues(),
                dropped_metrics: loads.dropped_metrics(),
            }
        };
        streams.map(report).collect()
    }
}

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const METHOD_V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";
