//! Google Cloud's metadata server, which identity tokens (CH5.15) and access tokens are fetched from over HTTP/1.1.

use std::{sync::Arc, time::Duration};

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use http::{Request, StatusCode, header::HOST, uri::Authority};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    config::ServerAddress,
    dial::{self, SocketOptions},
    filters::{Token, TokenError},
};

/// The address of the metadata server: a host, with or without a port.
#[derive(Debug, Clone)]
pub(super) struct MetadataServer {
    /// The host, with a port if that is not 80.
    host: Arc<str>,
}

impl MetadataServer {
    /// Creates the server at `given`, or else at `GCE_METADATA_HOST` of the environment, or else at the default host.
    pub(super) fn new(given: Option<&str>) -> Self {
        let environment = || std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
        let host = given.map(str::to_owned).or_else(environment);
        Self { host: host.as_deref().unwrap_or(DEFAULT_HOST).into() }
    }

    /// Fetches the identity token of the default service account for an audience.
    pub(super) async fn identity_token(&self, audience: &str) -> Result<Token, TokenError> {
        let query =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("audience", audience).finish();
        let body = self.get(&format!("{IDENTITY}?{query}")).await.map_err(|error| match error {
            FetchError::Failed(reason) => TokenError::unavailable(audience, &self.named(&reason)),
            FetchError::Status(status) => TokenError::of_status(audience, status),
        })?;
        parse(&body).map_err(|reason| TokenError::unauthenticated(audience, &self.named(&reason)))
    }

    /// Fetches an access token of the default service account. The metadata server caches it until shortly before its expiry.
    pub(super) async fn access_token(&self) -> Result<String, String> {
        let body = self.get(ACCESS).await.map_err(|error| match error {
            FetchError::Failed(reason) => self.named(&reason),
            FetchError::Status(status) => self.named(&format!("HTTP status {status}")),
        })?;
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        let token = answer.as_ref().and_then(|answer| answer.get("access_token")?.as_str());
        token.map(str::to_owned).ok_or_else(|| self.named("the response has no access token"))
    }

    /// Fetches a value, within the limit of time.
    async fn get(&self, path: &str) -> Result<Bytes, FetchError> {
        let late = |_| FetchError::Failed(format!("no response within {TIMEOUT:?}"));
        timeout(TIMEOUT, self.request(path)).await.map_err(late)?
    }

    /// Fetches a value, without a limit of time.
    async fn request(&self, path: &str) -> Result<Bytes, FetchError> {
        let failed = |error: &dyn std::fmt::Display| FetchError::Failed(error.to_string());
        let authority: Authority = self.host.parse().map_err(|error| failed(&error))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = ServerAddress::Host { host, port: authority.port_u16().unwrap_or(80) };
        let dialed = dial::open(&address, SocketOptions::default()).await;
        let (socket, _) = dialed.map_err(|error| failed(&error))?;
        let connected = handshake::<_, Empty<Bytes>>(TokioIo::new(socket)).await;
        let (mut send, connection) = connected.map_err(|error| failed(&error))?;
        // The connection ends with this function, however it ends.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::get(path)
            .header(HOST, authority.as_str())
            // The server refuses requests without this header, which keeps forged ones out.
            .header("metadata-flavor", "Google")
            .body(Empty::new())
            .map_err(|error| failed(&error))?;
        let response = send.send_request(request).await.map_err(|error| failed(&error))?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        Ok(body.map_err(|error| failed(&error))?.to_bytes())
    }

    /// Prefixes an error with the host.
    fn named(&self, reason: &str) -> String {
        format!("metadata server {}: {reason}", self.host)
    }
}

/// The reason why a fetch has no result.
enum FetchError {
    /// No response, or none that can be read.
    Failed(String),
    /// A status other than 200.
    Status(u16),
}

/// Reads the expiry of a JSON web token. Services verify its signature.
fn parse(body: &[u8]) -> Result<Token, String> {
    let text = std::str::from_utf8(body).map_err(|_| NOT_A_TOKEN)?.trim();
    let parts: Vec<_> = text.split('.').collect();
    let [_, claims, _] = parts[..] else { return Err(NOT_A_TOKEN.to_owned()) };
    // The text becomes the value of a header, where other characters could not be sent.
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte)) {
        return Err(NOT_A_TOKEN.to_owned());
    }
    let claims = BASE64.decode(claims).map_err(|_| NOT_A_TOKEN)?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|_| NOT_A_TOKEN)?;
    let expiry = claims.get("exp").and_then(Value::as_f64).ok_or("the token has no expiry (`exp`)")?;
    let expiry = Duration::try_from_secs_f64(expiry).map_err(|_| "the expiry of the token is no time")?;
    Ok(Token { text: text.into(), expiry })
}

/// Accepts base64 with and without padding: web tokens have none, but some issuers add it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The host on machines of Google Cloud.
const DEFAULT_HOST: &str = "metadata.google.internal";
/// The path of identity tokens.
const IDENTITY: &str = "/computeMetadata/v1/instance/service-accounts/default/identity";
/// The path of access tokens.
const ACCESS: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// The time that a fetch may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response in bytes.
const LONGEST: usize = 64 << 10;
const NOT_A_TOKEN: &str = "the response is no JSON web token";

#[cfg(test)]
pub(super) mod tests;
