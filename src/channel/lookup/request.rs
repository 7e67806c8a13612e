//! A lookup, as a call to the lookup service.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, uri::PathAndQuery};
use prost::Message as _;
use tonic::{Request, client::Grpc};
use tracing::warn;

use crate::{
    balance::route_lookup::{Answer, Lookup, LookupLimits},
    channel::Channel,
    codec::RawCodec,
    escape::{PEER_TEXT, cut},
    pb::grpc::lookup::v1::{RouteLookupRequest, RouteLookupResponse, route_lookup_request::Reason},
};

/// Makes a lookup.
///
/// # Errors
/// There is no usable response within the timeout.
pub(super) async fn look_up(
    channel: Channel,
    lookup: &Lookup,
    timeout: Duration,
    limits: &LookupLimits,
) -> Result<Answer, Arc<str>> {
    let keys = lookup.key.keys().iter();
    let message = RouteLookupRequest {
        target_type: "grpc".to_owned(),
        key_map: keys.map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        reason: if lookup.stale.is_some() { Reason::Stale } else { Reason::Miss } as i32,
        stale_header_data: lookup.stale.as_deref().unwrap_or_default().to_owned(),
    };
    let mut request = Request::new(Bytes::from(message.encode_to_vec()));
    request.set_timeout(timeout);
    let mut client = Grpc::new(channel).max_decoding_message_size(limits.response_size);
    let response = client.unary(request, PathAndQuery::from_static(METHOD), RawCodec).await;
    // The code is left out: it is that of a lookup, and must not become that of a call.
    let response = response.map_err(|status| Arc::from(cut(status.message(), PEER_TEXT).as_ref()))?;
    parse(response.into_inner(), limits).map_err(Into::into)
}

/// Parses a response.
fn parse(response: Bytes, limits: &LookupLimits) -> Result<Answer, String> {
    let response = RouteLookupResponse::decode(response)
        .map_err(|error| format!("the response is no RouteLookupResponse: {error}"))?;
    let RouteLookupResponse { targets, header_data } = response;
    let targets = targets.into_iter().filter(|target| !target.is_empty());
    let targets: Box<[Arc<str>]> = targets.take(limits.response_targets).map(Into::into).collect();
    if targets.is_empty() {
        return Err("the response has no target".to_owned());
    }
    // The targets are used nevertheless.
    let header_data = if header_data.len() > limits.header_data_size {
        let (bytes, limit) = (header_data.len(), limits.header_data_size);
        warn!(bytes, limit, "the header data of a route lookup exceed the limit, and are left out");
        ""
    } else if HeaderValue::from_str(&header_data).is_err() {
        warn!("the header data of a route lookup are no value of a header, and are left out");
        ""
    } else {
        &header_data
    };
    Ok(Answer { targets, header_data: header_data.into() })
}

/// The method of lookup services.
const METHOD: &str = "/grpc.lookup.v1.RouteLookupService/RouteLookup";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(targets: &[&str], header_data: &str) -> Result<(usize, String), String> {
        parsed_within(LookupLimits::new(), targets, header_data)
    }

    fn parsed_within(
        limits: LookupLimits,
        targets: &[&str],
        header_data: &str,
    ) -> Result<(usize, String), String> {
        let targets = targets.iter().map(|target| (*target).to_owned()).collect();
        let response = RouteLookupResponse { targets, header_data: header_data.to_owned() };
        let answer = parse(Bytes::from(response.encode_to_vec()), &limits)?;
        Ok((answer.targets.len(), answer.header_data.to_string()))
    }

    #[test]
    fn rl11_responses_are_limited_and_have_a_target() {
        assert_eq!(parsed(&["a", "", "b"], "data"), Ok((2, "data".to_owned())));
        assert_eq!(parsed(&["a"; 17], ""), Ok((16, String::new())));
        assert_eq!(parsed(&["a"], "no\nheader"), Ok((1, String::new())));
        assert_eq!(parsed(&[""], "data"), Err("the response has no target".to_owned()));
        let error = parse(Bytes::from_static(b"\xff"), &LookupLimits::new()).unwrap_err();
        assert!(error.starts_with("the response is no RouteLookupResponse: "), "{error}");
    }
    #[test]
    fn rl11_targets_and_header_data_of_a_response_have_limits() {
        let data = "x".repeat(16 << 10);
        assert_eq!(parsed(&["a"], &data), Ok((1, data.clone())));
        assert_eq!(parsed(&["a"], &(data + "x")), Ok((1, String::new())));
        let limits = LookupLimits::new().with_response_targets(2).with_header_data_size(3);
        assert_eq!(parsed_within(limits, &["a", "b"], "abc"), Ok((2, "abc".to_owned())));
        assert_eq!(parsed_within(limits, &["a", "b", "c"], "abcd"), Ok((2, String::new())));
        // Zero would look nothing up.
        let limits = LookupLimits::new().with_response_targets(0);
        assert_eq!(parsed_within(limits, &["a", "b"], ""), Ok((1, String::new())));
    }
}
