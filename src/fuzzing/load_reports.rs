//! The load reports of a client whose server and backends may send anything, and for a bench, their building.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;

use crate::{
    config::{Locality, Server},
    lrs::{
        ClusterLoads, LoadCommand, LoadReporter, LoadSettings, Loads, LocalityReporter, OrcaLoadReport,
        Outcome, Reporting,
    },
    pb::envoy::service::load_stats::v3::LoadStatsRequest,
    protocol::{StreamEvent, StreamId},
    resource::cluster::ReportedMetrics,
};

/// A client with an open stream of load reports.
#[derive(Debug)]
pub struct LoadReporting {
    loads: Arc<Loads>,
    reporting: Reporting,
    now: Instant,
    stream: Option<StreamId>,
    server: Arc<Server>,
    reporters: Vec<LoadReporter>,
    localities: Vec<LocalityReporter>,
    /// The last requests with reports.
    requests: Vec<Bytes>,
}

impl LoadReporting {
    /// A client that counts for so many clusters of so many localities each.
    ///
    /// # Panics
    /// Never: the server is valid.
    #[allow(clippy::disallowed_methods, reason = "its clock begins some time")]
    pub fn new(clusters: usize, localities: usize) -> Self {
        let loads = Loads::new(LoadSettings { max_metric_names: 8, ..LoadSettings::default() });
        let server = Server::new("http://127.0.0.1:1").build().expect("it is valid");
        let mut reporting = Self {
            reporting: Reporting::new(loads.clone(), b"", 1),
            loads,
            now: Instant::now(),
            stream: None,
            server: Arc::new(server),
            reporters: Vec::new(),
            localities: Vec::new(),
            requests: Vec::new(),
        };
        for cluster in 0..clusters {
            reporting.add(&format!("cluster-{cluster}"), localities);
        }
        reporting.settle();
        reporting
    }

    fn add(&mut self, cluster: &str, localities: usize) {
        let metrics =
            ReportedMetrics { all_named_metrics: true, cpu_utilization: true, ..Default::default() };
        let loads = ClusterLoads { server: &self.server, service: None, metrics: &metrics };
        self.loads.set_cluster(&cluster.into(), Some(loads));
        let reporter = self.loads.reporter(cluster);
        let zones = (0..localities).map(|zone| Locality::new("region", &format!("zone-{zone}"), ""));
        self.localities.extend(zones.map(|zone| reporter.locality(&zone)));
        self.reporters.push(reporter);
    }

    /// A response of the server.
    pub fn receive(&mut self, message: &[u8]) {
        let Some(stream) = self.stream else { return };
        let message = Bytes::copy_from_slice(message);
        self.reporting.handle_event(StreamEvent::Received { stream, message, at: None }, self.now);
        self.settle();
    }

    /// A call in each locality, with the encoded report of the backend.
    pub fn call(&self, is_ok: bool, report: Option<&[u8]>) {
        let report = report.and_then(OrcaLoadReport::decode);
        let outcome = if is_ok { Outcome::Success } else { Outcome::Error };
        for locality in &self.localities {
            locality.call_started().finish(outcome, report.as_ref());
        }
    }

    /// A call that was dropped.
    pub fn drop_call(&self, category: &str) {
        self.reporters.iter().for_each(|reporter| reporter.dropped(category));
    }

    /// Lets time pass. Returns the sizes of the requests with reports.
    pub fn pass(&mut self, time: Duration) -> usize {
        self.now += time;
        self.requests.clear();
        self.settle();
        self.requests.iter().map(Bytes::len).sum()
    }

    /// The last requests with reports.
    ///
    /// # Panics
    /// A request is no message.
    pub fn requests(&self) -> Vec<LoadStatsRequest> {
        let decode = |request: &Bytes| LoadStatsRequest::decode(request.clone()).expect("it is a message");
        self.requests.iter().map(decode).collect()
    }

    /// Whether there is work left without a wait.
    pub fn is_idle(&self) -> bool {
        self.reporting.poll_timeout().is_none_or(|at| at > self.now)
    }

    fn settle(&mut self) {
        loop {
            if self.loads.take_changed() {
                self.reporting.handle_change(self.now);
            }
            while let Some(command) = self.reporting.poll_command() {
                self.execute(command);
            }
            if self.is_idle() {
                return;
            }
            self.reporting.handle_timeout(self.now);
        }
    }

    fn execute(&mut self, command: LoadCommand) {
        match command {
            LoadCommand::Connect { stream } => {
                self.stream = Some(stream);
                self.reporting.handle_event(StreamEvent::Connected { stream }, self.now);
            }
            LoadCommand::Send { stream, message } => {
                self.requests.push(message);
                self.reporting.handle_event(StreamEvent::RequestSent { stream }, self.now);
            }
            LoadCommand::Read { .. } => {}
            LoadCommand::Finish { .. } | LoadCommand::Disconnect { .. } => self.stream = None,
        }
    }
}

/// A locality that counts calls.
#[derive(Debug)]
pub struct CallCounting {
    reporting: LoadReporting,
    locality: LocalityReporter,
}

impl CallCounting {
    /// One whose load is reported, or one whose load is not.
    pub fn new(is_reported: bool) -> Self {
        let reporting = LoadReporting::new(1, 1);
        let name = if is_reported { "cluster-0" } else { "other" };
        let locality = reporting.loads.reporter(name).locality(&Locality::default());
        Self { reporting, locality }
    }

    /// Counts a call from its start to its end.
    #[inline]
    pub fn call(&self) {
        self.locality.call_started().finish(Outcome::Success, None);
    }

    /// Whether anything was counted.
    pub fn has_counted(&self) -> bool {
        self.reporting.reporters.iter().any(|it| it.stats().is_some_and(|it| !it.localities.is_empty()))
    }
}
