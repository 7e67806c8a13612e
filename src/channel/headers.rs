//! Headers of requests: those that routes match, and those that are sent.

use std::{io::Write, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{
        CONNECTION, CONTENT_TYPE, HOST, InvalidHeaderValue, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};
use tonic::Status;

use super::{error::ChannelError, settings::Settings};
use crate::{
    config::Target, filters::is_hidden, resolve::RequestHeaders, resource::load_balancing::AddedMetadata,
};

/// Returns the timeout that the application has set (CH2.15).
///
/// # Errors
/// It is malformed.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse_timeout);
    match parsed {
        Some(timeout) => Ok(Some(timeout.min(LONGEST_TIMEOUT))),
        None => Err(Status::internal(format!("the header grpc-timeout is malformed: {value:?}"))),
    }
}

/// Parses `grpc-timeout`: up to 8 digits and a unit.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Sets the remaining time, in the finest unit that fits 8 digits, at least 1 ns. It is rounded up, so that the server does not
/// end the call before its deadline.
pub(super) fn set_timeout(headers: &mut HeaderMap, remaining: Duration) {
    let nanos = remaining.as_nanos().max(1);
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let fitting = units.into_iter().find(|(unit, _)| nanos.div_ceil(*unit) < 100_000_000);
    let (unit, letter) = fitting.unwrap_or((3_600_000_000_000, 'H'));
    // Without a text of its own, which would be an allocation more.
    let mut text = [0; LONGEST_NUMBER];
    let mut rest = &mut text[..];
    if write!(rest, "{}{letter}", nanos.div_ceil(unit)).is_ok() {
        let length = LONGEST_NUMBER - rest.len();
        if let Ok(value) = HeaderValue::from_bytes(&text[..length]) {
            headers.insert(GRPC_TIMEOUT, value);
        }
    }
}

/// Adds the headers of a load balancing policy of the application. Those that cannot be metadata are left out.
pub(super) fn add(headers: &mut HeaderMap, metadata: &[AddedMetadata]) {
    for (name, value) in metadata {
        // A policy sets custom metadata alone: pseudo headers and those of gRPC are not its own, and binary values would have to
        // be encoded.
        let is_metadata = !is_hidden(name) && !name.starts_with(':') && !name.ends_with("-bin");
        if let (true, Ok(name), Ok(value)) =
            (is_metadata, HeaderName::try_from(&**name), HeaderValue::try_from(&**value))
        {
            headers.append(name, value);
        }
    }
}

/// The head of a request, from which the head of each attempt is made.
pub(super) struct Head {
    /// The method, which is POST in gRPC.
    method: Method,
    /// The path, with its query.
    path: PathAndQuery,
    /// The authority that the application gave.
    pub(super) authority: Option<Authority>,
    /// The headers as they are, for the first attempt, which takes them.
    headers: Option<HeaderMap>,
    /// Headers of the application, which a further attempt repeats; [`prepare`] adds the others. Most requests have none.
    own: Vec<(HeaderName, HeaderValue)>,
}

impl Head {
    /// The head of a request whose headers are [prepared](prepare).
    // Copied before the first attempt takes the headers. Most requests have none of their own, so that this allocates nothing.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { method, uri, headers, .. } = parts;
        let mut uri = uri.into_parts();
        let path = uri.path_and_query.take().unwrap_or(PathAndQuery::from_static("/"));
        let own = headers.iter().filter(|(name, value)| !is_prepared(name, value));
        let own = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { method, path, authority: uri.authority, headers: Some(headers), own }
    }

    /// The path, with its query.
    pub(super) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// The request of the next attempt, with what a policy of the application adds to it.
    pub(super) fn request(
        &mut self,
        authority: Authority,
        remaining: Option<Duration>,
        previous_attempts: u32,
        metadata: &[AddedMetadata],
    ) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        let headers = request.headers_mut();
        *headers = self.headers.take().unwrap_or_else(|| self.rebuild());
        add(headers, metadata);
        if let Some(remaining) = remaining {
            set_timeout(headers, remaining);
        }
        if previous_attempts > 0 {
            headers.insert(PREVIOUS_ATTEMPTS, previous_attempts.into());
        }
        *request.uri_mut() = uri(authority, self.path.clone());
        request
    }

    /// Returns the headers for a further attempt.
    fn rebuild(&self) -> HeaderMap {
        // The 4 are `te`, `content-type`, `user-agent` and `grpc-timeout`.
        let mut headers = HeaderMap::with_capacity(self.own.len() + 4);
        for (name, value) in &self.own {
            headers.append(name, value.clone());
        }
        // Another user agent is one of `own`.
        prepare(&mut headers, &HeaderValue::from_static(AGENT));
        headers
    }
}

