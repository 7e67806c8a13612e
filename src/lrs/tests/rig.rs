//! Servers at the other end of the streams, by their messages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;

use crate::{
    config::{Locality, Server, TransportApiVersion},
    lrs::{
        ClusterLoads, LoadCommand, LoadReporter, LoadSettings, LoadStreamState, Loads, LocalityReporter,
        Reporting,
    },
    pb::{
        envoy::{
            config::{
                core::v3::{self as core, address, socket_address::PortSpecifier},
                endpoint::v3::ClusterStats,
            },
            service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
        },
        google::protobuf as google,
    },
    protocol::{Disconnect, DisconnectKind, ServerId, StreamEvent, StreamId},
    resource::cluster::ReportedMetrics,
};

pub(in crate::lrs) struct Rig {
    pub(in crate::lrs) loads: Arc<Loads>,
    pub(super) reporting: Reporting,
    pub(super) now: Instant,
    /// A v3 server, and a v2 server.
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) keep: Vec<LoadReporter>,
    pub(super) greeting: Option<LoadStatsRequest>,
    /// The requests of the last [`reports`](Self::reports).
    pub(super) requests: Vec<LoadStatsRequest>,
    pub(super) raw: Vec<Vec<u8>>,
    /// The servers whose streams were half closed.
    pub(super) finished: Vec<u32>,
    /// The transport accepts no request.
    pub(super) is_stalled: bool,
    attempts: [u64; 2],
    zone: Option<LocalityReporter>,
}

impl Rig {
    pub(in crate::lrs) fn new() -> Self {
        Self::with(LoadSettings::default())
    }

    pub(super) fn with(settings: LoadSettings) -> Self {
        let loads = Loads::new(settings);
        let node = core::Node { id: "n".into(), client_features: vec!["f".into()], ..core::Node::default() };
        let v2 =
            Server { transport_api_version: TransportApiVersion::V2, ..Server::clone(&server("http://1")) };
        Self {
            reporting: Reporting::new(loads.clone(), &node.encode_to_vec(), 7),
            loads,
            now: Instant::now(),
            servers: vec![server("http://0"), Arc::new(v2)],
            keep: Vec::new(),
            greeting: None,
            requests: Vec::new(),
            raw: Vec::new(),
            finished: Vec::new(),
            is_stalled: false,
            attempts: [0; 2],
            zone: None,
        }
    }

    /// A reporter of `shop` whose server asks for reports each second.
    pub(super) fn reporting() -> Self {
        Self::reporting_with(LoadSettings::default())
    }

    pub(super) fn reporting_with(settings: LoadSettings) -> Self {
        let mut rig = Self::with(settings);
        rig.zone = Some(rig.begin("shop", 0));
        rig.open(0);
        rig.respond(0, &all(1));
        rig
    }

    pub(super) fn zone(&self) -> &LocalityReporter {
        self.zone.as_ref().unwrap()
    }

    pub(super) fn drop_zone(&mut self) {
        self.zone = None;
    }

    /// A handle of a cluster that is reported.
    pub(super) fn begin(&mut self, cluster: &str, server: usize) -> LocalityReporter {
        let reporter = self.loads.reporter(cluster);
        self.set(cluster, server);
        let zone = reporter.locality(&Locality::new("r", "z", ""));
        self.keep.push(reporter);
        self.commands();
        zone
    }

    pub(super) fn set(&mut self, cluster: &str, server: usize) {
        self.set_service(cluster, server, None);
    }

    pub(super) fn set_service(&mut self, cluster: &str, server: usize, service: Option<&str>) {
        self.set_metrics(cluster, (server, service), &ReportedMetrics::default());
    }

    pub(in crate::lrs) fn set_metrics(
        &mut self,
        cluster: &str,
        (server, service): (usize, Option<&str>),
        metrics: &ReportedMetrics,
    ) {
        let service = service.map(Arc::from);
        let loads = ClusterLoads { server: &self.servers[server], service: service.as_ref(), metrics };
        self.loads.set_cluster(&cluster.into(), Some(loads));
    }

