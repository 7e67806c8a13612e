//! What a server asks for. Nothing here depends on the habits of a server such as Traffic Director (LR11.1).

use std::{collections::BTreeSet, time::Duration};

use prost::Message;

use crate::{
    config::bounded,
    pb::{envoy::service::load_stats::v3 as pb, google::protobuf as google},
};

/// The reports that a server has requested by a `LoadStatsResponse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// The names of the clusters to report; `None` for all.
    clusters: Option<BTreeSet<Box<str>>>,
    /// The time between two reports.
    pub(super) interval: Duration,
    /// Whether endpoints are reported one by one, beside their localities (LR3.7).
    pub(super) has_endpoints: bool,
}

impl Order {
    /// Decodes a response.
    ///
    /// # Errors
    /// The response is to be ignored, for this reason (LR3.3, LR3.6).
    pub(super) fn decode(message: &[u8], min_interval: Duration) -> Result<Self, String> {
        let response = pb::LoadStatsResponse::decode(message).map_err(|error| error.to_string())?;
        let interval = response.load_reporting_interval.unwrap_or_default();
        let interval = duration(interval).ok_or_else(|| format!("{interval:?} is no interval"))?;
        let names = || response.clusters.into_iter().map(Into::into).collect();
        Ok(Self {
            clusters: (!response.send_all_clusters).then(names),
            interval: bounded(interval.max(min_interval)),
            has_endpoints: response.report_endpoint_granularity,
        })
    }

    /// Whether a cluster is reported. An empty list is none (LR3.2).
    pub(super) fn wants(&self, cluster: &str) -> bool {
        self.clusters.as_ref().is_none_or(|names| names.contains(cluster))
    }

    /// The number of named clusters; `None` for all.
    pub(super) fn wanted(&self) -> Option<usize> {
        self.clusters.as_ref().map(BTreeSet::len)
    }
}

/// A valid duration; a negative one is 0.
fn duration(from: google::Duration) -> Option<Duration> {
    let google::Duration { seconds, nanos } = from;
    let has_one_sign = (seconds <= 0 || nanos >= 0) && (seconds >= 0 || nanos <= 0);
    let is_valid =
        seconds.unsigned_abs() <= MAX_SECONDS && nanos.unsigned_abs() < 1_000_000_000 && has_one_sign;
    let positive = || Some(Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?));
    is_valid.then(|| positive().unwrap_or_default())
}

/// The longest duration of protobuf: 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;