/// Shows policies of the application the same headers as routes match.
impl RequestHeaders for Head {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        match &self.headers {
            _ if is_hidden(name) => {}
            Some(headers) => headers.get_all(name).iter().for_each(|value| each(value.as_bytes())),
            None => {
                let named = self.own.iter().filter(|(other, _)| other.as_str().eq_ignore_ascii_case(name));
                named.for_each(|(_, value)| each(value.as_bytes()));
            }
        }
    }
}

/// Headers of requests that have none of their own.
#[derive(Debug, Clone)]
pub(super) struct DefaultHeaders {
    /// The `:authority`.
    pub(super) authority: Authority,
    /// The `user-agent`.
    pub(super) user_agent: HeaderValue,
}

impl DefaultHeaders {
    /// Returns the default headers of a channel; `service` is that of the target.
    pub(super) fn new(target: &Target, settings: &Settings, service: String) -> Result<Self, ChannelError> {
        let text = settings.authority.clone().unwrap_or(service);
        let authority = text.parse().map_err(|error: http::uri::InvalidUri| ChannelError::Authority {
            target: target.to_string(),
            authority: text.clone(),
            reason: error.to_string(),
        })?;
        let application = settings.user_agent.as_deref();
        let user_agent = user_agent(application).map_err(|_| ChannelError::UserAgent {
            target: target.to_string(),
            user_agent: application.unwrap_or_default().to_owned(),
        })?;
        Ok(Self { authority, user_agent })
    }
}

/// Returns the user agent of a channel: that of the library, behind the application's if it has set one.
fn user_agent(application: Option<&str>) -> Result<HeaderValue, InvalidHeaderValue> {
    match application {
        Some(application) => HeaderValue::try_from(format!("{application} {AGENT}")),
        None => Ok(HeaderValue::from_static(AGENT)),
    }
}

/// Removes headers that HTTP/2 does not permit or the channel sets itself, and adds those that gRPC requires.
pub(super) fn prepare(headers: &mut HeaderMap, user_agent: &HeaderValue) {
    if headers.keys().any(|name| REMOVED.contains(name)) {
        for name in REMOVED {
            headers.remove(name);
        }
    }
    // gRPC requires `te`: servers detect proxies by it that drop trailers.
    if headers.get(TE).is_none_or(|te| te != TRAILERS) {
        headers.insert(TE, HeaderValue::from_static(TRAILERS));
    }
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(GRPC));
    headers.entry(USER_AGENT).or_insert_with(|| user_agent.clone());
}

/// Whether [`prepare`] adds the header, or each attempt has its own.
fn is_prepared(name: &HeaderName, value: &HeaderValue) -> bool {
    *name == TE
        || *name == GRPC_TIMEOUT
        || *name == CONTENT_TYPE && value == GRPC
        || *name == USER_AGENT && value == AGENT
}

/// Returns the URI of a request.
fn uri(authority: Authority, path: PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or_default()
}

/// The longest timeout that a deadline is computed for, so that times do not overflow.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Headers of HTTP/1 connections, which HTTP/2 forbids, and the number of attempts, which the channel sets (CH6.19).
const REMOVED: [HeaderName; 7] =
    [CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION, PREVIOUS_ATTEMPTS];
