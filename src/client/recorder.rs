//! Metrics without a metrics library: [`Recorder`] is what an application implements for its own.
//!
//! With the feature `metrics`, `xdskit::metrics::Metrics` is such a recorder for OpenTelemetry. The instruments, their units and
//! labels are the same for all recorders: [`Counter`], [`Gauge`] and [`Histogram`] list them.

use std::fmt;

/// A destination of the metrics of a client, set by [`ClientBuilder::recorder`](super::ClientBuilder::recorder).
///
/// The methods are called by the driver of the client, between two events, and with no lock of the client held. They must not block:
/// whatever takes long belongs into a task or thread of the recorder. A recorder that panics is not called again; the panic is
/// logged, and the client goes on.
///
/// All methods do nothing by default, so that a recorder implements those that it needs, and instruments may be added.
///
/// ```
/// use std::{collections::BTreeMap, sync::Mutex};
///
/// use xdskit::client::recorder::{Counter, Gauge, Labels, Recorder};
///
/// /// Sums by instrument and labels, such as for a page of a server's own.
/// #[derive(Default)]
/// struct Sums(Mutex<BTreeMap<(&'static str, String), u64>>);
///
/// impl Recorder for Sums {
///     fn add(&self, counter: Counter, labels: &Labels<'_>, count: u64) {
///         let mut sums = self.0.lock().unwrap();
///         *sums.entry((counter.instrument().name, labels.to_string())).or_default() += count;
///     }
///
///     fn set(&self, gauge: Gauge, labels: &Labels<'_>, value: Option<u64>) {
///         let key = (gauge.instrument().name, labels.to_string());
///         let mut sums = self.0.lock().unwrap();
///         match value {
///             Some(value) => sums.insert(key, value),
///             None => sums.remove(&key),
///         };
///     }
/// }
/// ```
pub trait Recorder: Send + Sync + 'static {
    /// Adds to a counter: `count` is what has been counted since the last call with these labels, at least 1.
    fn add(&self, counter: Counter, labels: &Labels<'_>, count: u64) {
        let _ = (counter, labels, count);
    }

    /// Sets a gauge; `None` removes the series, which has no value any more. The end of a client removes all of its series.
    ///
    /// Clients with one scope have the same labels. Give each a scope or a recorder of its own if they must not replace each
    /// other's values.
    fn set(&self, gauge: Gauge, labels: &Labels<'_>, value: Option<u64>) {
        let _ = (gauge, labels, value);
    }

    /// Records a value of a histogram, in the unit of the instrument.
    fn record(&self, histogram: Histogram, labels: &Labels<'_>, value: f64) {
        let _ = (histogram, labels, value);
    }
}

/// The name and meaning of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instrument {
    /// The name, with dots as in OpenTelemetry. Those with the prefix `grpc.` are defined by gRPC (A78).
    pub name: &'static str,
    /// The unit in UCUM: `s`, `By`, or an annotation such as `{request}`.
    pub unit: &'static str,
    /// The meaning, as one line of text.
    pub description: &'static str,
    /// The keys of all its labels, in the order of their values.
    pub labels: &'static [&'static str],
}

/// The labels of a value: the keys are those of its [`Instrument`].
///
/// Their number is bounded by the configuration: resource types are those that the client has subscribed to, and `#other` stands for
/// whatever else a server sends; kinds and reasons are fixed sets. The [`Display`](fmt::Display) form is `key=value,key=value`.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    keys: &'static [&'static str],
    values: &'a [&'a str],
}

/// A gauge with the values of its labels, without the target where that is the same for all.
pub(crate) type Series = (Gauge, Vec<Box<str>>);

/// A counter, which only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// `grpc.xds_client.server_failure`: a server became unreachable, or ended a stream without a response.
    ServerFailures,
    /// `grpc.xds_client.resource_updates_valid`: resources received and accepted, unchanged ones too.
    ValidUpdates,
    /// `grpc.xds_client.resource_updates_invalid`: resources received and rejected.
    InvalidUpdates,
    /// `xdskit.client.requests`: requests handed to the transport, by `xdskit.request.kind`: `subscription`, `ack` or `nack`.
    Requests,
    /// `xdskit.client.request_bytes`: the size of the requests as protobuf, uncompressed.
    RequestBytes,
    /// `xdskit.client.responses`: messages received. The type is `#other` for those of no requested type.
    Responses,
    /// `xdskit.client.response_bytes`: the size of the messages as protobuf, uncompressed.
    ResponseBytes,
    /// `xdskit.client.stream_ends`: ends of streams, and failed attempts to open one, by `xdskit.stream.end`:
    /// `cancelled_by_client`, `closed_by_server`, `unreachable`, `message_too_large`, `too_many_pings`, `credentials`, `unusable`,
    /// or the name of the gRPC status that ended the stream, such as `UNAVAILABLE`.
    StreamEnds,
    /// `xdskit.lrs.reports_sent`: requests with load reports.
    LoadReports,
    /// `xdskit.lrs.report_bytes`: their size.
    LoadReportBytes,
    /// `xdskit.lrs.stream_failures`: streams of load reports that failed.
    LoadReportFailures,
    /// `xdskit.lrs.dropped_residues`: clusters whose last counts were dropped, since too many waited for a report.
    DroppedLoadResidues,
}

