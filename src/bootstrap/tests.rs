use std::{collections::BTreeMap, io::Write, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    config::{
        ApiType, CallCredentials, CertificateProvider, ChannelCredentials, CredentialTypes,
        CustomCredentials, Locality, Server, ServerAddress, ServerFeatures, TlsConfig,
    },
    name::ResourceName,
    resource::{Listener, Resource},
};

use super::*;

mod servers;
mod unknown_fields;

/// A document with one valid server, extended or overridden by `fields`.
fn with(fields: Value) -> Value {
    let mut document = json!({ "xds_servers": [server(json!({}))] });
    merge(&mut document, fields);
    document
}

/// A valid server, extended or overridden by `fields`.
fn server(fields: Value) -> Value {
    let mut server = json!({ "server_uri": "localhost:18000", "channel_creds": [{ "type": "insecure" }] });
    merge(&mut server, fields);
    server
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    into.as_object_mut().unwrap().extend(fields);
}

fn read(document: &Value) -> Bootstrap {
    Bootstrap::from_json(&document.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn read_server(fields: Value) -> Server {
    let bootstrap = read(&json!({ "xds_servers": [server(fields)] }));
    bootstrap.servers().next().map(|server| Server::clone(server)).unwrap()
}

fn problems(document: &Value) -> Vec<String> {
    match Bootstrap::from_json(&document.to_string()) {
        Ok(bootstrap) => panic!("{document} is {bootstrap:?}"),
        Err(error) => error.errors().iter().map(ToString::to_string).collect(),
    }
}

fn server_problems(fields: Value) -> Vec<String> {
    problems(&json!({ "xds_servers": [server(fields)] }))
}

fn tls_with(config: Value) -> Value {
    json!({ "channel_creds": [{ "type": "tls", "config": config }] })
}

fn environment(variables: &[(&str, &str)]) -> Result<Bootstrap, BootstrapError> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Bootstrap::from_variables(|name| variables.get(name).map(OsString::from), &CredentialTypes::default())
}

fn file(contents: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents).unwrap();
    file
}

#[test]
fn a27_6_the_file_beats_the_text() {
    let file = file(with(json!({ "node": { "id": "file" } })).to_string().as_bytes());
    let path = file.path().to_str().unwrap();
    let text = with(json!({ "node": { "id": "text" } })).to_string();
    let both = environment(&[(FILE_VARIABLE, path), (TEXT_VARIABLE, &text)]).unwrap();
    assert_eq!(both.node().id, "file");
    let text_only = environment(&[(FILE_VARIABLE, ""), (TEXT_VARIABLE, &text)]).unwrap();
    assert_eq!(text_only.node().id, "text");
    assert_eq!(Bootstrap::from_file(path).unwrap(), both);
}

#[test]
fn bs1_an_environment_without_a_bootstrap_is_an_error_that_names_both_variables() {
    for variables in [&[][..], &[(TEXT_VARIABLE, ""), (FILE_VARIABLE, "")]] {
        let error = environment(variables).unwrap_err();
        assert_eq!(error.origin(), &Origin::Environment);
        assert_eq!(
            error.to_string(),
            "bootstrap: neither GRPC_XDS_BOOTSTRAP (the name of a file) nor GRPC_XDS_BOOTSTRAP_CONFIG (JSON) is set"
        );
        assert_eq!(format!("{error:?}"), format!("BootstrapError({error})"), "main prints the same");
    }
}

