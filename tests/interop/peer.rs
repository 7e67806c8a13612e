//! The management servers of `gcp/`, `jcp/` and `strict/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time::Instant};
use xdskit::{Resource, config::ApiType, resource::Runtime};

use crate::{
    process::{PATIENCE, Process},
    setup::{Server, Setup},
};

/// A running management server, with the mesh of `gcp/mesh.go`; one of `strict/` is initially empty.
pub(crate) struct Peer {
    setup: Setup,
    process: Process,
    port: u16,
    /// The port of REST; 0 without it.
    gateway: u16,
    events: Vec<Value>,
    streams: Streams,
    folder: TempDir,
}

impl Peer {
    pub(crate) async fn start(setup: Setup) -> Self {
        Self::start_on(setup, free_port()).await
    }

    /// Starts it on a port that it had before.
    pub(crate) async fn start_on(setup: Setup, port: u16) -> Self {
        let mut process = match setup.server {
            Server::Snapshot => gcp("snapshot", setup, port),
            Server::Old => old_gcp(port),
            Server::Ads => gcp("ads", setup, port),
            Server::Linear => gcp("linear", setup, port),
            Server::Java => jcp(port),
            Server::IgnoresNamesInNack => strict(&["-ignore-names-in-nack"], port),
            Server::LegacyWildcard => strict(&["-legacy-wildcard"], port),
            Server::UnknownType => strict(&["-unknown-type", Runtime::TYPE_URL], port),
        };
        let first = process.line(PATIENCE).await.unwrap_or_default();
        let Some(port) = first["port"].as_u64() else {
            panic!("the server did not print its port but {first}:\n{}", process.log())
        };
        let gateway = first["gateway"].as_u64().unwrap_or_default() as u16;
        let folder = tempfile::tempdir().expect("a folder for the bootstrap");
        let (port, streams) = (port as u16, Streams::default());
        let peer = Self { setup, process, port, gateway, events: Vec::new(), streams, folder };
        fs::write(peer.bootstrap_path(), peer.bootstrap()).expect("the folder can be written");
        peer
    }

    /// Sends a command and waits until it is done. Returns the versions by type.
    pub(crate) async fn command(&mut self, command: &str) -> Value {
        self.process.send(command).await;
        loop {
            let line =
                self.process.line(PATIENCE).await.unwrap_or_else(|| panic!("no answer to {command:?}"));
            match &line {
                line if line["done"] == command => return line["versions"].clone(),
                line if line["failed"] == command => panic!("{line}"),
                _ => self.see(line),
            }
        }
    }

    /// Waits for an event of a client, including past ones. Returns the event.
    pub(crate) async fn event(&mut self, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        self.nth_event(1, what, is_met).await
    }

    /// Waits until there are this many such events, including past ones. Returns the last of them.
    pub(crate) async fn nth_event(
        &mut self,
        count: usize,
        what: &str,
        is_met: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut found = 0;
        let deadline = Instant::now() + PATIENCE;
        let mut next = 0;
        loop {
            while let Some(event) = self.events.get(next) {
                found += usize::from(is_met(event));
                if found == count {
                    return event.clone();
                }
                next += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.process.line(left).await {
                Some(event) => self.see(event),
                None => panic!("the server did not see {what}; it saw {} events", self.events.len()),
            }
        }
    }

    /// Waits for the acceptance of a version of a type.
    pub(crate) async fn accepted(&mut self, short_type: &str, version: &Value) -> Value {
        self.event(&format!("an ACK of {short_type} {version}"), |event| {
            is_request(event, short_type) && event["version"] == *version && event["error"].is_null()
        })
        .await
    }

    /// Returns all events so far, and those of the next `window`.
    pub(crate) async fn events_for(&mut self, window: Duration) -> &[Value] {
        let deadline = Instant::now() + window;
        while let Some(event) = self.process.line(deadline.saturating_duration_since(Instant::now())).await {
            self.see(event);
        }
        &self.events
    }

    /// Returns the next event, if it occurs before the deadline.
    pub(crate) async fn next_event(&mut self, deadline: Instant) -> Option<Value> {
        let event = self.process.line(deadline.saturating_duration_since(Instant::now())).await?;
        self.see(event);
        self.events.last().cloned()
    }

    fn see(&mut self, mut event: Value) {
        self.streams.complete(&mut event);
        self.events.push(event);
    }

    /// Kills it, as a crash would. Returns the port for clients of its setup.
    pub(crate) async fn kill(self) -> u16 {
        let port = self.addr().port();
        self.process.kill().await;
        port
    }

    /// Stops the process, as if its machine were frozen, until [`thaw`](Self::thaw).
    pub(crate) fn freeze(&self) {
        self.process.stop();
    }

    /// Continues the process.
    pub(crate) fn thaw(&self) {
        self.process.signal("CONT");
    }

    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }

