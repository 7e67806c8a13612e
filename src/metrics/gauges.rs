//! The current values of all clients, which are collected when the application exports its metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use opentelemetry::{KeyValue, metrics::Meter};

use crate::client::recorder::{Gauge, Series};

/// The values of the gauges, combined over all clients that have not ended.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    /// The values of each client that has not ended.
    /// Weak, so that a client that has ended has no last value (`ClientRecorder` has the other reference).
    clients: Mutex<Vec<Weak<ClientGauges>>>,
}

/// The values of one client, as long as it lives.
#[derive(Debug, Default)]
pub(super) struct ClientGauges {
    /// The latest values by their labels, which the callbacks of gauges read.
    values: Mutex<BTreeMap<Series, u64>>,
}

impl Gauges {
    /// Registers the gauges with a meter, which keeps their callbacks forever.
    pub(super) fn new(meter: &Meter) -> Arc<Self> {
        let gauges = Arc::new(Self::default());
        for gauge in Gauge::ALL.iter().copied() {
            let instrument = gauge.instrument();
            // A meter keeps callbacks forever: with a strong reference it would keep the values of all clients as well.
            let observed = Arc::downgrade(&gauges);
            meter
                .u64_observable_gauge(instrument.name)
                .with_unit(instrument.unit)
                .with_description(instrument.description)
                .with_callback(move |observer| {
                    let all = observed.upgrade().map(|gauges| gauges.values(gauge));
                    for (labels, value) in all.into_iter().flatten() {
                        observer.observe(value, &labels);
                    }
                })
                .build();
        }
        gauges
    }

    /// The values of a new client.
    pub(super) fn client(&self) -> Arc<ClientGauges> {
        let client = Arc::<ClientGauges>::default();
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }

    /// The values of a gauge with their labels. Those of clients with equal labels, which have one scope, are combined.
    fn values(&self, gauge: Gauge) -> Vec<(Vec<KeyValue>, u64)> {
        let clients: Vec<_> = lock(&self.clients).iter().filter_map(Weak::upgrade).collect();
        let mut all = BTreeMap::<Vec<Box<str>>, Vec<u64>>::new();
        for client in clients {
            let values = lock(&client.values);
            for ((_, labels), value) in values.iter().filter(|((other, _), _)| *other == gauge) {
                all.entry(labels.clone()).or_default().push(*value);
            }
        }
        let keys = gauge.instrument().labels;
        let combined = all.into_iter().filter_map(|(labels, values)| {
            let labels = keys.iter().zip(labels).map(|(key, value)| KeyValue::new(*key, String::from(value)));
            Some((labels.collect(), gauge.combined(values.into_iter())?))
        });
        combined.collect()
    }
}

impl ClientGauges {
    /// Sets the value of a gauge, or removes it.
    pub(super) fn set(&self, gauge: Gauge, labels: &[&str], value: Option<u64>) {
        let key = (gauge, labels.iter().copied().map(Box::from).collect());
        let values = &mut lock(&self.values);
        match value {
            Some(value) => drop(values.insert(key, value)),
            None => drop(values.remove(&key)),
        }
    }
}

/// Locks values, which are whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
