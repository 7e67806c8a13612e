//! REST: polls by `POST` with canonical JSON in both directions (D10, D11).
//!
//! A poll ends with its response, so it is not counted as a subscription.

use std::{net::SocketAddr, sync::Arc};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Method as HttpMethod, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tonic::{
    body::Body,
    codegen::{Body as HttpBody, StdError},
};

use super::{
    connection::ConnectionInfo,
    event::Event,
    hub::{Command, Hub, State},
    message::{self, Variant},
    method::Method,
    session::{Handled, answer_once},
};
use crate::{
    config::TransportApiVersion, format, pb::envoy::service::discovery::v3::DiscoveryRequest,
    resource::services::Service,
};

/// The kind of a request that is not of gRPC.
#[derive(Debug, Clone, Copy)]
pub(super) enum Route {
    /// A poll of a type.
    Poll(Method),
    /// A method other than `POST`.
    WrongMethod,
    /// A path that is not served.
    Unknown,
}

impl Route {
    /// `None` for a request of gRPC.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        match poll(request.uri().path()) {
            Some(method) if request.method() == HttpMethod::POST => return Some(Self::Poll(method)),
            Some(_) => return Some(Self::WrongMethod),
            None => {}
        }
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        (!is_grpc).then_some(Self::Unknown)
    }

    /// Responds to a request.
    pub(super) async fn answer<B>(self, hub: Arc<Hub>, request: Request<B>) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let _stream = ConnectionInfo::stream_of(request.extensions());
        match self {
            Self::Poll(method) => match Poll::read(hub, method, request).await {
                Ok(poll) => poll.answer().await,
                Err(Refusal { status, reason }) => text(status, reason),
            },
            Self::WrongMethod => {
                let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only POST is served");
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
                response
            }
            Self::Unknown => text(StatusCode::NOT_FOUND, format!("{} is not served", request.uri().path())),
        }
    }
}

/// Returns the method that a path stands for.
fn poll(path: &str) -> Option<Method> {
    [TransportApiVersion::V3, TransportApiVersion::V2].into_iter().find_map(|api_version| {
        let name = path.strip_prefix(api_version.rest_prefix())?;
        let service = Service::all().iter().find(|service| service.rest == Some(name))?;
        service.spelling(api_version)?;
        Some(Method { variant: Variant::Sotw, api_version, type_url: Some(service.v3.type_url) })
    })
}

/// A parsed request. Observers see it as a stream of its own.
#[derive(Debug)]
struct Poll {
    /// The number of the stream that observers see.
    id: u64,
    /// The state that all streams share.
    hub: Arc<Hub>,
    /// The method by the path.
    method: Method,
    /// The request, with the type URL of v3.
    request: Arc<DiscoveryRequest>,
    /// Commands of tests, as to a stream.
    commands: mpsc::UnboundedReceiver<Command>,
}

