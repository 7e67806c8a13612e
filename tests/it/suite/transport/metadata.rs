//! Metadata of the calls to management servers, from the bootstrap and from the application.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use serde_json::json;
use xdskit::{
    Client, Observed,
    config::{ApiType, Bootstrap, Metadata, Server},
    control_plane::{ControlPlane, LoadReporting, ServerHandle},
    error::{Blame, Code},
    lrs::Outcome,
    pb::envoy::config::core::v3::{ConfigSource, SelfConfigSource, config_source::ConfigSourceSpecifier},
    testing::resources,
};

use crate::common::*;

/// A server that records the headers of each stream and of each poll.
struct Recorder {
    server: ServerHandle,
    control_plane: ControlPlane,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Recorder {
    async fn start() -> Self {
        let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let record = seen.clone();
        let control_plane = ControlPlane::builder()
            .authorize(move |headers| {
                record.lock().unwrap().push(headers.clone());
                Ok(())
            })
            .build();
        control_plane.set(cluster("shop", "one"));
        let server = control_plane.serve("127.0.0.1:0").await.unwrap();
        Self { server, control_plane, seen }
    }

    /// The values of a header, of each call.
    fn values(&self, name: &str) -> Vec<Vec<String>> {
        let text = |headers: &HeaderMap| {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
        };
        self.seen.lock().unwrap().iter().map(text).collect()
    }

    /// Waits for this number of calls.
    async fn calls(&self, number: usize) {
        soon(async {
            while self.seen.lock().unwrap().len() < number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// A bootstrap with metadata of the server.
    fn bootstrap(&self) -> Bootstrap {
        let document = json!({ "xds_servers": [{
            "server_uri": self.server.uri(),
            "channel_creds": [{ "type": "insecure" }],
            "initial_metadata": [
                { "key": "x-consul-token", "value": "MARKER" }, { "key": "x-bin", "raw_value": "AP8=" },
            ],
        }] });
        Bootstrap::from_json(&document.to_string()).unwrap()
    }
}

#[apply(servers)]
async fn metadata_goes_with_each_call(transport: Transport) {
    let recorder = Recorder::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let callback = move |server: &Server| {
        assert!(server.uri.as_str().contains("127.0.0.1"));
        let call = count.fetch_add(1, Ordering::SeqCst);
        Metadata::default().with_entry("x-call", call.to_string())
    };
    let fixed = Metadata::default().with_entry("X-Fixed", "MARKER").unwrap();
    let builder = transport.builder_from(recorder.bootstrap());
    let client = builder.initial_metadata(fixed).initial_metadata(callback).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    recorder.control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();

    let seen = recorder.values("x-call");
    let expected: Vec<_> = (0..seen.len()).map(|call| vec![call.to_string()]).collect();
    assert_eq!(seen, expected, "the callback is asked for each call, once");
    assert_eq!(seen.len() > 1, transport.is_polled(), "a stream is one call");
    for (name, value) in [("x-consul-token", "MARKER"), ("x-fixed", "MARKER"), ("x-bin", "AP8")] {
        assert!(recorder.values(name).iter().all(|values| *values == [value]), "{name}");
    }
    let status = client.status().await;
    assert!(!format!("{client:?}{status:?}{status}").contains("MARKER"));
}

#[apply(streams)]
async fn metadata_goes_with_each_new_stream(transport: Transport) {
    let recorder = Recorder::start().await;
    let calls = AtomicUsize::new(0);
    let callback = move |_: &Server| {
        Metadata::default().with_entry("x-call", calls.fetch_add(1, Ordering::SeqCst).to_string())
    };
    let client = transport.builder_from(recorder.bootstrap()).initial_metadata(callback).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    recorder.control_plane.disconnect(tonic::Status::unavailable("restarted"));
    recorder.calls(2).await;
    recorder.control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    assert_eq!(recorder.values("x-call"), [["0"], ["1"]]);
}

#[apply(servers)]
async fn metadata_that_cannot_be_loaded_is_an_error_until_it_can(transport: Transport) {
    let recorder = Recorder::start().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let callback = move |_: &Server| match down.load(Ordering::SeqCst) {
        true => Err(io::Error::other("the vault is sealed")),
        false => Ok(Metadata::default()),
    };
    let client = transport.builder_from(recorder.bootstrap()).initial_metadata(callback).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    assert!(error.reason().contains("initial_metadata: the vault is sealed"), "{error}");
    assert!(recorder.values("x-consul-token").is_empty(), "nothing was sent");
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
}

#[tokio::test]
async fn metadata_goes_with_the_stream_of_load_reports() {
    let recorder = Recorder::start().await;
    let own = ConfigSourceSpecifier::Self_(SelfConfigSource::default());
    let own = ConfigSource { config_source_specifier: Some(own), ..Default::default() };
    recorder.control_plane.set(resources::cluster("shop").edit(|cluster| cluster.lrs_server = Some(own)));
    recorder.control_plane.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    let calls = AtomicUsize::new(0);
    let callback = move |_: &Server| {
        Metadata::default().with_entry("x-call", calls.fetch_add(1, Ordering::SeqCst).to_string())
    };
    let client = Client::builder(recorder.bootstrap()).api_type(ApiType::AggregatedGrpc);
    let client = client.initial_metadata(callback).build().unwrap();
    let zone = client.load_reporter("shop").locality(&Default::default());
    let mut shop = client.watch::<xdskit::resource::Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    zone.call_started().finish(Outcome::Success, None);
    recorder.calls(2).await;
    assert_eq!(recorder.values("x-call"), [["0"], ["1"]]);
    assert_eq!(recorder.values("x-consul-token"), [["MARKER"], ["MARKER"]]);
}
