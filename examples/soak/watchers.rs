//! The watchers, and their checks.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};
use xdskit::{
    Client, Observed, Resource, RouteQuery, Snapshot, Watch, WatchError,
    client::Resolution,
    resource::{Cluster, ClusterKind, ClusterLoadAssignment},
};

use crate::world::{Item, Kind, Value, World};

/// Several watchers of each item.
pub(crate) struct Watchers {
    tasks: JoinSet<()>,
    /// For each item its current value, if it is good.
    latest: Vec<Box<dyn Fn() -> Option<Value> + Send + Sync>>,
    count: usize,
    counters: Arc<Counters>,
}

/// The counts of observed values.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) delivered: AtomicU64,
    /// Those from a fallback server.
    pub(crate) from_fallback: AtomicU64,
    /// Good values that were lost, with the reason.
    pub(crate) lost: Mutex<Vec<String>>,
    /// The time of the last value from the primary server of each authority.
    received_at: [Mutex<Instant>; 2],
}

impl Watchers {
    pub(crate) fn start(client: &Client, world: &World) -> Self {
        let now = Instant::now();
        let counters = Arc::new(Counters {
            delivered: AtomicU64::new(0),
            from_fallback: AtomicU64::new(0),
            lost: Mutex::default(),
            received_at: [Mutex::new(now), Mutex::new(now)],
        });
        let mut watchers = Self { tasks: JoinSet::new(), latest: Vec::new(), count: 0, counters };
        for item in world.items() {
            match item.kind {
                Kind::Cluster | Kind::PassingCluster | Kind::VisitedCluster => {
                    let name = item.name("envoy.config.cluster.v3.Cluster");
                    watchers.watch(&client.watch(name), item, of_cluster);
                }
                Kind::Endpoints => {
                    let name = item.name("envoy.config.endpoint.v3.ClusterLoadAssignment");
                    watchers.watch(&client.watch(name), item, of_endpoints);
                }
                Kind::Target => watchers.resolve(client.resolve(item.target()), item),
            }
        }
        watchers
    }

    fn watch<T: Resource>(&mut self, watch: &Watch<T>, item: Item, value: fn(&T) -> Option<Value>) {
        for _ in 0..EACH {
            self.count += 1;
            self.tasks.spawn(follow(watch.clone(), item, value, self.counters.clone()));
        }
        let watch = watch.clone();
        self.latest.push(Box::new(move || {
            let seen = watch.latest();
            if seen.error().is_none() { value(seen.resource()?) } else { None }
        }));
    }

    fn resolve(&mut self, resolution: Resolution, item: Item) {
        for _ in 0..EACH {
            self.count += 1;
            self.tasks.spawn(follow_target(resolution.clone(), item, self.counters.clone()));
        }
        self.latest.push(Box::new(move || {
            let snapshot =
                resolution.latest()?.ok().filter(|snapshot| snapshot.warnings().next().is_none())?;
            of_snapshot(&snapshot)
        }));
    }

    /// The number of watchers.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Waits until all agree with the primary servers, or returns those that do not.
    pub(crate) async fn agree(&self, world: &World, patience: Duration) -> Result<(), Vec<String>> {
        let begin = Instant::now();
        let items = world.items();
        loop {
            let wrong = self.latest.iter().enumerate().filter(|(index, latest)| {
                let seen = latest();
                seen != Some(world.expected(*index))
            });
            let wrong: Vec<_> =
                wrong.map(|(index, latest)| format!("{:?}: {:?}", items[index], latest())).collect();
            if wrong.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > patience {
                return Err(wrong);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The longest time since a value from a primary server.
    pub(crate) fn longest_silence(&self) -> Duration {
        let times = self.counters.received_at.iter();
        let silence = times.map(|time| time.lock().unwrap_or_else(PoisonError::into_inner).elapsed());
        silence.max().unwrap_or_default()
    }

    /// Ends all watches.
    pub(crate) fn end(self) -> Arc<Counters> {
        self.counters
    }
}

impl Counters {
    fn on_value(&self, item: Item, value: Value) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        if value.rank == 0 {
            let time = &self.received_at[usize::from(item.is_federated)];
            *time.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        } else {
            self.from_fallback.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_loss(&self, item: Item, how: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{item:?}: {how}"));
    }
}

async fn follow<T: Resource>(
    mut watch: Watch<T>,
    item: Item,
    value: fn(&T) -> Option<Value>,
    counters: Arc<Counters>,
) {
    let mut last = None;
    while let Some(seen) = watch.next().await {
        match &*seen {
            Observed::Present { resource, .. } => {
                let now = value(resource);
                match now.filter(|_| now != last) {
                    Some(value) => counters.on_value(item, value),
                    None if now.is_none() => counters.on_loss(item, format!("not of ours: {resource:?}")),
                    None => {}
                }
                last = now;
            }
            Observed::Absent { reason, .. } => {
                let was_deleted = item.kind == Kind::PassingCluster && reason.is_not_found();
                if last.take().is_some() && !was_deleted {
                    counters.on_loss(item, reason.to_string());
                }
            }
            Observed::Pending | _ => {}
        }
    }
}

async fn follow_target(mut resolution: Resolution, item: Item, counters: Arc<Counters>) {
    let mut last = None;
    while let Some(seen) = resolution.next().await {
        let now = seen.as_deref().map(of_snapshot);
        match now {
            Ok(Some(value)) if last != Some(value) => counters.on_value(item, value),
            Ok(Some(_)) => {}
            Ok(None) if last.is_some() => counters.on_loss(item, "no endpoint".to_owned()),
            Err(why) if last.is_some() => counters.on_loss(item, WatchError::to_string(why)),
            Ok(None) | Err(_) => {}
        }
        last = now.ok().flatten();
    }
}

fn of_cluster(cluster: &Cluster) -> Option<Value> {
    let ClusterKind::Eds { service_name, .. } = &cluster.kind else { return None };
    Value::from_text(service_name)
}

fn of_endpoints(assignment: &ClusterLoadAssignment) -> Option<Value> {
    Value::from_address(assignment.endpoints().next()?.address())
}

fn of_snapshot(snapshot: &Snapshot) -> Option<Value> {
    let cluster = snapshot.route(&RouteQuery::new("/", 0))?.pick_cluster()?;
    let endpoint = cluster.first_usable_priority()?.usable_endpoints().next()?;
    Value::from_address(endpoint.address())
}

/// The number of watchers of each item.
const EACH: usize = 2;