/// The response to a request that cannot be processed.
#[derive(Debug)]
struct Refusal {
    /// The HTTP status of the response.
    status: StatusCode,
    /// The body of the response, for display.
    reason: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// Returns a refusal of a malformed request.
    fn bad(reason: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

impl Poll {
    /// Reads a request, within its limit.
    async fn read<B>(hub: Arc<Hub>, method: Method, request: Request<B>) -> Result<Self, Refusal>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let _ = hub.follow().wait_for(|state| !state.reading_paused).await;
        let peer = ConnectionInfo::peer_of(request.extensions());
        let limit = hub.server_limits.max_request_size;
        let body = request
            .into_body()
            .map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())));
        let body =
            Limited::new(body, limit).collect().await.map_err(|e| match e.is::<LengthLimitError>() {
                true => Refusal::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("the request is above the server's limit of {limit} bytes (max_request_size)"),
                ),
                false => Refusal::bad(format!("the request cannot be read: {e}")),
            })?;
        Self::open(hub, method, peer, &body.to_bytes()).map_err(Refusal::bad)
    }

    /// Decodes a request, and registers it as a stream.
    fn open(hub: Arc<Hub>, method: Method, peer: Option<SocketAddr>, body: &Bytes) -> Result<Self, String> {
        let read = format::decode_json(REQUEST, body).map_err(|e| format!("not a DiscoveryRequest: {e}"))?;
        let mut request =
            DiscoveryRequest::decode(read.message).map_err(|e| format!("not a DiscoveryRequest: {e}"))?;
        request.type_url =
            method.type_of(&request.type_url).map_err(|status| status.message().to_owned())?.to_owned();
        let request = Arc::new(request);
        let (id, commands) = hub.open(method);
        let Method { variant, api_version, type_url } = method;
        tracing::trace!(poll = id, ?peer, ?api_version, type_url, bytes = body.len(), "poll");
        hub.emit(&Event::Opened { stream: id, peer, variant, api_version, type_url });
        let handled = Handled::Understood { answer: None, names_changed: true };
        let recorded = message::Request::Sotw(request.clone());
        hub.emit(&Event::Request { stream: id, request: recorded, bytes: body.len(), handled });
        Ok(Self { id, hub, method, request, commands })
    }

    /// Waits until a response is due, and returns it.
    async fn answer(mut self) -> Response<Body> {
        let mut state = self.hub.follow();
        loop {
            if let Some(response) = self.due(&mut state) {
                return response;
            }
            tokio::select! {
                // The hub holds the senders of both.
                _ = state.changed() => {}
                command = self.commands.recv() => if let Some(command) = command {
                    return self.obey(command);
                }
            }
        }
    }

    /// Returns the response, unless the type is held.
    fn due(&self, state: &mut watch::Receiver<State>) -> Option<Response<Body>> {
        let State { store, held, rest_status, rest_not_found, .. } = state.borrow_and_update().clone();
        // A held poll stays open, as a long poll would, until the type is released or the client gives up.
        if held.holds(&self.request.type_url) {
            return None;
        }
        if store.is_on_demand() {
            // A poll is no subscription, so that nothing would ever be fetched for it.
            let reason = "the resources are fetched for subscriptions on streams alone: use gRPC";
            return Some(text(StatusCode::NOT_IMPLEMENTED, reason));
        }
        if let Some(status) = rest_status {
            return Some(text(status, "as the test has it"));
        }
        // The request has no version, so that an unchanged empty result is found again.
        let request =
            DiscoveryRequest { version_info: String::new(), ..DiscoveryRequest::clone(&self.request) };
        let has_none = || {
            let all = answer_once(&request, &store, &self.hub.settings);
            all.is_some_and(|all| all.resources.is_empty() && all.resource_errors.is_empty())
        };
        if rest_not_found && has_none() {
            return Some(text(StatusCode::NOT_FOUND, ""));
        }
        Some(match answer_once(&self.request, &store, &self.hub.settings) {
            Some(response) => self.send(response.into()),
            None => respond(StatusCode::NOT_MODIFIED, JSON, Bytes::new()),
        })
    }

    /// Returns the response that a command demands.
    fn obey(&self, command: Command) -> Response<Body> {
        match command {
            Command::Send(response) => self.send(response),
            Command::SendRaw(bytes) => respond(StatusCode::OK, JSON, bytes),
            Command::End(status) => text(StatusCode::SERVICE_UNAVAILABLE, status.message().to_owned()),
        }
    }

    /// Returns a response with a message.
    fn send(&self, response: message::Response) -> Response<Body> {
        let json = match format::encode_json(RESPONSE, &response.encode(self.method.api_version)) {
            Ok(json) => Bytes::from(json),
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        if let message::Response::Sotw(response) = &response {
            self.hub.emit(&Event::Response {
                stream: self.id,
                type_url: response.type_url.clone(),
                version: response.version_info.clone(),
                resources: response.resources.len(),
                removed: 0,
                bytes: json.len(),
            });
        }
        respond(StatusCode::OK, JSON, json)
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.hub.close(self.id);
        self.hub.emit(&Event::Closed { stream: self.id });
    }
}

/// The response to a request whose headers were refused.
pub(super) fn unauthorized(status: &tonic::Status) -> Response<Body> {
    let is_forbidden = status.code() == tonic::Code::PermissionDenied;
    let code = if is_forbidden { StatusCode::FORBIDDEN } else { StatusCode::UNAUTHORIZED };
    text(code, status.message().to_owned())
}

/// Returns a response with a text.
fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    respond(status, "text/plain", text.into().into())
}

/// Returns a response.
fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The messages by which the descriptors convert between JSON and protobuf.
const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";
const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
/// The content type of requests and responses.
const JSON: &str = "application/json";
