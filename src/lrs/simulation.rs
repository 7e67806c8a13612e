//! Random histories of calls, handles, configurations and streams, against a model (LR10.5).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;

use super::{
    ClusterLoads, EndpointReporter, LoadCommand, LoadReporter, LoadSettings, Loads, LocalityReporter,
    OrcaLoadReport, Outcome, ReportedCall, Reporting, settings::Shards, tests::server,
};
use crate::{
    config::{Locality, Server},
    pb::{
        envoy::{config::endpoint::v3 as endpoint, service::load_stats::v3 as lrs},
        google::protobuf as google,
    },
    protocol::{Disconnect, DisconnectKind, StreamEvent, StreamId},
    resource::cluster::ReportedMetrics,
};

#[test]
fn lr10_5_random_histories_lose_and_double_nothing() {
    for seed in 0..SEEDS {
        World::new(seed).run();
    }
}

/// A key at a server: its index, the cluster, the service.
type Key = (usize, String, String);

/// What was counted, or reported.
#[derive(Debug, Default, Clone, PartialEq)]
struct Counts {
    calls: BTreeMap<String, [u64; 3]>,
    drops: BTreeMap<String, u64>,
    metrics: BTreeMap<(String, String), (u64, f64)>,
}

struct Call {
    call: ReportedCall,
    /// Where it is counted, if it is.
    counted: Option<(Key, String)>,
    has_metrics: bool,
}

enum Handle {
    Locality(LocalityReporter),
    Endpoint(LocalityReporter, EndpointReporter),
}

/// A server at the other end of a stream.
#[derive(Default)]
struct Peer {
    stream: Option<StreamId>,
    is_connected: bool,
    in_flight: Option<lrs::LoadStatsRequest>,
    has_greeting: bool,
    is_half_closed: bool,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    loads: Arc<Loads>,
    reporting: Reporting,
    now: Instant,
    servers: Vec<Arc<Server>>,
    peers: Vec<Peer>,
    /// What CDS says of each cluster: server, service, whether with metrics.
    routes: BTreeMap<String, (usize, String, bool)>,
    reporters: BTreeMap<String, LoadReporter>,
    handles: Vec<(String, Handle)>,
    calls: Vec<Call>,
    counted: BTreeMap<Key, Counts>,
    reported: BTreeMap<Key, Counts>,
    intervals: BTreeMap<Key, Duration>,
    begun: Instant,
}

