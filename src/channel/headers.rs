//! Headers of requests: what routes see, and what is sent.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CONNECTION, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT},
    uri::{Authority, PathAndQuery, Scheme},
};
use tonic::Status;

use super::call::LONGEST_TIMEOUT;
use crate::{resolve::RequestHeaders, resource::load_balancing::AddedMetadata};

/// The headers that routes match: the metadata of the application (CH2.9).
pub(super) struct Visible<'a>(pub(super) &'a HeaderMap);

impl RequestHeaders for Visible<'_> {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if !is_hidden(name) {
            self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
        }
    }
}

fn is_hidden(name: &str) -> bool {
    let is_grpc = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("grpc-"));
    is_grpc || HIDDEN.iter().any(|hidden| name.eq_ignore_ascii_case(hidden))
}

/// The timeout of the application (CH2.15).
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

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|it| it.is_ascii_digit()) {
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
    if let Ok(value) = HeaderValue::try_from(format!("{}{letter}", nanos.div_ceil(unit))) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

/// Adds what a load balancing policy of the application adds to a request. What cannot be metadata is left out.
pub(super) fn add(headers: &mut HeaderMap, metadata: &[AddedMetadata]) {
    for (name, value) in metadata {
        let is_metadata = !is_hidden(name) && !name.starts_with(':') && !name.ends_with("-bin");
        if let (true, Ok(name), Ok(value)) =
            (is_metadata, HeaderName::try_from(&**name), HeaderValue::try_from(&**value))
        {
            headers.append(name, value);
        }
    }
}

/// Removes what does not belong on an HTTP/2 connection, and adds what gRPC requires.
pub(super) fn prepare(headers: &mut HeaderMap) {
    for name in [CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION] {
        headers.remove(name);
    }
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/grpc"));
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("xdskit/", env!("CARGO_PKG_VERSION"))));
}

/// The URI of a request to an authority.
pub(super) fn uri(authority: Authority, uri: &Uri) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    parts.path_and_query = uri.path_and_query().cloned().or(Some(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).unwrap_or_default()
}

/// Headers that are none of the application's metadata, beside those of gRPC itself.
const HIDDEN: [&str; 9] = [
    "host",
    "te",
    "user-agent",
    "connection",
    "proxy-connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
];
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

#[cfg(test)]
mod tests {
    use super::*;

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
    fn headers_of_the_connection_are_not_sent() {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(HOST, HeaderValue::from_static("shop"));
        prepare(&mut headers);
        assert!(!headers.contains_key(CONNECTION) && !headers.contains_key(HOST));
        assert_eq!(
            (&headers[TE], &headers[CONTENT_TYPE]),
            (&"trailers".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
    }
}
