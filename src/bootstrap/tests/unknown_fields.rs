//! Fields of gRPC's format that have no meaning here.

use super::*;
use crate::test_log::Log;

fn warnings(bootstrap: &Bootstrap) -> Vec<String> {
    bootstrap.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn bs1_unknown_fields_are_ignored_at_every_level_with_a_warning() {
    let bootstrap = read(&json!({
        "x": 1,
        "xds_servers": [{
            "server_uri": "localhost:18000",
            "x": {},
            "channel_creds": [{ "type": "tls", "x": [], "config": { "x": 1 } }],
            "call_creds": [{ "type": "jwt_token_file", "x": 1, "config": { "jwt_token_file": "f", "x": 1 } }],
            "initial_metadata": [{ "key": "a", "value": "b", "x": "secret" }],
        }],
        "type_sources": {
            "a.B": [{ "path_config_source": { "path": "p", "watched_directory": { "path": "d", "x": 1 }, "x": 1 }, "x": 1 }],
        },
        "node": { "id": "n", "x": 1, "locality": { "zone": "z", "x": 1 }, "user_agent_name": 7 },
        "certificate_providers": {
            "c": { "plugin_name": "file_watcher", "x": 1, "config": { "ca_certificate_file": "f", "x": 1 } },
        },
        "authorities": { "a": { "x": 1 } },
        "default_authority": { "x": 1 },
        "allowed_grpc_services": { "s": { "channel_creds": [{ "type": "insecure" }], "x": 1 } },
    }));
    assert_eq!(bootstrap.node().id, "n");
    let mut seen = warnings(&bootstrap);
    seen.sort();
    let server = "xds_servers[0]";
    let mut expected = [
        "x",
        &format!("{server}.x"),
        &format!("{server}.channel_creds[0].x"),
        &format!("{server}.channel_creds[0].config.x"),
        &format!("{server}.call_creds[0].x"),
        &format!("{server}.call_creds[0].config.x"),
        &format!("{server}.initial_metadata[0].x"),
        "type_sources[\"a.B\"][0].x",
        "type_sources[\"a.B\"][0].path_config_source.x",
        "type_sources[\"a.B\"][0].path_config_source.watched_directory.x",
        "node.x",
        "node.locality.x",
        "node.user_agent_name",
        "certificate_providers[\"c\"].x",
        "certificate_providers[\"c\"].config.x",
        "authorities[\"a\"].x",
        "default_authority.x",
        "allowed_grpc_services[\"s\"].x",
    ]
    .map(|path| format!("{path}: not used"));
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn bs1_fields_that_grpc_documents_cause_no_warnings() {
    let bootstrap = read(&json!({
        "xds_servers": [{
            "server_uri": "localhost:18000",
            "channel_creds": [
                { "type": "google_default", "config": { "theirs": 1 } },
                { "type": "insecure", "config": {} },
            ],
            "call_creds": [{ "type": "theirs", "config": { "theirs": 1 } }],
            "server_features": ["xds_v3", "trusted_xds_server", "theirs"],
        }],
        "node": {
            "id": "n",
            "cluster": "c",
            "locality": { "region": "r", "zone": "z", "sub_zone": "s" },
            "metadata": { "theirs": { "theirs": 1 } },
        },
        "certificate_providers": {
            "files": { "plugin_name": "file_watcher", "config": {
                "certificate_file": "f",
                "private_key_file": "g",
                "ca_certificate_file": "h",
                "spiffe_trust_bundle_map_file": "i",
                "refresh_interval": "600s",
            } },
            "other": { "plugin_name": "theirs", "config": { "theirs": 1 } },
        },
        "server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s",
        "client_default_listener_resource_name_template": "%s",
        "authorities": { "a": {
            "client_listener_resource_name_template": "xdstp://a/envoy.config.listener.v3.Listener/%s",
            "xds_servers": [],
            "fallback_on_reachability_only": true,
        } },
        "allowed_grpc_services": { "s": { "channel_creds": [{ "type": "insecure" }], "call_creds": [] } },
        "absent": null,
    }));
    assert_eq!(warnings(&bootstrap), [""; 0]);
}

#[test]
fn bs1_the_number_of_warnings_is_bounded() {
    let (log, _guard) = Log::start("xdskit=warn");
    let unknown: serde_json::Map<_, _> = (0..100_000).map(|i| (format!("x{i:06}"), json!(1))).collect();
    let bootstrap = read(&with(Value::Object(unknown)));
    let seen = warnings(&bootstrap);
    assert_eq!(seen.len(), 65);
    assert_eq!(seen.first().unwrap(), "x000000: not used");
    assert_eq!(seen.last().unwrap(), "99936 further warnings are left out");
    let lines = log.lines();
    assert_eq!(lines.len(), 65);
    assert!(
        lines[0].contains("bootstrap field ignored") && lines[0].contains(r#"path="x000000""#),
        "{}",
        lines[0]
    );
}
