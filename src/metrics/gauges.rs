//! The current values of all clients, which are collected when the application exports its metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use opentelemetry::{KeyValue, metrics::Meter};

use super::type_label;

/// The values of the gauges: the sums over all clients that have not ended.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    /// The values of each client that has not ended.
    /// Weak, so that a client that has ended has no last value (`Recorder` has the other reference).
    clients: Mutex<Vec<Weak<ClientGauges>>>,
}

/// The values of one client, as long as it lives.
#[derive(Debug)]
pub(super) struct ClientGauges {
    /// The label of the client.
    target: KeyValue,
    /// Its current values.
    values: Mutex<Values>,
}

/// The latest values, which the callbacks of gauges read.
#[derive(Debug, Default)]
struct Values {
    /// Whether a stream is connected, by server and the number of the stream.
    connected: BTreeMap<(String, u32), bool>,
    /// The streams of load reports, by server.
    reporting: BTreeMap<String, bool>,
    /// Numbers of resources, by their state and the number of the group of servers.
    resources: BTreeMap<(ResourceKey, u32), u64>,
}

/// The authority (`None` for old-style names), the type, and the state in the cache.
type ResourceKey = (Option<Arc<str>>, &'static str, &'static str);

impl Gauges {
    /// Registers the gauges with a meter, which keeps their callbacks forever.
    pub(super) fn new(meter: &Meter) -> Arc<Self> {
        let gauges = Arc::new(Self::default());
        // A meter keeps callbacks forever: with a strong reference it would keep the values of all clients as well.
        let observed = Arc::downgrade(&gauges);
        meter
            .u64_observable_gauge("grpc.xds_client.connected")
            .with_unit("{bool}")
            .with_description("whether there is a working stream to a management server")
            .with_callback(move |observer| {
                let all = observed.upgrade().map(|gauges| gauges.connected());
                for (labels, connected) in all.into_iter().flatten() {
                    observer.observe(connected.into(), &labels);
                }
            })
            .build();
        let observed = Arc::downgrade(&gauges);
        meter
            .u64_observable_gauge("xdskit.lrs.connected")
            .with_unit("{bool}")
            .with_description("whether there is a stream of load reports to a management server")
            .with_callback(move |observer| {
                let all = observed.upgrade().map(|gauges| gauges.reporting());
                for (labels, connected) in all.into_iter().flatten() {
                    observer.observe(connected.into(), &labels);
                }
            })
            .build();
        let observed = Arc::downgrade(&gauges);
        meter
            .u64_observable_gauge("grpc.xds_client.resources")
            .with_unit("{resource}")
            .with_description("resources in the cache")
            .with_callback(move |observer| {
                let all = observed.upgrade().map(|gauges| gauges.resources());
                for (labels, count) in all.into_iter().flatten() {
                    observer.observe(count, &labels);
                }
            })
            .build();
        gauges
    }

    /// The values of a new client.
    pub(super) fn client(&self, target: KeyValue) -> Arc<ClientGauges> {
        let client = Arc::new(ClientGauges { target, values: Mutex::default() });
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }

    /// Clients with one scope are connected if all of them are, and likewise the streams to a server.
    fn connected(&self) -> Vec<([KeyValue; 2], bool)> {
        let mut all = BTreeMap::<(String, String), bool>::new();
        for client in self.clients() {
            for ((server, _), connected) in &lock(&client.values).connected {
                // All of them, so that one client without a connection shows among many that have one.
                *all.entry((client.target.value.to_string(), server.clone())).or_insert(true) &= connected;
            }
        }
        all.into_iter()
            .map(|((target, server), connected)| (server_labels(target, server), connected))
            .collect()
    }

    /// Clients with one scope are connected if all of them are that report.
    fn reporting(&self) -> Vec<([KeyValue; 2], bool)> {
        let mut all = BTreeMap::<(String, String), bool>::new();
        for client in self.clients() {
            for (server, connected) in &lock(&client.values).reporting {
                *all.entry((client.target.value.to_string(), server.clone())).or_insert(true) &= connected;
            }
        }
        all.into_iter()
            .map(|((target, server), connected)| (server_labels(target, server), connected))
            .collect()
    }

    /// The sums of resources over groups, with their labels.
    fn resources(&self) -> Vec<([KeyValue; 4], u64)> {
        let mut all = BTreeMap::<(String, ResourceKey), u64>::new();
        for client in self.clients() {
            for ((key, _), count) in &lock(&client.values).resources {
                *all.entry((client.target.value.to_string(), key.clone())).or_default() += count;
            }
        }
        let labels = |(target, (authority, type_name, state)): (String, ResourceKey)| {
            let authority = authority.as_deref().unwrap_or(OLD_STYLE).to_owned();
            [
                KeyValue::new("grpc.target", target),
                KeyValue::new("grpc.xds.authority", authority),
                KeyValue::new("grpc.xds.cache_state", state),
                type_label(type_name),
            ]
        };
        all.into_iter().map(|(key, count)| (labels(key), count)).collect()
    }

    /// The values of clients that have not ended.
    fn clients(&self) -> Vec<Arc<ClientGauges>> {
        lock(&self.clients).iter().filter_map(Weak::upgrade).collect()
    }
}

/// The labels of a client and a server.
fn server_labels(target: String, server: String) -> [KeyValue; 2] {
    [KeyValue::new("grpc.target", target), KeyValue::new("grpc.xds.server", server)]
}

impl ClientGauges {
    /// Sets whether the stream of load reports to a server is connected; `None` if nothing is reported to it.
    pub(super) fn set_reporting(&self, server: String, connected: Option<bool>) {
        let all = &mut lock(&self.values).reporting;
        match connected {
            Some(connected) => drop(all.insert(server, connected)),
            None => drop(all.remove(&server)),
        }
    }

    /// Sets whether a stream is connected; `None` without subscriptions. A stream is identified by its server and a
    /// number.
    pub(super) fn set_connected(&self, stream: (String, u32), connected: Option<bool>) {
        let all = &mut lock(&self.values).connected;
        match connected {
            Some(connected) => drop(all.insert(stream, connected)),
            None => drop(all.remove(&stream)),
        }
    }

    /// Sets the number of resources. A number distinguishes equal keys.
    pub(super) fn set_resources(&self, key: (ResourceKey, u32), count: u64) {
        let all = &mut lock(&self.values).resources;
        match count {
            0 => drop(all.remove(&key)),
            1.. => drop(all.insert(key, count)),
        }
    }
}

/// Locks values, which are whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The authority of old-style names (A78).
const OLD_STYLE: &str = "#old";
