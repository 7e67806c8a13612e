//! The wire format of reports, written without building the messages first.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use serde_json::{Map, Value};

use super::{
    counters::Calls,
    metrics::{MetricSum, MetricSums},
};
use crate::config::Locality;

/// The conditions under which a report is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The time at which the interval of the report ends.
    pub(super) now: Instant,
    /// Whether the server has requested the counts of endpoints (LR3.7).
    pub(super) has_endpoints: bool,
    /// The size in bytes above which a report has no metadata.
    pub(super) max_size: usize,
}

/// The contents of an `UpstreamEndpointStats`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointStats<'a> {
    /// The encoded address.
    pub(super) head: &'a [u8],
    pub(super) calls: &'a Calls,
    /// Sums of named metrics; `None` if there are none. Utilizations are reported for localities alone.
    pub(super) metrics: Option<&'a MetricSums>,
    /// The metadata of the endpoint by EDS (LR9.5).
    pub(super) metadata: Option<&'a Map<String, Value>>,
}

/// Writes the report of a cluster in a buffer that is used again.
///
/// A message within it is written where it stays, and its length is put before it when it ends.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    /// The message in progress, cleared for each cluster, so that its memory is reused.
    cluster: Vec<u8>,
}

/// Where the body of an unfinished message begins.
#[derive(Debug)]
#[must_use]
pub(super) struct Begun(usize);

impl Encoder {
    /// Begins a `ClusterStats`.
    pub(super) fn begin_cluster(&mut self, name: &str) {
        // Field numbers are literals here: each stands beside the name of its message, and proto/ has the list.
        self.cluster.clear();
        put_text(1, name, &mut self.cluster);
    }

    /// Begins an `UpstreamLocalityStats`; `head` is its encoded locality.
    pub(super) fn begin_locality(&mut self, head: &[u8]) -> Begun {
        let begun = begin_message(2, &mut self.cluster);
        self.cluster.extend_from_slice(head);
        begun
    }

    /// Writes an `UpstreamEndpointStats`.
    pub(super) fn add_endpoint(&mut self, stats: &EndpointStats<'_>) {
        let endpoint = &mut self.cluster;
        let begun = begin_message(7, endpoint);
        endpoint.extend_from_slice(stats.head);
        put_calls(stats.calls, endpoint);
        if let Some(metrics) = stats.metrics {
            put_named(&metrics.named, endpoint);
        }
        if let Some(metadata) = stats.metadata {
            put_struct(6, metadata, endpoint);
        }
        // `total_issued_requests`, whose number is 8 in a locality.
        put_number(7, stats.calls.issued, endpoint);
        end_message(&begun, endpoint);
    }

    /// Ends an `UpstreamLocalityStats`.
    pub(super) fn end_locality(&mut self, begun: &Begun, calls: &Calls, metrics: Option<&MetricSums>) {
        let locality = &mut self.cluster;
        // Behind the endpoints, whose calls are summed while they are written. The order of fields has no meaning on the wire.
        put_calls(calls, locality);
        put_number(8, calls.issued, locality);
        if let Some(metrics) = metrics {
            put_named(&metrics.named, locality);
            for (number, sum) in [(12, metrics.cpu), (13, metrics.mem), (14, metrics.application)] {
                if !sum.is_zero() {
                    let begun = begin_message(number, locality);
                    put_number(1, sum.count, locality);
                    put_double(2, sum.total, locality);
                    end_message(&begun, locality);
                }
            }
        }
        end_message(begun, locality);
    }

    /// Writes the dropped calls of a category, or all of them without a category.
    pub(super) fn add_drops(&mut self, category: &str, count: u64) {
        let begun = begin_message(5, &mut self.cluster);
        put_text(1, category, &mut self.cluster);
        put_number(2, count, &mut self.cluster);
        end_message(&begun, &mut self.cluster);
    }

    /// Writes the number of all dropped calls.
    pub(super) fn set_dropped(&mut self, total: u64) {
        put_number(3, total, &mut self.cluster);
    }

    /// Ends a `ClusterStats`.
    pub(super) fn end_cluster(&mut self, interval: Duration, service: Option<&str>) {
        let cluster = &mut self.cluster;
        // 0 would be no interval (LR4.6).
        let interval = interval.max(Duration::from_nanos(1));
        let begun = begin_message(4, cluster);
        put_number(1, interval.as_secs(), cluster);
        put_number(2, interval.subsec_nanos().into(), cluster);
        end_message(&begun, cluster);
        if let Some(service) = service {
            put_text(6, service, cluster);
        }
    }

