//! gRPC's metrics of xDS clients as OpenTelemetry's SDK collects them: A78.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{collections::BTreeMap, time::Duration};

use crate::common::*;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use xdskit::{
    Client,
    client::LoadReportStatus,
    config::{Bootstrap, Locality},
    control_plane::{LoadReporting, type_url},
    lrs::LoadStreamState,
    metrics::Metrics,
    testing::{TestControlPlane, resources},
};

#[apply(servers)]
async fn a78_1_the_instruments_have_their_labels(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let collected = Collected::new();
    let client =
        transport.builder(server.uri()).scope("xds:///shop").metrics(&collected.metrics).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.set(cluster("shop", BAD));
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    let _waiting = client.watch::<Cluster>("waiting");
    settle(&client).await;
    let uri = server.uri();
    let to_server = format!("grpc.target=xds:///shop grpc.xds.server={uri}");
    let of_type = "grpc.xds.resource_type=envoy.config.cluster.v3.Cluster";
    let in_cache = "grpc.target=xds:///shop grpc.xds.authority=#old grpc.xds.cache_state=";
    let expected = BTreeMap::from([
        (format!("connected {to_server}"), 1),
        (format!("resource_updates_valid grpc.target=xds:///shop {of_type} grpc.xds.server={uri}"), 1),
        (format!("resource_updates_invalid grpc.target=xds:///shop {of_type} grpc.xds.server={uri}"), 1),
        (format!("resources {in_cache}nacked_but_cached {of_type}"), 1),
        (format!("resources {in_cache}requested {of_type}"), 1),
    ]);
    let mut values = collected.values();
    values.retain(|name, _| !name.starts_with("xdskit.client."));
    assert_eq!(values, expected);
}

#[apply(servers)]
async fn a78_2_a_server_that_fails_is_counted_and_not_connected(transport: Transport) {
    let collected = Collected::new();
    let client = transport.builder("127.0.0.1:1").metrics(&collected.metrics).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.next()).await.unwrap();
    let values = collected.values();
    let labels = "grpc.target= grpc.xds.server=127.0.0.1:1";
    assert_eq!(values.get(&format!("server_failure {labels}")), Some(&1), "{values:?}");
    assert_eq!(values.get(&format!("connected {labels}")), Some(&0), "{values:?}");
}

#[apply(servers)]
async fn what_is_gone_is_not_recorded_any_more_and_equal_scopes_add_up(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let collected = Collected::new();
    let client =
        || transport.builder(server.uri()).scope("shop").metrics(&collected.metrics).build().unwrap();
    let (first, second) = (client(), client());
    let mut watches = [first.watch::<Cluster>("shop"), second.watch::<Cluster>("shop")];
    for watch in &mut watches {
        soon(watch.ready()).await.unwrap();
    }
    assert_eq!(collected.sum("resources"), 2);
    assert_eq!(collected.sum("connected"), 1);
    first.shutdown().await;
    assert_eq!(collected.sum("resources"), 1);
    second.shutdown().await;
    assert_eq!(collected.sum("resources") + collected.sum("connected"), 0);
    assert_eq!(collected.sum("resource_updates_valid"), 2, "what was counted stays");
}

#[apply(servers)]
async fn ob5_messages_and_the_time_of_responses_are_recorded(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let collected = Collected::new();
    let client = transport.builder(server.uri()).scope("shop").metrics(&collected.metrics).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    settle(&client).await;
    let values = collected.values();
    let labels = format!(
        "grpc.target=shop grpc.xds.resource_type=envoy.config.cluster.v3.Cluster grpc.xds.server={}",
        server.uri()
    );
    let applied = format!("xdskit.client.apply_duration {labels} xdskit.response.outcome=accepted");
    let responses = values[&format!("xdskit.client.responses {labels}")];
    // A server that is polled may be polled again by now.
    assert!(responses >= 1 && values.get(&applied) == Some(&responses), "{values:?}");
    assert!(values[&format!("xdskit.client.response_bytes {labels}")] > 0, "{values:?}");
    let requests = format!("xdskit.client.requests {labels} xdskit.request.kind=subscription");
    assert!(values[&requests] >= 1, "{values:?}");
}

#[apply(servers)]
async fn a_resource_that_is_deleted_changes_its_state(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let collected = Collected::new();
    let client = transport.builder(server.uri()).metrics(&collected.metrics).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    assert_eq!(collected.states(), ["acked"]);
    server.remove(type_url::CLUSTER, "shop");
    soon(shop.wait_for(|seen| seen.is_absent())).await.unwrap();
    assert_eq!(collected.states(), ["does_not_exist"]);
}

