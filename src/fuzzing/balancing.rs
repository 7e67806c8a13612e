//! The balancing of a channel without connections, for the bench `balance`.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;

use crate::{
    balance::{
        balancer::Balancer,
        breaker::Breakers,
        cluster_use::ClusterReference,
        command::Command,
        connect_request::ConnectRequest,
        generation::{Generation, Generations},
        pick_args::{CallAttributes, PickArgs},
        picker::Pick,
        policies::ring_hash::ring,
        routes::Selection,
        settings::BalancerSettings,
        stream_queue::streams::Streams,
        weights::LoadReport,
    },
    pb::xds::data::orca::v3::OrcaLoadReport,
    resolve::{RouteQuery, Snapshot},
};

/// What a channel makes of snapshots. Attempts to connect succeed as soon as they are executed.
pub struct Balancing {
    generations: Generations<()>,
    published: Arc<Generation<()>>,
    now: Instant,
}

/// The cluster that a call has selected.
pub struct Selected {
    published: Arc<Generation<()>>,
    cluster: ClusterReference,
    random: fastrand::Rng,
}

impl Balancing {
    /// A channel that has no snapshot yet, at a time that does not pass.
    pub fn new(now: Instant) -> Self {
        let settings = BalancerSettings::with_seed(1);
        let balancer = Balancer::new(settings, Arc::<Breakers>::default());
        let generations = Generations::new(balancer, Arc::new(|| {}));
        Self { generations, published: Arc::new(Generation::waiting()), now }
    }

    /// Publishes the routes and pickers of a snapshot.
    pub fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.generations.handle_resolution(Ok(snapshot), self.now);
        self.publish();
    }

    /// Executes all attempts to connect, and publishes the pickers after them; returns the number of attempts.
    pub fn connect(&mut self) -> usize {
        let mut attempts = 0;
        self.publish();
        while let Some(command) = self.generations.balancer.poll_command(self.now) {
            match command {
                Command::Connect { connection, .. } => {
                    attempts += 1;
                    self.generations.balancer.on_connected(
                        connection,
                        Streams::new((), usize::MAX),
                        self.now,
                    );
                }
                Command::Cancel { .. }
                | Command::Drain { .. }
                | Command::WatchLoad { .. }
                | Command::UnwatchLoad { .. }
                | Command::RequestReresolution => {}
            }
        }
        self.publish();
        attempts
    }

    /// Makes calls until none of so many in a row waits for an endpoint to be connected.
    pub fn connect_on_demand(&mut self, path: &str, calls: usize) {
        loop {
            let Some(mut selected) = self.select(path) else { return };
            let requests: Vec<_> = (0..calls).filter_map(|_| selected.request()).collect();
            if requests.is_empty() {
                return;
            }
            for request in requests {
                self.generations.balancer.connect_endpoint(&request, self.now);
            }
            self.connect();
        }
    }

    /// Lets time pass, and publishes what is due.
    pub fn pass(&mut self, time: Duration) {
        self.advance(time);
        while self.handle_timeout() {}
    }

    /// Lets time pass. What is due then is left to [`handle_timeout`](Self::handle_timeout).
    pub fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    /// Does what is due, and publishes it; of large pieces of work a slice. Whether the rest is due at once.
    pub fn handle_timeout(&mut self) -> bool {
        self.generations.balancer.handle_timeout(self.now);
        self.publish();
        self.generations.balancer.poll_timeout().is_some_and(|at| at <= self.now)
    }

    /// Makes so many calls, of which each ends with OK if `is_ok` says so for its number, and with a report of that many requests
    /// a second.
    pub fn call(&self, path: &str, calls: u32, is_ok: impl Fn(u32) -> bool) {
        let Some(mut selected) = self.select(path) else { return };
        for number in 0..calls {
            let Pick::Complete(mut attempt) = selected.pick_any() else { continue };
            attempt.on_stream();
            if is_ok(number) {
                attempt.on_ok();
            }
            let report = OrcaLoadReport {
                application_utilization: 0.5,
                rps_fractional: f64::from(number + 1),
                ..OrcaLoadReport::default()
            };
            if let Ok(Some(report)) = LoadReport::decode(&report.encode_to_vec()) {
                attempt.on_report(&report, self.now);
            }
        }
    }

    /// Selects the cluster of a call, as a call does; `None` if it would wait or fail.
    pub fn select(&self, path: &str) -> Option<Selected> {
        match self.published.select(&RouteQuery::new(path, 0)) {
            Selection::Selected(selected) => Some(Selected {
                published: self.published.clone(),
                cluster: selected.cluster,
                random: fastrand::Rng::with_seed(1),
            }),
            Selection::Lookup(_) | Selection::Wait | Selection::Fail(_) | Selection::NoRoute(_) => None,
        }
    }

    fn publish(&mut self) {
        if let Some(generation) = self.generations.poll_generation(self.now) {
            self.published = Arc::new(generation);
        }
    }
}

impl Selected {
    /// Picks an endpoint for an attempt, which ends at once; false if there is none.
    pub fn pick(&mut self) -> bool {
        matches!(self.pick_any(), Pick::Complete(_))
    }

    fn pick_any(&mut self) -> Pick<()> {
        let (attributes, random, request) =
            (&mut CallAttributes::default(), &mut self.random, &RouteQuery::new("/", 0));
        self.published.pick(self.cluster.place(), &mut PickArgs { attributes, random, request })
    }

    /// The endpoint whose connection a pick requests, if it does.
    fn request(&mut self) -> Option<ConnectRequest> {
        let (attributes, random, request) =
            (&mut CallAttributes::default(), &mut self.random, &RouteQuery::new("/", 0));
        self.published.pick(self.cluster.place(), &mut PickArgs { attributes, random, request });
        attributes.take_connect_request()
    }
}

/// Builds a hash ring of 4,096 entries for endpoints with these keys, in ascending order, and returns the number of its entries.
pub fn build_ring(keys: &[Arc<str>]) -> usize {
    ring::build(keys)
}

impl fmt::Debug for Balancing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancing").field("published", &self.published).finish_non_exhaustive()
    }
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