    /// What is written of the `ClusterStats`.
    pub(super) fn cluster(&self) -> &[u8] {
        &self.cluster
    }
}

/// Writes a `ClusterStats` into a request.
pub(super) fn put_cluster(cluster: &[u8], into: &mut BytesMut) {
    put_bytes(2, cluster, into);
}

/// The locality of an `UpstreamLocalityStats`, which is there even if it is empty (LR4.3).
/// Made once for each locality, and not for each report.
pub(super) fn locality_head(locality: &Locality) -> Box<[u8]> {
    let mut message = Vec::new();
    for (number, part) in [(1, locality.region()), (2, locality.zone()), (3, locality.sub_zone())] {
        if !part.is_empty() {
            put_text(number, part, &mut message);
        }
    }
    let mut head = Vec::with_capacity(message.len() + 4);
    put_bytes(1, &message, &mut head);
    head.into()
}

/// The address of an `UpstreamEndpointStats`.
/// Made once for each endpoint, and not for each report.
pub(super) fn endpoint_head(address: SocketAddr) -> Box<[u8]> {
    let [mut socket, mut whole, mut head] = [const { Vec::new() }; 3];
    put_text(2, &address.ip().to_string(), &mut socket);
    put_number(3, address.port().into(), &mut socket);
    put_bytes(1, &socket, &mut whole);
    put_bytes(1, &whole, &mut head);
    head.into()
}

/// The first request of a stream: the node with one more of its client features (LR2.4).
pub(super) fn first_request(node: &[u8]) -> BytesMut {
    // Appending to an encoded message adds to its repeated fields, so that the node need not be decoded.
    let mut with_feature = node.to_vec();
    put_text(CLIENT_FEATURES, SEND_ALL_CLUSTERS, &mut with_feature);
    // Room for the key and a length of up to five bytes.
    let mut request = BytesMut::with_capacity(with_feature.len() + 6);
    put_bytes(1, &with_feature, &mut request);
    request
}

/// Writes the counts that localities and endpoints have under the same numbers.
fn put_calls(calls: &Calls, into: &mut Vec<u8>) {
    put_number(2, calls.succeeded, into);
    put_number(3, calls.in_progress, into);
    put_number(4, calls.failed, into);
}

/// Writes sums of named metrics, with the prefix of their names.
fn put_named(named: &BTreeMap<Box<str>, MetricSum>, into: &mut Vec<u8>) {
    for (name, sum) in named {
        let begun = begin_message(5, into);
        encode_key(1, WireType::LengthDelimited, into);
        encode_varint((NAMED.len() + name.len()) as u64, into);
        into.put_slice(NAMED.as_bytes());
        into.put_slice(name.as_bytes());
        put_number(2, sum.count, into);
        put_double(3, sum.total, into);
        end_message(&begun, into);
    }
}

/// Writes a `google.protobuf.Struct`, with its keys in the order of the map: sorted, as they are when it is parsed (LR4.1).
fn put_struct(field: u32, object: &Map<String, Value>, into: &mut Vec<u8>) {
    let begun = begin_message(field, into);
    for (key, value) in object {
        let entry = begin_message(1, into);
        if !key.is_empty() {
            put_text(1, key, into);
        }
        put_value(2, value, into);
        end_message(&entry, into);
    }
    end_message(&begun, into);
}

/// Writes a `google.protobuf.Value`, which has the field of its kind even for a default value. Its depth is limited by the parser's.
fn put_value(field: u32, value: &Value, into: &mut Vec<u8>) {
    let begun = begin_message(field, into);
    match value {
        Value::Null => put_bool(1, false, into),
        Value::Number(number) => {
            encode_key(2, WireType::SixtyFourBit, into);
            into.put_f64_le(number.as_f64().unwrap_or_default());
        }
        Value::String(text) => put_text(3, text, into),
        Value::Bool(is_true) => put_bool(4, *is_true, into),
        Value::Object(object) => put_struct(5, object, into),
        Value::Array(values) => {
            let list = begin_message(6, into);
            values.iter().for_each(|value| put_value(1, value, into));
            end_message(&list, into);
        }
    }
    end_message(&begun, into);
}

/// Begins a message within another one.
fn begin_message(field: u32, into: &mut Vec<u8>) -> Begun {
    encode_key(field, WireType::LengthDelimited, into);
    // For its length, which takes one byte in most messages.
    into.push(0);
    Begun(into.len())
}

