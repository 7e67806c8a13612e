//! The metadata of endpoints in reports.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use serde_json::{Map, Value, json};

use super::rig::{Rig, all, only, secs, socket};
use crate::{
    config::Locality,
    lrs::{EndpointReporter, LoadSettings},
    pb::{
        envoy::{
            config::{
                core::v3 as core,
                endpoint::v3::{self as pb, ClusterStats},
            },
            service::load_stats::v3::LoadStatsResponse,
        },
        google::protobuf::{self as google, value::Kind},
    },
    protocol::DisconnectKind,
    resource::{ClusterLoadAssignment, Context, Resource, json_object},
};

#[test]
fn lr9_5_endpoints_are_reported_with_the_metadata_of_eds_if_the_server_asks_for_endpoints() {
    let mut rig = rig(LoadSettings::default());
    let object = json!({ "weight": 3, "pod": { "name": "a" } });
    let eds = assignment(&[
        (80, metadata("envoy.lb", &[&object])),
        (81, Vec::new()),
        (82, metadata("envoy.filters.other", &[&object])),
        (83, metadata("envoy.lb", &[&json!({})])),
    ]);
    rig.loads.set_assignment(&"shop".into(), &eds);
    let handles: Vec<_> = (80..85).map(|port| rig.zone().endpoint(address(port))).collect();
    let elsewhere = rig.keep[0].locality(&Locality::new("elsewhere", "", "")).endpoint(address(80));
    for has_endpoints in [true, false, true] {
        rig.respond(0, &LoadStatsResponse { report_endpoint_granularity: has_endpoints, ..all(1) });
        handles.iter().chain([&elsewhere]).for_each(|endpoint| drop(endpoint.call_started()));
        let report = only(&rig.advance(secs(1)));
        let unset = |port| (format!("127.0.0.1:{port}"), None);
        let expected = match has_endpoints {
            true => vec![unset(80), reported(80, &object), unset(81), unset(82), unset(83), unset(84)],
            false => Vec::new(),
        };
        assert_eq!(metadata_of(&report), expected, "the locality `elsewhere` is the first one");
    }
}

#[test]
fn lr9_5_the_next_report_has_the_metadata_that_eds_has_changed() {
    let mut rig = rig(LoadSettings::default());
    let handle = rig.zone().endpoint(address(80));
    let (one, other) = (json!({ "version": "one" }), json!({ "version": "other" }));
    let report = |rig: &mut Rig| {
        drop(handle.call_started());
        metadata_of(&only(&rig.advance(secs(1)))).remove(0)
    };
    assert_eq!(report(&mut rig).1, None, "the endpoints are not known yet");
    let eds = set(&rig, &one);
    assert_eq!(report(&mut rig), reported(80, &one));
    let eds = (set(&rig, &other), eds).0;
    assert_eq!(report(&mut rig), reported(80, &other));
    drop(eds);
    assert_eq!(report(&mut rig).1, None, "no snapshot has the endpoints any more");
}

#[test]
fn lr9_5_lr1_3_metadata_goes_with_the_cluster_to_another_server_and_service() {
    let mut rig = rig(LoadSettings::default());
    let object = json!({ "a": 1 });
    let _eds = set(&rig, &object);
    let handle = rig.zone().endpoint(address(80));
    rig.set_service("shop", 1, Some("service"));
    rig.commands();
    rig.open(1);
    rig.respond(1, &LoadStatsResponse { report_endpoint_granularity: true, ..all(1) });
    drop(handle.call_started());
    let report = only(&rig.advance(secs(1)));
    assert_eq!(report.cluster_service_name, "service");
    assert_eq!(metadata_of(&report), [reported(80, &object)]);
    // A key without CDS has no endpoints by EDS, whatever its name.
    let fixed = rig.loads.reporter_to(&rig.servers[1].clone(), "shop", None).locality(&Locality::default());
    drop(fixed.endpoint(address(80)).call_started());
    let reports = rig.advance(secs(1));
    let fixed = reports.iter().find(|it| it.cluster_service_name.is_empty()).unwrap();
    assert_eq!(metadata_of(fixed)[0].1, None);
}

#[test]
fn lr9_5_lr6_7_a_report_that_was_not_written_has_the_metadata_of_the_time_of_the_next_one() {
    let mut rig = rig(LoadSettings::default());
    let handle = rig.zone().endpoint(address(80));
    let before = set(&rig, &json!({ "a": 1 }));
    drop(handle.call_started());
    rig.is_stalled = true;
    rig.advance(secs(1));
    rig.disconnect(0, DisconnectKind::Closed);
    rig.is_stalled = false;
    let _eds = (set(&rig, &json!({ "a": 2 })), drop(before)).0;
    rig.advance(secs(2));
    rig.open(0);
    rig.respond(0, &LoadStatsResponse { report_endpoint_granularity: true, ..all(1) });
    assert_eq!(metadata_of(&only(&rig.advance(secs(1)))), [reported(80, &json!({ "a": 2 }))]);
}

