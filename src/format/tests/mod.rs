mod documents;

use prost::Message;
use serde_json::{Value, json};

use super::*;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{Cluster, cluster::LbPolicy},
            core::v3::Node,
            endpoint::v3::ClusterLoadAssignment,
            route::v3::RouteConfiguration,
        },
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, Resource},
    },
    google::protobuf::{
        Any, Duration, ListValue, Struct, UInt32Value, Value as PbValue, value::Kind as ValueKind,
    },
};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";

fn decode<T: Message + Default>(name: &str, json: &Value) -> T {
    let read = decode_json(name, json.to_string().as_bytes()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    T::decode(read.message).unwrap()
}

fn encode(name: &str, message: &impl Message) -> Value {
    serde_json::from_str(&encode_json(name, &message.encode_to_vec()).unwrap()).unwrap()
}

fn error(name: &str, json: &Value) -> String {
    decode_json(name, json.to_string().as_bytes()).unwrap_err().to_string()
}

fn url(name: &str) -> String {
    format!("type.googleapis.com/{name}")
}

/// Reads a document as a response, without warnings.
fn response(document: &str, format: Format) -> DiscoveryResponse {
    let read = read(document.as_bytes(), format).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    DiscoveryResponse::decode(read.message).unwrap()
}

fn only_cluster(response: &DiscoveryResponse) -> Cluster {
    let [resource] = &*response.resources else { panic!("{response:?}") };
    assert_eq!(resource.type_url, url(CLUSTER));
    Cluster::decode(resource.value.clone()).unwrap()
}

#[test]
fn fields_are_known_by_both_of_their_names() {
    for json in [
        json!({"name": "shop", "outlierDetection": {"interval": "1.5s"}, "lbPolicy": "RING_HASH"}),
        json!({"name": "shop", "outlier_detection": {"interval": "1.5s"}, "lb_policy": 2}),
    ] {
        let cluster: Cluster = decode(CLUSTER, &json);
        assert_eq!(
            cluster.outlier_detection.unwrap().interval,
            Some(Duration { seconds: 1, nanos: 500_000_000 })
        );
        assert_eq!(cluster.lb_policy(), LbPolicy::RingHash);
    }
    let both = json!({"eds_cluster_config": {}, "edsClusterConfig": {}});
    assert!(error(CLUSTER, &both).contains("is set twice"), "{}", error(CLUSTER, &both));
}

#[test]
fn requests_are_written_with_the_names_of_their_definition() {
    let request = DiscoveryRequest {
        version_info: "7".into(),
        node: Some(Node { id: "me".into(), ..Default::default() }),
        resource_names: vec!["a".into(), "b".into()],
        type_url: url(CLUSTER),
        ..Default::default()
    };
    let expected = json!({
        "version_info": "7", "node": {"id": "me"}, "resource_names": ["a", "b"], "type_url": url(CLUSTER),
    });
    assert_eq!(encode("envoy.service.discovery.v3.DiscoveryRequest", &request), expected);
    assert_eq!(decode::<DiscoveryRequest>("envoy.service.discovery.v3.DiscoveryRequest", &expected), request);
}

#[test]
fn scalars_are_read_as_the_canonical_mapping_has_them() {
    let name = "google.protobuf.UInt32Value";
    for (json, value) in [(json!(7), 7), (json!("7"), 7), (json!(7.0), 7), (json!("7e1"), 70), (json!(0), 0)]
    {
        assert_eq!(decode::<UInt32Value>(name, &json).value, value, "{json}");
    }
    for json in [
        json!(-1),
        json!(1.5),
        json!("x"),
        json!(""),
        json!(" 7"),
        json!("+7"),
        json!(4_294_967_296_u64),
        json!(true),
    ] {
        assert!(decode_json(name, json.to_string().as_bytes()).is_err(), "{json}");
    }
    for (kind, bytes, json) in [
        ("Int64Value", &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], json!("-1")),
        (
            "UInt64Value",
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            json!("18446744073709551615"),
        ),
        ("Int32Value", &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], json!(-1)),
        ("BoolValue", &[0x08, 1], json!(true)),
        ("BoolValue", &[], json!(false)),
        ("StringValue", &[0x0a, 2, 0xc3, 0xa9], json!("é")),
        ("BytesValue", &[0x0a, 2, 0xfb, 0xff], json!("+/8=")),
        ("FloatValue", &[0x0d, 0xcd, 0xcc, 0xcc, 0x3d], json!(0.1)),
        ("DoubleValue", &[0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f], json!("Infinity")),
    ] {
        let name = format!("google.protobuf.{kind}");
        assert_eq!(encode_json(&name, bytes).unwrap(), json.to_string());
        assert_eq!(&*decode_json(&name, json.to_string().as_bytes()).unwrap().message, bytes, "{kind}");
    }
    let url_safe = decode_json("google.protobuf.BytesValue", br#""-_8""#).unwrap();
    assert_eq!(&*url_safe.message, [0x0a, 2, 0xfb, 0xff]);
}

