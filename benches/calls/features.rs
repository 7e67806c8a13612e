//! What a configuration or an application may ask of each call, for the benches that measure what it costs.

use std::sync::LazyLock;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use xdskit::{
    channel::ChannelBuilder,
    metrics::ChannelMetrics,
    pb::{
        envoy::{
            config::{
                cluster::v3::{
                    CircuitBreakers, LoadBalancingPolicy, OutlierDetection, circuit_breakers::Thresholds,
                    cluster::LbPolicy, load_balancing_policy::Policy,
                },
                core::v3::TypedExtensionConfig,
                route::v3::{RetryPolicy, RouteAction, route::Action, route_action::MaxStreamDuration},
            },
            extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
        },
        google::protobuf::{Any, Duration, UInt32Value},
    },
    testing::resources::{ClusterBuilder, RouteBuilder},
};

use prost::Message;

/// A feature of a route, a cluster or a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    Timeout,
    Retry,
    OutlierDetection,
    CircuitBreaker,
    RingHash,
    Weights,
    LoadReports,
    /// The instruments that are on by default, and an exporter that keeps what it gets each minute.
    Metrics,
}

/// The features that are measured: each alone, and the first four together.
pub(crate) const FEATURES: [(&str, &[Feature]); 10] = [
    ("none", &[]),
    ("timeout", &[Feature::Timeout]),
    ("retry policy", &[Feature::Retry]),
    ("outlier detection", &[Feature::OutlierDetection]),
    ("circuit breaker", &[Feature::CircuitBreaker]),
    ("these four", &[Feature::Timeout, Feature::Retry, Feature::OutlierDetection, Feature::CircuitBreaker]),
    ("ring_hash", &[Feature::RingHash]),
    ("weights by load", &[Feature::Weights]),
    ("load reports", &[Feature::LoadReports]),
    ("metrics", &[Feature::Metrics]),
];

impl Feature {
    pub(crate) fn edit_route(self, route: RouteBuilder) -> RouteBuilder {
        route.edit(|route| {
            let Some(Action::Route(action)) = &mut route.action else { return };
            self.edit_action(action);
        })
    }

    fn edit_action(self, action: &mut RouteAction) {
        match self {
            Self::Timeout => {
                let minute = Some(Duration { seconds: 60, nanos: 0 });
                action.max_stream_duration =
                    Some(MaxStreamDuration { max_stream_duration: minute, ..Default::default() });
            }
            Self::Retry => {
                let retry_on = "unavailable,cancelled,resource-exhausted".into();
                action.retry_policy =
                    Some(RetryPolicy { retry_on, num_retries: value(3), ..Default::default() });
            }
            // Without a hash policy, each call has a random hash.
            Self::OutlierDetection
            | Self::CircuitBreaker
            | Self::RingHash
            | Self::Weights
            | Self::LoadReports
            | Self::Metrics => {}
        }
    }

    pub(crate) fn edit_channel(self, channel: ChannelBuilder) -> ChannelBuilder {
        if self == Self::Metrics { channel.metrics(&METRICS.1) } else { channel }
    }

    pub(crate) fn edit_cluster(self, cluster: ClusterBuilder) -> ClusterBuilder {
        if self == Self::LoadReports {
            return cluster.report_load();
        }
        cluster.edit(|cluster| match self {
            Self::OutlierDetection => cluster.outlier_detection = Some(OutlierDetection::default()),
            Self::CircuitBreaker => {
                let thresholds = vec![Thresholds { max_requests: value(5_000), ..Default::default() }];
                cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..Default::default() });
            }
            Self::RingHash => cluster.lb_policy = LbPolicy::RingHash.into(),
            Self::Weights => cluster.load_balancing_policy = Some(weights()),
            Self::Timeout | Self::Retry | Self::LoadReports | Self::Metrics => {}
        })
    }
}

fn weights() -> LoadBalancingPolicy {
    let package = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3";
    let type_url = format!("type.googleapis.com/{package}.ClientSideWeightedRoundRobin");
    let value = ClientSideWeightedRoundRobin::default().encode_to_vec().into();
    let typed_config = Some(Any { type_url, value });
    let extension = TypedExtensionConfig { typed_config, ..Default::default() };
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(extension) }] }
}

/// With the provider, which ends its exports when it is dropped.
static METRICS: LazyLock<(SdkMeterProvider, ChannelMetrics)> = LazyLock::new(|| {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter).build();
    let metrics = ChannelMetrics::builder().all_methods().build(&provider.meter("bench"));
    (provider, metrics)
});

fn value(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}
