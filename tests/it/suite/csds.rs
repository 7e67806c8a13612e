//! The client status service, read by a gRPC client over loopback: A40, A71-7.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::time::SystemTime;

use crate::common::{resources::with_inline_key, *};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Server},
};
use xdskit::{
    Client,
    config::{Bootstrap, Locality, Node, Server as XdsServer},
    control_plane::type_url,
    csds::ClientStatusService,
    pb::envoy::{
        admin::v3::ClientResourceStatus,
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3 as tls,
        service::status::v3::{
            ClientConfig, ClientStatusRequest, ClientStatusResponse, client_config::GenericXdsConfig,
        },
        r#type::matcher::v3::NodeMatcher,
    },
    resource::Secret,
    testing::TestControlPlane,
};

#[apply(servers)]
async fn a40_5_a_resource_is_shown_as_it_was_received(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = transport.builder(server.uri()).scope("xds:///shop").build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let mut admin = Admin::start(&[&client]).await;
    let config = admin.fetch_one().await;
    assert_eq!(config.client_scope, "xds:///shop");
    let shown = the(&config, "shop");
    assert_eq!(shown.type_url, type_url::CLUSTER);
    assert_eq!(shown.client_status(), ClientResourceStatus::Acked);
    assert_eq!(version(&shown.version_info), server.version(type_url::CLUSTER));
    let any = shown.xds_config.as_ref().unwrap();
    assert_eq!((&*any.type_url, &any.value), (type_url::CLUSTER, cluster("shop", "one").bytes()));
    let updated = shown.last_updated.as_ref().unwrap().seconds;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((now - 60..=now).contains(&updated), "{updated} {now}");
    assert_eq!(shown.error_state, None);

    let request = ClientStatusRequest { exclude_resource_contents: true, ..Default::default() };
    let config = admin.fetch(request).await.unwrap().config.remove(0);
    assert_eq!(the(&config, "shop").xds_config, None);
    assert_eq!(the(&config, "shop").client_status(), ClientResourceStatus::Acked);
}

