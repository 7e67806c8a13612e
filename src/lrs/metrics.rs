//! The metrics of backends (ORCA) in load reports: A64, A85.

use std::collections::BTreeMap;

use super::destination::Propagation;
use crate::wire::{Fields, Malformed, Value};

/// The load that a backend has reported with its response (A51), as far as load reports contain it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct OrcaLoadReport {
    /// The CPU utilization, from 0; above 1 if it exceeds its share.
    pub cpu_utilization: f64,
    /// The memory utilization, from 0 to 1.
    pub mem_utilization: f64,
    /// The utilization as the application defines it, from 0.
    pub application_utilization: f64,
    /// Metrics with names of the application's own, without the prefix `named_metrics.`.
    pub named_metrics: BTreeMap<String, f64>,
}

/// The number of calls that had a metric, and the sum of its values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MetricSum {
    /// The number of finished calls with it.
    pub count: u64,
    /// The sum of its values.
    pub total: f64,
}

/// The sums of all metrics of a locality or endpoint since the last report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MetricSums {
    /// The utilization of the processor. Load reports have fields for the three utilizations, and no names (LR8.2).
    pub(super) cpu: MetricSum,
    pub(super) mem: MetricSum,
    pub(super) application: MetricSum,
    /// Sums of named metrics, without the prefix `named_metrics.`.
    pub(super) named: BTreeMap<Box<str>, MetricSum>,
    /// The number of values that were dropped since their names were too many (LR8.7).
    pub(super) dropped: u64,
}

impl OrcaLoadReport {
    /// The report in an encoded `xds.data.orca.v3.OrcaLoadReport`; `None` if it is none.
    pub fn decode(message: &[u8]) -> Option<Self> {
        Self::read(message).ok()
    }

    /// Reads no more than load reports contain: most reports have other fields only.
    fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut report = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Fixed64(bits)) => report.cpu_utilization = f64::from_bits(bits),
                (2, Value::Fixed64(bits)) => report.mem_utilization = f64::from_bits(bits),
                (9, Value::Fixed64(bits)) => report.application_utilization = f64::from_bits(bits),
                // Later entries of a key replace earlier ones, as in any map of protobuf.
                (8, Value::Bytes(entry)) => {
                    let (name, value) = read_entry(entry)?;
                    report.named_metrics.insert(name, value);
                }
                (
                    _,
                    Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) | Value::Bytes(_) | Value::Group,
                ) => {}
            }
        }
        Ok(report)
    }
}

/// Reads an entry of a `map<string, double>`.
fn read_entry(entry: &[u8]) -> Result<(String, f64), Malformed> {
    let (mut name, mut number) = (String::new(), 0.0);
    for field in Fields::of(entry) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Bytes(_)) => name = field.text()?.to_owned(),
            (2, Value::Fixed64(bits)) => number = f64::from_bits(bits),
            (
                _,
                Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) | Value::Bytes(_) | Value::Group,
            ) => {}
        }
    }
    Ok((name, number))
}

#[cfg(feature = "client")]
impl OrcaLoadReport {
    /// The report in the trailers of a response, in `endpoint-load-metrics-bin`; `None` without one, or if it cannot be
    /// decoded.
    pub fn from_trailer(trailers: &http::HeaderMap) -> Option<Self> {
        // LR8.8: an undecodable report is dropped, as it is no reason to fail the call. Padding is optional in binary metadata.
        use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

        // CH9.7: of several reports the last one counts.
        let value = trailers.get_all(TRAILER).iter().next_back()?.as_bytes();
        let value = value.strip_suffix(b"=").map_or(value, |value| value.strip_suffix(b"=").unwrap_or(value));
        let message = STANDARD_NO_PAD.decode(value).ok();
        let report = message.and_then(|message| Self::decode(&message));
        if report.is_none() {
            tracing::debug!("undecodable {TRAILER} ignored");
        }
        report
    }
}

/// The name of the trailer (A51).
#[cfg(feature = "client")]
const TRAILER: &str = "endpoint-load-metrics-bin";

impl MetricSum {
    /// Adds a value, unless it would poison the sum (LR8.4).
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.count += 1;
            self.total += value;
        }
    }

    /// Adds another sum.
    fn append(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
    }

    /// Whether no call had the metric. A sum of 0 over several calls is not zero in this sense.
    pub(super) fn is_zero(&self) -> bool {
        self.count == 0
    }
}

impl MetricSums {
    /// Adds the metrics of a call that are reported.
    pub(super) fn add(&mut self, report: &OrcaLoadReport, propagation: &Propagation) {
        let Propagation { metrics, max_names } = propagation;
        let utilizations = [
            (metrics.cpu_utilization, &mut self.cpu, report.cpu_utilization),
            (metrics.mem_utilization, &mut self.mem, report.mem_utilization),
            (metrics.application_utilization, &mut self.application, report.application_utilization),
        ];
        // 0 counts: proto3 cannot tell it from an unset field (LR8.4).
        for (_, sum, value) in utilizations.into_iter().filter(|(is_reported, ..)| *is_reported) {
            sum.add(value);
        }
        for (name, value) in &report.named_metrics {
            if metrics.all_named_metrics || metrics.named_metrics.iter().any(|one| **one == **name) {
                self.add_named(name, *value, *max_names);
            }
        }
    }

    /// Adds a value of a named metric, within the limit of names.
    fn add_named(&mut self, name: &str, value: f64, max_names: usize) {
        // Before the name is added: one without a valid value must not count towards the limit.
        if !value.is_finite() {
            return;
        }
        if let Some(sum) = self.named.get_mut(name) {
            sum.add(value);
        } else if self.named.len() < max_names {
            self.named.insert(name.into(), MetricSum { count: 1, total: value });
        } else {
            self.dropped += 1;
        }
    }

    /// Adds other sums, within the limit of names.
    pub(super) fn append(&mut self, other: Self, max_names: usize) {
        let Self { cpu, mem, application, named, dropped } = other;
        self.cpu.append(cpu);
        self.mem.append(mem);
        self.application.append(application);
        self.dropped += dropped;
        for (name, sum) in named {
            if let Some(own) = self.named.get_mut(&name) {
                own.append(sum);
            } else if self.named.len() < max_names {
                self.named.insert(name, sum);
            } else {
                self.dropped += sum.count;
            }
        }
    }

    /// Whether there is nothing to report.
    pub(super) fn is_zero(&self) -> bool {
        self.named.is_empty() && [self.cpu, self.mem, self.application].iter().all(MetricSum::is_zero)
    }
}

#[cfg(test)]
mod tests;
