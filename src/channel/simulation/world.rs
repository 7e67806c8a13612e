//! The run of a script.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    application::Environment,
    behavior::{Behavior, Real},
    control::Control,
    crowd::Crowd,
    defect::{Defect, Defects},
    neighbor::{Endpoint, Neighbor, Rule},
    network::{Access, Host, Installed, Network},
    plan::Plans,
    report::{Report, SmallParts},
    script::{Script, Silence},
};
use crate::{
    Client,
    channel::{ChannelState, task},
    pb::{
        envoy::config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
            route::v3::{RetryPolicy, Route, route::Action, route_action::MaxStreamDuration},
        },
        google::protobuf::UInt32Value,
    },
    testing::resources::{
        ClusterBuilder, EndpointsBuilder, cluster, endpoints, listener, route, route_config,
    },
};

/// All that there is in a run.
pub(super) struct World<'a> {
    script: &'a Script,
    defects: &'a Defects,
    names: Names,
    network: Network,
    near: Arc<Host>,
    far: Arc<Host>,
    control: Control,
    client: Client,
    environment: Environment,
    neighbors: JoinSet<()>,
    applications: JoinSet<()>,
    /// When the applications and the calls beside them began.
    begin: Instant,
    _installed: Installed,
}

/// The clusters, with names that no other run of the process has.
struct Names {
    near: String,
    far: String,
}

impl<'a> World<'a> {
    pub(super) fn new(script: &'a Script, defects: &'a Defects, number: usize) -> Self {
        let names = Names { near: format!("near-{number}"), far: format!("far-{number}") };
        let plans = Arc::<Plans>::default();
        let network = Network::new(&plans);
        let near = network.listen(NEAR, script.link, Access::Served(script.near.clone()));
        let far = network.listen(FAR, script.link, Access::Served(Behavior::of(Real::Hyper)));
        for number in 0..script.silent {
            let access = match script.silence {
                Silence::Accepts => Access::Silent,
                Silence::Ignores => Access::Unanswered,
                Silence::Refuses => Access::Refused,
            };
            network.listen(silent(number), script.link, access);
        }
        for number in 0..script.others {
            network.listen(other(number), script.link, Access::Served(Behavior::of(Real::GrpcJava)));
        }
        let control = Control::default();
        control.update(|tx| {
            tx.set(listener("shop").rds("routes"));
            let applications = route::prefix("/near/Application").cluster(&names.near);
            let applications = applications.edit(|route| edit_route(route, script));
            let [near, far] = [("/near", &names.near), ("/far", &names.far)]
                .map(|(prefix, name)| route::prefix(prefix).cluster(name));
            tx.set(route_config("routes").virtual_host(["*"], [applications, near, far]));
            tx.set(near_cluster(&names.near, script));
            tx.set(cluster(&names.far));
            tx.set(assignment(&names.near, script, &[]));
            tx.set(endpoints(&names.far).locality("eu", "a", [FAR.to_string().as_str()]));
        });
        let client = control.client();
        let builder = script
            .settings
            .iter()
            .fold(client.channel("xds:///shop"), |builder, setting| setting.apply(builder));
        let channel = builder.build().expect("the settings are valid");
        let environment = Environment {
            channel,
            plans,
            report: Arc::new(Report::default()),
            slack: script.bound(),
            max_stream_duration: script.max_stream_duration,
        };
        Self {
            script,
            defects,
            names,
            _installed: network.install(),
            network,
            near,
            far,
            control,
            client,
            environment,
            neighbors: JoinSet::new(),
            applications: JoinSet::new(),
            begin: Instant::now(),
        }
    }

