//! The utilization of an endpoint: which of the metrics of a load report it is (A58, A114).

use std::{collections::BTreeMap, sync::Arc};

/// The metrics whose maximum is the utilization of endpoints that report none of their application (A114).
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct UtilizationMetrics(Arc<[Metric]>);

/// A metric of a load report.
#[derive(Debug, Clone, PartialEq)]
enum Metric {
    Application,
    Processor,
    Memory,
    /// A key of `named_metrics`.
    Named(Box<str>),
}

/// The metrics of a load report, as far as they may be a utilization.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReportedMetrics {
    pub(super) application: f64,
    pub(super) processor: f64,
    pub(super) memory: f64,
    pub(super) named: BTreeMap<String, f64>,
}

impl UtilizationMetrics {
    /// The metrics of these names. Others than those of A114, and those beyond [`MAX_METRICS`], are left out.
    pub(in crate::balance) fn new(names: &[Box<str>]) -> Self {
        Self(names.iter().take(MAX_METRICS).filter_map(|name| Metric::of(name)).collect())
    }

    /// The first of the names that is left out.
    pub(in crate::balance) fn left_out(names: &[Box<str>]) -> Option<&str> {
        let mut left = names.iter().enumerate();
        left.find(|(index, name)| *index >= MAX_METRICS || Metric::of(name).is_none())
            .map(|(_, name)| &**name)
    }
}

impl Metric {
    /// The metric of a name; `None` if it is not among those that may be a utilization.
    fn of(name: &str) -> Option<Self> {
        match (name, name.strip_prefix("named_metrics.")) {
            ("application_utilization", _) => Some(Self::Application),
            ("cpu_utilization", _) => Some(Self::Processor),
            ("mem_utilization", _) => Some(Self::Memory),
            (_, Some(key)) => Some(Self::Named(key.into())),
            _ => None,
        }
    }
}

impl ReportedMetrics {
    /// Whether any of them may be a utilization.
    pub(super) fn is_any_usable(&self) -> bool {
        let known = [self.application, self.processor, self.memory];
        known.into_iter().chain(self.named.values().copied()).any(is_usable)
    }

    /// The utilization: that of the application if it reports one, else the greatest of the metrics, else that of the processor; `None` if
    /// that is not positive and finite.
    pub(super) fn utilization(&self, metrics: &UtilizationMetrics) -> Option<f64> {
        let utilization = match self.application > 0.0 {
            true => self.application,
            false => self.greatest_of(metrics).unwrap_or(self.processor),
        };
        is_usable(utilization).then_some(utilization)
    }

    fn greatest_of(&self, metrics: &UtilizationMetrics) -> Option<f64> {
        let value = |metric: &Metric| match metric {
            Metric::Application => Some(self.application),
            Metric::Processor => Some(self.processor),
            Metric::Memory => Some(self.memory),
            Metric::Named(key) => self.named.get(&**key).copied(),
        };
        metrics.0.iter().filter_map(value).filter(|value| is_usable(*value)).max_by(f64::total_cmp)
    }
}

pub(super) fn is_usable(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

/// The most metrics of which the maximum is taken, for each report.
pub(super) const MAX_METRICS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(names: &[&str]) -> UtilizationMetrics {
        UtilizationMetrics::new(&boxed(names))
    }

    fn boxed(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    fn reported() -> ReportedMetrics {
        let named =
            [("queue", 0.5), ("disk", 0.75), ("a.b", 0.9), ("bad", f64::NAN), ("endless", f64::INFINITY)];
        let named = named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        ReportedMetrics { application: 0.0, processor: 0.25, memory: 0.6, named }
    }

    #[test]
    fn ch3_42_a114_the_utilization_is_the_greatest_of_the_named_metrics() {
        for (names, expected) in [
            (&[][..], 0.25),
            (&["named_metrics.queue"], 0.5),
            (&["named_metrics.queue", "named_metrics.disk", "mem_utilization"], 0.75),
            (&["mem_utilization", "cpu_utilization"], 0.6),
            (&["named_metrics.a.b"], 0.9),
            (&["named_metrics.bad", "named_metrics.endless", "named_metrics.queue"], 0.5),
            (&["named_metrics.bad"], 0.25),
            (&["named_metrics.missing", "queue", "utilization.queue"], 0.25),
            (&["application_utilization"], 0.25),
        ] {
            assert_eq!(reported().utilization(&metrics(names)), Some(expected), "{names:?}");
        }
    }

    #[test]
    fn ch3_42_a114_the_utilization_of_the_application_precedes_named_metrics() {
        let reported = ReportedMetrics { application: 0.1, ..reported() };
        assert_eq!(reported.utilization(&metrics(&["named_metrics.disk"])), Some(0.1));
        let endless = ReportedMetrics { application: f64::INFINITY, ..reported };
        assert_eq!(endless.utilization(&metrics(&["named_metrics.disk"])), None);
    }

    #[test]
    fn ch3_42_a114_names_beyond_the_limit_and_of_other_fields_are_left_out() {
        assert_eq!(UtilizationMetrics::left_out(&boxed(&["mem_utilization", "named_metrics.x"])), None);
        assert_eq!(UtilizationMetrics::left_out(&boxed(&["mem_utilization", "eps"])), Some("eps"));
        let many: Vec<Box<str>> =
            (0..=MAX_METRICS).map(|index| format!("named_metrics.{index}").into()).collect();
        assert_eq!(UtilizationMetrics::new(&many).0.len(), MAX_METRICS);
        assert_eq!(UtilizationMetrics::left_out(&many), Some(&*format!("named_metrics.{MAX_METRICS}")));
    }
}