    /// The address for clients of its setup.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr_for(self.setup.api_type)
    }

    fn addr_for(&self, api_type: ApiType) -> SocketAddr {
        let port = if api_type == ApiType::Rest { self.gateway } else { self.port };
        ([127, 0, 0, 1], port).into()
    }

    /// A bootstrap for it as JSON.
    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap_for(self.setup.api_type)
    }

    /// A bootstrap for clients with another variant of the protocol.
    pub(crate) fn bootstrap_for(&self, api_type: ApiType) -> String {
        let mut server = json!({
            "server_uri": self.addr_for(api_type).to_string(),
            "channel_creds": [{"type": "insecure"}],
            "api_type": api_type.name(),
        });
        if api_type == ApiType::Rest {
            server["refresh_delay"] = format!("{}s", REFRESH.as_secs_f64()).into();
            server["request_timeout"] = format!("{}s", PATIENCE.as_secs()).into();
        }
        let node = json!({"id": NODE, "locality": {"region": "eu", "zone": "eu-a"}});
        json!({"xds_servers": [server], "node": node}).to_string()
    }

    /// A bootstrap in a file.
    pub(crate) fn bootstrap_path(&self) -> std::path::PathBuf {
        self.folder.path().join("bootstrap.json")
    }
}

/// A port without a listener, outside the range that the system assigns to outgoing connections, which is that from
/// 32768 on.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = process::id().wrapping_mul(500);
    loop {
        let port = 15_000 + (first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 15_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The requests on streams of the incremental variant, by stream and type.
#[derive(Default)]
struct Streams {
    names: BTreeMap<(u64, String), BTreeSet<String>>,
    versions: BTreeMap<(u64, String, String), Value>,
}

impl Streams {
    /// Adds fields of the other variant to a request of the incremental one: the number of subscribed names, and the
    /// version that is accepted or rejected.
    fn complete(&mut self, event: &mut Value) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let (type_name, nonce) = (text("type"), text("nonce"));
        let stream = event["stream"].as_u64().unwrap_or_default();
        if event["event"] == "response" {
            self.versions.insert((stream, type_name, nonce), event["version"].clone());
        } else if event["event"] == "request" && event["names"].is_null() {
            let names = self.names.entry((stream, type_name.clone())).or_default();
            let list = |field: &str| event[field].as_array().cloned().unwrap_or_default();
            let text = |name: &Value| name.as_str().expect("names are texts").to_owned();
            names.extend(list("subscribe").iter().map(text));
            list("unsubscribe").iter().for_each(|name| {
                names.remove(&text(name));
            });
            event["names"] = names.len().into();
            event["version"] = self.versions.get(&(stream, type_name, nonce)).cloned().unwrap_or_default();
        }
    }
}

fn gcp(cache: &str, setup: Setup, port: u16) -> Process {
    let mut command = Command::new(program("XDSKIT_INTEROP_GCP"));
    let of_clients = if setup.is_rest() { "-gateway" } else { "-port" };
    Process::start("gcp", command.args(["-cache", cache, of_clients, &port.to_string()]))
}

fn old_gcp(port: u16) -> Process {
    let mut command = Command::new(program("XDSKIT_INTEROP_GCP_0_12"));
    Process::start("gcp_0_12", command.args(["-cache", "snapshot", "-port", &port.to_string()]))
}

fn jcp(port: u16) -> Process {
    let mut command = Command::new(program("XDSKIT_INTEROP_JCP"));
    Process::start("jcp", command.arg(port.to_string()).arg(program("XDSKIT_INTEROP_GCP")))
}

fn strict(flags: &[&str], port: u16) -> Process {
    let mut command = Command::new(program("XDSKIT_INTEROP_STRICT"));
    Process::start("strict", command.args(flags).args(["-port", &port.to_string()]))
}

/// Whether an event is a request for a type, such as `Cluster`.
pub(crate) fn is_request(event: &Value, short_type: &str) -> bool {
    event["event"] == "request" && event["type"] == short_type
}

/// The path of a program that `run.sh` built.
pub(crate) fn program(variable: &str) -> String {
    match env::var(variable) {
        Ok(path) if Path::new(&path).exists() => path,
        Ok(path) => panic!("{variable} is {path:?}, which is not there"),
        Err(_) => panic!("{variable} is not set: these tests are run by tests/interop/run.sh"),
    }
}

/// The minimum polling interval of clients over REST.
pub(crate) const REFRESH: Duration = Duration::from_millis(50);

/// The node id of the clients in these tests.
pub(crate) const NODE: &str = "interop-node";
