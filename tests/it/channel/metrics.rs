//! gRPC's metrics of channels as OpenTelemetry's SDK collects them, and the state of a channel.

use std::collections::BTreeMap;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use xdskit::{
    channel::Connectivity,
    metrics::{ChannelMetrics, ChannelMetricsBuilder},
    pb::{
        envoy::config::core::v3::Metadata,
        google::protobuf::{Struct, Value, value::Kind},
    },
};

use super::{backend::FAIL, *};

/// A mesh whose channel records metrics.
struct Metered {
    mesh: Mesh,
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Metered {
    async fn start(
        backends: &[&Backend],
        settings: impl FnOnce(ChannelMetricsBuilder) -> ChannelMetricsBuilder,
    ) -> Self {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        let metrics = settings(ChannelMetrics::builder()).build(&provider.meter("test"));
        let mut mesh = Mesh::start(backends).await;
        mesh.channel = mesh.client.channel("xds:///shop").metrics(&metrics).build().unwrap();
        Self { mesh, provider, exporter }
    }

    /// The counts of all points whose names begin with a prefix, by name and sorted labels; sizes with their sums.
    fn values(&self, prefix: &str) -> BTreeMap<String, String> {
        self.exporter.reset();
        self.provider.force_flush().unwrap();
        let mut values = BTreeMap::new();
        for resource in self.exporter.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
                let Some(name) = metric.name().strip_prefix(prefix) else { continue };
                for (labels, value) in points(metric.data()) {
                    values.insert(format!("{name}{labels}"), value);
                }
            }
        }
        values
    }
}

fn points(data: &AggregatedMetrics) -> Vec<(String, String)> {
    match data {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            sum.data_points().map(|it| (text(it.attributes()), it.value().to_string())).collect()
        }
        AggregatedMetrics::I64(MetricData::Sum(sum)) => {
            sum.data_points().map(|it| (text(it.attributes()), it.value().to_string())).collect()
        }
        AggregatedMetrics::U64(MetricData::Histogram(of)) => of
            .data_points()
            .map(|it| (text(it.attributes()), format!("{} sum {}", it.count(), it.sum())))
            .collect(),
        // Times differ.
        AggregatedMetrics::F64(MetricData::Histogram(of)) => {
            of.data_points().map(|it| (text(it.attributes()), it.count().to_string())).collect()
        }
        other @ (AggregatedMetrics::F64(_) | AggregatedMetrics::U64(_) | AggregatedMetrics::I64(_)) => {
            panic!("{other:?}")
        }
    }
}

fn text<'a>(labels: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> String {
    let mut labels: Vec<_> = labels
        .filter(|it| it.key.as_str() != "grpc.target" || it.value.as_str() != "xds:///shop")
        .map(|it| {
            format!(" {}={}", it.key.as_str().strip_prefix("grpc.").unwrap_or(it.key.as_str()), it.value)
        })
        .collect();
    labels.sort();
    labels.concat()
}

fn expect(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn ch9_10_ch9_11_calls_are_recorded_with_their_methods_statuses_and_sizes() {
    let backend = Backend::start("one").await;
    let it = Metered::start(&[&backend], |it| it.methods(["test.Echo/Echo"])).await;
    for _ in 0..3 {
        it.mesh.call(ECHO, "hello").await.unwrap();
    }
    it.mesh.call(FAIL, "because").await.unwrap_err();
    let sizes = "_total_compressed_message_size method=";
    let expected = expect(&[
        ("attempt.started method=other", "1"),
        ("attempt.started method=test.Echo/Echo", "3"),
        ("attempt.duration method=other status=DATA_LOSS", "1"),
        ("attempt.duration method=test.Echo/Echo status=OK", "3"),
        (&format!("attempt.sent{sizes}other status=DATA_LOSS"), "1 sum 7"),
        (&format!("attempt.sent{sizes}test.Echo/Echo status=OK"), "3 sum 15"),
        (&format!("attempt.rcvd{sizes}other status=DATA_LOSS"), "1 sum 0"),
        (&format!("attempt.rcvd{sizes}test.Echo/Echo status=OK"), "3 sum 15"),
        ("call.duration method=other status=DATA_LOSS", "1"),
        ("call.duration method=test.Echo/Echo status=OK", "3"),
    ]);
    assert_eq!(it.values("grpc.client."), expected);
}

#[tokio::test]
async fn ch9_14_ch9_18_localities_clusters_and_connections_are_labels_if_they_are_enabled() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let labels =
        ["grpc.lb.locality", "grpc.lb.backend_service", "grpc.disconnect_error", "grpc.security_level"];
    let it = Metered::start(&[], |it| it.enable_all().optional_labels(labels)).await;
    let both = locality(locality(endpoints("cart"), "a", 0, &[&one]), "b", 0, &[&two]);
    it.mesh.server.set(both);
    it.mesh.reach(&["one", "two"]).await;
    let at = |zone: &str| {
        format!("lb.backend_service=cart lb.locality={{region=\"eu\", zone=\"{zone}\", sub_zone=\"\"}}")
    };
    let values = it.values("grpc.client.attempt.duration ");
    assert!(values.is_empty(), "a name has labels after it: {values:?}");
    let values = it.values("grpc.client.attempt.duration");
    let of = |zone: &str| values.keys().filter(|key| key.contains(&at(zone))).count();
    assert_eq!((of("a"), of("b")), (1, 1), "{values:?}");
    let values = it.values("grpc.subchannel.");
    for zone in ["a", "b"] {
        let labels = at(zone);
        assert_eq!(values[&format!("connection_attempts_succeeded {labels}")], "1", "{values:?}");
        assert_eq!(values[&format!("open_connections {labels} security_level=none")], "1", "{values:?}");
    }
    it.mesh.channel.shutdown(Duration::from_secs(10)).await;
    let values = it.values("grpc.subchannel.");
    for zone in ["a", "b"] {
        let labels = at(zone);
        let lost = format!("disconnections disconnect_error=subchannel shutdown {labels}");
        assert_eq!(values[&lost], "1", "{values:?}");
        assert_eq!(values[&format!("open_connections {labels} security_level=none")], "0", "{values:?}");
    }
}