#[tokio::test]
async fn lr9_8_metrics_and_status_tell_of_load_reports() {
    let server = TestControlPlane::start().await;
    server.set(resources::cluster("shop").report_load());
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    let collected = Collected::new();
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json()).unwrap();
    let client = Client::builder(bootstrap).scope("shop").metrics(&collected.metrics).build().unwrap();
    let zone = client.load_reporter("shop").locality(&Locality::default());
    soon(client.watch::<xdskit::resource::Cluster>("shop").ready()).await.unwrap();
    let call = zone.call_started();
    let status = async |is_met: &dyn Fn(&LoadReportStatus) -> bool| loop {
        let found = client.status().await.load_reports.into_iter().find(|it| is_met(it));
        if let Some(found) = found {
            settle(&client).await;
            return found;
        }
        tokio::task::yield_now().await;
    };
    let reporting = soon(status(&|it| it.reports_sent > 0)).await;
    let uri = server.uri().replace("http://", "");
    assert_eq!((reporting.state, &reporting.uri), (LoadStreamState::Reporting, &uri));
    let of_server = |name: &str| format!("xdskit.lrs.{name} grpc.target=shop grpc.xds.server={uri}");
    assert_eq!((reporting.interval, reporting.wanted_clusters), (Some(Duration::from_secs(1)), None));
    let last = reporting.last_report.unwrap();
    assert_eq!((last.clusters, last.bytes as u64), (1, reporting.report_bytes));
    let values = collected.values();
    assert_eq!(values.get(&of_server("connected")), Some(&1), "{values:?}");
    // The call is still under way, so that there may be another report by now.
    assert!(
        values[&of_server("reports_sent")] >= 1 && values[&of_server("report_bytes")] >= last.bytes as u64
    );
    assert_eq!(values.get(&of_server("stream_failures")), None);
    server.control_plane().reset_load_streams();
    soon(status(&|it| it.failures == 1)).await;
    assert_eq!(collected.values().get(&of_server("stream_failures")), Some(&1));
    drop(call);
}

/// Waits until the driver has processed all earlier commands.
async fn settle(client: &Client) {
    client.status().await;
    // Everything before the status has been recorded by now, but the batch of the status itself needs another turn of
    // the driver.
    client.status().await;
}

/// A meter, and the output of its exporter.
struct Collected {
    metrics: Metrics,
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Collected {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        Self { metrics: Metrics::new(&provider.meter("test")), provider, exporter }
    }

    /// All current values, by name and sorted labels; of a histogram, the number of its values.
    fn values(&self) -> BTreeMap<String, u64> {
        self.exporter.reset();
        self.provider.force_flush().unwrap();
        let mut values = BTreeMap::new();
        for resource in self.exporter.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
                let name = metric.name();
                let name = name.strip_prefix("grpc.xds_client.").unwrap_or(name);
                let points: Vec<(Vec<_>, u64)> = match metric.data() {
                    AggregatedMetrics::U64(MetricData::Gauge(gauge)) => gauge
                        .data_points()
                        .map(|point| (point.attributes().collect(), point.value()))
                        .collect(),
                    AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                        sum.data_points().map(|point| (point.attributes().collect(), point.value())).collect()
                    }
                    AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
                        .data_points()
                        .map(|point| (point.attributes().collect(), point.count()))
                        .collect(),
                    other @ (AggregatedMetrics::F64(_)
                    | AggregatedMetrics::U64(_)
                    | AggregatedMetrics::I64(_)) => panic!("{other:?}"),
                };
                for (attributes, value) in points {
                    let mut labels: Vec<_> =
                        attributes.iter().map(|label| format!("{}={}", label.key, label.value)).collect();
                    labels.sort();
                    values.insert(format!("{name} {}", labels.join(" ")), value);
                }
            }
        }
        values
    }

    /// The sum of an instrument's values.
    fn sum(&self, name: &str) -> u64 {
        let values = self.values();
        values.iter().filter(|(key, _)| key.split(' ').next() == Some(name)).map(|(_, value)| value).sum()
    }

    /// All states of the cache with resources.
    fn states(&self) -> Vec<String> {
        let values = self.values();
        let state = |key: &String| Some(key.split_once("cache_state=")?.1.split(' ').next()?.to_owned());
        values.keys().filter_map(state).collect()
    }
}