    /// Plays the script until its end, or until something is wrong.
    pub(super) async fn play(&mut self) {
        let mut crowds = self.script.crowds.clone();
        crowds.sort_by_key(|crowd| crowd.begin);
        crowds.reverse();
        let (mut tick, mut fault) = (0, self.script.fault);
        while self.begin.elapsed() < self.script.duration && !self.is_violated() {
            while let Some(crowd) = crowds.pop_if(|crowd| crowd.begin <= self.begin.elapsed()) {
                self.enter(crowd);
            }
            if let Some(fault) = fault.take_if(|fault| fault.after <= self.begin.elapsed()) {
                if fault.is_silent { self.network.silence(NEAR) } else { self.network.cut(NEAR) }
            }
            self.call_neighbors();
            if self.script.churns {
                self.churn(tick);
            }
            self.monitor();
            tick += 1;
            sleep_until(self.begin + TICK * tick).await;
        }
    }

    fn enter(&mut self, crowd: Crowd) {
        for _ in 0..crowd.count {
            let environment = self.environment.clone();
            self.applications.spawn(async move {
                for _ in 0..crowd.rounds {
                    crowd.application.call(&environment).await;
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
    }

    fn call_neighbors(&mut self) {
        let (script, at) = (self.script, self.begin.elapsed());
        let bound = if at < script.first_bound() { script.first_bound() } else { script.bound() };
        let is_refused = script.settings.iter().any(|setting| setting.limits_queue());
        let near = match script.excuse() {
            Some(_) => {
                let unless_sent = self.defects.is_on(Defect::UnsentCalls) && script.sends_again();
                Rule::Ends { unless_sent }
            }
            None => Rule::Succeeds,
        };
        let far = if is_refused { Rule::SucceedsOrIsRefused } else { Rule::Succeeds };
        // No failover and no silent endpoint is one of the other cluster.
        let slots = if script.has_few_slots() { Duration::from_secs(4) } else { Duration::ZERO };
        let far_bound = script.bound() + 8 * script.link.delay + slots;
        for neighbor in [
            Neighbor { endpoint: Endpoint::Near, at, rule: near, bound, text: self.longest_text() },
            Neighbor { endpoint: Endpoint::Far, at, rule: far, bound: far_bound, text: self.longest_text() },
        ] {
            self.neighbors.spawn(neighbor.call(self.environment.clone()));
        }
    }

    /// The longest text that a status may have.
    fn longest_text(&self) -> usize {
        if self.defects.is_on(Defect::LongTexts) { 1_000 } else { usize::MAX }
    }

    /// Other endpoints of a priority that is not used.
    fn churn(&self, tick: u32) {
        let others: Vec<_> = (0..CHURN).map(|place| fresh(tick * CHURN + place)).collect();
        self.control.update(|tx| {
            tx.set(assignment(&self.names.near, self.script, &others));
        });
    }

    /// What has to be true at any time.
    fn monitor(&self) {
        let report = &self.environment.report;
        for (name, host) in [("near", &self.near), ("far", &self.far)] {
            let go_aways = host.stats.go_aways();
            report.check(go_aways.is_empty(), || {
                format!("{name}: the client has ended connections: {go_aways:?}")
            });
        }
        if !self.script.near.breaks_connections() && self.script.fault.is_none() {
            let late = self.near.stats.streams_after_deadline(self.script.bound(), Instant::now());
            report.check(late == 0, || format!("{late} streams are open long after their deadlines"));
        }
        let is_slow = !self.script.settings.iter().any(|setting| setting.connects_without_delay());
        let attempts = self.near.stats.attempts_in_a_second();
        let calls: usize = self.script.crowds.iter().map(|crowd| crowd.count * crowd.rounds).sum();
        report.check(!is_slow || attempts <= ATTEMPTS + 3 * calls, || {
            format!("{attempts} attempts to connect in a second")
        });
        self.check_kept_parts();
    }

    /// A request of more parts than its limit has room for is not kept.
    fn check_kept_parts(&self) {
        let Environment { report, plans, .. } = &self.environment;
        let limit = self.script.settings.iter().rev().find_map(|setting| setting.kept_of_one_call());
        let most = limit.unwrap_or(KEPT) / PART + 100;
        for SmallParts { number, parts, kept } in report.small_parts() {
            // Those that the server has read are on their way no more.
            let kept = kept.load(Ordering::Relaxed);
            let is_kept = plans.received(number) >= parts && kept > most;
            report.check(!is_kept, || format!("{kept} parts of {parts} are kept"));
        }
    }

    /// The applications leave, and all servers are well.
    pub(super) async fn leave(&mut self) {
        if self.script.near.max_resets().is_some() {
            // The calls that applications leave behind are reset, and may be more than the server permits.
            while self.neighbors.join_next().await.is_some() {}
        }
        self.applications.shutdown().await;
        while self.neighbors.join_next().await.is_some() {}
        self.near.set_access(Access::Served(Behavior::of(self.script.near.real)));
        if self.script.excuse().is_some() {
            self.network.cut(NEAR);
        }
        // Endpoints of the preferred priority stay as they are.
        if !self.is_violated() {
            self.recover().await;
        }
    }

    /// A call to each endpoint succeeds again, after the longest backoff.
    async fn recover(&self) {
        let hinders = self.script.settings.iter().any(|setting| setting.connects_once());
        for endpoint in [Endpoint::Near, Endpoint::Far] {
            if hinders && endpoint == Endpoint::Near {
                continue;
            }
            let since = Instant::now();
            let environment = || Environment { report: Arc::default(), ..self.environment.clone() };
            loop {
                let (environment, bound) = (environment(), self.script.first_bound());
                let at = self.begin.elapsed();
                let neighbor = Neighbor { endpoint, at, rule: Rule::Succeeds, bound, text: usize::MAX };
                neighbor.call(environment.clone()).await;
                let Some(violation) = environment.report.first() else { break };
                if since.elapsed() > RECOVERY {
                    return self.environment.report.violation(format!("it does not recover: {violation}"));
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// After everybody has left, nothing is left.
    pub(super) async fn census(&self) {
        sleep(SETTLE + self.script.bound()).await;
        let report = &self.environment.report;
        let channel = &self.environment.channel;
        let Ok(status) = timeout(SETTLE, channel.status()).await else {
            return report.violation("the task of the channel does not answer");
        };
        let endpoints = status.leaves.iter().flat_map(|leaf| leaf.endpoints());
        let streams: u64 = endpoints.map(|endpoint| endpoint.calls).sum();
        let breakers = task::breakers();
        let counts = [
            ("calls", status.calls),
            ("waiting calls", status.waiting),
            ("streams", streams as usize),
            ("requests of circuit breakers", breakers.running(&self.names.near) as usize),
            ("requests of circuit breakers", breakers.running(&self.names.far) as usize),
            ("bytes of requests", channel.shared.calls.buffer.used()),
            ("streams at the server", self.near.stats.streams()),
            ("streams at the other server", self.far.stats.streams()),
        ];
        for (name, count) in counts {
            report.check(count == 0, || format!("{count} {name} are left"));
        }
        let cells = self.client.listed_load_cells();
        let is_on = self.defects.is_on(Defect::DepartedEndpoints);
        let most = 4 * (CHURN as usize + self.script.silent + self.script.others + 10);
        report.check(!is_on || cells <= most, || format!("{cells} counters of load reports are left"));
        self.monitor();
    }

    /// Ends everything, and counts what is left of it.
    pub(super) async fn end(self, tasks_before: usize) -> Arc<Report> {
        let Self { environment, client, network, control, script, _installed, .. } = self;
        let Environment { channel, report, .. } = environment;
        if script.shuts_down {
            let is_shut_down = timeout(SETTLE, channel.shutdown(Duration::from_secs(1))).await.is_ok();
            report.check(is_shut_down, || "the shutdown does not end".to_owned());
            report.check(channel.state() == ChannelState::Shutdown, || "it is not shut down".to_owned());
        }
        drop((channel, client, control));
        sleep(SETTLE).await;
        let tasks = Handle::current().metrics().num_alive_tasks();
        report.check(tasks <= tasks_before, || format!("{tasks} tasks are left, {tasks_before} were there"));
        report.check(network.open() == 0, || format!("{} ends of connections are left", network.open()));
        report
    }

    fn is_violated(&self) -> bool {
        self.environment.report.first().is_some()
    }
}

/// The endpoint of the applications after those of a preferred priority, and before others.
fn assignment(cluster: &str, script: &Script, unused: &[SocketAddr]) -> EndpointsBuilder {
    let silent: Vec<_> = (0..script.silent).map(|number| silent(number).to_string()).collect();
    let mut priority = 0;
    let mut all = endpoints(cluster);
    if script.silent > 0 {
        all = all.locality("eu", "silent", silent.iter().map(String::as_str));
        priority = 1;
    }
    let used = std::iter::once(NEAR).chain((0..script.others).map(other));
    let used: Vec<_> = used.map(|address| address.to_string()).collect();
    all = all.locality("eu", "a", used.iter().map(String::as_str)).priority(priority);
    if !unused.is_empty() {
        let unused: Vec<_> = unused.iter().map(ToString::to_string).collect();
        all = all.locality("eu", "unused", unused.iter().map(String::as_str)).priority(priority + 1);
    }
    all
}

/// The cluster of the applications.
fn near_cluster(name: &str, script: &Script) -> ClusterBuilder {
    let own = cluster(name).edit(|cluster| {
        cluster.lb_policy = script.policy.into();
        let max_connections = Some(UInt32Value { value: script.max_connections });
        let per_host_thresholds = vec![Thresholds { max_connections, ..Thresholds::default() }];
        cluster.circuit_breakers =
            Some(CircuitBreakers { per_host_thresholds, ..CircuitBreakers::default() });
    });
    if script.churns { own.report_load() } else { own }
}

/// What the route of the applications has besides its cluster.
fn edit_route(route: &mut Route, script: &Script) {
    let Some(Action::Route(action)) = &mut route.action else { return };
    if script.retries {
        let retry_on = "unavailable,cancelled,resource-exhausted".to_owned();
        action.retry_policy = Some(RetryPolicy { retry_on, ..RetryPolicy::default() });
    }
    action.max_stream_duration = script.max_stream_duration.map(|limit| {
        let (seconds, nanos) = (limit.as_secs() as i64, limit.subsec_nanos() as i32);
        let limit = crate::pb::google::protobuf::Duration { seconds, nanos };
        MaxStreamDuration { max_stream_duration: Some(limit), ..MaxStreamDuration::default() }
    });
}

fn other(number: usize) -> SocketAddr {
    ([10, 0, 1, number as u8 + 1], 80).into()
}

fn silent(number: usize) -> SocketAddr {
    ([10, 1, (number / 250) as u8, (number % 250) as u8 + 1], 80).into()
}

/// An address that no endpoint had before.
fn fresh(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a02_0000 + number), 80).into()
}

/// The outcomes of a run.
pub(super) type Outcomes = BTreeMap<&'static str, u64>;

const NEAR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const FAR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);
/// The time between two calls beside the applications.
const TICK: Duration = Duration::from_millis(100);
/// The endpoints that come and go with each tick.
const CHURN: u32 = 20;
/// More attempts within a second are made without delay, beside those after calls that were served. A call that ends otherwise may
/// let the channel become idle, and the next one connects: there are ten calls, and those of applications.
const ATTEMPTS: usize = 25;
/// What is kept of a request by default.
const KEPT: usize = 256 << 10;
/// The bytes that a part of a request takes beside its payload.
const PART: usize = 32;
/// The longest backoff of a run, and an attempt to connect.
const RECOVERY: Duration = Duration::from_secs(200);
/// The time after which nothing is under way any more.
const SETTLE: Duration = Duration::from_secs(5);
