//! The servers, and their resources.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::Mutex as AsyncMutex,
    time::{sleep, timeout},
};
use xdskit::{
    Client, Observed,
    config::{AuthorityBuilder, Bootstrap, Node, Server},
    control_plane::{self, AnyResource, ControlPlane, type_url},
    resource::Cluster,
    testing::{
        FaultyProxy,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

/// Two authorities, each with a primary and a fallback server.
pub(crate) struct World {
    /// The primary and the fallback server of the names without an authority, and those of [`AUTHORITY`].
    sites: Vec<Site>,
    truth: Mutex<Truth>,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

/// A server behind a proxy that breaks connections.
pub(crate) struct Site {
    pub(crate) control_plane: ControlPlane,
    pub(crate) proxy: FaultyProxy,
    addr: SocketAddr,
    server: AsyncMutex<Option<control_plane::ServerHandle>>,
}

/// A resource, or a target, that changes and is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) is_federated: bool,
    pub(crate) kind: Kind,
    number: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster,
    /// A changing cluster that may also be deleted.
    PassingCluster,
    Endpoints,
    /// A cluster that is watched from time to time, and never changes.
    VisitedCluster,
    /// A listener with routes to a cluster whose endpoints change.
    Target,
}

/// One server's value of an item: the rank of the server after the primary one, and the number of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) rank: u64,
    pub(crate) change: u64,
}

/// The state of all servers' resources.
struct Truth {
    items: Vec<(Item, State)>,
    updates: u64,
    visits: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    change: u64,
    pub(crate) is_bad: bool,
    pub(crate) is_deleted: bool,
}

impl World {
    pub(crate) async fn start() -> io::Result<Self> {
        let mut sites = Vec::new();
        for _ in 0..4 {
            sites.push(Site::start().await?);
        }
        let state = State { change: 0, is_bad: false, is_deleted: false };
        let items: Vec<_> = items().map(|item| (item, state)).collect();
        let truth = Mutex::new(Truth { items, updates: 0, visits: (0, 0) });
        let world = Self { sites, truth, faults: Mutex::default() };
        let count = world.items().len();
        (0..count).for_each(|index| world.change(index, |_| {}));
        let nothing = Value { rank: 0, change: 0 };
        for (index, site) in world.sites.iter().enumerate() {
            site.control_plane.update(|tx| {
                for number in 0..VISITED {
                    for resource in Item::visited(index >= 2, number).resources(nothing, false) {
                        tx.set(resource);
                    }
                }
            });
        }
        Ok(world)
    }

    pub(crate) fn bootstrap(&self) -> Result<Bootstrap, String> {
        let server = |site: usize| Server::new(self.sites[site].proxy.uri()).insecure();
        let authority = AuthorityBuilder::default().server(server(2)).server(server(3));
        Bootstrap::builder()
            .node(Node::new("soak"))
            .server(server(0))
            .server(server(1))
            .authority(AUTHORITY, authority)
            .build()
            .map_err(|e| e.to_string())
    }

    pub(crate) fn sites(&self) -> &[Site] {
        &self.sites
    }

    pub(crate) fn items(&self) -> Vec<Item> {
        self.lock().items.iter().map(|(item, _)| *item).collect()
    }

    /// The value that a watcher of an item must have in the end.
    pub(crate) fn expected(&self, index: usize) -> Value {
        Value { rank: 0, change: self.lock().items[index].1.change }
    }

    /// Changes an item on both of its servers.
    pub(crate) fn change(&self, index: usize, change: impl FnOnce(&mut State)) {
        let mut truth = self.lock();
        truth.updates += 1;
        let (item, state) = &mut truth.items[index];
        state.change += 1;
        change(state);
        for rank in 0..2 {
            let value = Value { rank, change: state.change };
            let site = &self.sites[2 * usize::from(item.is_federated) + rank as usize];
            if state.is_deleted {
                site.control_plane.remove(type_url::CLUSTER, &item.name("envoy.config.cluster.v3.Cluster"));
                continue;
            }
            site.control_plane.update(|tx| {
                for resource in item.resources(value, state.is_bad) {
                    tx.set(resource);
                }
            });
        }
    }

    /// Changes all items for the last time; all are good after that.
    pub(crate) fn finish(&self) {
        let count = self.items().len();
        (0..count)
            .for_each(|index| self.change(index, |state| (state.is_bad, state.is_deleted) = (false, false)));
    }

    pub(crate) fn note_fault(&self, kind: &'static str) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }

    pub(crate) fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_visit(&self, served: bool) {
        let mut truth = self.lock();
        truth.visits.0 += 1;
        truth.visits.1 += u64::from(served);
    }

    /// The number of short watches, and of those that received a value.
    pub(crate) fn visits(&self) -> (u64, u64) {
        self.lock().visits
    }

    pub(crate) fn updates(&self) -> u64 {
        self.lock().updates
    }

    pub(crate) fn streams(&self) -> usize {
        self.sites.iter().map(|site| site.control_plane.streams()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes one item after the other.
pub(crate) async fn keep_changing(world: Arc<World>, mut random: fastrand::Rng, deadline: Instant) {
    let count = world.items().len();
    while Instant::now() < deadline {
        world.change(random.usize(..count), |_| {});
        sleep(Duration::from_millis(random.u64(1..10))).await;
    }
}

/// Watches a cluster without other watchers for a short time: if that happens while the primary server is
/// unreachable, the client falls back to the other server (A71).
pub(crate) async fn keep_visiting(
    world: Arc<World>,
    client: Client,
    mut random: fastrand::Rng,
    deadline: Instant,
) {
    while Instant::now() < deadline {
        let item = Item::visited(random.bool(), random.usize(..VISITED));
        let mut watch = client.watch::<Cluster>(item.name("envoy.config.cluster.v3.Cluster"));
        let time = Duration::from_millis(random.u64(100..3000));
        let served = timeout(time, watch.wait_for(Observed::is_present)).await.is_ok();
        world.note_visit(served);
        sleep(Duration::from_millis(random.u64(10..500))).await;
    }
}

impl Site {
    async fn start() -> io::Result<Self> {
        let control_plane = ControlPlane::new();
        let server = control_plane.serve("127.0.0.1:0").await?;
        let addr = server.addr();
        let proxy = FaultyProxy::start(addr).await;
        Ok(Self { control_plane, proxy, addr, server: AsyncMutex::new(Some(server)) })
    }

    pub(crate) async fn stop(&self) {
        if let Some(server) = self.server.lock().await.take() {
            server.shutdown().await;
        }
    }

    pub(crate) async fn serve(&self) {
        let mut server = self.server.lock().await;
        *server = self.control_plane.serve(self.addr).await.ok();
        assert!(server.is_some(), "the port is ours");
    }
}

impl Item {
    fn visited(is_federated: bool, number: usize) -> Self {
        Self { is_federated, kind: Kind::VisitedCluster, number }
    }

    /// The name in a type.
    pub(crate) fn name(self, ty: &str) -> String {
        let prefix = if self.is_federated { format!("xdstp://{AUTHORITY}/{ty}/") } else { String::new() };
        format!("{prefix}{:?}-{}", self.kind, self.number)
    }

    pub(crate) fn target(self) -> String {
        let authority = if self.is_federated { AUTHORITY } else { "" };
        format!("xds://{authority}/{:?}-{}", self.kind, self.number)
    }

    fn resources(self, value: Value, is_bad: bool) -> Vec<AnyResource> {
        let cluster = cluster(self.name("envoy.config.cluster.v3.Cluster"));
        let assignment = || {
            let name = self.name("envoy.config.endpoint.v3.ClusterLoadAssignment");
            let address = value.to_address().to_string();
            endpoints(name).locality("eu", "a", [address.as_str()]).priority(u32::from(is_bad)).into()
        };
        match self.kind {
            Kind::VisitedCluster => vec![cluster.eds_service("visited").into()],
            Kind::Cluster | Kind::PassingCluster if is_bad => {
                vec![cluster.edit(|cluster| cluster.eds_cluster_config = None).into()]
            }
            Kind::Cluster | Kind::PassingCluster => vec![cluster.eds_service(value.to_text()).into()],
            Kind::Endpoints => vec![assignment()],
            Kind::Target => {
                let routes = self.name("envoy.config.route.v3.RouteConfiguration");
                let to_cluster = route::prefix("/").cluster(self.name("envoy.config.cluster.v3.Cluster"));
                let service = self.name("envoy.config.endpoint.v3.ClusterLoadAssignment");
                vec![
                    listener(self.name("envoy.config.listener.v3.Listener")).rds(&routes).into(),
                    route_config(&routes).virtual_host(["*"], [to_cluster]).into(),
                    cluster.eds_service(service).into(),
                    assignment(),
                ]
            }
        }
    }
}

/// A value is encoded as a name, or as an address.
impl Value {
    fn to_text(self) -> String {
        format!("{}-{}", self.rank, self.change)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (rank, change) = text.split_once('-')?;
        Some(Self { rank: rank.parse().ok()?, change: change.parse().ok()? })
    }

    fn to_address(self) -> SocketAddr {
        let [.., a, b, c] = self.change.to_be_bytes();
        ([10, a, b, c], 1000 + self.rank as u16).into()
    }

    pub(crate) fn from_address(address: SocketAddr) -> Option<Self> {
        let SocketAddr::V4(v4) = address else { return None };
        let [_, a, b, c] = v4.ip().octets();
        let change = u64::from(u32::from_be_bytes([0, a, b, c]));
        Some(Self { rank: u64::from(address.port().checked_sub(1000)?), change })
    }
}

fn items() -> impl Iterator<Item = Item> {
    let kinds = [(Kind::Cluster, 40), (Kind::PassingCluster, 10), (Kind::Endpoints, 40), (Kind::Target, 10)];
    [false, true].into_iter().flat_map(move |is_federated| {
        kinds
            .into_iter()
            .flat_map(move |(kind, count)| (0..count).map(move |number| Item { is_federated, kind, number }))
    })
}

/// The number of briefly watched clusters of each authority.
const VISITED: usize = 50;

/// The authority with servers of its own.
const AUTHORITY: &str = "other.example.com";