/// A value that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Gauge {
    /// `grpc.xds_client.connected`: 1 with a working stream to the server, else 0. Without subscriptions it has no value.
    Connected,
    /// `grpc.xds_client.resources`: resources in the cache, by their state. A state without resources has no value.
    Resources,
    /// `xdskit.lrs.connected`: 1 with a stream of load reports to the server, else 0. It has no value while nothing is reported.
    LoadReportConnected,
}

/// A distribution of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Histogram {
    /// `xdskit.client.apply_duration`: the time in seconds from the arrival of a response to the publication of what it has changed,
    /// by `xdskit.response.outcome`: `accepted` or `rejected`. It includes the wait behind other responses, and for the consumers of
    /// [batches](super::Client::batches).
    ApplyDuration,
}

impl<'a> Labels<'a> {
    /// The labels of an instrument; there are as many values as keys.
    pub(super) fn new(instrument: Instrument, values: &'a [&'a str]) -> Self {
        debug_assert_eq!(instrument.labels.len(), values.len(), "{}", instrument.name);
        Self { keys: instrument.labels, values }
    }

    /// The labels in the order of the instrument.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        self.keys.iter().copied().zip(self.values.iter().copied())
    }

    /// The values alone, in the order of the instrument.
    pub fn values(&self) -> &'a [&'a str] {
        self.values
    }

    /// The value of a key, if the instrument has it.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(index, (key, value))| {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")
        })
    }
}

impl Counter {
    /// All counters of this version.
    pub const ALL: &'static [Self] = &[
        Self::ServerFailures,
        Self::ValidUpdates,
        Self::InvalidUpdates,
        Self::Requests,
        Self::RequestBytes,
        Self::Responses,
        Self::ResponseBytes,
        Self::StreamEnds,
        Self::LoadReports,
        Self::LoadReportBytes,
        Self::LoadReportFailures,
        Self::DroppedLoadResidues,
    ];

    /// The name, the unit and the labels.
    pub const fn instrument(self) -> Instrument {
        let (name, unit, description, labels) = match self {
            Self::ServerFailures => (
                "grpc.xds_client.server_failure",
                "{failure}",
                "how often a management server became unreachable, or ended a stream without a response",
                OF_SERVER,
            ),
            Self::ValidUpdates => (
                "grpc.xds_client.resource_updates_valid",
                "{resource}",
                "resources received that were accepted, changed or not",
                OF_TYPE,
            ),
            Self::InvalidUpdates => (
                "grpc.xds_client.resource_updates_invalid",
                "{resource}",
                "resources received that were rejected",
                OF_TYPE,
            ),
            Self::Requests => {
                ("xdskit.client.requests", "{request}", "requests to a management server", OF_REQUEST)
            }
            Self::RequestBytes => ("xdskit.client.request_bytes", "By", "bytes of requests", OF_REQUEST),
            Self::Responses => {
                ("xdskit.client.responses", "{response}", "responses of a management server", OF_TYPE)
            }
            Self::ResponseBytes => ("xdskit.client.response_bytes", "By", "bytes of responses", OF_TYPE),
            Self::StreamEnds => {
                ("xdskit.client.stream_ends", "{stream}", "streams that ended, by the reason", OF_END)
            }
            Self::LoadReports => {
                ("xdskit.lrs.reports_sent", "{request}", "requests with load reports", OF_SERVER)
            }
            Self::LoadReportBytes => {
                ("xdskit.lrs.report_bytes", "By", "bytes of requests with load reports", OF_SERVER)
            }
            Self::LoadReportFailures => (
                "xdskit.lrs.stream_failures",
                "{failure}",
                "how often a stream of load reports failed",
                OF_SERVER,
            ),
            Self::DroppedLoadResidues => (
                "xdskit.lrs.dropped_residues",
                "{cluster}",
                "clusters whose last counts were dropped unreported",
                OF_SERVER,
            ),
        };
        Instrument { name, unit, description, labels }
    }
}

