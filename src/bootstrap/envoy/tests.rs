use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    config::{
        ApiType, Bootstrap, CallCredentials, ChannelCredentials, ConfigSource, CustomCredentials, KeepAlive,
        PathSource, Polling, Server, ServerAddress, TlsConfig, TransportApiVersion,
    },
    name::ResourceName,
    resource::{Cluster, ClusterLoadAssignment, Listener, Resource},
};

mod clusters;
mod products;
mod secret_files;
mod sources;

/// A document with an aggregated stream to the cluster `xds`, extended or overridden by `fields`.
fn with(fields: Value) -> Value {
    let mut document = json!({
        "dynamic_resources": { "ads_config": api("GRPC") },
        "static_resources": { "clusters": [cluster(json!({}))] },
    });
    merge(&mut document, fields);
    document
}

/// An `ApiConfigSource` with the service `xds`.
fn api(api_type: &str) -> Value {
    json!({
        "api_type": api_type,
        "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
    })
}

/// The cluster `xds`, extended or overridden by `fields`.
fn cluster(fields: Value) -> Value {
    let mut cluster = json!({
        "name": "xds",
        "type": "STRICT_DNS",
        "load_assignment": assignment(json!([endpoint("xds.example.com", 18000)])),
    });
    merge(&mut cluster, fields);
    cluster
}

fn assignment(endpoints: Value) -> Value {
    json!({ "cluster_name": "xds", "endpoints": [{ "lb_endpoints": endpoints }] })
}

fn endpoint(host: &str, port: u16) -> Value {
    json!({ "endpoint": { "address": { "socket_address": { "address": host, "port_value": port } } } })
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    into.as_object_mut().unwrap().extend(fields);
}

