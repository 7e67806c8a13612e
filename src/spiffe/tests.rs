//! SW1 to SW6: a small agent of ours on a Unix socket, and what the provider makes of it.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

mod handshakes;
mod peer;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use rcgen::date_time_ymd;
use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle};

use self::peer::Agent;
use super::{material::Material, *};
use crate::{
    backoff::BackoffSettings,
    config::ServerAddress,
    pb::{X509BundlesResponse, X509svid, X509svidResponse},
    resource::tls::{
        CertificateIdentity, CertificateRoots, MaterialError,
        certificate_provider::{IdentityEncoding, MaterialSink, RootsEncoding},
    },
    test_log::Log,
    tls::fixture::{Ca, Issued, dns, uri},
};

/// What the provider has published.
#[derive(Debug, PartialEq)]
enum Event {
    /// The leaf of an identity.
    Identity(Vec<u8>),
    /// The roots of each trust domain.
    Roots(BTreeMap<String, Vec<Vec<u8>>>),
    Failure(String),
}

/// Hands what is published to the test.
struct Sink(mpsc::UnboundedSender<Event>);

impl MaterialSink for Sink {
    fn handle_identity(&self, identity: CertificateIdentity) -> Result<(), MaterialError> {
        let IdentityEncoding::Der { chain, .. } = identity.0 else { panic!("not in DER") };
        drop(self.0.send(Event::Identity(chain[0].clone())));
        Ok(())
    }

    fn handle_roots(&self, roots: CertificateRoots) -> Result<(), MaterialError> {
        let RootsEncoding::Spiffe(bundles) = roots.0 else { panic!("no bundles") };
        drop(self.0.send(Event::Roots(bundles)));
        Ok(())
    }

    fn handle_failure(&self, reason: &str) {
        drop(self.0.send(Event::Failure(reason.to_owned())));
    }
}