#[test]
fn bs1_a_file_that_cannot_be_read_is_an_error_with_path_and_reason() {
    let error =
        environment(&[(FILE_VARIABLE, "/no/such/bootstrap.json"), (TEXT_VARIABLE, "{}")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bootstrap file /no/such/bootstrap.json (from GRPC_XDS_BOOTSTRAP): cannot be read: \
         No such file or directory (os error 2)"
    );
    assert!(error.errors().is_empty());
    let error = Bootstrap::from_file("/no/such/bootstrap.json").unwrap_err();
    assert!(
        error.to_string().starts_with("bootstrap file /no/such/bootstrap.json: cannot be read: "),
        "{error}"
    );
    let path = file(b"\xff{}");
    let error = Bootstrap::from_file(path.path()).unwrap_err();
    assert!(error.to_string().ends_with("cannot be read: it is not UTF-8"), "{error}");
}

#[test]
fn bs1_an_empty_file_is_an_error() {
    for contents in ["", " \n"] {
        let error = Bootstrap::from_file(file(contents.as_bytes()).path()).unwrap_err();
        assert!(error.to_string().ends_with("cannot be read: it is empty"), "{error}");
    }
}

#[test]
fn bs1_a_byte_order_mark_is_skipped() {
    let document = with(json!({})).to_string();
    let expected = Bootstrap::from_json(&document).unwrap();
    assert_eq!(Bootstrap::from_json(&format!("\u{feff}{document}")).unwrap(), expected);
}

#[test]
fn bs1_invalid_json_is_an_error_with_line_and_column() {
    let error = Bootstrap::from_json("{\n  \"node\": }").unwrap_err();
    assert_eq!(error.to_string(), "bootstrap: not JSON: expected value at line 2 column 11");
    assert_eq!(error.syntax_position(), Some((2, 11)));
    for (truncated, position) in
        [("{", (1, 1)), ("{\n", (2, 1)), ("{\n\n", (3, 1)), ("{\n  \"node\":\n", (3, 1))]
    {
        let error = Bootstrap::from_json(truncated).unwrap_err();
        assert_eq!(error.syntax_position(), Some(position), "{truncated:?}");
        let (line, column) = position;
        let place = format!(" at line {line} column {column}");
        assert!(
            error.to_string().ends_with(&place) && error.to_string().matches(" at line ").count() == 1,
            "{error}"
        );
    }
    let deep = "[".repeat(10_000);
    assert!(Bootstrap::from_json(&deep).unwrap_err().syntax_position().is_some());
    let error = environment(&[(TEXT_VARIABLE, "{")]).unwrap_err();
    assert!(error.to_string().starts_with("bootstrap in GRPC_XDS_BOOTSTRAP_CONFIG: not JSON: "), "{error}");
}

#[test]
fn all_problems_are_reported_in_their_order() {
    let document = json!({
        "xds_servers": [
            { "server_uri": "a:1", "channel_creds": [{ "type": "insecure" }] },
            { "channel_creds": [{ "type": "foo" }], "server_features": {} },
            7,
        ],
        "node": { "id": 1, "locality": { "region": [] }, "metadata": "m" },
        "authorities": { "a.example": { "xds_servers": [{ "server_uri": "" }] }, "b": null },
    });
    assert_eq!(
        problems(&document),
        [
            "xds_servers[1].server_uri: missing",
            "xds_servers[1].channel_creds: no supported type among \"foo\"; supported are \"insecure\", \"tls\"",
            "xds_servers[1].server_features: expected a list, found an object",
            "xds_servers[2]: expected an object, found a number",
            "node.id: expected a string, found a number",
            "node.locality.region: expected a string, found a list",
            "node.metadata: expected an object, found a string",
            "authorities[\"a.example\"].xds_servers[0].server_uri: empty",
            "authorities[\"a.example\"].xds_servers[0].channel_creds: missing",
            "authorities[\"b\"]: expected an object, found null",
        ]
    );
    let error = Bootstrap::from_json(r#"{"xds_servers":[],"node":1}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bootstrap: xds_servers: must have at least one server; node: expected an object, found a number"
    );
}

#[test]
fn bs2_xds_servers_is_a_list_of_at_least_one() {
    assert_eq!(problems(&json!({})), ["xds_servers: missing"]);
    assert_eq!(problems(&json!({ "xds_servers": null })), ["xds_servers: missing"]);
    assert_eq!(problems(&json!({ "xds_servers": [] })), ["xds_servers: must have at least one server"]);
    assert_eq!(problems(&json!({ "xds_servers": {} })), ["xds_servers: expected a list, found an object"]);
    assert_eq!(
        problems(&json!({ "xds_servers": [null] })),
        ["xds_servers[0]: expected an object, found null"]
    );
    assert_eq!(problems(&json!([])), ["expected an object, found a list"]);
    let bootstrap = read(&json!({
        "xds_servers": [server(json!({ "server_uri": "b:1" })), server(json!({ "server_uri": "a:1" }))],
    }));
    let uris: Vec<_> = bootstrap.servers().map(|server| server.uri.as_str()).collect();
    assert_eq!(uris, ["b:1", "a:1"]);
}

#[test]
fn a27_8_the_node_is_optional_and_so_are_its_fields() {
    let bootstrap = read(&with(json!({})));
    assert_eq!(bootstrap.node(), &crate::config::Node::default());
    let metadata = json!({ "a": { "b": [1, null] } });
    let bootstrap = read(&with(json!({ "node": {
        "id": "i", "cluster": "c", "metadata": metadata,
        "locality": { "region": "r", "zone": "z", "sub_zone": "s" },
    } })));
    let node = bootstrap.node();
    assert_eq!((node.id.as_str(), node.cluster.as_str()), ("i", "c"));
    assert_eq!(node.locality, Some(Locality::new("r", "z", "s")));
    assert_eq!(Value::Object(node.metadata.clone()), metadata);
    let bootstrap = read(&with(json!({ "node": { "locality": { "subZone": "s" } } })));
    assert_eq!(bootstrap.node().locality, Some(Locality::new("", "", "s")));
}

#[test]
fn x7_context_parameters_are_chosen_by_an_extension() {
    let document = with(json!({
        "node": {"id": "n", "locality": {"zone": "z"}},
        "node_context_params": ["id", "locality.zone"],
        "client_feature_context_params": ["f"],
    }));
    let bootstrap = read(&document);
    assert_eq!(bootstrap.node_context_params(), ["id", "locality.zone"]);
    assert_eq!(bootstrap.client_feature_context_params(), ["f"]);
    let document =
        with(json!({"node_context_params": ["id", "sub_zone", 1], "client_feature_context_params": "f"}));
    assert_eq!(
        problems(&document),
        [
            "node_context_params[2]: expected a string, found a number",
            "client_feature_context_params: expected a list, found a string",
            "node_context_params[1]: \"sub_zone\" is no part of a node, such as \"id\", \"locality.zone\" or \"metadata.team\"",
        ]
    );
}

#[test]
fn a29_9_certificate_providers_are_typed_or_kept() {
    let bootstrap = read(&with(json!({ "certificate_providers": {
        "files": { "plugin_name": "file_watcher", "config": {
            "certificate_file": "/c/cert.pem", "private_key_file": "/c/key.pem", "refresh_interval": "60s",
        } },
        "other": { "plugin_name": "vault", "config": [1] },
        "bare": { "plugin_name": "vault" },
    } })));
    let providers = bootstrap.certificate_providers();
    let CertificateProvider::FileWatcher(files) = &providers["files"] else { panic!("{providers:?}") };
    assert_eq!(files.certificate_file.as_deref(), Some(Path::new("/c/cert.pem")));
    assert_eq!(files.private_key_file.as_deref(), Some(Path::new("/c/key.pem")));
    assert_eq!(files.ca_certificate_file, None);
    assert_eq!(files.refresh_interval, Duration::from_secs(60));
    let unknown = |config| CertificateProvider::Unknown { plugin_name: "vault".into(), config };
    assert_eq!(providers["other"], unknown(json!([1])));
    assert_eq!(providers["bare"], unknown(Value::Null));
    assert!(providers["files"].is_known() && !providers["other"].is_known());
}

#[test]
fn a29_10_file_watcher_needs_a_file() {
    let table = [
        (json!({ "plugin_name": "file_watcher" }), ".config: missing"),
        (
            json!({ "plugin_name": "file_watcher", "config": {} }),
            ".config: needs a certificate_file or a ca_certificate_file",
        ),
        (
            json!({ "plugin_name": "file_watcher", "config": { "ca_certificate_file": "a", "private_key_file": "k" } }),
            ".config.certificate_file: missing beside private_key_file",
        ),
        (
            json!({ "plugin_name": "file_watcher", "config": { "certificate_file": "/a/c", "private_key_file": "k" } }),
            ".config.private_key_file: not in the directory of certificate_file",
        ),
        (json!({}), ".plugin_name: missing"),
        (json!(null), ": expected an object, found null"),
    ];
    for (provider, expected) in table {
        let document = with(json!({ "certificate_providers": { "p": provider } }));
        assert_eq!(problems(&document), [format!("certificate_providers[\"p\"]{expected}")]);
    }
    let only_map =
        json!({ "plugin_name": "file_watcher", "config": { "spiffe_trust_bundle_map_file": "m" } });
    read(&with(json!({ "certificate_providers": { "p": only_map } })));
}

#[test]
fn a47_5_authorities_have_their_servers_or_the_default_ones() {
    let own = server(json!({ "server_uri": "own:1" }));
    let bootstrap = read(&with(json!({ "authorities": {
        "own": { "xds_servers": [own], "fallback_on_reachability_only": true },
        "empty": { "xds_servers": [] },
        "": {},
    } })));
    let uris = |name: &str| {
        let name = ResourceName::parse(name).unwrap();
        let sources = bootstrap.sources_for(&name, Listener::TYPE_URL).map_err(|error| error.to_string())?;
        Ok(sources.iter().map(|source| source.server().unwrap().uri.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(uris("opaque"), Ok(vec!["localhost:18000".to_owned()]));
    assert_eq!(uris("xdstp://own/t/i"), Ok(vec!["own:1".to_owned()]));
    assert_eq!(uris("xdstp://empty/t/i"), Ok(vec!["localhost:18000".to_owned()]));
    assert_eq!(uris("xdstp:///t/i"), Ok(vec!["localhost:18000".to_owned()]));
    assert_eq!(uris("xdstp://x/t/i"), Err("authority \"x\" is not found in the bootstrap".to_owned()));
    assert!(bootstrap.authorities()["own"].fallback_on_reachability_only());
    assert!(!bootstrap.authorities()["empty"].fallback_on_reachability_only());
    let without = read(&with(json!({})));
    assert!(without.sources_for(&ResourceName::parse("xdstp:///t/i").unwrap(), Listener::TYPE_URL).is_err());
}

#[test]
fn a47_5_the_template_of_an_authority_belongs_to_it() {
    let key = "client_listener_resource_name_template";
    let template = |authority: &str, text: &str| with(json!({ "authorities": { authority: { key: text } } }));
    for (authority, text) in [
        ("foo.com", "xdstp://foo.com/envoy.config.listener.v3.Listener/x/%s?a=b"),
        ("foo.com", ""),
        ("a/b", "xdstp://a%2fb/t/%s"),
        ("", "xdstp:///t/%s"),
    ] {
        read(&template(authority, text));
    }
    for (authority, text) in [
        ("foo.com", "xdstp://foo.comX/t/%s"),
        ("foo.com", "xdstp://bar.com/t/%s"),
        ("foo.com", "%s"),
        ("foo.com", "xdstp:///t/%s"),
    ] {
        let expected = "authorities[\"foo.com\"].client_listener_resource_name_template: \
                        must start with \"xdstp://foo.com/\"";
        assert_eq!(problems(&template(authority, text)), [expected], "{text}");
    }
    assert_eq!(
        problems(&template("foo.com", "xdstp://foo.com")),
        ["authorities[\"foo.com\"].client_listener_resource_name_template: \
          resource name \"xdstp://foo.com\": resource type at byte 15: missing"]
    );
    assert_eq!(
        problems(&with(
            json!({ "authorities": { "a": { key: 1, "fallback_on_reachability_only": "yes" } } })
        )),
        [
            "authorities[\"a\"].client_listener_resource_name_template: expected a string, found a number",
            "authorities[\"a\"].fallback_on_reachability_only: expected a boolean, found a string",
        ]
    );
    assert_eq!(
        problems(&with(json!({ "authorities": [] }))),
        ["authorities: expected an object, found a list"]
    );
}

#[test]
fn bs2_templates_have_their_defaults() {
    let bootstrap = read(&with(json!({ "client_default_listener_resource_name_template": "" })));
    assert_eq!(bootstrap.client_listener_template().as_str(), "%s");
    assert!(bootstrap.server_listener_template().is_none());
    let bootstrap = read(&with(json!({
        "client_default_listener_resource_name_template": "c/%s",
        "server_listener_resource_name_template": "s/%s",
    })));
    assert_eq!(bootstrap.client_listener_template().as_str(), "c/%s");
    assert_eq!(bootstrap.server_listener_template().map(|template| template.as_str()), Some("s/%s"));
    assert_eq!(
        problems(&with(json!({
            "client_default_listener_resource_name_template": "xdstp://%s",
            "server_listener_resource_name_template": 1,
        }))),
        [
            "client_default_listener_resource_name_template: resource name \"xdstp://name\": \
             resource type at byte 12: missing",
            "server_listener_resource_name_template: expected a string, found a number",
        ]
    );
}

#[test]
fn a102_allowed_grpc_services_need_credentials() {
    let bootstrap = read(&with(json!({ "allowed_grpc_services": {
        "dns:///ext-proc": {
            "channel_creds": [{ "type": "insecure" }],
            "call_creds": [{ "type": "jwt_token_file", "config": { "jwt_token_file": "t" } }],
        },
    } })));
    let service = &bootstrap.allowed_grpc_services()["dns:///ext-proc"];
    assert_eq!(service.channel_credentials, ChannelCredentials::Insecure);
    assert_eq!(service.call_credentials, [CallCredentials::JwtTokenFile("t".into())]);
    assert_eq!(
        problems(&with(json!({ "allowed_grpc_services": {
            "a": null, "b": {}, "c": { "channel_creds": [{ "type": "x" }] },
        } }))),
        [
            "allowed_grpc_services[\"a\"]: expected an object, found null",
            "allowed_grpc_services[\"b\"].channel_creds: missing",
            "allowed_grpc_services[\"c\"].channel_creds: no supported type among \"x\"; \
             supported are \"insecure\", \"tls\"",
        ]
    );
}

/// Values with field names of the format, so that the reader descends into them.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(VALUES).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
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
        servers in documents(), node in documents(), providers in documents(), authorities in documents(),
    ) {
        let document = json!({
            "xds_servers": [servers], "node": node, "certificate_providers": providers, "authorities": authorities,
        });
        if let Err(error) = Bootstrap::from_json(&document.to_string()) {
            prop_assert!(!error.errors().is_empty());
            prop_assert!(error.errors().iter().all(|problem| !problem.reason().is_empty()));
        }
    }
}

const FIELDS: &[&str] = &[
    "xds_servers",
    "server_uri",
    "channel_creds",
    "call_creds",
    "type",
    "config",
    "certificate_file",
    "private_key_file",
    "ca_certificate_file",
    "refresh_interval",
    "jwt_token_file",
    "server_features",
    "api_type",
    "id",
    "locality",
    "metadata",
    "plugin_name",
    "client_listener_resource_name_template",
    "fallback_on_reachability_only",
];
const VALUES: &[&str] = &[
    "tls",
    "insecure",
    "jwt_token_file",
    "file_watcher",
    "1s",
    "a:1",
    "xdstp://a/t/%s",
    "GRPC",
    "unix:é",
    "%",
];