fn read(document: &Value) -> Bootstrap {
    Bootstrap::from_envoy_text(&document.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(document: &Value) -> Vec<String> {
    match Bootstrap::from_envoy_text(&document.to_string()) {
        Ok(bootstrap) => panic!("{document} is {bootstrap:?}"),
        Err(error) => error.errors().iter().map(ToString::to_string).collect(),
    }
}

fn warnings(document: &Value) -> Vec<String> {
    read(document).warnings().iter().map(ToString::to_string).collect()
}

fn servers(sources: &[ConfigSource]) -> Vec<(String, Option<ApiType>)> {
    let server =
        |source: &ConfigSource| source.server().map(|server| (server.uri.to_string(), server.api_type));
    sources.iter().map(|source| server(source).unwrap()).collect()
}

#[test]
fn both_spellings_of_names_are_read_and_enums_are_names_or_numbers() {
    let plain = read(&with(json!({ "node": { "id": "me", "locality": { "sub_zone": "a" } } })));
    let camel = read(&json!({
        "node": { "id": "me", "locality": { "subZone": "a" } },
        "dynamicResources": { "adsConfig": {
            "apiType": 2,
            "transportApiVersion": 2,
            "grpcServices": [{ "envoyGrpc": { "clusterName": "xds" } }],
        } },
        "staticResources": { "clusters": [{
            "name": "xds",
            "type": 1,
            "loadAssignment": { "clusterName": "xds", "endpoints": [{ "lbEndpoints": [{ "endpoint": { "address": {
                "socketAddress": { "address": "xds.example.com", "portValue": "18000" },
            } } }] }] },
        }] },
    }));
    assert_eq!(plain, camel);
    assert_eq!(camel.node().locality.as_ref().map(|place| place.sub_zone()), Some("a"));
    let twice = with(json!({ "nodeContextParams": [], "node_context_params": [] }));
    assert_eq!(problems(&twice), ["nodeContextParams: is there as node_context_params, too"]);
    let unknown =
        with(json!({ "dynamic_resources": { "ads_config": { "apiType": 4, "grpcServices": [] } } }));
    assert_eq!(
        problems(&unknown),
        [
            "dynamic_resources.ads_config.apiType: 4 is not supported; known are REST, GRPC, DELTA_GRPC, \
             AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC",
            "dynamic_resources.ads_config.grpcServices: must have at least one service",
        ]
    );
}

#[test]
fn the_node_is_read_and_what_is_the_librarys_own_is_a_warning() {
    let document = with(json!({ "node": {
        "id": "me",
        "cluster": "shop",
        "locality": { "region": "eu", "zone": "a", "sub_zone": "1" },
        "metadata": { "someKey": { "subKey": 1 } },
        "user_agent_name": "envoy",
        "extensions": [],
    } }));
    let bootstrap = read(&document);
    let node = bootstrap.node();
    assert_eq!((node.id.as_str(), node.cluster.as_str()), ("me", "shop"));
    assert_eq!(node.locality.as_ref().map(|place| place.zone()), Some("a"));
    assert_eq!(node.metadata["someKey"], json!({ "subKey": 1 }), "a struct is kept as it is");
    assert_eq!(
        warnings(&document),
        ["node.user_agent_name: not used: it is the library's own", "node.extensions: not used"]
    );
}

#[test]
fn an_error_belongs_to_the_format_that_was_read() {
    let error = Bootstrap::from_envoy_text("{}").unwrap_err();
    assert!(error.is_of_envoys_format() && !error.errors().is_empty());
    let error = Bootstrap::from_json("{}").unwrap_err();
    assert!(!error.is_of_envoys_format() && !error.errors().is_empty());
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let document = with(json!({}));
    let text = format!("\u{feff}{document}");
    assert_eq!(Bootstrap::from_envoy_text(&text).unwrap(), read(&document));
}

#[test]
fn x7_node_context_params_are_parts_of_the_node_or_all_of_its_metadata() {
    let document = with(json!({
        "node": { "id": "me", "metadata": { "team": "a", "tier": 1 } },
        "node_context_params": ["id", "metadata", "locality.zone"],
    }));
    let expected = ["id", "metadata.team", "metadata.tier", "locality.zone"];
    assert_eq!(read(&document).node_context_params(), expected);
    let unknown = with(json!({ "node_context_params": ["id", "shoe_size"] }));
    assert_eq!(
        problems(&unknown),
        ["node_context_params[1]: \"shoe_size\" is no part of a node, such as \"id\" or \"locality.zone\""]
    );
}

#[test]
fn what_has_no_meaning_for_a_client_is_a_warning_with_its_path() {
    let mut document = with(json!({ "admin": {}, "layered_runtime": { "layers": [] }, "somethingNew": 1 }));
    document["static_resources"]["listeners"] = json!([]);
    let expected = ["static_resources.listeners", "admin", "layered_runtime", "somethingNew"];
    assert_eq!(warnings(&document), expected.map(|path| format!("{path}: not used")));
}

#[test]
fn a_field_without_a_name_has_a_place_in_its_warning() {
    assert_eq!(warnings(&with(json!({ "": 1 }))), ["[\"\"]: not used"]);
    assert_eq!(warnings(&with(json!({ "node": { "": 1 } }))), ["node[\"\"]: not used"]);
}

#[test]
fn a_document_without_any_source_is_an_error() {
    let nothing = "dynamic_resources: missing: no source of resources";
    assert_eq!(problems(&json!({ "static_resources": {} })), [nothing]);
    let empty = "dynamic_resources: names no source of any resource";
    assert_eq!(problems(&json!({ "dynamic_resources": {} })), [empty]);
}

#[test]
fn all_problems_are_reported_each_with_its_path() {
    let document = json!({
        "node": { "id": 1, "locality": [] },
        "dynamic_resources": {
            "ads_config": { "grpc_services": [{ "envoy_grpc": { "cluster_name": "none" } }] },
            "lds_config": { "path": "/l", "ads": {} },
            "cds_config": {},
        },
    });
    assert_eq!(
        problems(&document),
        [
            "node.id: expected a string, found a number",
            "node.locality: expected an object, found a list",
            "dynamic_resources.ads_config.api_type: missing",
            "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name: there is no cluster \"none\" in \
             static_resources",
            "dynamic_resources.lds_config.ads: is there beside path",
            "dynamic_resources.cds_config: no source: one of path, path_config_source, api_config_source, ads, \
             self is missing",
        ]
    );
}

#[test]
fn the_format_of_a_file_is_recognized_by_its_fields() {
    let file = |name: &str, text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        Bootstrap::from_file(&path)
    };
    let envoys = with(json!({}));
    assert_eq!(file("bootstrap.json", &envoys.to_string()).unwrap(), read(&envoys));
    let grpcs = r#"{ "xds_servers": [{ "server_uri": "a:1", "channel_creds": [{ "type": "insecure" }] }] }"#;
    assert_eq!(file("bootstrap.json", grpcs).unwrap(), Bootstrap::from_json(grpcs).unwrap());
    assert_eq!(file("bootstrap.yaml", grpcs).unwrap(), Bootstrap::from_json(grpcs).unwrap(), "JSON is YAML");
    let both = grpcs.replacen('{', r#"{ "static_resources": 1,"#, 1);
    let both = file("x", &both).unwrap();
    assert_eq!(both.servers().count(), 1, "gRPC's has unknown fields");
    assert_eq!(both.warnings()[0].to_string(), "static_resources: not used");
    let neither = file("bootstrap.json", "{}").unwrap_err();
    assert_eq!(neither.errors()[0].to_string(), "xds_servers: missing");
}

#[cfg(feature = "json")]
#[test]
fn yaml_that_cannot_be_read_is_an_error_with_line_and_column() {
    let error = Bootstrap::from_envoy_text("node:\n  id: a\n  id: b\n").unwrap_err();
    assert_eq!(error.to_string(), "bootstrap: not YAML: the key \"id\" is there twice at line 3 column 3");
    assert_eq!(error.syntax_position(), Some((3, 3)));
    let empty = Bootstrap::from_envoy_text("# nothing\n").unwrap_err();
    assert!(empty.to_string().contains("there is nothing in it"), "{empty}");
    let text = Bootstrap::from_envoy_text("soon").unwrap_err();
    assert_eq!(text.to_string(), "bootstrap: expected an object, found a string");
}

/// Values with field names of the format, so that the reader descends into them.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..7_i32).prop_map(Value::from),
        prop::sample::select(VALUES).prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 96, 6, |inner| {
        let fields = prop::collection::vec((prop::sample::select(FIELDS), inner.clone()), 0..8);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_document_panics_and_every_refusal_has_a_reason(
        dynamic in documents(), sources in documents(), own in documents(), rest in documents(),
    ) {
        let document = with(json!({
            "dynamic_resources": dynamic,
            "config_sources": sources,
            "default_config_source": rest,
            "static_resources": { "clusters": [cluster(json!({})), { "name": "a", "load_assignment": own }] },
        }));
        if let Err(error) = Bootstrap::from_envoy_text(&document.to_string()) {
            prop_assert!(!error.errors().is_empty());
            prop_assert!(error.errors().iter().all(|problem| !problem.reason().is_empty()));
        }
    }
}

const FIELDS: &[&str] = &[
    "ads_config",
    "lds_config",
    "cdsConfig",
    "lds_resources_locator",
    "authorities",
    "name",
    "ads",
    "self",
    "path",
    "path_config_source",
    "watched_directory",
    "api_config_source",
    "api_type",
    "transport_api_version",
    "resource_api_version",
    "grpc_services",
    "envoy_grpc",
    "google_grpc",
    "cluster_name",
    "cluster_names",
    "target_uri",
    "refresh_delay",
    "endpoints",
    "lb_endpoints",
    "endpoint",
    "address",
    "socket_address",
    "port_value",
    "pipe",
    "priority",
    "initial_metadata",
    "key",
    "value",
    "call_credentials",
    "sds_config",
];
const VALUES: &[&str] =
    &["xds", "a", "REST", "GRPC", "V2", "1s", "", "a:1", "80", "::1", "é", "xdstp://a/b/*", "file:///%"];
