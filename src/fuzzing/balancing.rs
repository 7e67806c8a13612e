//! The balancing of a channel without connections, for the bench `balance`.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    balance::{
        balancer::{Balancer, BalancerSettings},
        breaker::Breakers,
        cluster_use::ClusterReference,
        command::Command,
        generation::{Generation, Generations},
        pick_first::PickFirstSettings,
        picker::{Draws, Pick, PickArgs},
        routes::Selection,
        streams::Streams,
    },
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
        let settings = BalancerSettings {
            pick_first: PickFirstSettings::default(),
            max_concurrent_connects: 256,
            ring_size_cap: 4_096,
            max_connections_cap: 10,
            seed: 1,
        };
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
        while let Some(command) = self.generations.balancer.poll_command() {
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

    /// Selects the cluster of a call, as a call does; `None` if it would wait or fail.
    pub fn select(&self, path: &str) -> Option<Selected> {
        match self.published.select(&RouteQuery::new(path, 0)) {
            Selection::Selected(selected) => Some(Selected {
                published: self.published.clone(),
                cluster: selected.cluster,
                random: fastrand::Rng::with_seed(1),
            }),
            Selection::Wait | Selection::Fail(_) | Selection::NoRoute(_) => None,
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
        let (draws, random, request) = (&mut Draws::default(), &mut self.random, &RouteQuery::new("/", 0));
        let pick = self.published.pick(self.cluster.place(), &mut PickArgs { draws, random, request });
        matches!(pick, Pick::Complete(_))
    }
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