#[test]
fn a_struct_is_any_json() {
    let json = json!({"a": null, "b": [1, "x", {"c": true}], "d": {}, "e": -2.5});
    let value = |kind| PbValue { kind: Some(kind) };
    let read: Struct = decode("google.protobuf.Struct", &json);
    assert_eq!(read.fields["a"], value(ValueKind::NullValue(0)));
    assert_eq!(read.fields["d"], value(ValueKind::StructValue(Struct::default())));
    let list = &read.fields["b"].kind;
    assert!(
        matches!(list, Some(ValueKind::ListValue(ListValue { values })) if values.len() == 3),
        "{list:?}"
    );
    assert_eq!(
        encode("google.protobuf.Struct", &read),
        json!({"a": null, "b": [1.0, "x", {"c": true}], "d": {}, "e": -2.5})
    );
}

#[test]
fn an_any_is_expanded_at_any_depth() {
    let typed = |inner: Value| json!({"@type": url("google.protobuf.Any"), "value": inner});
    let inner = json!({"@type": url(CLUSTER), "name": "shop", "lb_policy": "MAGLEV"});
    let any: Any = decode("google.protobuf.Any", &typed(typed(inner.clone())));
    let any = Any::decode(any.value).unwrap();
    let any = Any::decode(any.value).unwrap();
    assert_eq!(Cluster::decode(any.value.clone()).unwrap().name, "shop");
    assert_eq!(encode("google.protobuf.Any", &any), inner);
    let duration = json!({"@type": url("google.protobuf.Duration"), "value": "1.500s"});
    let any: Any = decode("google.protobuf.Any", &duration);
    assert_eq!(&*any.value, Duration { seconds: 1, nanos: 500_000_000 }.encode_to_vec());
    assert_eq!(encode("google.protobuf.Any", &any), duration);
    assert_eq!(decode::<Any>("google.protobuf.Any", &json!({})), Any::default());
    assert_eq!(encode("google.protobuf.Any", &Any::default()), json!({}));
    assert_eq!(error("google.protobuf.Any", &json!({"name": "shop"})), "has no @type");
    let bare = json!({"@type": url("google.protobuf.Duration")});
    assert_eq!(error("google.protobuf.Any", &bare), "has no value, in which a Duration is written");
}

#[test]
fn a_resource_of_v2_is_read_as_one_of_v3() {
    let json = json!({"@type": url("envoy.api.v2.Cluster"), "name": "shop"});
    let any: Any = decode("google.protobuf.Any", &json);
    assert_eq!(any.type_url, url("envoy.api.v2.Cluster"));
    assert_eq!(Cluster::decode(any.value.clone()).unwrap().name, "shop");
    assert_eq!(encode("google.protobuf.Any", &any), json);
}

#[test]
fn an_any_of_an_unknown_type_is_kept_and_no_decoder_takes_it_for_a_message() {
    let json = json!({"@type": url("acme.v1.Thing"), "b": {"z": 1, "y": [{"x": {}}]}, "a": "é"});
    let any: Any = decode("google.protobuf.Any", &json);
    assert_eq!(any.type_url, url("acme.v1.Thing"));
    assert!(Cluster::decode(any.value.clone()).is_err());
    assert!(crate::wire::Fields::of(&any.value).any(|field| field.is_err()));
    assert_eq!(encode("google.protobuf.Any", &any), json);
    let other: Any = decode("google.protobuf.Any", &json!({"@type": url("acme.v1.Thing"), "a": "e"}));
    assert_ne!(other.value, any.value);
    let empty: Any = decode("google.protobuf.Any", &json!({"@type": url("acme.v1.Thing")}));
    assert!(!empty.value.is_empty());
}

