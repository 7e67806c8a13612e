//! Calls of the crate `grpc`, beside those of tonic's client on the same channel.

mod ends;
mod outcomes;
mod server;
mod streams;

use std::time::Instant;

use bytes::Buf;
use futures_util::{StreamExt, stream};
use grpc::{
    StatusCodeError,
    client::{CallOptions, Invoke, RecvStream, ResponseStreamItem, SendOptions, SendStream},
    core::{RecvMessage, RequestHeaders, SendMessage, Trailers},
    metadata::{KeyAndValueRef, MetadataMap, MetadataValue},
};
use xdskit::channel::{ChannelBuilder, GrpcRecvStream, GrpcSendStream};

use self::server::TestServer;
use super::*;

/// A message of bytes; `None` cannot be encoded.
#[derive(Debug, Default)]
struct Raw(Option<Bytes>);

impl Raw {
    fn new(message: impl Into<Bytes>) -> Self {
        Self(Some(message.into()))
    }
}

impl SendMessage for Raw {
    fn encode(&self) -> Result<Box<dyn Buf + Send + Sync>, String> {
        Ok(Box::new(self.0.clone().ok_or("it is empty")?))
    }
}

impl RecvMessage for Raw {
    fn decode(&mut self, data: &mut dyn Buf) -> Result<(), String> {
        let length = data.remaining();
        self.0 = Some(data.copy_to_bytes(length));
        Ok(())
    }
}

/// Metadata whose names begin with `x-`, in the order of their names. Binary values are decoded.
type Metadata = Vec<(String, Vec<u8>)>;

/// What an application sees of a call.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    headers: Metadata,
    messages: Vec<Bytes>,
    code: i32,
    message: String,
    details: Vec<u8>,
    trailers: Metadata,
}

/// A mesh with one server, and a channel to it.
async fn mesh(server: &TestServer) -> Mesh {
    let mesh = Mesh::start(&[]).await;
    mesh.server.set(endpoints("cart").locality("eu", "a", [server.address.as_str()]));
    mesh.ready().await;
    mesh
}

