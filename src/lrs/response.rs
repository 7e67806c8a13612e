//! What a server asks for. Nothing here depends on the habits of a server such as Traffic Director (LR11.1).

use std::{collections::BTreeSet, time::Duration};

use prost::Message;

use crate::{
    config::bounded,
    pb::{envoy::service::load_stats::v3 as pb, google::protobuf as google},
};

/// What the server wants to know, and how often: a `LoadStatsResponse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// `None` for all clusters.
    clusters: Option<BTreeSet<Box<str>>>,
    pub(super) interval: Duration,
    pub(super) has_endpoints: bool,
}

impl Order {
    /// The text of an error if the response is to be ignored (LR3.3, LR3.6).
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

/// Of a protobuf duration: 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;
