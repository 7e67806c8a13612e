//! One poll over HTTP: the request, and what its response means (D10, D11).

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use prost::Message;
use tracing::debug;

use super::{
    outgoing::{Outgoing, Sent},
    pool::{Pool, Unconnected},
};
use crate::{
    error::Code,
    escape::Escaped,
    format::{self, Format},
    pb::envoy::service::discovery::v3::DiscoveryResponse,
    transport::{
        AGENT, Disconnect, DisconnectKind,
        socket::{CallHeaders, causes, explain},
    },
    wire,
};

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    /// The connections to the server.
    pub(super) pool: &'a Pool,
    /// The path of the type.
    pub(super) path: &'a str,
    /// A `DiscoveryRequest`.
    pub(super) request: &'a Bytes,
    /// Reports that the request was sent.
    pub(super) sent: &'a Sent,
    /// The largest response in bytes.
    pub(super) max_message_size: usize,
}

/// The outcome of an exchange.
#[derive(Debug)]
pub(super) enum Answer {
    /// A `DiscoveryResponse`.
    Response(Bytes),
    /// The client's resources are current.
    Unchanged,
    /// There are no such resources.
    NotFound,
}

/// The reason why there is no usable response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Disconnect,
    /// Whether the connection must not be used again.
    pub(super) is_of_connection: bool,
}

impl Exchange<'_> {
    /// Sends the request and reads the response.
    pub(super) async fn run(&self) -> Result<Answer, Failure> {
        let request = self.request().await.map_err(Failure::of_answer)?;
        let response = self.pool.client().request(request).await.map_err(|e| self.broken(&e))?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED {
            return Ok(Answer::Unchanged);
        }
        // Read whatever the status is: with HTTP/1.1, the connection is free again only after it.
        let body = self.body(response).await?;
        match status {
            StatusCode::OK => self.read(&body).map(Answer::Response).map_err(Failure::of_answer),
            // The response of sovereign without resources (MS6).
            StatusCode::NOT_FOUND => Ok(Answer::NotFound),
            _ => Err(Failure::of_answer(refused(status, &body))),
        }
    }

    /// Returns the failure of an exchange that took too long.
    pub(super) fn too_slow(&self, time: Duration) -> Failure {
        let why = format!("no answer within {time:?} (request_timeout)");
        let reason = Disconnect::new(DisconnectKind::Failed(Code::DeadlineExceeded), why);
        // The connection may be dead without a sign of it, so that it is not used again.
        Failure { reason, is_of_connection: true }
    }

    /// Builds the request, with headers that are loaded for it.
    async fn request(&self) -> Result<Request<Outgoing>, Disconnect> {
        let cannot = |why: String| Disconnect::new(DisconnectKind::Unusable, why);
        let json = format::encode_json(REQUEST, self.request)
            .map_err(|e| cannot(format!("the request cannot be written as JSON: {e}")))?;
        let server = &self.pool.dialer.server;
        let loader = self.pool.dialer.loader();
        let CallHeaders { headers: credentials, is_secure } = loader.headers().await?;
        let uri = Uri::builder()
            .scheme(if is_secure { "https" } else { "http" })
            .authority(server.http_authority())
            .path_and_query(self.path)
            .build();
        let uri = uri.map_err(|e| cannot(format!("{:?} is no path: {e}", self.path)))?;
        let body = Outgoing::new(json.into(), self.sent.clone());
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        for (name, value) in &loader.with_metadata(credentials).await? {
            headers.append(name, value.clone());
        }
        Ok(request)
    }

    /// Reads the body of a response, within its limit.
    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, Failure> {
        let limit = self.max_message_size;
        match Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(e) if e.is::<LengthLimitError>() => {
                let why = format!("a response of more than {limit} bytes, which is the limit");
                let reason = Disconnect::new(DisconnectKind::TooLarge { limit }, why);
                Err(Failure { reason, is_of_connection: true })
            }
            Err(e) => Err(self.broken(&*e)),
        }
    }

    /// Converts the response to a message. A missing type URL is that of the request.
    fn read(&self, body: &[u8]) -> Result<Bytes, Disconnect> {
        let unusable = |why: String| Disconnect::new(DisconnectKind::Unusable, why);
        let read = format::read(body, Format::Json)
            .map_err(|e| unusable(format!("the response is not a DiscoveryResponse: {e}")))?;
        for warning in &read.warnings {
            debug!(server = %Escaped(&self.pool.dialer.server.uri), path = self.path, warning, "unknown part of a response skipped");
        }
        // Field 4 of a `DiscoveryRequest` is its type URL.
        let requested = wire::string_field(self.request, 4).unwrap_or_default();
        let response = DiscoveryResponse::decode(read.message.clone())
            .map_err(|e| unusable(format!("the response is not a DiscoveryResponse: {e}")))?;
        if response.type_url == requested {
            return Ok(read.message);
        }
        if !response.type_url.is_empty() {
            let other = response.type_url;
            return Err(unusable(format!("the response is of the type {other:?}, not {requested:?}")));
        }
        Ok(DiscoveryResponse { type_url: requested.to_owned(), ..response }.encode_to_vec().into())
    }

    /// Returns the failure of a connection.
    fn broken(&self, error: &(dyn Error + 'static)) -> Failure {
        let unconnected = causes(error).find_map(|cause| cause.downcast_ref::<Unconnected>());
        let reason = unconnected.map_or_else(
            || {
                let why = explain(error, &self.pool.dialer.server.channel_credentials);
                Disconnect::new(DisconnectKind::Failed(Code::Unavailable), why)
            },
            |Unconnected(reason)| reason.clone(),
        );
        Failure { reason, is_of_connection: true }
    }
}

impl Failure {
    /// Returns a failure after which the connection can be used again.
    fn of_answer(reason: Disconnect) -> Self {
        Self { reason, is_of_connection: false }
    }
}

/// The reason for a status other than 200, 304 and 404 (D11).
fn refused(status: StatusCode, body: &[u8]) -> Disconnect {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        405 => Code::Unimplemented,
        429 | 500..=599 => Code::Unavailable,
        _ => Code::Unknown,
    };
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(MAX_STATUS_TEXT).collect();
    let why = match &*text {
        "" => format!("HTTP status {status}"),
        text => format!("HTTP status {status}: {text}"),
    };
    Disconnect::new(DisconnectKind::Failed(code), why)
}

const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";
const JSON: &str = "application/json";
/// The maximum number of characters of a response with an error status in a reason.
const MAX_STATUS_TEXT: usize = 200;
