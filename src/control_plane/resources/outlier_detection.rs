use std::time::Duration;

use super::{duration, message_builder, number};
use crate::pb::envoy::config::cluster::v3::OutlierDetection;

/// Outlier detection of a cluster (A50) that ejects nothing yet.
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::control_plane::resources::{cluster, outlier_detection};
///
/// // Of three endpoints or more, those that fail over 50 % of 10 requests or more in 100 ms are ejected.
/// let detection = outlier_detection().interval(Duration::from_millis(100)).failure_percentage(50, 3, 10);
/// let shop = cluster("shop").outlier_detection(detection);
/// ```
pub fn outlier_detection() -> OutlierDetectionBuilder {
    let none = OutlierDetection {
        enforcing_success_rate: number(0),
        enforcing_failure_percentage: number(0),
        ..OutlierDetection::default()
    };
    OutlierDetectionBuilder { message: none }
}

/// A builder of an OutlierDetection; see [`outlier_detection`].
#[derive(Debug, Clone, PartialEq)]
pub struct OutlierDetectionBuilder {
    /// The message so far.
    message: OutlierDetection,
}

impl OutlierDetectionBuilder {
    /// Sets the interval of ejections; 10 s by default.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.message.interval = Some(duration(interval));
        self
    }

    /// Sets the time of a first ejection; 30 s by default. Further ones of an endpoint last longer, up to 300 s.
    #[must_use]
    pub fn base_ejection_time(mut self, time: Duration) -> Self {
        self.message.base_ejection_time = Some(duration(time));
        self
    }

    /// Sets the percentage of endpoints that may be ejected at a time; 10 by default. One always may.
    #[must_use]
    pub fn max_ejection_percent(mut self, percent: u32) -> Self {
        self.message.max_ejection_percent = number(percent);
        self
    }

    /// Ejects endpoints that fail more than this percentage of their requests in an interval, if at least this number of endpoints had
    /// this number of requests each.
    #[must_use]
    pub fn failure_percentage(mut self, threshold: u32, minimum_hosts: u32, request_volume: u32) -> Self {
        self.message.enforcing_failure_percentage = number(100);
        self.message.failure_percentage_threshold = number(threshold);
        self.message.failure_percentage_minimum_hosts = number(minimum_hosts);
        self.message.failure_percentage_request_volume = number(request_volume);
        self
    }

    /// Ejects endpoints whose rate of success is below the average by more than this number of thousandths of a standard deviation, if
    /// at least this number of endpoints had this number of requests each in an interval.
    #[must_use]
    pub fn success_rate(mut self, stdev_factor: u32, minimum_hosts: u32, request_volume: u32) -> Self {
        self.message.enforcing_success_rate = number(100);
        self.message.success_rate_stdev_factor = number(stdev_factor);
        self.message.success_rate_minimum_hosts = number(minimum_hosts);
        self.message.success_rate_request_volume = number(request_volume);
        self
    }
}

message_builder!(OutlierDetectionBuilder: OutlierDetection);
