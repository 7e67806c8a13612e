//! The JSON form of clusters.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{
    super::{LbPolicy, Metadata, OutlierDetection, Remarks, UpstreamTls, parts},
    Cluster, ClusterKind, OverrideHostStatus, ReportedMetrics, TelemetryLabels,
};

impl Serialize for Cluster {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { name, kind, lb_policy, max_requests, max_connections, outlier_detection, .. } = self;
        let Self { tls, http_connect, .. } = self;
        let Self { idle_timeout, report_load, reported_metrics, override_host_status, metadata, .. } = self;
        let remarks = &self.remarks;
        let telemetry_labels = self.telemetry_labels();
        ClusterJson {
            name,
            kind,
            lb_policy,
            max_requests: *max_requests,
            max_connections: *max_connections,
            outlier_detection: outlier_detection.as_deref(),
            tls: tls.as_deref(),
            http_connect: *http_connect,
            idle_timeout: *idle_timeout,
            report_load: *report_load,
            reported_metrics,
            telemetry_labels,
            override_host_status: *override_host_status,
            metadata,
            remarks,
        }
        .serialize(to)
    }
}

/// The JSON form of a cluster.
/// The labels of telemetry are fields here; a cluster looks them up in its metadata.
#[derive(Serialize)]
struct ClusterJson<'a> {
    name: &'a str,
    #[serde(flatten)]
    kind: &'a ClusterKind,
    lb_policy: &'a LbPolicy,
    max_requests: u32,
    max_connections: u32,
    outlier_detection: Option<&'a OutlierDetection>,
    tls: Option<&'a UpstreamTls>,
    http_connect: bool,
    #[serde(serialize_with = "parts::serialize_seconds")]
    idle_timeout: Duration,
    report_load: bool,
    reported_metrics: &'a ReportedMetrics,
    telemetry_labels: TelemetryLabels<'a>,
    override_host_status: OverrideHostStatus,
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    remarks: &'a Remarks,
}
