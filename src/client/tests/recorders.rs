//! Recorders of applications, also unkind ones.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use tokio::time::sleep;

use super::{life::Network, *};
use crate::client::recorder::{Counter, Gauge, Histogram, Labels, Recorder};

/// Keeps all values by the instrument and the labels.
#[derive(Debug, Default)]
struct Kept {
    values: Mutex<BTreeMap<String, f64>>,
    /// Whether each call panics.
    panics: bool,
    calls: Mutex<usize>,
}

impl Kept {
    fn change(&self, name: &str, labels: &Labels<'_>, change: impl FnOnce(&mut f64)) {
        *self.calls.lock().unwrap() += 1;
        assert!(!self.panics, "a recorder panics, {}", "as it should");
        change(self.values.lock().unwrap().entry(format!("{name} {labels}")).or_default());
    }

    /// The values whose names end like this.
    fn of(&self, name: &str) -> Vec<String> {
        let values = self.values.lock().unwrap();
        let found = values.iter().filter(|(key, _)| key.split(' ').next().unwrap().ends_with(name));
        found.map(|(key, value)| format!("{} {value}", key.split_once(' ').unwrap().1)).collect()
    }
}

impl Recorder for Kept {
    fn add(&self, counter: Counter, labels: &Labels<'_>, count: u64) {
        self.change(counter.instrument().name, labels, |value| *value += count as f64);
    }

    fn set(&self, gauge: Gauge, labels: &Labels<'_>, value: Option<u64>) {
        let name = gauge.instrument().name;
        self.change(name, labels, |_| {});
        let key = format!("{name} {labels}");
        match value {
            Some(value) => drop(self.values.lock().unwrap().insert(key, value as f64)),
            None => drop(self.values.lock().unwrap().remove(&key)),
        }
    }

    fn record(&self, histogram: Histogram, labels: &Labels<'_>, value: f64) {
        self.change(histogram.instrument().name, labels, |last| *last = value);
    }
}

/// A recorder that implements nothing.
#[derive(Debug)]
struct Idle;

impl Recorder for Idle {}

/// A response of the type without resources, which rejects nothing.
fn empty_response() -> Bytes {
    use prost::Message;
    let type_url = Text::TYPE_URL.into();
    let response = crate::pb::envoy::service::discovery::v3::DiscoveryResponse {
        version_info: "1".into(),
        nonce: "1".into(),
        type_url,
        ..Default::default()
    };
    response.encode_to_vec().into()
}

#[tokio::test(start_paused = true)]
async fn ob5_a_recorder_of_the_application_gets_all_that_a_client_records() {
    let (network, kept) = (Network::default(), Arc::new(Kept::default()));
    let client = network.client().scope("shop").recorder(kept.clone()).build().unwrap();
    let watch = client.watch::<Text>("a");
    sleep(Duration::from_secs(1)).await;
    network.receive(empty_response());
    sleep(Duration::from_secs(1)).await;
    let of_server = "grpc.target=shop,grpc.xds.server=localhost:1";
    let of_type = format!("{of_server},grpc.xds.resource_type=test.Text");
    assert_eq!(kept.of("connected"), [format!("{of_server} 1")]);
    let requests = [
        format!("{of_type},xdskit.request.kind=ack 1"),
        format!("{of_type},xdskit.request.kind=subscription 1"),
    ];
    assert_eq!(kept.of("client.requests"), requests);
    assert_eq!(kept.of("client.responses"), [format!("{of_type} 1")]);
    let bytes = network.sent().iter().sum::<usize>() as f64;
    assert_eq!(
        kept.values
            .lock()
            .unwrap()
            .iter()
            .filter(|(key, _)| key.contains("request_bytes"))
            .map(|(_, value)| value)
            .sum::<f64>(),
        bytes
    );
    assert_eq!(kept.of("apply_duration"), [format!("{of_type},xdskit.response.outcome=accepted 0")]);
    drop(watch);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(kept.of("stream_ends"), [format!("{of_server},xdskit.stream.end=cancelled_by_client 1")]);
    let _again = client.watch::<Text>("a");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(kept.of("connected").len(), 1);
    client.shutdown().await;
    assert_eq!(
        (kept.of("connected").len(), kept.of("resources").len()),
        (0, 0),
        "an ended client has no values"
    );
}

#[tokio::test(start_paused = true)]
async fn ob6_a_recorder_that_panics_is_not_called_again_and_harms_nobody() {
    let (log, _guard) = crate::test_log::Log::start("xdskit::client::recording=error");
    let network = Network::default();
    let (bad, good) = (Arc::new(Kept { panics: true, ..Kept::default() }), Arc::new(Kept::default()));
    let client = network
        .client()
        .recorder(bad.clone())
        .recorder(Arc::new(Idle))
        .recorder(good.clone())
        .build()
        .unwrap();
    let mut watch = client.watch::<Text>("a");
    sleep(Duration::from_secs(1)).await;
    network.receive(empty_response());
    sleep(Duration::from_secs(20)).await;
    assert!(watch.next().await.unwrap().is_absent(), "the client goes on");
    assert_eq!(*bad.calls.lock().unwrap(), 1);
    assert_eq!(good.of("client.responses").len(), 1);
    let line = "ERROR xdskit::client::recording: recorder panicked and is not called again reason=\"a recorder panics, as it should\"";
    assert_eq!(log.lines(), [line]);
}

#[tokio::test]
async fn clients_are_shared_by_the_recorder_and_not_by_its_equals() {
    let bootstrap =
        Arc::new(Bootstrap::builder().server(Server::new("localhost:1").insecure()).build().unwrap());
    let kept: Arc<dyn Recorder> = Arc::new(Kept::default());
    let builder = || Client::builder(bootstrap.clone());
    let clients = [
        builder().recorder(kept.clone()).shared().unwrap(),
        builder().recorder(kept.clone()).shared().unwrap(),
        builder().recorder(Arc::new(Kept::default())).shared().unwrap(),
        builder().shared().unwrap(),
    ];
    let is_same = |one: usize, other: usize| Arc::ptr_eq(&clients[one].registry, &clients[other].registry);
    assert_eq!([is_same(0, 1), is_same(0, 2), is_same(0, 3), is_same(2, 3)], [true, false, false, false]);
}