impl World {
    fn new(seed: u64) -> Self {
        let settings = LoadSettings {
            shards: Shards::Fixed(2),
            slice: 3,
            max_request_size: 200,
            max_metric_names: 5,
            max_departed: 3,
            ..LoadSettings::default()
        };
        let loads = Loads::new(settings);
        let now = Instant::now();
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            reporting: Reporting::new(loads.clone(), b"", seed),
            loads,
            now,
            servers: (0..SERVERS).map(|index| server(&format!("http://{index}"))).collect(),
            peers: (0..SERVERS).map(|_| Peer::default()).collect(),
            routes: BTreeMap::new(),
            reporters: BTreeMap::new(),
            handles: Vec::new(),
            calls: Vec::new(),
            counted: BTreeMap::new(),
            reported: BTreeMap::new(),
            intervals: BTreeMap::new(),
            begun: now,
        }
    }

    fn run(&mut self) {
        // The servers are known in this order.
        for index in 0..SERVERS {
            drop(self.loads.reporter_to(&self.servers[index].clone(), "probe", None));
        }
        self.settle();
        for _ in 0..STEPS {
            self.step();
            self.settle();
            self.check_each();
        }
        self.heal();
        for (key, counted) in &self.counted {
            let reported = self.reported.get(key).cloned().unwrap_or_default();
            assert_eq!(reported, *counted, "seed {}: {key:?}", self.seed);
        }
        let elapsed = self.now - self.begun;
        for (key, sum) in &self.intervals {
            assert!(*sum <= elapsed, "seed {}: {key:?} has intervals of {sum:?} in {elapsed:?}", self.seed);
        }
    }

    fn step(&mut self) {
        match self.random.u32(..20) {
            0..6 => self.start_call(),
            6..10 => self.end_call(),
            10 => self.drop_call(),
            11 | 12 => self.make_handle(),
            13 => self.end_handle(),
            14 => self.change_route(),
            15 => self.answer(),
            16 => self.lose_stream(),
            17 => self.accept(),
            _ => self.now += Duration::from_millis(self.random.u64(..3_000)),
        }
    }

    fn cluster(&mut self) -> String {
        format!("c{}", self.random.u32(..3))
    }

    fn start_call(&mut self) {
        if self.handles.is_empty() {
            return;
        }
        let (cluster, handle) = &self.handles[self.random.usize(..self.handles.len())];
        let (call, locality) = match handle {
            Handle::Locality(locality) => (locality.call_started(), locality.locality()),
            Handle::Endpoint(locality, endpoint) => (endpoint.call_started(), locality.locality()),
        };
        let route = self.routes.get(cluster);
        let counted = route.map(|(server, service, _)| {
            ((*server, cluster.clone(), service.clone()), locality.zone().to_owned())
        });
        if let Some((key, locality)) = &counted {
            count(self.counted.entry(key.clone()).or_default(), locality, 0);
        }
        let has_metrics = route.is_some_and(|(_, _, has_metrics)| *has_metrics);
        self.calls.push(Call { call, counted, has_metrics });
    }

    fn end_call(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let Call { call, counted, has_metrics } =
            self.calls.swap_remove(self.random.usize(..self.calls.len()));
        let is_ok = self.random.bool();
        if let Some((key, locality)) = &counted {
            count(self.counted.entry(key.clone()).or_default(), locality, if is_ok { 1 } else { 2 });
        }
        match self.random.u32(..3) {
            0 if !is_ok => drop(call),
            1 => {
                let value = f64::from(self.random.u32(1..9));
                let name = ["a", "b"][self.random.usize(..2)];
                let report = OrcaLoadReport {
                    named_metrics: [(name.to_owned(), value)].into(),
                    ..OrcaLoadReport::default()
                };
                call.finish(if is_ok { Outcome::Success } else { Outcome::Error }, Some(&report));
                if let Some((key, locality)) = counted.filter(|_| has_metrics) {
                    let metrics = &mut self.counted.entry(key).or_default().metrics;
                    let sum = metrics.entry((locality, format!("named_metrics.{name}"))).or_default();
                    *sum = (sum.0 + 1, sum.1 + value);
                }
            }
            _ => call.finish(if is_ok { Outcome::Success } else { Outcome::Error }, None),
        }
    }

    fn drop_call(&mut self) {
        let cluster = self.cluster();
        let Some(reporter) = self.reporters.get(&cluster) else { return };
        let category = ["", "throttle", "shed"][self.random.usize(..3)];
        reporter.dropped(category);
        if let Some((server, service, _)) = self.routes.get(&cluster) {
            let counts = self.counted.entry((*server, cluster, service.clone())).or_default();
            *counts.drops.entry(category.to_owned()).or_default() += 1;
        }
    }

    fn make_handle(&mut self) {
        let cluster = self.cluster();
        let reporter = self.reporters.entry(cluster.clone()).or_insert_with(|| self.loads.reporter(&cluster));
        let zone = ["", "a", "b"][self.random.usize(..3)];
        let locality = reporter.locality(&Locality::new("", zone, ""));
        let handle = match self.random.bool() {
            true => Handle::Locality(locality),
            false => {
                let endpoint = locality.endpoint(([127, 0, 0, 1], self.random.u16(1..3)).into());
                Handle::Endpoint(locality, endpoint)
            }
        };
        self.handles.push((cluster, handle));
    }

    fn end_handle(&mut self) {
        match self.random.u32(..4) {
            0 => {
                let cluster = self.cluster();
                self.reporters.remove(&cluster);
                self.handles.retain(|(other, _)| *other != cluster);
            }
            _ if !self.handles.is_empty() => {
                self.handles.swap_remove(self.random.usize(..self.handles.len()));
            }
            _ => {}
        }
    }

    fn change_route(&mut self) {
        let cluster = self.cluster();
        let name: Arc<str> = cluster.as_str().into();
        if self.random.u32(..4) == 0 {
            self.routes.remove(&cluster);
            return self.loads.set_cluster(&name, None);
        }
        let (server, has_metrics) = (self.random.usize(..SERVERS), self.random.bool());
        let service = ["", "s1", "s2"][self.random.usize(..3)];
        let named: Arc<str> = service.into();
        let metrics = ReportedMetrics { all_named_metrics: has_metrics, ..ReportedMetrics::default() };
        let loads = ClusterLoads {
            server: &self.servers[server].clone(),
            service: (!service.is_empty()).then_some(&named),
            metrics: &metrics,
        };
        self.loads.set_cluster(&name, Some(loads));
        self.routes.insert(cluster, (server, service.to_owned(), has_metrics));
    }

    fn answer(&mut self) {
        let server = self.random.usize(..SERVERS);
        let seconds = self.random.i64(0..4);
        let has_endpoints = self.random.bool();
        self.answer_with(server, seconds, has_endpoints);
    }

    fn answer_with(&mut self, server: usize, seconds: i64, has_endpoints: bool) {
        let response = lrs::LoadStatsResponse {
            send_all_clusters: true,
            load_reporting_interval: Some(google::Duration { seconds, nanos: 0 }),
            report_endpoint_granularity: has_endpoints,
            ..lrs::LoadStatsResponse::default()
        };
        let Some(stream) = self.peers[server].stream.filter(|_| self.peers[server].is_connected) else {
            return;
        };
        let message = response.encode_to_vec().into();
        self.reporting.handle_event(StreamEvent::Received { stream, message, at: None }, self.now);
    }

    fn lose_stream(&mut self) {
        let peer = &mut self.peers[self.random.usize(..SERVERS)];
        if let Some(stream) = peer.stream {
            *peer = Peer::default();
            let reason = Disconnect::new(DisconnectKind::Closed, "");
            self.reporting.handle_event(StreamEvent::Disconnected { stream, reason }, self.now);
        }
    }

    /// A connection is established, or a written request accepted.
    fn accept(&mut self) {
        let server = self.random.usize(..SERVERS);
        self.accept_at(server);
    }

    fn accept_at(&mut self, server: usize) {
        let peer = &mut self.peers[server];
        let Some(stream) = peer.stream else { return };
        if !peer.is_connected {
            peer.is_connected = true;
            self.reporting.handle_event(StreamEvent::Connected { stream }, self.now);
        } else if let Some(request) = peer.in_flight.take() {
            if peer.has_greeting {
                self.add_reports(server, &request);
            }
            self.peers[server].has_greeting = true;
            self.reporting.handle_event(StreamEvent::RequestSent { stream }, self.now);
        } else if peer.is_half_closed {
            *peer = Peer::default();
            let reason = Disconnect::new(DisconnectKind::Closed, "");
            self.reporting.handle_event(StreamEvent::Disconnected { stream, reason }, self.now);
        }
    }

    fn add_reports(&mut self, server: usize, request: &lrs::LoadStatsRequest) {
        assert!(request.node.is_none() && !request.cluster_stats.is_empty());
        for stats in &request.cluster_stats {
            let key = (server, stats.cluster_name.clone(), stats.cluster_service_name.clone());
            let interval = stats.load_report_interval.expect("each report has one");
            let interval = Duration::new(interval.seconds as u64, interval.nanos as u32);
            assert!(interval > Duration::ZERO);
            *self.intervals.entry(key.clone()).or_default() += interval;
            let reported = self.reported.entry(key).or_default();
            let mut categories =
                stats.dropped_requests.iter().map(|it| (it.category.clone(), it.dropped_count));
            let with_category: u64 = categories.clone().map(|(_, count)| count).sum();
            let without = stats.total_dropped_requests - with_category;
            for (category, count) in [(String::new(), without)].into_iter().chain(&mut categories) {
                if count > 0 {
                    *reported.drops.entry(category).or_default() += count;
                }
            }
            for locality in &stats.upstream_locality_stats {
                add_locality(reported, locality);
            }
        }
    }

    /// Each report by itself agrees with LR5.1: what is in progress was issued and has not ended.
    fn check_each(&self) {
        for (key, reported) in &self.reported {
            for (locality, [issued, succeeded, failed]) in &reported.calls {
                let counted = self.counted[key].calls[locality];
                assert!(
                    issued <= &counted[0] && succeeded <= &counted[1] && failed <= &counted[2],
                    "seed {}: {key:?} {locality}: more was reported than counted",
                    self.seed
                );
            }
        }
    }

    /// Executes the commands.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            if self.loads.take_changed() {
                self.reporting.handle_change(self.now);
            }
            let mut is_idle = true;
            while let Some(command) = self.reporting.poll_command() {
                is_idle = false;
                self.execute(command);
            }
            if self.reporting.poll_timeout().is_some_and(|at| at <= self.now) {
                self.reporting.handle_timeout(self.now);
            } else if is_idle {
                return;
            }
        }
        panic!("seed {}: it does not settle", self.seed);
    }

    fn execute(&mut self, command: LoadCommand) {
        match command {
            LoadCommand::Connect { stream } => {
                let peer = &mut self.peers[stream.server.0 as usize];
                assert!(peer.stream.is_none(), "seed {}: one stream at a time", self.seed);
                peer.stream = Some(stream);
            }
            LoadCommand::Send { stream, message } => {
                let peer = &mut self.peers[stream.server.0 as usize];
                assert!(peer.in_flight.is_none() && !peer.is_half_closed && peer.stream == Some(stream));
                let request = lrs::LoadStatsRequest::decode(message).expect("requests are messages");
                peer.in_flight = Some(request);
            }
            LoadCommand::Read { .. } => {}
            LoadCommand::Finish { stream } => self.peers[stream.server.0 as usize].is_half_closed = true,
            LoadCommand::Disconnect { stream } => {
                let peer = &mut self.peers[stream.server.0 as usize];
                assert_eq!(peer.stream, Some(stream));
                *peer = Peer::default();
            }
        }
    }

    /// All calls end, and all servers answer.
    fn heal(&mut self) {
        while !self.calls.is_empty() {
            self.end_call();
        }
        let probes: Vec<_> =
            self.servers.iter().map(|server| self.loads.reporter_to(server, "probe", None)).collect();
        // First any delay before another attempt has to end.
        for round in 0..100 {
            self.now += if round < 30 { Duration::from_secs(5) } else { Duration::from_millis(500) };
            for server in 0..SERVERS {
                self.accept_at(server);
                self.settle();
                self.answer_with(server, 1, false);
                self.settle();
            }
        }
        drop(probes);
    }
}

