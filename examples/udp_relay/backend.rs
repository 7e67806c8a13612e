//! What is around the relay: backends that answer with their names, and players.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};
use xdskit::testing::{
    TestControlPlane,
    resources::{cluster, endpoints, lb_policy, listener, outlier_detection, route, route_config},
};

/// A backend. It answers each datagram with its number and its own name.
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    is_silent: Arc<AtomicBool>,
}

impl Backend {
    pub(crate) async fn start(name: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind(super::LOOPBACK).await?;
        let backend =
            Self { name: name.to_owned(), address: socket.local_addr()?, is_silent: Arc::default() };
        let (answer, is_silent) = (backend.name.clone(), backend.is_silent.clone());
        tokio::spawn(async move {
            let mut datagram = [0; 1500];
            while let Ok((length, relay)) = socket.recv_from(&mut datagram).await {
                if let Some(number) = datagram[..length].first_chunk::<8>()
                    && !is_silent.load(Ordering::Relaxed)
                {
                    let _ = socket.send_to(&[number.as_slice(), answer.as_bytes()].concat(), relay).await;
                }
            }
        });
        Ok(backend)
    }

    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }
}

/// The mesh of the backends: flows are hashed, and backends that leave more than half of their datagrams unanswered are ejected.
pub(crate) async fn mesh(backends: &[Backend]) -> TestControlPlane {
    let addresses: Vec<String> = backends.iter().map(|backend| backend.address.to_string()).collect();
    let mesh = TestControlPlane::start().await;
    mesh.update(|tx| {
        let detection = outlier_detection().interval(Duration::from_millis(300)).failure_percentage(50, 1, 3);
        tx.set(listener("game").rds("game"));
        tx.set(route_config("game").virtual_host(["game"], [route::prefix("").cluster("game")]));
        tx.set(cluster("game").lb_policy(lb_policy::ring_hash(1024, 4096)).outlier_detection(detection));
        tx.set(endpoints("game").locality("eu", "a", addresses.iter().map(String::as_str)));
    });
    mesh
}

/// Players, each with a socket of its own.
pub(crate) struct Players(Vec<UdpSocket>);

impl Players {
    pub(crate) async fn start(number: usize, relay: SocketAddr) -> io::Result<Self> {
        let mut players = Vec::new();
        for _ in 0..number {
            let socket = UdpSocket::bind(super::LOOPBACK).await?;
            socket.connect(relay).await?;
            players.push(socket);
        }
        Ok(Self(players))
    }

    /// Plays rounds of a datagram from each player, until all are answered in one. Returns the backend of each.
    pub(crate) async fn until_answered(&self) -> io::Result<Vec<String>> {
        loop {
            for player in &self.0 {
                player.send(b"move").await?;
            }
            let (mut backends, until) = (Vec::new(), Instant::now() + Duration::from_millis(250));
            for player in &self.0 {
                let mut answer = [0; 16];
                if let Ok(length) = timeout_at(until, player.recv(&mut answer)).await {
                    backends.push(String::from_utf8_lossy(&answer[..length?]).into_owned());
                }
            }
            if backends.len() == self.0.len() {
                return Ok(backends);
            }
        }
    }
}

/// The numbers of flows by backend, as text.
pub(crate) fn shares(backends: &[String]) -> String {
    let mut shares = BTreeMap::<&str, usize>::new();
    backends.iter().for_each(|backend| *shares.entry(backend).or_default() += 1);
    shares.iter().map(|(name, flows)| format!("{flows} at {name}")).collect::<Vec<_>>().join(", ")
}
