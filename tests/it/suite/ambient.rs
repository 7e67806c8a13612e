//! A client with a store that fetches on demand, against a server that behaves as Istio's control plane does towards a node proxy of an
//! ambient mesh: resources without versions, known by addresses as well; pushes of what nobody has asked for.

use std::collections::BTreeMap;

use prost::Message;
use xdskit::{
    Client, ResourceSelector,
    client::{Batch, BatchOptions, BatchOutcome, Batches, Keep},
    config::{ApiType, Bootstrap},
    error::Code,
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Wrapper},
        google::protobuf::Any,
    },
    resource::{Cluster, Prost, Resource},
    testing::{TestControlPlane, resources::cluster},
};

use crate::common::soon;

/// `istio.workload.Address`, as far as these tests use it.
#[derive(Clone, PartialEq, prost::Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    workload: Option<Workload>,
}

/// `istio.workload.Workload`.
#[derive(Clone, PartialEq, prost::Message)]
struct Workload {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(bytes = "vec", repeated, tag = "3")]
    addresses: Vec<Vec<u8>>,
    #[prost(string, tag = "20")]
    uid: String,
}

/// `istio.security.Authorization`.
#[derive(Clone, PartialEq, prost::Message)]
struct Authorization {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(int32, tag = "4")]
    action: i32,
}

impl prost::Name for Address {
    const NAME: &'static str = "Address";
    const PACKAGE: &'static str = "istio.workload";
}

impl prost::Name for Authorization {
    const NAME: &'static str = "Authorization";
    const PACKAGE: &'static str = "istio.security";
}

const ADDRESS: &str = Prost::<Address>::TYPE_URL;
const AUTHORIZATION: &str = Prost::<Authorization>::TYPE_URL;

/// The workload of a pod, by its last octet: its name, and the address that it is asked for by.
fn pod(octet: u8) -> (String, String) {
    (format!("cluster1//Pod/shop/web-{octet}"), format!("network1/10.0.0.{octet}"))
}

/// A workload in the wrapper in which it is sent: without a version, and with its address for an alias.
fn workload(octet: u8, name: &str) -> Wrapper {
    let (uid, alias) = pod(octet);
    let addresses = vec![vec![10, 0, 0, octet]];
    let workload = Workload { name: name.into(), namespace: "shop".into(), addresses, uid: uid.clone() };
    let value = Address { workload: Some(workload) }.encode_to_vec();
    let resource = Some(Any { type_url: ADDRESS.into(), value: value.into() });
    Wrapper { name: uid, aliases: vec![alias], resource, ..Wrapper::default() }
}

fn policy(name: &str, action: i32) -> Wrapper {
    let value = Authorization { name: name.into(), namespace: "shop".into(), action }.encode_to_vec();
    let resource = Some(Any { type_url: AUTHORIZATION.into(), value: value.into() });
    Wrapper { name: format!("shop/{name}"), resource, ..Wrapper::default() }
}

/// A control plane whose answers are written by the test.
struct Istiod {
    server: TestControlPlane,
    nonce: u64,
}

impl Istiod {
    async fn start() -> Self {
        let server = TestControlPlane::start().await;
        // It answers nothing by itself.
        server.hold_type(ADDRESS);
        server.hold_type(AUTHORIZATION);
        Self { server, nonce: 0 }
    }

    /// Sends a response; returns its nonce.
    fn push(&mut self, type_url: &str, resources: Vec<Wrapper>, removed: &[&str]) -> String {
        self.nonce += 1;
        let nonce = format!("push-{}", self.nonce);
        let response = DeltaDiscoveryResponse {
            type_url: type_url.into(),
            nonce: nonce.clone(),
            resources,
            removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryResponse::default()
        };
        assert_eq!(self.server.inject(response), 1, "there is one stream");
        nonce
    }

