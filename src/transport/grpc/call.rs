//! The stream on a connection: requests, responses, and the reason of its end.

use std::{
    borrow::Cow,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_core::{Stream, future::BoxFuture};
use http::{HeaderValue, Request, Response, StatusCode, header::USER_AGENT, uri::PathAndQuery};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};
use tonic::{
    Status, Streaming,
    body::Body,
    client::Grpc,
    codegen::{Service, StdError},
    metadata::MetadataMap,
};

use super::{
    connect::{End, Link},
    failure::Failure,
    outgoing::Outgoing,
};
use crate::{
    codec::RawCodec,
    config::Server,
    transport::{AGENT, ConnectionEvents, Disconnect, DisconnectKind},
};

/// One stream of requests and responses on a connection.
#[derive(Debug)]
pub(super) struct Call {
    /// Reports the events of the stream.
    pub(super) events: ConnectionEvents,
    /// One permit for each message that may be read.
    pub(super) permits: Arc<Semaphore>,
    /// The largest response in bytes.
    pub(super) max_message_size: usize,
    pub(super) server: Arc<Server>,
    /// The path of the method.
    pub(super) path: Cow<'static, str>,
}

impl Call {
    /// Makes the call, reports its events, and returns the reason for its end.
    pub(super) async fn run(self, link: Link, outbound: mpsc::UnboundedReceiver<Bytes>) -> Disconnect {
        let Link { requests, mut end, origin, headers } = link;
        let (hang_up, hung_up) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        let service = Http2 { requests, taken: taken.clone(), events: self.events.clone() };
        let outbound = Outbound { messages: outbound, taken, _hang_up: hang_up };
        let mut request = tonic::Request::new(outbound);
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let mut grpc = Grpc::with_origin(service, origin)
            .max_decoding_message_size(self.max_message_size)
            // Requests of clients with many names are large, and servers have limits of their own.
            .max_encoding_message_size(usize::MAX);
        // The response begins with the headers of the server, which some servers delay until their first message.
        // Requests are sent before that.
        let unanswered = |status| {
            Failure::new(status, self.max_message_size, self.path.clone())
                .without_answer(&self.server.channel_credentials)
        };
        let outcome = match grpc.ready().await {
            Err(e) => Err(unanswered(Status::from_error(e))),
            Ok(()) => {
                let Ok(method) = PathAndQuery::try_from(&*self.path) else {
                    let why = format!("{:?} is no path of a method", self.path);
                    return Disconnect::new(DisconnectKind::Unreachable, why);
                };
                match grpc.streaming(request, method, RawCodec).await {
                    Err(status) => Err(unanswered(status)),
                    Ok(response) => {
                        let read = self.read(response.into_inner(), hung_up, &mut end).await;
                        read.map_err(|status| Failure::new(status, self.max_message_size, self.path.clone()))
                    }
                }
            }
        };
        match outcome {
            Ok(()) => Disconnect::new(DisconnectKind::Closed, "the server ended the stream"),
            Err(failure) => {
                if !failure.may_be_the_connections() {
                    return failure.into_disconnect(None);
                }
                let reason = match end {
                    End::Elsewhere => None,
                    End::ToCome(_) | End::Come(_) => {
                        timeout(LAST_WORDS, end.wait()).await.unwrap_or_default()
                    }
                };
                failure.into_disconnect(reason)
            }
        }
    }

    /// Reads as many messages as there are permits for, until the end.
    async fn read(
        &self,
        mut inbound: Streaming<Bytes>,
        mut hung_up: oneshot::Receiver<Infallible>,
        end: &mut End,
    ) -> Result<(), Status> {
        loop {
            // Without a permit, messages stay in the network, but the end of the stream must be detected.
            tokio::select! {
                // A permit first: messages that were received before the end are reported before it.
                biased;
                permit = self.permits.acquire() => permit.expect("the semaphore is never closed").forget(),
                _ = &mut hung_up => return drain(inbound).await,
                _ = end.wait() => return drain(inbound).await,
            }
            match inbound.message().await? {
                Some(message) => self.events.received(message),
                None => return Ok(()),
            }
        }
    }
}

/// Reads to the end of a stream that has ended, for the reason of the end.
async fn drain(mut inbound: Streaming<Bytes>) -> Result<(), Status> {
    let end = async {
        while inbound.message().await?.is_some() {}
        Ok(())
    };
    // The end was seen already, and a dead connection may never yield its reason.
    timeout(LAST_WORDS, end).await.unwrap_or(Ok(()))
}

/// The requests, one by one.
#[derive(Debug)]
struct Outbound {
    /// Requests; closed when the stream is half closed.
    messages: mpsc::UnboundedReceiver<Bytes>,
    /// Set when the body of the request has taken a new message.
    taken: Arc<AtomicBool>,
    /// Dropped when HTTP/2 accepts no more messages.
    _hang_up: oneshot::Sender<Infallible>,
}

impl Stream for Outbound {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let message = ready!(self.messages.poll_recv(cx));
        if message.is_some() {
            self.taken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(message)
    }
}

/// A service on one connection.
#[derive(Debug)]
struct Http2 {
    requests: SendRequest<Outgoing>,
    taken: Arc<AtomicBool>,
    events: ConnectionEvents,
}

impl Service<Request<Body>> for Http2 {
    type Response = Response<Incoming>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, StdError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.requests.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let (taken, events) = (self.taken.clone(), self.events.clone());
        let response = self.requests.send_request(request.map(|body| Outgoing { body, taken, events }));
        Box::pin(async {
            let response = response.await?;
            // A proxy may respond in place of the server, by an HTTP status that says more than the lack of headers of gRPC.
            match response.status() {
                StatusCode::OK => Ok(response),
                other => Err(not_grpc(other).into()),
            }
        })
    }
}

/// Returns the gRPC status for an HTTP status, by the document "HTTP to gRPC Status Code Mapping".
fn not_grpc(status: StatusCode) -> Status {
    let code = match status.as_u16() {
        400 => tonic::Code::Internal,
        401 => tonic::Code::Unauthenticated,
        403 => tonic::Code::PermissionDenied,
        404 => tonic::Code::Unimplemented,
        429 | 502 | 503 | 504 => tonic::Code::Unavailable,
        _ => tonic::Code::Unknown,
    };
    Status::new(code, format!("HTTP status {status}, not gRPC"))
}

/// The maximum wait for the reason of a detected end.
const LAST_WORDS: Duration = Duration::from_secs(1);
