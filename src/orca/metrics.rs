//! Metrics of a server and of single calls, as handlers set them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{escape::debug_as_message, pb::xds::data::orca::v3::OrcaLoadReport};

/// A metric of a load report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric<'a> {
    /// The utilization of the processor, as a fraction: 0 or more, and above 1 if the server is overloaded.
    CpuUtilization,
    /// The utilization of the memory, as a fraction from 0 to 1.
    MemoryUtilization,
    /// The utilization as the application defines it: 0 or more, and above 1 if the server is overloaded. Clients that balance by
    /// weights prefer it to that of the processor.
    ApplicationUtilization,
    /// Requests per second: 0 or more.
    RequestsPerSecond,
    /// Failed requests per second: 0 or more.
    ErrorsPerSecond,
    /// The utilization of a resource of the application, by name, as a fraction from 0 to 1.
    Utilization(&'a str),
    /// Any other value, by name; finite.
    Named(&'a str),
    /// The cost of a call in a unit of the application, by name; finite. It is a metric of calls, not of servers.
    RequestCost(&'a str),
}

/// The error of a metric whose value is out of its range.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{metric} must be {range}, is {value}")]
#[non_exhaustive]
pub struct InvalidMetric {
    /// The name of the metric.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// The valid values.
    range: &'static str,
}

debug_as_message!(InvalidMetric);

/// The metrics of a server. A clone is a handle of the same metrics.
#[derive(Debug, Clone, Default)]
pub struct ServerMetrics {
    /// Shared by clones.
    shared: Shared,
}

/// The metrics of a call, which override those of the server. [`CallMetricsLayer`](super::CallMetricsLayer) puts them into the
/// extensions of the request; a clone is a handle of the same metrics.
#[derive(Debug, Clone, Default)]
pub struct CallMetrics {
    /// Shared by clones.
    shared: Shared,
}

impl ServerMetrics {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a metric.
    ///
    /// # Errors
    /// The value is out of the metric's range, or the metric is of calls. The metric keeps its value.
    pub fn set(&self, metric: Metric<'_>, value: f64) -> Result<(), InvalidMetric> {
        if let Metric::RequestCost(_) = metric {
            return Err(InvalidMetric::new(metric, value, "set for a call"));
        }
        self.shared.set(metric, value)
    }

    /// Removes a metric from reports.
    pub fn clear(&self, metric: Metric<'_>) {
        self.shared.clear(metric);
    }

    /// The current metrics.
    pub(super) fn values(&self) -> Arc<Values> {
        self.shared.values()
    }
}

impl CallMetrics {
    /// Sets a metric.
    ///
    /// # Errors
    /// The value is out of the metric's range. The metric keeps its value.
    pub fn set(&self, metric: Metric<'_>, value: f64) -> Result<(), InvalidMetric> {
        self.shared.set(metric, value)
    }

    /// Removes a metric of the call; that of the server, if there is one, is reported.
    pub fn clear(&self, metric: Metric<'_>) {
        self.shared.clear(metric);
    }

    /// The current metrics.
    pub(super) fn values(&self) -> Arc<Values> {
        self.shared.values()
    }
}

impl InvalidMetric {
    /// An error about a metric.
    fn new(metric: Metric<'_>, value: f64, range: &'static str) -> Self {
        Self { metric: format!("{metric:?}"), value, range }
    }
}

impl Metric<'_> {
    /// Checks that a value is in the range of the metric.
    fn check(self, value: f64) -> Result<(), InvalidMetric> {
        let (is_valid, range) = match self {
            Self::CpuUtilization
            | Self::ApplicationUtilization
            | Self::RequestsPerSecond
            | Self::ErrorsPerSecond => (value.is_finite() && value >= 0.0, "finite and 0 or more"),
            Self::MemoryUtilization | Self::Utilization(_) => ((0.0..=1.0).contains(&value), "from 0 to 1"),
            Self::Named(_) | Self::RequestCost(_) => (value.is_finite(), "finite"),
        };
        if is_valid { Ok(()) } else { Err(InvalidMetric::new(self, value, range)) }
    }
}

/// Values that are read more often than they are written: a reader holds the lock for a clone of the pointer.
#[derive(Debug, Clone, Default)]
struct Shared {
    /// Replaced as a whole by a change, so that readers do not wait.
    values: Arc<Mutex<Arc<Values>>>,
}

impl Shared {
    /// Sets a valid value.
    fn set(&self, metric: Metric<'_>, value: f64) -> Result<(), InvalidMetric> {
        metric.check(value)?;
        self.change(|values| values.set(metric, Some(value)));
        Ok(())
    }

    /// Removes a value.
    fn clear(&self, metric: Metric<'_>) {
        self.change(|values| values.set(metric, None));
    }

    /// Changes the values.
    fn change(&self, change: impl FnOnce(&mut Values)) {
        // A value is set as a whole, so a panic elsewhere does not corrupt it.
        change(Arc::make_mut(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// The current values.
    fn values(&self) -> Arc<Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The values of metrics, those that are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Values {
    cpu_utilization: Option<f64>,
    memory_utilization: Option<f64>,
    application_utilization: Option<f64>,
    requests_per_second: Option<f64>,
    errors_per_second: Option<f64>,
    utilization: BTreeMap<String, f64>,
    named: BTreeMap<String, f64>,
    request_cost: BTreeMap<String, f64>,
}

impl Values {
    /// Sets or removes a value.
    fn set(&mut self, metric: Metric<'_>, value: Option<f64>) {
        let named = |map: &mut BTreeMap<String, f64>, name: &str| match value {
            Some(value) => drop(map.insert(name.to_owned(), value)),
            None => drop(map.remove(name)),
        };
        match metric {
            Metric::CpuUtilization => self.cpu_utilization = value,
            Metric::MemoryUtilization => self.memory_utilization = value,
            Metric::ApplicationUtilization => self.application_utilization = value,
            Metric::RequestsPerSecond => self.requests_per_second = value,
            Metric::ErrorsPerSecond => self.errors_per_second = value,
            Metric::Utilization(name) => named(&mut self.utilization, name),
            Metric::Named(name) => named(&mut self.named, name),
            Metric::RequestCost(name) => named(&mut self.request_cost, name),
        }
    }

    /// The report of these metrics, with those of a call in place of those of the same name (A51).
    pub(super) fn report(&self, call: &Self) -> OrcaLoadReport {
        let first = |call: Option<f64>, server: Option<f64>| call.or(server).unwrap_or_default();
        let merged = |call: &BTreeMap<String, f64>, server: &BTreeMap<String, f64>| {
            let mut all = server.clone();
            all.extend(call.iter().map(|(name, value)| (name.clone(), *value)));
            all
        };
        OrcaLoadReport {
            cpu_utilization: first(call.cpu_utilization, self.cpu_utilization),
            mem_utilization: first(call.memory_utilization, self.memory_utilization),
            application_utilization: first(call.application_utilization, self.application_utilization),
            rps_fractional: first(call.requests_per_second, self.requests_per_second),
            eps: first(call.errors_per_second, self.errors_per_second),
            utilization: merged(&call.utilization, &self.utilization),
            named_metrics: merged(&call.named, &self.named),
            request_cost: merged(&call.request_cost, &self.request_cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(server: &ServerMetrics, call: &CallMetrics) -> OrcaLoadReport {
        server.values().report(&call.values())
    }

    #[test]
    fn a51_1_each_metric_has_its_field() {
        let (server, call) = (ServerMetrics::new(), CallMetrics::default());
        for (metric, value) in [
            (Metric::CpuUtilization, 1.5),
            (Metric::MemoryUtilization, 0.25),
            (Metric::ApplicationUtilization, 2.5),
            (Metric::RequestsPerSecond, 100.0),
            (Metric::ErrorsPerSecond, 3.0),
            (Metric::Utilization("disk"), 0.5),
            (Metric::Named("queue"), -7.0),
        ] {
            server.set(metric, value).unwrap();
        }
        call.set(Metric::RequestCost("rows"), 12.0).unwrap();
        let one = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
        let expected = OrcaLoadReport {
            cpu_utilization: 1.5,
            mem_utilization: 0.25,
            application_utilization: 2.5,
            rps_fractional: 100.0,
            eps: 3.0,
            utilization: one("disk", 0.5),
            named_metrics: one("queue", -7.0),
            request_cost: one("rows", 12.0),
        };
        assert_eq!(report(&server, &call), expected);
    }

    #[test]
    fn a51_2_metrics_of_the_call_override_those_of_the_server() {
        let (server, call) = (ServerMetrics::new(), CallMetrics::default());
        for (metric, value) in [
            (Metric::CpuUtilization, 0.9),
            (Metric::MemoryUtilization, 0.8),
            (Metric::Named("a"), 1.0),
            (Metric::Named("b"), 2.0),
        ] {
            server.set(metric, value).unwrap();
        }
        call.set(Metric::CpuUtilization, 0.0).unwrap();
        call.set(Metric::Named("b"), 3.0).unwrap();
        let merged = report(&server, &call);
        assert_eq!((merged.cpu_utilization, merged.mem_utilization), (0.0, 0.8));
        assert_eq!(merged.named_metrics, BTreeMap::from([("a".into(), 1.0), ("b".into(), 3.0)]));
        call.clear(Metric::CpuUtilization);
        call.clear(Metric::Named("b"));
        server.clear(Metric::MemoryUtilization);
        server.clear(Metric::Named("a"));
        let merged = report(&server, &call);
        assert_eq!((merged.cpu_utilization, merged.mem_utilization), (0.9, 0.0));
        assert_eq!(merged.named_metrics, BTreeMap::from([("b".into(), 2.0)]));
    }

    #[test]
    fn a51_3_values_out_of_range_are_refused() {
        let (server, call) = (ServerMetrics::new(), CallMetrics::default());
        let not_negative = [
            Metric::CpuUtilization,
            Metric::ApplicationUtilization,
            Metric::RequestsPerSecond,
            Metric::ErrorsPerSecond,
        ];
        let fractions = [Metric::MemoryUtilization, Metric::Utilization("a")];
        let any = [Metric::Named("a"), Metric::RequestCost("a")];
        let infinite = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let refused = |metrics: &[Metric<'_>], values: &[f64]| {
            for (metric, value) in
                metrics.iter().flat_map(|metric| values.iter().map(move |it| (*metric, *it)))
            {
                assert!(call.set(metric, value).is_err(), "{metric:?} {value}");
                assert!(server.set(metric, value).is_err(), "{metric:?} {value}");
            }
        };
        refused(&not_negative, &[&infinite[..], &[-0.1]].concat());
        refused(&fractions, &[&infinite[..], &[-0.1, 1.1]].concat());
        refused(&any, &infinite);
        assert_eq!(report(&server, &call), OrcaLoadReport::default());
        for metric in not_negative.into_iter().chain(fractions).chain(any) {
            call.set(metric, 0.0).unwrap();
            call.set(metric, 1.0).unwrap();
        }
        call.set(Metric::MemoryUtilization, 2.0).unwrap_err();
        assert_eq!(report(&server, &call).mem_utilization, 1.0, "the value before stays");
        let error = server.set(Metric::RequestCost("rows"), 1.0).unwrap_err();
        assert_eq!(error.to_string(), r#"RequestCost("rows") must be set for a call, is 1"#);
    }
}
