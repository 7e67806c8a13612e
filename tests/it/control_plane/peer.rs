//! A gRPC client that sends and receives under the control of the test.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Status, Streaming, client::Grpc, transport::Channel};
use xdskit::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        },
    },
    google::rpc,
};

use crate::common::raw::Raw;

/// One stream to a management server. It tracks nonces and versions, and sends an ACK or NACK only on request.
pub(crate) struct Peer {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: Streaming<Bytes>,
    newest: BTreeMap<String, (String, String)>,
}

impl Peer {
    pub(crate) async fn connect(uri: &str) -> Self {
        Self::call(uri, STATE_OF_THE_WORLD).await
    }

    /// A stream by a method other than that of ADS.
    pub(crate) async fn call(uri: &str, path: &'static str) -> Self {
        Opening::start_at(uri, path).await.finish().await
    }

    pub(crate) fn request(&mut self, type_url: &str, names: &[&str]) {
        self.send(type_url, names, None);
    }

    pub(crate) fn reject(&mut self, type_url: &str, names: &[&str], message: &str) {
        let status = rpc::Status { code: 3, message: message.into(), details: Vec::new() };
        self.send(type_url, names, Some(status));
    }

    fn send(&mut self, type_url: &str, names: &[&str], error_detail: Option<rpc::Status>) {
        let (version_info, response_nonce) = self.newest.get(type_url).cloned().unwrap_or_default();
        let request =
            DiscoveryRequest { version_info, response_nonce, error_detail, ..first(type_url, names) };
        self.send_raw(request.encode_to_vec());
    }

    pub(crate) fn send_raw(&mut self, message: impl Into<Bytes>) {
        // The test detects the end of the stream when it reads.
        let _ = self.requests.send(message.into());
    }

    pub(crate) async fn response(&mut self) -> DiscoveryResponse {
        let message = self.raw().await.expect("a response").expect("an open stream");
        let response = DiscoveryResponse::decode(message).expect("a DiscoveryResponse");
        let newest = (response.version_info.clone(), response.nonce.clone());
        self.newest.insert(response.type_url.clone(), newest);
        response
    }

    pub(crate) async fn raw(&mut self) -> Result<Option<Bytes>, Status> {
        self.responses.message().await
    }
}

/// One stream of the incremental variant. It sends an ACK or NACK only on request.
pub(crate) struct DeltaPeer {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: Streaming<Bytes>,
}

impl DeltaPeer {
    pub(crate) async fn connect(uri: &str) -> Self {
        Self::call(uri, INCREMENTAL).await
    }

    /// A stream by a method other than that of ADS.
    pub(crate) async fn call(uri: &str, path: &'static str) -> Self {
        Self::on(connect(uri).await, path).await
    }

    /// A stream of ADS on a connection that exists.
    pub(crate) async fn on_connection(channel: Channel) -> Self {
        Self::on(channel, INCREMENTAL).await
    }

    async fn on(channel: Channel, path: &'static str) -> Self {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let responses = method(channel, path, outgoing).await.expect("a stream");
        Self { requests, responses }
    }

    pub(crate) fn change(&mut self, type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) {
        self.send(&delta_request(type_url, subscribe, unsubscribe));
    }

    /// Sends the ACK or NACK of a response.
    pub(crate) fn answer(&mut self, response: &DeltaDiscoveryResponse, error: Option<&str>) {
        let status = |message: &str| rpc::Status { code: 3, message: message.into(), details: Vec::new() };
        let request = DeltaDiscoveryRequest {
            response_nonce: response.nonce.clone(),
            error_detail: error.map(status),
            ..delta_request(&response.type_url, &[], &[])
        };
        self.send(&request);
    }

    pub(crate) fn send(&mut self, request: &DeltaDiscoveryRequest) {
        self.send_raw(request.encode_to_vec());
    }

    pub(crate) fn send_raw(&mut self, message: impl Into<Bytes>) {
        // The test detects the end of the stream when it reads.
        let _ = self.requests.send(message.into());
    }

    pub(crate) async fn response(&mut self) -> DeltaDiscoveryResponse {
        let message = self.raw().await.expect("a response").expect("an open stream");
        DeltaDiscoveryResponse::decode(message).expect("a DeltaDiscoveryResponse")
    }

    pub(crate) async fn raw(&mut self) -> Result<Option<Bytes>, Status> {
        self.responses.message().await
    }
}

/// A connection.
pub(crate) async fn connect(uri: &str) -> Channel {
    Channel::from_shared(uri.to_owned()).unwrap().connect().await.expect("a connection")
}

pub(crate) fn delta_request(
    type_url: &str,
    subscribe: &[&str],
    unsubscribe: &[&str],
) -> DeltaDiscoveryRequest {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    DeltaDiscoveryRequest {
        node: Some(node()),
        type_url: type_url.into(),
        resource_names_subscribe: owned(subscribe),
        resource_names_unsubscribe: owned(unsubscribe),
        ..DeltaDiscoveryRequest::default()
    }
}

/// A stream whose headers have not been received.
pub(crate) struct Opening {
    requests: mpsc::UnboundedSender<Bytes>,
    pub(crate) headers: tokio::task::JoinHandle<Result<Streaming<Bytes>, Status>>,
}

impl Opening {
    pub(crate) async fn start(uri: &str) -> Self {
        Self::start_at(uri, STATE_OF_THE_WORLD).await
    }

    async fn start_at(uri: &str, path: &'static str) -> Self {
        let channel = connect(uri).await;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let headers = tokio::spawn(method(channel, path, outgoing));
        Self { requests, headers }
    }

    pub(crate) fn request(&self, type_url: &str, names: &[&str]) {
        self.requests.send(first(type_url, names).encode_to_vec().into()).expect("an open stream");
    }

    pub(crate) async fn finish(self) -> Peer {
        let responses = self.headers.await.unwrap().expect("a stream");
        Peer { requests: self.requests, responses, newest: BTreeMap::new() }
    }
}

pub(crate) async fn method(
    channel: Channel,
    path: &'static str,
    requests: mpsc::UnboundedReceiver<Bytes>,
) -> Result<Streaming<Bytes>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.expect("a connection");
    let request = Request::new(UnboundedReceiverStream::new(requests));
    let response = grpc.streaming(request, PathAndQuery::from_static(path), Raw).await;
    response.map(tonic::Response::into_inner)
}

/// A node that announces that wrapped resources and times to live are supported.
fn node() -> Node {
    let client_features = ["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"];
    let client_features = client_features.map(str::to_owned).to_vec();
    Node { id: "test".into(), client_features, ..Node::default() }
}

fn first(type_url: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(node()),
        type_url: type_url.into(),
        resource_names: names.iter().map(|&name| name.to_owned()).collect(),
        ..DiscoveryRequest::default()
    }
}

const STATE_OF_THE_WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const INCREMENTAL: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