impl Gauge {
    /// All gauges of this version.
    pub const ALL: &'static [Self] = &[Self::Connected, Self::Resources, Self::LoadReportConnected];

    /// The name, the unit and the labels.
    pub const fn instrument(self) -> Instrument {
        let (name, unit, description, labels) = match self {
            Self::Connected => (
                "grpc.xds_client.connected",
                "{bool}",
                "whether there is a working stream to a management server",
                OF_SERVER,
            ),
            Self::Resources => {
                ("grpc.xds_client.resources", "{resource}", "resources in the cache", OF_CACHE)
            }
            Self::LoadReportConnected => (
                "xdskit.lrs.connected",
                "{bool}",
                "whether there is a stream of load reports to a management server",
                OF_SERVER,
            ),
        };
        Instrument { name, unit, description, labels }
    }

    /// The value of several streams or clients with the same labels: they are connected if all of them are, so that one without a
    /// connection shows among many that have one; numbers of resources are added. `None` without any.
    pub(crate) fn combined(self, values: impl Iterator<Item = u64>) -> Option<u64> {
        match self {
            Self::Connected | Self::LoadReportConnected => values.min(),
            Self::Resources => values.fold(None, |sum, value| Some(sum.unwrap_or(0) + value)),
        }
    }
}

impl Histogram {
    /// All histograms of this version.
    pub const ALL: &'static [Self] = &[Self::ApplyDuration];

    /// The name, the unit and the labels.
    pub const fn instrument(self) -> Instrument {
        match self {
            Self::ApplyDuration => Instrument {
                name: "xdskit.client.apply_duration",
                unit: "s",
                description: "time from the arrival of a response to the publication of what it has changed",
                labels: OF_RESPONSE,
            },
        }
    }

    /// Boundaries of buckets that suit the values, in the unit of the instrument.
    pub const fn boundaries(self) -> &'static [f64] {
        match self {
            Self::ApplyDuration => {
                &[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
            }
        }
    }
}

/// The scope of the client, and the server.
const OF_SERVER: &[&str] = &[TARGET, SERVER];
/// The resource type as well.
const OF_TYPE: &[&str] = &[TARGET, SERVER, TYPE];
const OF_REQUEST: &[&str] = &[TARGET, SERVER, TYPE, "xdskit.request.kind"];
const OF_RESPONSE: &[&str] = &[TARGET, SERVER, TYPE, "xdskit.response.outcome"];
const OF_END: &[&str] = &[TARGET, SERVER, "xdskit.stream.end"];
const OF_CACHE: &[&str] = &[TARGET, "grpc.xds.authority", "grpc.xds.cache_state", TYPE];
const TARGET: &str = "grpc.target";
const SERVER: &str = "grpc.xds.server";
const TYPE: &str = "grpc.xds.resource_type";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_instrument_has_a_name_of_its_own() {
        let counters = Counter::ALL.iter().map(|counter| counter.instrument());
        let gauges = Gauge::ALL.iter().map(|gauge| gauge.instrument());
        let histograms = Histogram::ALL.iter().map(|histogram| histogram.instrument());
        let all: Vec<_> = counters.chain(gauges).chain(histograms).collect();
        let names: BTreeSet<_> = all.iter().map(|instrument| instrument.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|instrument| instrument.labels.first() == Some(&TARGET)), "{all:?}");
    }

    #[test]
    fn labels_are_found_by_their_keys_and_shown_in_order() {
        let labels = Labels::new(Counter::StreamEnds.instrument(), &["shop", "a:1", "unreachable"]);
        assert_eq!(labels.get("xdskit.stream.end"), Some("unreachable"));
        assert_eq!(labels.get("else"), None);
        assert_eq!(labels.to_string(), "grpc.target=shop,grpc.xds.server=a:1,xdskit.stream.end=unreachable");
        assert_eq!(labels.values(), ["shop", "a:1", "unreachable"]);
    }

    #[test]
    fn a78_2_equal_gauges_are_combined() {
        assert_eq!(Gauge::Connected.combined([1, 0, 1].into_iter()), Some(0));
        assert_eq!(Gauge::Resources.combined([1, 0, 2].into_iter()), Some(3));
        assert_eq!(Gauge::Resources.combined([].into_iter()), None);
    }
}
