//! A connection to an agent, and its streams.

use std::{
    error::Error as _,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, uri::PathAndQuery};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;
use tonic::{
    Code, Status, Streaming,
    body::Body,
    client::Grpc,
    codegen::{BoxFuture, Service},
    metadata::MetadataValue,
};

use super::times::Times;
use crate::{
    codec::RawCodec,
    config::ServerAddress,
    dial::{self, SocketOptions},
    tls::with_causes,
};

/// A stream of responses of an agent, on a connection of its own, which ends with it.
pub(super) struct Responses(Streaming<Bytes>);

impl Responses {
    /// Connects to an agent, and requests the stream of a method.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) async fn open(
        agent: &ServerAddress,
        method: &'static str,
        times: &Times,
    ) -> Result<Self, String> {
        let connect = timeout(times.connect, Connection::open(agent)).await;
        let too_late = |_| format!("the agent accepts no connection within {:?}", times.connect);
        let connection = connect.map_err(too_late)??;
        let mut grpc = Grpc::with_origin(connection, Uri::from_static("http://localhost"))
            .max_decoding_message_size(MAX_RESPONSE);
        grpc.ready().await.map_err(|e| format!("the connection to the agent was lost: {e}"))?;
        let mut request = tonic::Request::new(Bytes::new());
        // Without it an agent refuses the request, which a web page or the like may have been brought to make.
        request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
        let call = grpc.server_streaming(request, PathAndQuery::from_static(method), RawCodec);
        // An agent that knows the workload answers at once; the headers may come with the first response.
        let response = timeout(times.response, call).await.map_err(|_| silent(times))?;
        Ok(Self(response.map_err(|status| failure(&status))?.into_inner()))
    }

    /// Waits for the first response.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) async fn first(&mut self, times: &Times) -> Result<Bytes, String> {
        timeout(times.response, self.next()).await.unwrap_or_else(|_| Err(silent(times)))
    }

    /// Waits for the next response.
    ///
    /// # Errors
    /// The end of the stream, as a text for the log.
    ///
    /// # Cancel safety
    /// No response is lost.
    pub(super) async fn next(&mut self) -> Result<Bytes, String> {
        match self.0.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err("the agent has ended the stream".to_owned()),
            Err(status) => Err(failure(&status)),
        }
    }
}

/// An HTTP/2 connection to an agent.
struct Connection(SendRequest<Body>);

impl Connection {
    /// Connects to an agent.
    async fn open(agent: &ServerAddress) -> Result<Self, String> {
        let opened = dial::open(agent, SocketOptions::default()).await;
        let (socket, _) = opened.map_err(|e| format!("the agent cannot be connected to: {e}"))?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            // The stream may be silent for hours, so that nothing else shows that the agent is gone.
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(socket));
        let (requests, connection) =
            handshake.await.map_err(|e| format!("the agent does not use HTTP/2: {}", with_causes(&e)))?;
        // It ends with the last stream, and its error is that of the stream.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self(requests))
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Explains a status of the agent.
#[allow(clippy::wildcard_enum_match_arm, reason = "other codes have no explanation")]
fn failure(status: &Status) -> String {
    let message: String = status.message().chars().take(MAX_MESSAGE).collect();
    match status.code() {
        Code::PermissionDenied => {
            format!("the agent has no identity for this workload (PermissionDenied: {message})")
        }
        Code::OutOfRange => format!("a response of the agent is larger than 4 MiB ({message})"),
        code => {
            let cause = status.source().map(|e| format!(": {}", with_causes(e))).unwrap_or_default();
            format!("the stream of the agent has failed ({code:?}: {message}{cause})")
        }
    }
}

/// The error of an agent that does not respond.
fn silent(times: &Times) -> String {
    format!("the agent has sent nothing within {:?}", times.response)
}

/// The largest response.
const MAX_RESPONSE: usize = 4 << 20;
/// The time between pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time until a ping is answered.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The characters of a message of the agent that a log shows.
const MAX_MESSAGE: usize = 300;