    /// Waits for a request of a type.
    async fn request(
        &self,
        type_url: &str,
        is_it: impl Fn(&DeltaDiscoveryRequest) -> bool,
    ) -> DeltaDiscoveryRequest {
        soon(async {
            loop {
                let requests = self.server.requests().of(type_url);
                let mut delta = requests.iter().filter_map(|request| request.message().delta().cloned());
                if let Some(found) = delta.find(|request| is_it(request)) {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits for the answer to a response; the error message if it is a NACK.
    async fn answer(&self, type_url: &str, nonce: &str) -> Option<String> {
        let request = self.request(type_url, |request| request.response_nonce == nonce).await;
        request.error_detail.as_ref().map(|status| status.message.clone())
    }
}

/// A node proxy's store of workloads by all of their names.
struct Proxy {
    client: Client,
    addresses: Batches<Prost<Address>>,
    store: BTreeMap<String, String>,
}

impl Proxy {
    fn start(server: &TestControlPlane, stored: &[&str]) -> Self {
        let bootstrap = Bootstrap::from_json(&server.bootstrap_json()).unwrap();
        let client = Client::builder(bootstrap).api_type(ApiType::AggregatedDeltaGrpc).build().unwrap();
        let versions = stored.iter().map(|name| (*name, ""));
        let options = BatchOptions::new().with_keep(Keep::Nothing).with_versions(versions);
        let addresses = client.batches_with(ResourceSelector::Pushed, options);
        let store = stored.iter().map(|name| ((*name).to_owned(), "stored".to_owned())).collect();
        Self { client, addresses, store }
    }

    /// Takes batches until one awaits an answer, and accepts it.
    async fn accept_next(&mut self) {
        loop {
            let batch = soon(self.addresses.next()).await.unwrap();
            self.apply(&batch);
            let is_held = batch.awaits_answer();
            let outcome = batch.accept().await;
            if is_held {
                return assert_eq!(outcome, BatchOutcome::Counted);
            }
        }
    }

    fn apply(&mut self, batch: &Batch<Prost<Address>>) {
        for added in &batch.added {
            let name = added.resource.workload.as_ref().unwrap().name.clone();
            self.store.insert(added.name.to_string(), name);
        }
        for name in &batch.removed {
            self.store.remove(&**name);
        }
    }

    fn names(&self) -> Vec<&str> {
        self.store.keys().map(String::as_str).collect()
    }
}

#[tokio::test]
async fn ap10_ap15_a_proxy_asks_for_addresses_and_takes_what_is_pushed_beside_them() {
    let mut istiod = Istiod::start().await;
    let mut proxy = Proxy::start(&istiod.server, &[]);
    let first = istiod.request(ADDRESS, |_| true).await;
    assert_eq!(
        (&*first.resource_names_subscribe, &*first.resource_names_unsubscribe),
        (&["*".to_owned()][..], &["*".to_owned()][..])
    );
    // The answer to it has nothing.
    let nonce = istiod.push(ADDRESS, vec![], &[]);
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);

    let ((one, alias), (two, _)) = (pod(1), pod(2));
    proxy.addresses.subscribe(alias.as_str());
    istiod.request(ADDRESS, |request| request.resource_names_subscribe == [alias.clone()]).await;
    // The answer has another workload of the same service as well.
    let nonce = istiod.push(ADDRESS, vec![workload(1, "web-1"), workload(2, "web-2")], &[]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    assert_eq!(proxy.names(), [&one, &two, &alias]);

    // A change comes by the own name, and is for the address, too; so does the removal.
    let nonce = istiod.push(ADDRESS, vec![workload(1, "renamed")], &[&two, "cluster1//Pod/shop/never"]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    assert_eq!((proxy.names(), &*proxy.store[&alias]), (vec![&*one, &*alias], "renamed"));
    let nonce = istiod.push(ADDRESS, vec![], &[&one]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    assert_eq!(proxy.store, BTreeMap::new());
    proxy.client.shutdown().await;
}

#[tokio::test]
async fn ap12_ap17_a_new_stream_and_a_new_client_have_the_names_of_the_store() {
    let mut istiod = Istiod::start().await;
    let mut proxy = Proxy::start(&istiod.server, &[]);
    istiod.request(ADDRESS, |_| true).await;
    let ((one, _), (two, _), (three, _)) = (pod(1), pod(2), pod(3));
    istiod.push(ADDRESS, vec![workload(1, "web-1"), workload(2, "web-2")], &[]);
    proxy.accept_next().await;

    // The server restarts: it sends what it has again, and removes what it lacks.
    istiod.server.clear_requests();
    istiod.server.restart().await;
    let again = istiod.request(ADDRESS, |request| request.response_nonce.is_empty()).await;
    let names: Vec<_> = again
        .initial_resource_versions
        .iter()
        .map(|(name, version)| (name.as_str(), version.as_str()))
        .collect();
    let names: BTreeMap<_, _> = names.into_iter().collect();
    assert_eq!(names, BTreeMap::from([(&*one, ""), (&*two, "")]));
    istiod.push(ADDRESS, vec![workload(1, "web-1")], &[&two]);
    proxy.accept_next().await;
    assert_eq!(proxy.names(), [&one]);

    // The proxy restarts: what the server has not changed is in no batch.
    proxy.client.shutdown().await;
    istiod.server.expect_clients(0).await.unwrap();
    istiod.server.clear_requests();
    let mut proxy = Proxy::start(&istiod.server, &[&one, &two]);
    let first = istiod.request(ADDRESS, |_| true).await;
    assert_eq!(first.initial_resource_versions.len(), 2);
    let nonce = istiod.push(ADDRESS, vec![workload(3, "web-3")], &[&two]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    assert_eq!(proxy.names(), [&one, &three]);
    assert_eq!(proxy.store[&one], "stored");
    proxy.client.shutdown().await;
}

#[tokio::test]
async fn ap2_ap4_a_refused_policy_is_a_nack_and_workloads_go_on() {
    let mut istiod = Istiod::start().await;
    let mut proxy = Proxy::start(&istiod.server, &[]);
    let mut policies = proxy.client.batches::<Prost<Authorization>>(ResourceSelector::All);
    istiod.request(AUTHORIZATION, |_| true).await;
    istiod.request(ADDRESS, |_| true).await;
    let policy_nonce = istiod.push(AUTHORIZATION, vec![policy("deny", 1), policy("odd", 9)], &[]);
    let batch = soon(policies.next()).await.unwrap();

    // While the policy is looked at, workloads are pushed and answered.
    let nonce = istiod.push(ADDRESS, vec![workload(1, "web-1")], &[]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    let rejected = batch.added.iter().filter(|added| added.resource.action > 1);
    let rejected: Vec<_> = rejected.map(|added| (added.name.clone(), "no such action")).collect();
    assert_eq!(batch.reject(rejected).await, BatchOutcome::Counted);
    let error = istiod.answer(AUTHORIZATION, &policy_nonce).await.unwrap();
    assert!(error.contains("\"shop/odd\": no such action"), "{error}");
    let nonce = istiod.push(ADDRESS, vec![workload(2, "web-2")], &[]);
    proxy.accept_next().await;
    assert_eq!(istiod.answer(ADDRESS, &nonce).await, None);
    proxy.client.shutdown().await;
}

#[tokio::test]
async fn ap16_resources_that_are_not_kept_have_one_consumer_and_no_watches() {
    let mut istiod = Istiod::start().await;
    let mut proxy = Proxy::start(&istiod.server, &[]);
    istiod.request(ADDRESS, |_| true).await;
    istiod.push(ADDRESS, vec![workload(1, "web-1")], &[]);
    proxy.accept_next().await;

    let Proxy { client, addresses, .. } = proxy;
    let options = || BatchOptions::new().with_keep(Keep::Nothing);
    let mut second = client.batches_with::<Prost<Address>>(ResourceSelector::All, options());
    let refused = soon(second.next()).await.unwrap();
    assert_eq!(refused.warning().unwrap().code(), Code::FailedPrecondition);
    drop(refused);
    assert!(soon(second.next()).await.is_none());
    let error = soon(client.watch::<Prost<Address>>("a").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);

    // Of the protocol's own types everything is kept.
    let mut own = client.batches_with::<Cluster>(ResourceSelector::All, options());
    assert!(soon(own.next()).await.unwrap().warning().is_some());
    istiod.server.set(cluster("shop"));
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();

    // The next consumer has nothing of the one before.
    drop(addresses);
    let mut next = client.batches_with::<Prost<Address>>(ResourceSelector::Pushed, options());
    istiod.push(ADDRESS, vec![workload(1, "web-1")], &[]);
    let batch = soon(next.next()).await.unwrap();
    assert_eq!(&*batch.added[0].name, pod(1).0);
}