/// Ends a message: writes its length, and moves its body if the length takes more than one byte.
/// The move takes time in proportion to the body, once for each enclosing message that is longer than 127 bytes.
fn end_message(begun: &Begun, into: &mut Vec<u8>) {
    let Begun(begin) = *begun;
    let length = into.len() - begin;
    let length_of_length = encoded_len_varint(length as u64);
    if length_of_length > 1 {
        into.resize(begin + length + length_of_length - 1, 0);
        into.copy_within(begin..begin + length, begin + length_of_length - 1);
    }
    encode_varint(length as u64, &mut &mut into[begin - 1..]);
}

/// Writes an integer field, unless it is 0.
fn put_number(field: u32, number: u64, into: &mut Vec<u8>) {
    if number != 0 {
        encode_key(field, WireType::Varint, into);
        encode_varint(number, into);
    }
}

/// Writes a boolean field, also if it is false: in a `oneof` the field itself says which kind is set.
fn put_bool(field: u32, is_true: bool, into: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, into);
    into.put_u8(is_true.into());
}

/// Writes a double field, unless it is 0.
fn put_double(field: u32, number: f64, into: &mut Vec<u8>) {
    if number != 0.0 {
        encode_key(field, WireType::SixtyFourBit, into);
        into.put_f64_le(number);
    }
}

/// Writes a string field, also if it is empty.
fn put_text(field: u32, text: &str, into: &mut Vec<u8>) {
    put_bytes(field, text.as_bytes(), into);
}

/// Writes a field of bytes or a nested message.
fn put_bytes(field: u32, bytes: &[u8], into: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(bytes.len() as u64, into);
    into.put_slice(bytes);
}

/// The prefix of the names of metrics with names of the application's own (LR8.2).
pub(super) const NAMED: &str = "named_metrics.";

/// The client feature that permits `send_all_clusters` in responses.
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// The number of the field `client_features` of a `Node`.
const CLIENT_FEATURES: u32 = 10;

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::{pb::envoy::config::endpoint::v3::ClusterStats, resource::json_object};

    #[test]
    fn lengths_of_any_size_are_those_of_prost() {
        let calls = Calls { issued: 3, succeeded: 2, failed: 1, in_progress: 0 };
        let mut encoder = Encoder::default();
        for length in [1, 100, 200, 16_000, 17_000, 2_100_000] {
            let (region, name) = ("r".repeat(length), "m".repeat(length));
            let named = [(name.as_str().into(), MetricSum { count: 2, total: 1.5 })].into();
            let metrics = MetricSums { named, ..MetricSums::default() };
            let metadata =
                json!({ &name: [name], "": { "f": false, "n": null, "t": true, "x": [0, -1.5, {}] } });
            let endpoint = EndpointStats {
                head: &endpoint_head(([127, 0, 0, 1], 80).into()),
                calls: &calls,
                metrics: Some(&metrics),
                metadata: metadata.as_object(),
            };
            encoder.begin_cluster("shop");
            let begun = encoder.begin_locality(&locality_head(&Locality::new(&region, "", "")));
            encoder.add_endpoint(&endpoint);
            encoder.end_locality(&begun, &calls, Some(&metrics));
            encoder.end_cluster(Duration::from_secs(1), Some(&name));
            let stats = ClusterStats::decode(encoder.cluster()).expect("it is a message");
            assert_eq!(
                stats.encoded_len(),
                encoder.cluster().len(),
                "no length takes more bytes than it needs"
            );
            assert_eq!(stats.cluster_service_name, name);
            let [locality] = &stats.upstream_locality_stats[..] else { panic!("not one locality") };
            assert_eq!(locality.locality.as_ref().map(|locality| &locality.region), Some(&region));
            assert_eq!((locality.total_issued_requests, locality.total_error_requests), (3, 1));
            let endpoint = &locality.upstream_endpoint_stats[0];
            assert_eq!((endpoint.total_issued_requests, endpoint.total_successful_requests), (3, 2));
            let found = endpoint.metadata.clone().map(|object| Value::Object(json_object(object)));
            assert!(found == Some(metadata), "the metadata is what it was");
            for metrics in [&locality.load_metric_stats, &endpoint.load_metric_stats] {
                let found: Vec<_> = metrics.iter().map(|it| it.metric_name.strip_prefix(NAMED)).collect();
                assert_eq!(found, [Some(&*name)]);
                assert_eq!(
                    (metrics[0].num_requests_finished_with_metric, metrics[0].total_metric_value),
                    (2, 1.5)
                );
            }
        }
    }
}