#[test]
fn lr9_5_lr4_1_the_keys_of_metadata_are_sorted_whatever_their_order_in_eds() {
    let parts = [json!({ "c": { "z": 1, "y": [true] } }), json!({ "a": null }), json!({ "b": "text" })];
    let bytes = |order: [usize; 3]| {
        let mut rig = rig(LoadSettings::default());
        let eds = assignment(&[(80, metadata("envoy.lb", &order.map(|index| &parts[index])))]);
        rig.loads.set_assignment(&"shop".into(), &eds);
        drop(rig.zone().endpoint(address(80)).call_started());
        rig.advance(secs(1));
        rig.raw.remove(0)
    };
    let sorted = json!({ "a": null, "b": "text", "c": { "y": [true], "z": 1 } });
    let sorted = message_of(sorted.as_object().unwrap()).encode_to_vec();
    assert!(bytes([0, 1, 2]).windows(sorted.len()).any(|window| window == sorted), "as prost writes it");
    assert_eq!(bytes([0, 1, 2]), bytes([2, 0, 1]));
    assert_eq!(bytes([0, 1, 2]), bytes([1, 2, 0]));
}

#[test]
fn lr9_5_lr4_10_metadata_that_makes_a_report_too_large_is_left_out() {
    let settings = || LoadSettings { max_request_size: 400, ..LoadSettings::default() };
    let report = |length: usize| {
        let mut rig = rig(settings());
        let text = json!({ "text": "x".repeat(length) });
        let all: Vec<_> = (80..84).map(|port| (port, metadata("envoy.lb", &[&text]))).collect();
        let eds = assignment(&all);
        rig.loads.set_assignment(&"shop".into(), &eds);
        let handles: Vec<_> = (80..84).map(|port| rig.zone().endpoint(address(port))).collect();
        let other = rig.begin("small", 0);
        handles.iter().for_each(|handle: &EndpointReporter| drop(handle.call_started()));
        drop(other.call_started());
        let reports = rig.advance(secs(1));
        assert!(rig.raw.iter().all(|raw| raw.len() <= 400), "{:?}", rig.raw);
        let [shop, _] = &reports[..] else { panic!("not two reports: {reports:?}") };
        let found = metadata_of(shop);
        assert_eq!(shop.upstream_locality_stats[0].total_error_requests, 4);
        assert_eq!(found.len(), 4, "the counts of all endpoints are there");
        found.iter().filter(|(_, metadata)| metadata.is_some()).count()
    };
    let numbers: Vec<_> = (0..60).chain([10_000]).map(report).collect();
    let fitting = numbers.iter().take_while(|number| **number == 4).count();
    assert!((20..60).contains(&fitting), "{numbers:?}");
    assert!(numbers[fitting..].iter().all(|number| *number == 0), "all have it, or none: {numbers:?}");
}

/// A rig whose first server asks for endpoints.
fn rig(settings: LoadSettings) -> Rig {
    let mut rig = Rig::reporting_with(settings);
    rig.respond(0, &LoadStatsResponse { report_endpoint_granularity: true, ..all(1) });
    rig
}

/// Sets the only endpoint of the cluster, with this metadata.
fn set(rig: &Rig, object: &Value) -> Arc<ClusterLoadAssignment> {
    let eds = assignment(&[(80, metadata("envoy.lb", &[object]))]);
    rig.loads.set_assignment(&"shop".into(), &eds);
    eds
}

/// The endpoints of the zone of the rig, by their ports, with their encoded metadata.
fn assignment(endpoints: &[(u16, Vec<u8>)]) -> Arc<ClusterLoadAssignment> {
    let zone = core::Locality { region: "r".into(), zone: "z".into(), ..core::Locality::default() };
    let weight = Some(google::UInt32Value { value: 1 });
    let locality = pb::LocalityLbEndpoints {
        locality: Some(zone),
        load_balancing_weight: weight,
        ..pb::LocalityLbEndpoints::default()
    };
    let mut locality = locality.encode_to_vec();
    for (port, metadata) in endpoints {
        let socket = core::SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue((*port).into())),
            ..core::SocketAddress::default()
        };
        let address = core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
        let endpoint = pb::Endpoint { address: Some(address), ..pb::Endpoint::default() };
        let endpoint = [field(1, &endpoint.encode_to_vec()), field(3, metadata)].concat();
        locality.extend(field(2, &endpoint));
    }
    let whole: Bytes = [field(1, b"shop"), field(2, &locality)].concat().into();
    Arc::new(ClusterLoadAssignment::parse(&whole, &Context::new()).unwrap())
}

/// An encoded `Metadata` with one key. Its object has the fields of these, in this order.
fn metadata(key: &str, parts: &[&Value]) -> Vec<u8> {
    let mut fields = Vec::new();
    for part in parts {
        fields.extend(message_of(part.as_object().unwrap()).encode_to_vec());
    }
    field(1, &[field(1, key.as_bytes()), field(2, &fields)].concat())
}

fn message_of(object: &Map<String, Value>) -> google::Struct {
    google::Struct { fields: object.iter().map(|(key, value)| (key.clone(), value_of(value))).collect() }
}

fn value_of(value: &Value) -> google::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(is_true) => Kind::BoolValue(*is_true),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(list) => {
            Kind::ListValue(google::ListValue { values: list.iter().map(value_of).collect() })
        }
        Value::Object(object) => Kind::StructValue(message_of(object)),
    };
    google::Value { kind: Some(kind) }
}

fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut field);
    encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// The endpoints of a report, with their metadata if they have any.
fn metadata_of(report: &ClusterStats) -> Vec<(String, Option<Map<String, Value>>)> {
    let endpoints = report.upstream_locality_stats.iter().flat_map(|it| &it.upstream_endpoint_stats);
    endpoints.map(|it| (socket(it.address.clone()), it.metadata.clone().map(json_object))).collect()
}

fn reported(port: u16, object: &Value) -> (String, Option<Map<String, Value>>) {
    (address(port).to_string(), object.as_object().cloned())
}