#[apply(servers)]
async fn the_contents_of_secrets_are_not_shown(transport: Transport) {
    let server = TestControlPlane::start().await;
    let key = DataSource { specifier: Some(Specifier::InlineString("PRIVATE".into())), ..Default::default() };
    let generic = tls::GenericSecret { secret: Some(key), ..Default::default() };
    server.set(tls::Secret { name: "s".into(), r#type: Some(tls::secret::Type::GenericSecret(generic)) });
    let client = transport.client(server.uri());
    let mut watch = client.watch::<Secret>("s");
    soon(watch.ready()).await.unwrap();
    let config = Admin::start(&[&client]).await.fetch_one().await;
    let shown = the(&config, "s");
    assert_eq!((shown.client_status(), &shown.xds_config), (ClientResourceStatus::Acked, &None));
    let bytes = config.encode_to_vec();
    assert!(!bytes.windows(7).any(|window| window == b"PRIVATE"), "{config:?}");
}

#[apply(servers)]
async fn inline_keys_are_redacted(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(with_inline_key("MARKER"));
    let client = transport.client(server.uri());
    let mut watch = client.watch::<Cluster>("shop");
    soon(watch.ready()).await.unwrap();

    let status = client.status().await;
    let bytes = status.resources[0].bytes.clone().unwrap();
    assert!(contains(&bytes, "[redacted]") && !contains(&bytes, "MARKER"), "{bytes:?}");
    assert!(!format!("{status:?}{status}").contains("MARKER"));

    let config = Admin::start(&[&client]).await.fetch_one().await.encode_to_vec();
    assert!(contains(&config, "[redacted]") && !contains(&config, "MARKER"), "{config:?}");
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[apply(servers)]
async fn a40_6_the_states_and_their_errors(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("good", "one"));
    server.set(cluster("deleted", "one"));
    server.hold_type(type_url::SECRET);
    let client = transport.client(server.uri());
    let mut good = client.watch::<Cluster>("good");
    let mut deleted = client.watch::<Cluster>("deleted");
    let _requested = client.watch::<Secret>("requested");
    soon(good.ready()).await.unwrap();
    soon(deleted.ready()).await.unwrap();
    // The state-of-the-world variant has one version for all resources.
    let good_version =
        if transport.api_type().is_delta() { "1".into() } else { server.version(type_url::CLUSTER) };
    server.update(|tx| {
        tx.set(cluster("good", BAD));
        tx.remove(type_url::CLUSTER, "deleted");
    });
    soon(good.wait_for(|seen| seen.error().is_some())).await.unwrap();
    soon(deleted.wait_for(|seen| seen.is_absent())).await.unwrap();
    let config = Admin::start(&[&client]).await.fetch_one().await;

    let nacked = the(&config, "good");
    let held = version(&nacked.version_info);
    assert_eq!((nacked.client_status(), held), (ClientResourceStatus::Nacked, &*good_version));
    assert!(nacked.xds_config.is_some(), "the last good one");
    let error = nacked.error_state.as_ref().unwrap();
    assert_eq!(version(&error.version_info), server.version(type_url::CLUSTER));
    assert!(error.last_update_attempt.is_some());
    let details = "Cluster \"good\": eds_cluster_config.service_name: bad [node id: test-node]";
    assert_eq!(error.details, details);

    let deleted = the(&config, "deleted");
    assert_eq!(deleted.client_status(), ClientResourceStatus::DoesNotExist);
    assert_eq!((&deleted.xds_config, &deleted.last_updated, &*deleted.version_info), (&None, &None, ""));
    assert!(deleted.error_state.is_some());

    let requested = the(&config, "requested");
    assert_eq!(requested.client_status(), ClientResourceStatus::Requested);
    assert_eq!((&requested.error_state, &requested.last_updated), (&None, &None));
}

#[apply(servers)]
async fn a40_4_the_node_is_the_one_that_is_sent(transport: Transport) {
    let node = Node::new("n").with_cluster("c").with_locality(Locality::new("r", "z", "s"));
    let server = XdsServer::new("127.0.0.1:1").insecure();
    let bootstrap = Bootstrap::builder().node(node.with_metadata("k", "v")).server(server).build().unwrap();
    let client = transport.builder_from(bootstrap).build().unwrap();
    let node = Admin::start(&[&client]).await.fetch_one().await.node.unwrap();
    assert_eq!((&*node.id, &*node.cluster, &*node.user_agent_name), ("n", "c", "xdskit"));
    assert_eq!(node.locality.unwrap().sub_zone, "s");
    assert!(node.metadata.unwrap().fields.contains_key("k"));
    assert!(!node.client_features.is_empty());
}

#[apply(servers)]
async fn a40_4_node_matchers_are_refused(transport: Transport) {
    let client = transport.client("127.0.0.1:1");
    let mut admin = Admin::start(&[&client]).await;
    let request = ClientStatusRequest { node_matchers: vec![NodeMatcher::default()], ..Default::default() };
    assert_eq!(admin.fetch(request.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(admin.stream(vec![request]).await.unwrap_err().code(), Code::InvalidArgument);
}

#[apply(servers)]
async fn a40_3_the_stream_answers_each_request(transport: Transport) {
    let client = transport.client("127.0.0.1:1");
    let _shop = client.watch::<Cluster>("shop");
    let mut admin = Admin::start(&[&client]).await;
    let answers = admin.stream(vec![ClientStatusRequest::default(); 3]).await.unwrap();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert_eq!(the(&answer.config[0], "shop").client_status(), ClientResourceStatus::Requested);
    }
}

#[apply(servers)]
async fn a71_7_clients_are_distinguished_by_scope_and_shown_while_they_live(transport: Transport) {
    let one = transport.builder("127.0.0.1:1").scope("one").build().unwrap();
    let two = transport.builder("127.0.0.1:1").scope("two").build().unwrap();
    let mut admin = Admin::start(&[&one, &two, &one.clone()]).await;
    assert_eq!(admin.scopes().await, ["two", "one"]);
    one.shutdown().await;
    assert_eq!(admin.scopes().await, ["two"]);
    drop(two);
    // It was the last handle: the service does not keep clients alive.
    assert_eq!(admin.scopes().await, [""; 0]);
}

#[tokio::test]
async fn another_version_of_the_service_is_not_there() {
    let mut admin = Admin::start(&[]).await;
    let path = "/envoy.service.status.v2.ClientStatusDiscoveryService/FetchClientStatus";
    let request = Request::new(ClientStatusRequest::default());
    let answer = admin.grpc.unary(request, PathAndQuery::from_static(path), Prost).await;
    let answer: Result<tonic::Response<ClientStatusResponse>, Status> = answer;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
}

/// An operator's tool, and its server.
struct Admin {
    grpc: Grpc<Channel>,
}

impl Admin {
    async fn start(clients: &[&Client]) -> Self {
        let service = ClientStatusService::new();
        clients.iter().for_each(|client| service.add(client));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let server =
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.unwrap();
        Self { grpc }
    }

    async fn fetch(&mut self, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        soon(self.grpc.ready()).await.unwrap();
        let path = PathAndQuery::from_static(
            "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
        );
        let answer = soon(self.grpc.unary(Request::new(request), path, Prost)).await;
        answer.map(tonic::Response::into_inner)
    }

    async fn fetch_one(&mut self) -> ClientConfig {
        let mut config = self.fetch(ClientStatusRequest::default()).await.unwrap().config;
        assert_eq!(config.len(), 1);
        config.remove(0)
    }

    async fn scopes(&mut self) -> Vec<String> {
        let answer = self.fetch(ClientStatusRequest::default()).await.unwrap();
        answer.config.into_iter().map(|config| config.client_scope).collect()
    }

    async fn stream(
        &mut self,
        requests: Vec<ClientStatusRequest>,
    ) -> Result<Vec<ClientStatusResponse>, Status> {
        soon(self.grpc.ready()).await.unwrap();
        let path = PathAndQuery::from_static(
            "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus",
        );
        let requests = Request::new(tokio_stream::iter(requests));
        let mut answers = soon(self.grpc.streaming(requests, path, Prost)).await?.into_inner();
        let mut all = Vec::new();
        while let Some(answer) = soon(answers.message()).await? {
            all.push(answer);
        }
        Ok(all)
    }
}

fn the<'a>(config: &'a ClientConfig, name: &str) -> &'a GenericXdsConfig {
    config.generic_xds_configs.iter().find(|shown| shown.name == name).unwrap()
}

/// A codec of the messages of the client status service.
struct Prost;

impl Codec for Prost {
    type Encode = ClientStatusRequest;
    type Decode = ClientStatusResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Prost {
    type Item = ClientStatusRequest;
    type Error = Status;

    fn encode(&mut self, message: ClientStatusRequest, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(into).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Prost {
    type Item = ClientStatusResponse;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<ClientStatusResponse>, Status> {
        ClientStatusResponse::decode(from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