/// Another channel of the mesh.
fn channel(mesh: &Mesh, settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Channel {
    settings(mesh.client.channel("xds:///shop")).build().unwrap()
}

/// Begins a call.
async fn invoke(channel: &Channel, method: &str, options: CallOptions) -> (GrpcSendStream, GrpcRecvStream) {
    soon(channel.invoke(RequestHeaders::new().with_method_name(method), options)).await
}

fn within(timeout: Duration) -> CallOptions {
    let mut options = CallOptions::new();
    options.set_deadline(Instant::now() + timeout);
    options
}

async fn send(stream: &mut GrpcSendStream, message: impl Into<Bytes>) -> Result<(), ()> {
    soon(stream.send(&Raw::new(message), SendOptions::new())).await
}

async fn send_last(stream: &mut GrpcSendStream, message: impl Into<Bytes>) -> Result<(), ()> {
    soon(stream.send(&Raw::new(message), SendOptions::new().with_final_msg(true))).await
}

/// Receives up to the next message or the trailers.
async fn receive(stream: &mut GrpcRecvStream) -> Result<Bytes, Trailers> {
    let mut message = Raw::default();
    loop {
        match soon(stream.recv(&mut message)).await {
            ResponseStreamItem::Headers(_) => {}
            ResponseStreamItem::Message => return Ok(message.0.expect("it was decoded")),
            ResponseStreamItem::Trailers(trailers) => return Err(trailers),
            ResponseStreamItem::StreamClosed => panic!("there were no trailers"),
        }
    }
}

/// The code and the message with which a call ends.
async fn end(stream: &mut GrpcRecvStream) -> (Option<StatusCodeError>, String) {
    loop {
        if let Err(trailers) = receive(stream).await {
            let mut closed = Raw::default();
            assert!(matches!(soon(stream.recv(&mut closed)).await, ResponseStreamItem::StreamClosed));
            return match trailers.into_status() {
                Ok(()) => (None, String::new()),
                Err(status) => (Some(status.code()), status.message().to_owned()),
            };
        }
    }
}

/// A call by the crate `grpc`, with metadata, the messages one after the other.
async fn by_grpc(channel: &Channel, method: &str, messages: &[Bytes], options: CallOptions) -> Outcome {
    let mut metadata = MetadataMap::new();
    metadata.append("x-tag", "a".parse().unwrap());
    metadata.append("x-tag", "b".parse().unwrap());
    metadata.append_bin("x-tag-bin", MetadataValue::from_bytes(&[0, 255]));
    // Headers of the protocol are not those of the application.
    metadata.append("te", "nothing".parse().unwrap());
    metadata.append("content-type", "text/plain".parse().unwrap());
    let headers = RequestHeaders::new().with_method_name(method).with_metadata(metadata);
    let (mut sender, mut receiver) = soon(channel.invoke(headers, options)).await;
    let sending = async move {
        for message in messages {
            // The call may end before.
            if send(&mut sender, message.clone()).await.is_err() {
                return;
            }
        }
    };
    let receiving = async {
        let (mut outcome, mut message) = (Outcome::default(), Raw::default());
        loop {
            match soon(receiver.recv(&mut message)).await {
                ResponseStreamItem::Headers(headers) => outcome.headers = shown(headers.metadata()),
                ResponseStreamItem::Message => outcome.messages.push(message.0.take().unwrap()),
                ResponseStreamItem::Trailers(trailers) => {
                    outcome.trailers = shown(trailers.metadata());
                    let details = trailers.metadata().get_bin("grpc-status-details-bin");
                    outcome.details =
                        details.map(|details| Bytes::from(details.clone()).to_vec()).unwrap_or_default();
                    if let Err(status) = trailers.into_status() {
                        (outcome.code, outcome.message) = (status.code() as i32, status.message().to_owned());
                    }
                    return outcome;
                }
                ResponseStreamItem::StreamClosed => panic!("there were no trailers"),
            }
        }
    };
    let ((), outcome) = tokio::join!(sending, receiving);
    outcome
}

/// The same call by tonic's client.
async fn by_tonic(channel: &Channel, method: &str, messages: &[Bytes], timeout: Option<Duration>) -> Outcome {
    let mut request = Request::new(stream::iter(messages.to_vec()));
    for value in ["a", "b"] {
        request.metadata_mut().append("x-tag", value.parse().unwrap());
    }
    request.metadata_mut().append_bin("x-tag-bin", tonic::metadata::MetadataValue::from_bytes(&[0, 255]));
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    let mut outcome = Outcome::default();
    let method = PathAndQuery::try_from(method).unwrap();
    let mut grpc = Grpc::new(channel.clone());
    let response = soon(grpc.streaming(request, method, crate::common::raw::Raw)).await;
    let ended = match response {
        Err(status) => Err(status),
        Ok(response) => {
            outcome.headers = seen(response.metadata());
            let mut messages = response.into_inner();
            loop {
                match soon(messages.next()).await {
                    Some(Ok(message)) => outcome.messages.push(message),
                    Some(Err(status)) => break Err(status),
                    None => break Ok(messages.trailers().await.unwrap()),
                }
            }
        }
    };
    match ended {
        Ok(trailers) => outcome.trailers = trailers.map(|trailers| seen(&trailers)).unwrap_or_default(),
        Err(status) => {
            (outcome.code, outcome.message) = (status.code() as i32, status.message().to_owned());
            outcome.details = status.details().to_vec();
            outcome.trailers = seen(status.metadata());
        }
    }
    outcome
}

/// The metadata of the crate `grpc`.
fn shown(metadata: &MetadataMap) -> Metadata {
    let all = metadata.iter().map(|entry| match entry {
        KeyAndValueRef::Ascii(key, value) => (key.as_str().to_owned(), value.as_bytes().to_vec()),
        KeyAndValueRef::Binary(key, value) => (key.as_str().to_owned(), Bytes::from(value.clone()).to_vec()),
    });
    of_application(all)
}

/// The metadata of tonic.
fn seen(metadata: &tonic::metadata::MetadataMap) -> Metadata {
    let all = metadata.iter().map(|entry| match entry {
        tonic::metadata::KeyAndValueRef::Ascii(key, value) => {
            (key.as_str().to_owned(), value.as_bytes().to_vec())
        }
        tonic::metadata::KeyAndValueRef::Binary(key, value) => {
            (key.as_str().to_owned(), value.to_bytes().unwrap().to_vec())
        }
    });
    of_application(all)
}

fn of_application(all: impl Iterator<Item = (String, Vec<u8>)>) -> Metadata {
    let mut all: Metadata = all.filter(|(name, _)| name.starts_with("x-")).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}
