//! A network in memory: which addresses there are, and what happens to connections to them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::{Future, pending},
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep},
};

use super::{
    behavior::Behavior,
    peer,
    pipe::{Link, Pipe, Wire},
    plan::Plans,
    stats::Stats,
};

thread_local! {
    /// The network of the run on this thread, in which connections are made instead of in that of the system.
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// A network, and what the peers in it share.
#[derive(Clone)]
pub(super) struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    hosts: Mutex<BTreeMap<SocketAddr, Arc<Host>>>,
    wires: Mutex<Vec<(SocketAddr, Wire)>>,
    open: Arc<AtomicUsize>,
    plans: Arc<Plans>,
}

/// What listens at an address.
pub(super) struct Host {
    link: Link,
    access: Mutex<Access>,
    pub(super) stats: Arc<Stats>,
}

/// What happens to a connection.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// A peer serves it.
    Served(Behavior),
    /// It is accepted, and nothing is ever sent.
    Silent,
    /// No answer to SYN.
    Unanswered,
    Refused,
}

/// Removes the network of the thread.
pub(super) struct Installed;

/// Connects in the network of the thread. `None` without one: the connection is one of the system.
pub(in crate::channel) fn connect(
    address: SocketAddr,
) -> Option<impl Future<Output = io::Result<Pipe>> + Send + use<>> {
    let network = NETWORK.with_borrow(Option::clone)?;
    Some(async move { network.connect(address).await })
}

impl Network {
    pub(super) fn new(plans: &Arc<Plans>) -> Self {
        Self {
            shared: Arc::new(Shared {
                hosts: Mutex::default(),
                wires: Mutex::default(),
                open: Arc::default(),
                plans: plans.clone(),
            }),
        }
    }

    /// Makes it the network of this thread.
    pub(super) fn install(&self) -> Installed {
        NETWORK.set(Some(self.clone()));
        Installed
    }

    /// Adds a host.
    pub(super) fn listen(&self, address: SocketAddr, link: Link, access: Access) -> Arc<Host> {
        let host = Arc::new(Host { link, access: Mutex::new(access), stats: Arc::default() });
        lock(&self.shared.hosts).insert(address, host.clone());
        host
    }

    /// The ends of connections that are not dropped.
    pub(super) fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Cuts all connections to an address.
    pub(super) fn cut(&self, address: SocketAddr) {
        lock(&self.shared.wires).retain(|(other, wire)| {
            let is_cut = *other == address;
            if is_cut {
                wire.cut();
            }
            !is_cut
        });
    }

    /// Loses whatever is sent on the present connections to an address.
    pub(super) fn silence(&self, address: SocketAddr) {
        let wires = lock(&self.shared.wires);
        wires.iter().filter(|(other, _)| *other == address).for_each(|(_, wire)| wire.silence());
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Pipe> {
        let host = lock(&self.shared.hosts).get(&address).cloned();
        let Some(host) = host else {
            sleep(Duration::from_millis(1)).await;
            return Err(ErrorKind::ConnectionRefused.into());
        };
        host.stats.on_attempt(Instant::now());
        sleep((2 * host.link.delay).max(Duration::from_millis(1))).await;
        let access = lock(&host.access).clone();
        let behavior = match access {
            Access::Refused => return Err(ErrorKind::ConnectionRefused.into()),
            Access::Unanswered => pending().await,
            Access::Silent => None,
            Access::Served(behavior) => Some(behavior),
        };
        let (client, mut server, wire) = Pipe::pair(host.link, &self.shared.open);
        lock(&self.shared.wires).push((address, wire));
        match behavior {
            Some(behavior) => {
                let (stats, plans) = (host.stats.clone(), self.shared.plans.clone());
                tokio::spawn(peer::serve(server, behavior, stats, plans));
            }
            None => {
                drop(tokio::spawn(async move { while let Ok(1..) = server.read(&mut [0; 256]).await {} }))
            }
        }
        Ok(client)
    }
}

impl Host {
    /// Changes what happens to the next connections.
    pub(super) fn set_access(&self, access: Access) {
        *lock(&self.access) = access;
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        NETWORK.set(None);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