    pub(super) fn method(&self, server: u32) -> &'static str {
        let stream = StreamId { server: ServerId(server), attempt: 1 };
        self.reporting.target(stream).unwrap().method
    }

    /// The commands, in words; requests are accepted by the transport and noted.
    pub(super) fn commands(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        for _ in 0..1_000 {
            if self.loads.take_changed() {
                self.reporting.handle_change(self.now);
            }
            let Some(command) = self.reporting.poll_command() else {
                if self.reporting.poll_timeout().is_none_or(|at| at > self.now) {
                    return words;
                }
                self.reporting.handle_timeout(self.now);
                continue;
            };
            match command {
                LoadCommand::Connect { stream } => {
                    self.attempts[stream.server.0 as usize] = stream.attempt;
                    words.push(format!("connect {stream}"));
                }
                LoadCommand::Send { stream, message } => {
                    if self.is_stalled {
                        continue;
                    }
                    let request = LoadStatsRequest::decode(message.clone()).unwrap();
                    match request.node.is_some() {
                        true => self.greeting = Some(request),
                        false => {
                            self.raw.push(message.to_vec());
                            self.requests.push(request);
                        }
                    }
                    self.reporting.handle_event(StreamEvent::RequestSent { stream }, self.now);
                }
                LoadCommand::Read { .. } => {}
                LoadCommand::Finish { stream } => self.finished.push(stream.server.0),
                LoadCommand::Disconnect { stream } => words.push(format!("disconnect {stream}")),
            }
        }
        panic!("there is no end of the commands");
    }

    /// The transport accepts the last request, which it has stalled.
    pub(super) fn accept(&mut self, server: u32) {
        let stream = self.stream(server);
        self.is_stalled = false;
        self.reporting.handle_event(StreamEvent::RequestSent { stream }, self.now);
    }

    pub(super) fn open(&mut self, server: u32) {
        let stream = self.stream(server);
        self.reporting.handle_event(StreamEvent::Connected { stream }, self.now);
        self.commands();
    }

    pub(super) fn respond(&mut self, server: u32, response: &LoadStatsResponse) {
        self.respond_with(server, &response.encode_to_vec());
    }

    pub(super) fn respond_with(&mut self, server: u32, message: &[u8]) {
        let (stream, message) = (self.stream(server), message.to_vec().into());
        self.reporting.handle_event(StreamEvent::Received { stream, message, at: None }, self.now);
        self.commands();
    }

    pub(super) fn disconnect(&mut self, server: u32, kind: DisconnectKind) {
        let (stream, reason) = (self.stream(server), Disconnect::new(kind, "gone"));
        self.reporting.handle_event(StreamEvent::Disconnected { stream, reason }, self.now);
        self.commands();
    }

    /// The reports of the requests that are written now.
    pub(super) fn reports(&mut self) -> Vec<ClusterStats> {
        (self.requests, self.raw) = Default::default();
        self.commands();
        self.requests.iter().flat_map(|request| request.cluster_stats.clone()).collect()
    }

    pub(super) fn advance(&mut self, time: Duration) -> Vec<ClusterStats> {
        self.now += time;
        self.reports()
    }

    /// Advances to the next deadline, without handling it.
    pub(super) fn advance_to_timeout(&mut self) {
        self.now = self.reporting.poll_timeout().unwrap();
    }

    pub(super) fn state(&self, server: usize) -> LoadStreamState {
        self.reporting.status()[server].state
    }

    fn stream(&mut self, server: u32) -> StreamId {
        self.commands();
        StreamId { server: ServerId(server), attempt: self.attempts[server as usize] }
    }
}

pub(in crate::lrs) fn server(uri: &str) -> Arc<Server> {
    Arc::new(Server::new(uri).build().unwrap())
}

pub(super) fn only(reports: &[ClusterStats]) -> ClusterStats {
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports[0].clone()
}

pub(super) fn all(seconds: i64) -> LoadStatsResponse {
    response((seconds, 0), true, &[])
}

pub(super) fn named(names: &[&str], seconds: i64) -> LoadStatsResponse {
    response((seconds, 0), false, names)
}

pub(super) fn response((seconds, nanos): (i64, i32), all: bool, names: &[&str]) -> LoadStatsResponse {
    LoadStatsResponse {
        clusters: names.iter().map(ToString::to_string).collect(),
        send_all_clusters: all,
        load_reporting_interval: Some(google::Duration { seconds, nanos }),
        report_endpoint_granularity: false,
    }
}

pub(super) fn socket(address: Option<core::Address>) -> String {
    let Some(address::Address::SocketAddress(socket)) = address.unwrap().address else { panic!("no socket") };
    let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else { panic!("no port") };
    std::net::SocketAddr::new(socket.address.parse().unwrap(), port as u16).to_string()
}

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