fn count(counts: &mut Counts, locality: &str, index: usize) {
    counts.calls.entry(locality.to_owned()).or_default()[index] += 1;
}

fn add_locality(reported: &mut Counts, stats: &endpoint::UpstreamLocalityStats) {
    let zone = stats.locality.as_ref().expect("it is there even if it is empty").zone.clone();
    let calls = [stats.total_issued_requests, stats.total_successful_requests, stats.total_error_requests];
    let sums = reported.calls.entry(zone.clone()).or_default();
    sums.iter_mut().zip(calls).for_each(|(sum, count)| *sum += count);
    // LR5.1, for each report.
    assert_eq!(sums[0], sums[1] + sums[2] + stats.total_requests_in_progress);
    for metric in &stats.load_metric_stats {
        let sum = reported.metrics.entry((zone.clone(), metric.metric_name.clone())).or_default();
        *sum = (sum.0 + metric.num_requests_finished_with_metric, sum.1 + metric.total_metric_value);
    }
    let of_endpoints: u64 = stats.upstream_endpoint_stats.iter().map(|it| it.total_issued_requests).sum();
    assert!(of_endpoints <= stats.total_issued_requests);
}

const SERVERS: usize = 2;
const STEPS: usize = 120;
const SEEDS: u64 = 2_000;