/// A run of the provider, which ends with this.
struct Running {
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: WorkloadApi, times: Times) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let publisher = CertificatePublisher::new(Arc::new(Sink(sender)));
        let agent = endpoint::parse(&config.endpoint_socket).unwrap();
        let task = tokio::spawn(async move { match run::run(&config, &agent, &publisher, &times).await {} });
        Self { events, task }
    }

    async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.unwrap()
    }

    async fn failure(&mut self) -> String {
        match self.event().await {
            Event::Failure(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the roots and the identity of a response.
    async fn published(&mut self, ca: &Ca, issued: &Issued) {
        let roots = [("a.org".to_owned(), vec![ca.0.der().to_vec()])].into();
        assert_eq!(self.event().await, Event::Roots(roots));
        assert_eq!(self.event().await, Event::Identity(issued.der.to_vec()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

/// The times of applications, with short delays between streams.
fn times() -> Times {
    let backoff = BackoffSettings { initial: Duration::from_millis(5), ..Times::DEFAULT.backoff };
    Times { backoff, ..Times::DEFAULT }
}

fn parse(config: Value, environment: Option<&str>) -> Result<WorkloadApi, String> {
    let Value::Object(config) = config else { panic!("{config}") };
    WorkloadApi::of(config, environment.map(str::to_owned))
        .map_err(|e| format!("{}: {}", e.path(), e.reason()))
}

fn config(agent: &Agent) -> WorkloadApi {
    parse(json!({ "endpoint_socket": agent.endpoint() }), None).unwrap()
}

/// An identity for an id, with the bundle of its authority.
fn svid(id: &str, issued: &Issued, ca: &Ca, hint: &str) -> X509svid {
    X509svid {
        spiffe_id: id.to_owned(),
        x509_svid: issued.der.to_vec().into(),
        x509_svid_key: issued.key_der().into(),
        bundle: ca.0.der().to_vec().into(),
        hint: hint.to_owned(),
    }
}

fn response(svids: impl IntoIterator<Item = X509svid>) -> X509svidResponse {
    X509svidResponse { svids: svids.into_iter().collect(), ..X509svidResponse::default() }
}

const SHOP: &str = "spiffe://a.org/shop";

fn shop(ca: &Ca) -> (Issued, X509svidResponse) {
    let issued = ca.issue([uri(SHOP)]);
    let response = response([svid(SHOP, &issued, ca, "")]);
    (issued, response)
}

fn identities(message: &impl Message, hint: Option<&str>) -> Result<Material, String> {
    Material::of_identities(message.encode_to_vec().into(), hint)
}

#[test]
fn sw1_the_endpoint_is_configured_or_that_of_the_environment() {
    let address = |endpoint: &str| endpoint::parse(endpoint);
    let unix = |path: &str| Ok(ServerAddress::Unix(path.into()));
    assert_eq!(address("unix:///run/agent.sock"), unix("/run/agent.sock"));
    assert_eq!(address("unix:/run/agent.sock"), unix("/run/agent.sock"));
    let tcp = ServerAddress::Addresses(vec!["127.0.0.1:8000".parse().unwrap()]);
    assert_eq!(address("tcp://127.0.0.1:8000"), Ok(tcp));
    for wrong in [
        "",
        "/run/agent.sock",
        "unix://run/agent.sock",
        "unix:",
        "unix:///",
        "tcp://localhost:1",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:1/a",
        "unix:///a?b",
        "unix:///a#b",
        "http://127.0.0.1:1",
    ] {
        assert!(address(wrong).is_err(), "{wrong}");
    }
    let api = parse(json!({"hint": "internal"}), Some("unix:///a")).unwrap();
    assert_eq!((api.endpoint_socket.as_str(), api.hint.as_deref()), ("unix:///a", Some("internal")));
    let api =
        parse(json!({"endpoint_socket": "unix:///b", "bundles_only": true}), Some("unix:///a")).unwrap();
    assert_eq!((api.endpoint_socket.as_str(), api.bundles_only), ("unix:///b", true));
    for (config, why) in [
        (
            json!({}),
            "endpoint_socket: must be set, since the environment variable SPIFFE_ENDPOINT_SOCKET is not",
        ),
        (json!({"endpoint_socket": 1}), "endpoint_socket: expected a text"),
        (
            json!({"endpoint_socket": "x"}),
            "endpoint_socket: \"x\" is no endpoint: it begins neither with unix: nor with tcp://",
        ),
        (json!({"hint": 1}), "hint: expected a text"),
        (json!({"bundles_only": "yes"}), "bundles_only: expected true or false"),
        (json!({"socket": "x"}), ": the field \"socket\" is unknown"),
    ] {
        assert_eq!(parse(config, None).unwrap_err(), why);
    }
}

#[test]
fn sw2_the_first_identity_or_the_first_with_the_hint_is_used() {
    let ca = Ca::new();
    let ids = ["spiffe://a.org/1", "spiffe://a.org/2", "spiffe://a.org/3"];
    let svids = ids.map(|id| (id, ca.issue([uri(id)])));
    let [one, two, three] = &svids;
    let all = response([
        svid(one.0, &one.1, &ca, "external"),
        svid(two.0, &two.1, &ca, "internal"),
        svid(three.0, &three.1, &ca, "internal"),
    ]);
    let id = |hint| identities(&all, hint).map(|material| material.identity.unwrap().id);
    assert_eq!(id(None).unwrap(), ids[0]);
    assert_eq!(id(Some("internal")).unwrap(), ids[1]);
    let error = "none of the 3 identities that the agent has sent has the hint \"other\"";
    assert_eq!(id(Some("other")).unwrap_err(), error);
}

#[test]
fn sw2_an_identity_that_is_wrong_is_an_error() {
    let (ca, other) = (Ca::new(), Ca::new());
    let (_, good) = shop(&ca);
    let wrong = |change: &dyn Fn(&mut X509svid)| {
        let mut response = good.clone();
        change(&mut response.svids[0]);
        identities(&response, None).unwrap_err()
    };
    let at = "the identity \"spiffe://a.org/shop\": ";
    let id = wrong(&|svid| svid.spiffe_id = "spiffe://a.org".to_owned());
    assert_eq!(id, "the identity \"spiffe://a.org\": it has no path");
    let of_other = other.issue([uri("spiffe://a.org/cart")]).der.to_vec();
    let certificate = wrong(&|svid| svid.x509_svid = of_other.clone().into());
    assert_eq!(certificate, format!("{at}its certificate is for \"spiffe://a.org/cart\""));
    let no_id = other.issue([dns("a.org")]).der.to_vec();
    let certificate = wrong(&|svid| svid.x509_svid = no_id.clone().into());
    assert_eq!(certificate, format!("{at}it has no URI, so no SPIFFE id"));
    assert_eq!(wrong(&|svid| svid.x509_svid = Bytes::new()), format!("{at}its chain is empty"));
    for (bytes, why) in [
        (&b"text"[..], "the certificates are not in DER"),
        (&[0x30, 0x82, 0x01], "the certificates are not in DER"),
        (&[0x30, 0x85, 1, 1, 1, 1, 1], "the certificates are not in DER"),
        (&[0x30, 0x80], "the certificates are not in DER"),
        (&[0x30, 5, 0], "a certificate is cut off"),
        (&[0x30, 0x84, 255, 255, 255, 255], "a certificate is cut off"),
    ] {
        assert_eq!(wrong(&|svid| svid.x509_svid = bytes.into()), format!("{at}{why}"));
        assert_eq!(wrong(&|svid| svid.bundle = bytes.into()), format!("{at}its bundle: {why}"));
    }
    assert_eq!(identities(&response([]), None).unwrap_err(), "the agent has sent no identity");
    let error = Material::of_identities(Bytes::from_static(b"\xff\xff"), None).unwrap_err();
    assert!(error.starts_with("the agent has sent a malformed response: "), "{error}");
    let error = Material::of_bundles(Bytes::new()).unwrap_err();
    assert_eq!(error, "the agent has sent no bundle");
}

#[test]
fn sw3_the_roots_are_a_map_of_the_own_domain_and_of_those_federated() {
    let (ca, next, other) = (Ca::new(), Ca::new(), Ca::new());
    let (_, mut sent) = shop(&ca);
    let der = |ca: &Ca| ca.0.der().to_vec();
    sent.svids[0].bundle = [der(&ca), der(&next)].concat().into();
    sent.federated_bundles = [
        ("spiffe://b.org".to_owned(), der(&other).into()),
        ("c.org".to_owned(), Bytes::new()),
        ("spiffe://a.org".to_owned(), der(&other).into()),
    ]
    .into();
    let roots = |material: Material| match material.roots.0 {
        RootsEncoding::Spiffe(bundles) => bundles,
        other => panic!("{other:?}"),
    };
    let expected = [
        ("a.org".to_owned(), vec![der(&ca), der(&next)]),
        ("b.org".to_owned(), vec![der(&other)]),
        ("c.org".to_owned(), vec![]),
    ];
    assert_eq!(roots(identities(&sent, None).unwrap()), expected.into());
    let bundles = [("spiffe://b.org".to_owned(), der(&other).into())].into();
    let sent = X509BundlesResponse { bundles, ..X509BundlesResponse::default() };
    let material = Material::of_bundles(sent.encode_to_vec().into()).unwrap();
    assert!(material.identity.is_none());
    assert_eq!(roots(material), [("b.org".to_owned(), vec![der(&other)])].into());
}

#[tokio::test]
async fn sw1_sw3_rotations_come_by_one_stream_with_the_header_of_workloads() {
    let mut agent = Agent::start().await;
    let mut running = Running::start(config(&agent), times());
    let mut stream = agent.stream().await;
    assert_eq!(stream.path, "/SpiffeWorkloadAPI/FetchX509SVID");
    assert_eq!(stream.header.as_deref(), Some("true"));
    for ca in [Ca::new(), Ca::new(), Ca::new()] {
        let (issued, response) = shop(&ca);
        stream.send(&response).await;
        running.published(&ca, &issued).await;
    }
    assert!(agent.has_no_further_stream());
}

#[tokio::test]
async fn sw1_bundles_alone_have_a_stream_of_their_own() {
    let mut agent = Agent::start().await;
    let config = WorkloadApi { bundles_only: true, ..config(&agent) };
    let mut running = Running::start(config, times());
    let mut stream = agent.stream().await;
    assert_eq!(stream.path, "/SpiffeWorkloadAPI/FetchX509Bundles");
    assert_eq!(stream.header.as_deref(), Some("true"));
    let ca = Ca::new();
    let bundles = [("a.org".to_owned(), ca.0.der().to_vec().into())].into();
    stream.send(&X509BundlesResponse { bundles, ..X509BundlesResponse::default() }).await;
    let roots = [("a.org".to_owned(), vec![ca.0.der().to_vec()])].into();
    assert_eq!(running.event().await, Event::Roots(roots));
}

#[tokio::test]
async fn sw4_a_stream_that_ends_is_opened_again_and_the_failure_names_what_is_left() {
    let mut agent = Agent::start().await;
    let mut running = Running::start(config(&agent), times());
    agent.stream().await.end(7, "no identity issued").await;
    let refused = "the agent has no identity for this workload (PermissionDenied: no identity issued)";
    assert_eq!(running.failure().await, refused);
    let ca = Ca::new();
    let (issued, response) = shop(&ca);
    let mut stream = agent.stream().await;
    stream.send(&response).await;
    running.published(&ca, &issued).await;
    // The agent ends the stream, or refuses the next, or vanishes in the middle of one.
    stream.end(0, "").await;
    let left = "; the identity spiffe://a.org/shop is valid until 4096-01-01T00:00:00Z";
    assert_eq!(running.failure().await, format!("the agent has ended the stream{left}"));
    agent.stream().await.end(7, "").await;
    let refused = "the agent has no identity for this workload (PermissionDenied: )";
    assert_eq!(running.failure().await, format!("{refused}{left}"));
    drop(agent.stream().await);
    let failure = running.failure().await;
    assert!(
        failure.starts_with("the stream of the agent has failed") && failure.ends_with(left),
        "{failure}"
    );
    let endpoint = agent.stop().await;
    let mut last = String::new();
    while !last.contains("cannot be connected to") {
        last = running.failure().await;
    }
    let mut agent = Agent::start_at(endpoint).await;
    let (issued, response) = shop(&ca);
    let mut stream = agent.stream().await;
    stream.send(&response).await;
    loop {
        match running.event().await {
            Event::Identity(leaf) => break assert_eq!(leaf, issued.der.to_vec()),
            Event::Roots(_) | Event::Failure(_) => {}
        }
    }
}

#[tokio::test]
async fn sw4_an_agent_that_sends_nothing_is_a_failure_after_a_time() {
    let mut agent = Agent::start().await;
    let times = Times { response: Duration::from_millis(20), ..times() };
    let mut running = Running::start(config(&agent), times);
    let silent = "the agent has sent nothing within 20ms";
    // Without headers, with headers alone, and without an answer to HTTP/2.
    let without_headers = agent.stream().await;
    assert_eq!(running.failure().await, silent);
    let mut headers_alone = agent.stream().await;
    headers_alone.headers();
    assert_eq!(running.failure().await, silent);
    drop((without_headers, headers_alone));
}

#[tokio::test]
async fn sw5_a_response_that_is_unusable_or_too_large_leaves_the_last_good_in_use() {
    let mut agent = Agent::start().await;
    let mut running = Running::start(config(&agent), times());
    let ca = Ca::new();
    let (issued, response) = shop(&ca);
    let mut stream = agent.stream().await;
    stream.send(&response).await;
    running.published(&ca, &issued).await;
    stream.send_bytes(b"\xff\xff\xff").await;
    let failure = running.failure().await;
    assert!(failure.starts_with("the agent has sent a malformed response: "), "{failure}");
    stream.send(&self::response([])).await;
    let failure = running.failure().await;
    assert!(failure.starts_with("the agent has sent no identity; the identity"), "{failure}");
    // The stream goes on.
    let (next, response) = shop(&ca);
    stream.send(&response).await;
    running.published(&ca, &next).await;
    stream.send_length(5 << 20).await;
    let failure = running.failure().await;
    assert!(failure.starts_with("a response of the agent is larger than 4 MiB"), "{failure}");
    // Another stream follows, whose length is that of no message.
    let mut stream = agent.stream().await;
    stream.send_length(u32::MAX).await;
    let failure = running.failure().await;
    assert!(failure.starts_with("a response of the agent is larger than 4 MiB"), "{failure}");
    let (last, response) = shop(&ca);
    let mut stream = agent.stream().await;
    stream.send(&response).await;
    running.published(&ca, &last).await;
}

#[tokio::test]
async fn sw6_another_stream_is_opened_before_an_identity_expires_and_the_end_is_logged() {
    let (log, _guard) = Log::start("xdskit::spiffe=debug");
    let mut agent = Agent::start().await;
    let times = Times { renewal: Duration::from_millis(20), ..times() };
    let mut running = Running::start(config(&agent), times);
    let ca = Ca::new();
    let issued = ca.issue_with([uri(SHOP)], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let response = response([svid(SHOP, &issued, &ca, "")]);
    let mut first = agent.stream().await;
    first.send(&response).await;
    running.published(&ca, &issued).await;
    // The agent is asked again, with no failure in between.
    let mut second = agent.stream().await;
    second.send(&response).await;
    running.published(&ca, &issued).await;
    second.end(14, "restarts").await;
    let failure = running.failure().await;
    assert!(
        failure.ends_with("the identity spiffe://a.org/shop has expired at 2020-01-01T00:00:00Z"),
        "{failure}"
    );
    drop(agent.stream().await);
    let expired = "WARN xdskit::spiffe::run: the SPIFFE identity has expired, and the agent has provided no other \
                   id=\"spiffe://a.org/shop\" not_after=\"2020-01-01T00:00:00Z\"";
    assert_eq!(log.lines().iter().filter(|line| **line == expired).count(), 1, "{:?}", log.lines());
}

#[test]
fn sw6_the_time_of_another_stream_is_before_the_end_and_bounded() {
    let of = |remaining| Times::DEFAULT.renewal_of(Duration::from_secs(remaining)).as_secs();
    assert_eq!((of(0), of(5), of(100), of(3600)), (10, 10, 90, 3240));
    assert_eq!(of(u64::from(u32::MAX)), 7 * 24 * 3600);
}