const TRAILERS: &str = "trailers";
const GRPC: &str = "application/grpc";
/// The user agent of the library.
const AGENT: &str = concat!("xdskit/", env!("CARGO_PKG_VERSION"));
/// The bytes of the longest timeout in hours, with its unit.
const LONGEST_NUMBER: usize = 24;
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{filters::Visible, resolve::RouteQuery};

    #[test]
    fn ch2_15_timeouts_have_up_to_8_digits_and_a_unit() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, text.parse().unwrap());
            timeout(&headers).map_err(|status| status.code())
        };
        for (text, seconds) in
            [("1H", 3_600.0), ("2M", 120.0), ("3S", 3.0), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9)]
        {
            assert_eq!(read(text), Ok(Some(Duration::from_secs_f64(seconds))), "{text}");
        }
        assert_eq!(read("99999999S"), Ok(Some(LONGEST_TIMEOUT)));
        for text in ["", "S", "1", "1s", "-1S", "123456789S", "1 S", "1.5S", "é"] {
            assert_eq!(read(text), Err(tonic::Code::Internal), "{text:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn ch2_15_the_remaining_time_is_sent_in_the_finest_unit_that_fits() {
        let sent = |remaining: Duration| {
            let mut headers = HeaderMap::new();
            set_timeout(&mut headers, remaining);
            headers[GRPC_TIMEOUT].to_str().unwrap().to_owned()
        };
        assert_eq!(sent(Duration::ZERO), "1n");
        assert_eq!(sent(Duration::from_nanos(99_999_999)), "99999999n");
        assert_eq!(sent(Duration::from_millis(100)), "100000u");
        assert_eq!(sent(Duration::from_secs(100)), "100000m");
        assert_eq!(sent(Duration::from_secs(99_999_999)), "99999999S");
        assert_eq!(sent(Duration::from_secs(100_000_000)), "1666667M", "the remaining time is rounded up");
        assert_eq!(sent(Duration::new(0, 100_000_001)), "100001u");
        assert_eq!(sent(Duration::new(99, 999_999_001)), "100000m", "100,000,000 µs have 9 digits");
    }

    #[test]
    fn ch2_9_routes_see_the_metadata_of_the_application_alone() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("x-user", "ada"), ("te", "trailers"), ("grpc-timeout", "1S"), ("user-agent", "a")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.append("x-user", HeaderValue::from_static("bob"));
        let values = |name: &str| {
            let mut values = Vec::new();
            Visible(&headers)
                .for_each_value(name, &mut |value| values.push(String::from_utf8_lossy(value).into_owned()));
            values.join(",")
        };
        assert_eq!(values("X-User"), "ada,bob");
        assert_eq!([values("te"), values("Grpc-Timeout"), values("user-agent"), values("none")], [""; 4]);
    }

    #[test]
    fn ch2_10_the_content_type_is_visible_and_binary_headers_are_not() {
        let mut headers = HeaderMap::new();
        headers.append("x-trace-bin", HeaderValue::from_static("AAAA"));
        let value = |headers: &HeaderMap, name: &str| {
            let visible = Visible(headers);
            RouteQuery::new("/", 0).with_headers(&visible).header_value(name).map(|value| value.into_owned())
        };
        assert_eq!(value(&headers, "content-type").as_deref(), Some(&b"application/grpc"[..]));
        assert_eq!(value(&headers, "x-trace-bin"), None);
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
        assert_eq!(value(&headers, "Content-Type").as_deref(), Some(&b"application/grpc+proto"[..]));
    }

    #[test]
    fn ch2_11_several_values_are_one_joined_by_commas_in_order() {
        let mut headers = HeaderMap::new();
        for value in ["b", "a", "b"] {
            headers.append("x-user", HeaderValue::from_static(value));
        }
        let visible = Visible(&headers);
        let query = RouteQuery::new("/", 0).with_headers(&visible);
        assert_eq!(query.header_value("X-USER").as_deref(), Some(&b"b,a,b"[..]));
        assert_eq!(query.header_value("x-other"), None);
    }

    #[test]
    fn ch6_13_the_headers_of_a_repeated_request_are_those_of_the_first() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-user", "b"), ("x-user", "a"), ("content-type", "application/grpc+proto")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let agents = [user_agent(None).unwrap(), user_agent(Some("cart/2")).unwrap()];
        for (headers, user_agent) in [headers, HeaderMap::new()].into_iter().zip(agents) {
            let mut request = Request::post("http://own/a?b").body(()).unwrap();
            *request.headers_mut() = headers;
            prepare(request.headers_mut(), &user_agent);
            let mut head = Head::new(request.into_parts().0);
            assert_eq!(head.authority.as_ref().unwrap(), "own");
            let minute = Some(Duration::from_secs(60));
            let [first, second] =
                [0, 1].map(|_| head.request(Authority::from_static("shop"), minute, 0, &[]));
            assert_eq!(first.headers(), second.headers());
            assert_eq!((first.uri(), first.method()), (second.uri(), second.method()));
            assert_eq!(first.uri(), "http://shop/a?b");
        }
    }

    #[test]
    fn headers_of_the_connection_are_not_sent() {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(HOST, HeaderValue::from_static("shop"));
        prepare(&mut headers, &HeaderValue::from_static(AGENT));
        assert!(!headers.contains_key(CONNECTION) && !headers.contains_key(HOST));
        assert_eq!(
            (&headers[TE], &headers[CONTENT_TYPE]),
            (&"trailers".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
    }
}