#[test]
fn bytes_that_are_not_known_as_a_message_are_shown_as_bytes_and_read_back() {
    for (name, value) in [
        ("acme.v1.Thing", &[0x08, 1][..]),
        ("acme.v1.Thing", &[]),
        ("acme.v1.Thing", b"\x07{\"a\": 1}"),
        ("acme.v1.Thing", b"\x07{\"@bytes\":1}"),
        ("acme.v1.Thing", b"\x07x"),
        (CLUSTER, &[0xff, 0xff]),
        (CLUSTER, b"\x07{}"),
        ("google.protobuf.Duration", &[0x10, 0x80, 0x94, 0xeb, 0xdc, 0x03]),
    ] {
        let any = Any { type_url: url(name), value: value.into() };
        let shown = encode("google.protobuf.Any", &any);
        assert!(shown.get("@bytes").is_some(), "{shown}");
        assert_eq!(decode::<Any>("google.protobuf.Any", &shown), any);
    }
}

#[test]
fn of_very_many_warnings_the_first_are_reported() {
    let json: serde_json::Map<_, _> = (0..100).map(|i| (format!("f{i}"), Value::Null)).collect();
    let read = decode_json(CLUSTER, Value::Object(json).to_string().as_bytes()).unwrap();
    assert_eq!((read.warnings.len(), &*read.warnings[64]), (65, "and 36 more"));
}

/// The messages of the tests of each typed resource.
#[cfg(feature = "test-util")]
#[test]
fn every_typed_resource_survives_json() {
    use crate::{
        control_plane::AnyResource,
        testing::resources::{cluster, collection, endpoints, listener, route, route_config},
    };
    let resources: [AnyResource; 6] = [
        listener("edge").rds("routes").into(),
        listener("inline").into(),
        route_config("routes")
            .virtual_host(
                ["*.example"],
                [route::prefix("/cart/").weighted([("a", 90), ("b", 10)]), route::prefix("/").cluster("c")],
            )
            .into(),
        cluster("shop").eds().into(),
        endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "[::1]:81"]).draining("10.0.0.1:80").into(),
        collection("xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/x").into(),
    ];
    for resource in resources {
        let name = resource.type_url().rsplit('/').next().unwrap().to_owned();
        let json = encode_json(&name, resource.bytes()).unwrap();
        let read = decode_json(&name, json.as_bytes()).unwrap();
        assert_eq!(&read.message, resource.bytes(), "{json}");
        assert!(read.warnings.is_empty());
    }
}

#[test]
fn the_largest_number_and_an_empty_member_of_a_oneof_are_kept() {
    let json = json!({
        "cluster_name": "shop",
        "endpoints": [{"load_balancing_weight": 4_294_967_295_u32, "priority": 0}],
    });
    let read: ClusterLoadAssignment = decode("envoy.config.endpoint.v3.ClusterLoadAssignment", &json);
    assert_eq!(read.endpoints[0].load_balancing_weight, Some(UInt32Value { value: u32::MAX }));
    let routes = json!({"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [{"match": {"prefix": ""}}]}]});
    let read: RouteConfiguration = decode("envoy.config.route.v3.RouteConfiguration", &routes);
    let shown = encode("envoy.config.route.v3.RouteConfiguration", &read);
    assert_eq!(shown, routes, "a chosen member of a oneof is shown even if it is empty");
}

#[cfg(feature = "tool-support")]
#[test]
fn values_of_text_have_the_positions_of_their_names() {
    fn places(outline: &Outline, found: &mut Vec<String>) {
        for (name, value) in &outline.fields {
            found.push(format!("{name} {}:{}", value.line, value.column));
            places(value, found);
        }
        for value in &outline.elements {
            found.push(format!("- {}:{}", value.line, value.column));
            places(value, found);
        }
    }
    let text = "a: 1\nb { c: 'x' }\nb: [{ c: 2 }, { d <> }]\n";
    let mut found = Vec::new();
    places(&outline_text(text).unwrap(), &mut found);
    assert_eq!(found, ["a 1:1", "b 2:1", "c 2:5", "b 3:1", "- 3:6", "c 3:7", "- 3:16", "d 3:17"]);
    assert!(outline_text("a:").is_err());
}
