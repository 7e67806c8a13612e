//! Stateful session affinity (A55, A60): cookies that name the endpoint of a session and its cluster.

use std::{fmt, net::SocketAddr};

use base64::{
    Engine,
    alphabet::STANDARD as ALPHABET,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
    },
};
#[cfg(feature = "channel")]
use http::{HeaderValue, header::SET_COOKIE};
#[cfg(feature = "channel")]
use tracing::debug;

use super::chain::{Compiled, Compiling, FilterSite};
#[cfg(feature = "channel")]
use super::{AttemptResponse, Decision, FilterRequest, MalformedValue, StreamFilter, Visible};
use crate::{
    resolve::RequestHeaders,
    resource::http_filter::{EffectiveFilter, SessionCookie},
};

/// Keeps the requests of a session on one endpoint, by a cookie.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionFilter(SessionCookie);

/// The session of a request that the cookie is for; `None` if the request has no cookie, or an unusable one.
#[cfg(feature = "channel")]
pub(crate) struct Session(Option<SessionState>);

/// The endpoint and the cluster that the cookie of a session names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionState {
    /// The addresses, as they are written in the cookie.
    list: Box<str>,
    /// The parts of the list that are addresses: 1 to 16.
    addresses: Box<[SocketAddr]>,
    /// The name of the cluster, without the quotes of the example in A60; `None` if the cookie has none.
    cluster: Option<Box<str>>,
}

/// The reason why a cookie is ignored, as if there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IgnoredCookie {
    NotBase64,
    NotUtf8,
    NoAddress,
}

impl SessionFilter {
    pub(super) fn compile(
        effective: EffectiveFilter<'_>,
        _: &FilterSite<'_, '_>,
        _: &mut Compiling<'_>,
    ) -> Compiled<Self> {
        let EffectiveFilter::StatefulSession(cookie) = effective else { return Compiled::Unknown };
        Compiled::Filter(Self(cookie.clone()))
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for SessionFilter {
    type State = Session;

    /// Has the cookie select the cluster, if the route has that cluster, and the endpoint (CH8.1 to CH8.4, CH8.8).
    fn on_request<'a>(
        &'a self,
        state: &'a mut Option<Session>,
        request: &'a mut FilterRequest<'_>,
    ) -> Decision<'a> {
        let Self(cookie) = self;
        if !cookie.is_for(request.path) {
            return Decision::Continue;
        }
        let session =
            SessionState::read(&cookie.name, &Visible(&*request.headers)).unwrap_or_else(|reason| {
                request.callbacks.on_malformed(MalformedValue::SessionCookie, 1);
                debug!(cookie = &*cookie.name, %reason, "the cookie of a session is ignored");
                None
            });
        if let Some(upstream) = &mut request.upstream {
            if let Some(session) = &session
                // The selected cluster stays if the cookie names it; otherwise one of the route's may replace it (CH8.4).
                && !session.names(upstream.cluster())
            {
                upstream.select_cluster(&|name| session.names(name));
            }
            // Without a cookie as well: picks then report their endpoint, for the cookie of the response (CH8.6).
            upstream.override_host(session.as_ref().map(|session| &*session.addresses));
        }
        *state = Some(Session(session));
        Decision::Continue
    }

    /// Sets a cookie that leads to the endpoint of the attempt (CH8.5 to CH8.7).
    fn on_attempt_response(&self, state: &mut Option<Session>, response: &mut AttemptResponse<'_>) {
        let (Some(Session(session)), Some(endpoint)) = (state, response.endpoint) else { return };
        let Self(cookie) = self;
        let Some(value) = set_cookie(cookie, session.as_ref(), endpoint, response.cluster) else { return };
        match HeaderValue::try_from(value) {
            Ok(value) => drop(response.headers.append(SET_COOKIE, value)),
            Err(_) => debug!(cookie = &*cookie.name, "the cookie of a session cannot be a header"),
        }
    }
}

impl SessionState {
    /// Reads the cookie of a session from the headers of a request; `None` without a cookie (CH8.2).
    ///
    /// # Errors
    /// The first cookie of this name has another form.
    fn read(name: &str, headers: &dyn RequestHeaders) -> Result<Option<Self>, IgnoredCookie> {
        let mut found = None;
        // The first cookie of the name counts, whichever header it is in (CH8.2).
        headers.for_each_value("cookie", &mut |line| found = found.or_else(|| value_of(line, name)));
        let Some(value) = found else { return Ok(None) };
        let content = READER.decode(unquoted(value)).map_err(|_| IgnoredCookie::NotBase64)?;
        Self::parse(str::from_utf8(&content).map_err(|_| IgnoredCookie::NotUtf8)?).map(Some)
    }

    /// What a cookie contains: addresses, and a cluster behind the first semicolon (CH8.3).
    fn parse(content: &str) -> Result<Self, IgnoredCookie> {
        let (list, cluster) = match content.split_once(';') {
            Some((list, cluster)) => (list, Some(cluster)),
            None => (content, None),
        };
        let addresses: Box<[SocketAddr]> =
            list.split(',').filter_map(|address| address.parse().ok()).take(MAX_ADDRESSES).collect();
        if addresses.is_empty() {
            return Err(IgnoredCookie::NoAddress);
        }
        let cluster = cluster
            .map(|name| name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name));
        let cluster = cluster.filter(|name| !name.is_empty()).map(Into::into);
        Ok(Self { list: list.into(), addresses, cluster })
    }

    /// Whether the cookie names this cluster, with or without the prefix of A60's example (CH13.12).
    fn names(&self, cluster: &str) -> bool {
        let named = self.cluster.as_deref();
        named.is_some_and(|named| named == cluster || named.strip_prefix(CLUSTER_PREFIX) == Some(cluster))
    }
}

/// The value of the header `set-cookie` for the endpoint that a call was sent to: all its addresses, and the cluster. `None` if the
/// cookie of the request says the same (CH8.5, CH8.6).
fn set_cookie(
    cookie: &SessionCookie,
    state: Option<&SessionState>,
    addresses: &str,
    cluster: &str,
) -> Option<String> {
    if state.is_some_and(|state| *state.list == *addresses && state.names(cluster)) {
        return None;
    }
    let SessionCookie { name, path, ttl, .. } = cookie;
    // Without the prefix `cluster:`, as C-core writes it.
    let mut header = format!("{name}={}; HttpOnly", STANDARD.encode(format!("{addresses};{cluster}")));
    if !path.is_empty() {
        header.push_str(&format!("; Path={path}"));
    }
    if !ttl.is_zero() {
        header.push_str(&format!("; Max-Age={}", ttl.as_secs()));
    }
    Some(header)
}

impl fmt::Display for IgnoredCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotBase64 => "its value is not base64",
            Self::NotUtf8 => "its content is not UTF-8",
            Self::NoAddress => "its content has no address",
        })
    }
}

/// The value of the first cookie with a name in a header.
fn value_of<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    line.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii();
        // What has no `=` is no cookie.
        let end = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..end] == *name.as_bytes()).then(|| &pair[end + 1..])
    })
}

/// Removes quotes around a value: Envoy's documentation has a cookie in quotes, which RFC 6265 permits.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// Accepts base64 with and without padding, since cookies of other clients may lack it.
const READER: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The largest number of addresses of a cookie that are read: a cookie comes from outside.
const MAX_ADDRESSES: usize = 16;
/// The prefix of the cluster in the example of A60.
const CLUSTER_PREFIX: &str = "cluster:";

#[cfg(test)]
mod tests;