/// The cluster `cart` of a service of the mesh.
fn of_service(name: &str) -> ClusterBuilder {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields = [("service_name".to_owned(), text(name)), ("service_namespace".to_owned(), text("eu"))];
    let labels = Struct { fields: fields.into() };
    let metadata = Metadata {
        filter_metadata: [("com.google.csm.telemetry_labels".to_owned(), labels)].into(),
        ..Metadata::default()
    };
    cluster("cart").edit(|cluster| cluster.metadata = Some(metadata))
}

#[tokio::test]
async fn c30_attempts_have_the_service_in_the_metadata_of_the_cluster_and_follow_its_changes() {
    let backend = Backend::start("one").await;
    let labels = ["csm.service_name", "csm.service_namespace_name"];
    let it = Metered::start(&[&backend], |it| it.optional_labels(labels)).await;
    let call_as = async |service: &str| {
        soon(async {
            loop {
                it.mesh.call(ECHO, "hello").await.unwrap();
                let values = it.values("grpc.client.attempt.duration");
                if values.keys().any(|name| name.contains(&format!("{service} method="))) {
                    return;
                }
            }
        })
        .await;
    };
    call_as("csm.service_name=unknown csm.service_namespace_name=unknown").await;
    for service in ["one", "two"] {
        it.mesh.server.set(of_service(service));
        call_as(&format!("csm.service_name={service} csm.service_namespace_name=eu")).await;
    }
}

#[tokio::test]
async fn ch9_22_the_status_of_the_client_has_its_scope_and_that_of_the_channel_its_endpoints() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let server = TestControlPlane::start().await;
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server.set(cluster("cart"));
    server.set(locality(locality(endpoints("cart"), "a", 0, &[&one]), "b", 1, &[&two]));
    let mesh = Mesh::with(server, |client| client.scope("xds:///shop"));
    let status = mesh.channel.status().await;
    assert_eq!((status.state, status.clusters.len()), (ChannelState::Idle, 0));
    mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(&*mesh.client.status().await.scope, "xds:///shop");
    let status = mesh.channel.status().await;
    assert_eq!(
        (status.state, status.calls, status.waiting, &status.error),
        (ChannelState::Ready, 0, 0, &None)
    );
    let [leaf] = status.leaves.as_slice() else { panic!("{status:#?}") };
    let priorities: Vec<_> = leaf.priorities.iter().map(|it| (it.is_active, it.state)).collect();
    assert_eq!(priorities, [(true, Some(Connectivity::Ready)), (false, None)]);
    let endpoints: Vec<_> =
        leaf.endpoints().map(|it| (it.addresses[0], it.state, it.connections.len(), it.calls)).collect();
    assert_eq!(
        endpoints,
        [(one.address, Connectivity::Ready, 1, 0), (two.address, Connectivity::Idle, 0, 0)]
    );
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["state"], "READY");
    assert_eq!(json["leaves"][0]["priorities"][0]["localities"][0]["locality"]["zone"], "a");
    let table = status.to_string();
    let line = table.lines().find(|line| line.starts_with(&one.text())).unwrap();
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!(
        columns,
        [&one.text(), "0", "active", "eu/a", "READY", "Unknown", "1", "0", "1", "plaintext"],
        "{table}"
    );
    mesh.channel.shutdown(Duration::from_secs(10)).await;
    let status = mesh.channel.status().await;
    assert_eq!((status.state, status.clusters.len()), (ChannelState::Shutdown, 0));
}
