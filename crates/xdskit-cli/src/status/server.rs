//! A server of the client status discovery service.

use std::{error::Error, fmt};

use bytes::Bytes;
use futures_util::stream;
use http::{Uri, uri::PathAndQuery};
use prost::Message;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    transport::{Channel, ClientTlsConfig, Endpoint},
};
use xdskit::{
    error::Escaped,
    pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse},
    rustls::crypto::CryptoProvider,
    tool_support::crypto_provider,
};

use crate::codec::RawCodec;

/// A server with the client status service.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// The address as written.
    addr: String,
    /// The connection to make.
    endpoint: Endpoint,
}

impl Server {
    /// The server at an address, `HOST:PORT` or a URI.
    ///
    /// # Errors
    /// The correction of an invalid address.
    pub(super) fn new(addr: &str, tls: bool) -> Result<Self, String> {
        let hint = "write HOST:PORT, such as 127.0.0.1:18001";
        let uri = match addr.split_once("://") {
            Some(("http" | "https", _)) => addr.to_owned(),
            Some((scheme, _)) => {
                return Err(format!("{addr:?}: {scheme:?} is not a scheme of gRPC's; {hint}"));
            }
            None if tls => format!("https://{addr}"),
            None => format!("http://{addr}"),
        };
        let parsed: Uri =
            uri.parse().map_err(|error| format!("{addr:?} is not an address: {error}; {hint}"))?;
        if parsed.port().is_none() {
            return Err(format!("{addr:?} has no port; {hint}"));
        }
        let needs_tls = tls || parsed.scheme_str() == Some("https");
        let mut endpoint = Endpoint::from(parsed);
        if needs_tls {
            install_crypto()?;
            let config = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(config).map_err(|error| format!("TLS: {}", innermost(&error)))?;
        }
        Ok(Self { addr: addr.to_owned(), endpoint })
    }

    /// Requests the status once, with or without the resources themselves.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub(super) async fn query(&self, contents: bool) -> Result<ClientStatusResponse, String> {
        let cannot = |error: &(dyn Error + 'static)| format!("cannot connect: {}", innermost(error));
        let channel = self.endpoint.connect().await.map_err(|error| cannot(&error))?;
        let request = ClientStatusRequest { exclude_resource_contents: !contents, ..Default::default() };
        let request = Bytes::from(request.encode_to_vec());
        // The answer has all resources of a client, and tonic's default is 4 MiB.
        let mut grpc = Grpc::new(channel).max_decoding_message_size(LONGEST_ANSWER);
        let mut answer = fetch(&mut grpc, request.clone()).await;
        if answer.as_ref().is_err_and(|status| status.code() == Code::Unimplemented) {
            answer = stream_one(&mut grpc, request).await;
        }
        let answer = answer.map_err(|status| {
            if status.code() == Code::Unimplemented {
                return "there is no client status service (CSDS); is this the port for operators?"
                    .to_owned();
            }
            let code = status.code();
            let message = if status.message().is_empty() { code.description() } else { status.message() };
            format!("{code:?}: {}", Escaped(message))
        })?;
        ClientStatusResponse::decode(answer).map_err(|error| format!("the answer is malformed: {error}"))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.addr)
    }
}

/// Makes the tool's cryptography the default of the process, which tonic uses, and without which rustls panics.
fn install_crypto() -> Result<(), String> {
    let provider = crypto_provider()?;
    // An error means that there is a default, which then is this one.
    let _ = CryptoProvider::clone(&provider).install_default();
    Ok(())
}

/// Requests the status once.
async fn fetch(grpc: &mut Grpc<Channel>, request: Bytes) -> Result<Bytes, Status> {
    ready(grpc).await?;
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(FETCH), RawCodec).await?;
    Ok(answer.into_inner())
}

/// For servers that only support the streaming method.
async fn stream_one(grpc: &mut Grpc<Channel>, request: Bytes) -> Result<Bytes, Status> {
    ready(grpc).await?;
    let requests = Request::new(stream::iter([request]));
    let answers = grpc.streaming(requests, PathAndQuery::from_static(STREAM), RawCodec).await?;
    let answer = answers.into_inner().message().await?;
    answer.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
}

/// Waits for the connection.
async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(innermost(&error)))
}

/// The innermost source of a "transport error".
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The method for one answer.
const FETCH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
/// The method for a stream of answers.
const STREAM: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";

/// The maximum size of an answer in bytes, as that of a message of a management server.
const LONGEST_ANSWER: usize = 256 << 20;
