//! Bootstraps in the form in which management servers give them to Envoy, reduced to what concerns a client.

use std::{fs, path::Path};

use super::*;

/// A secret in a file, as a control plane writes it.
fn write_secret(path: &Path, name: &str, kind: &str, content: Value) {
    let type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    let secret = json!({ "@type": type_url, "name": name, kind: content });
    fs::write(path, json!({ "resources": [secret] }).to_string()).unwrap();
}

/// Mutual TLS by two secrets in files, whose name for the server is this one.
fn sds_from_files(directory: &Path, server_name: &str) -> Value {
    let (own, roots) = (directory.join("certificate.json"), directory.join("roots.json"));
    write_secret(
        &own,
        "xds_certificate",
        "tls_certificate",
        json!({
            "certificate_chain": { "filename": "/certs/tls.crt" }, "private_key": { "filename": "/certs/tls.key" },
        }),
    );
    write_secret(
        &roots,
        "xds_trusted_ca",
        "validation_context",
        json!({
            "trusted_ca": { "filename": "/certs/ca.crt" },
            "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": server_name } }],
        }),
    );
    let config = |name: &str, path: &Path| {
        let sds = json!({ "path_config_source": { "path": path }, "resource_api_version": "V3" });
        json!({ "name": name, "sds_config": sds })
    };
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
                "tls_certificate_sds_secret_configs": [config("xds_certificate", &own)],
                "validation_context_sds_secret_config": config("xds_trusted_ca", &roots),
            },
        },
    })
}

fn mutual_tls(server_name: &str) -> ChannelCredentials {
    let tls = TlsConfig::default()
        .with_ca_certificate_file("/certs/ca.crt")
        .with_identity("/certs/tls.crt", "/certs/tls.key")
        .with_server_name(server_name);
    ChannelCredentials::Tls(tls)
}

fn http2(options: Value) -> Value {
    json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": options },
    } })
}

fn load_assignment(name: &str, host: &str, port: u16) -> Value {
    let endpoints = json!([{ "lb_endpoints": [endpoint(host, port)], "load_balancing_weight": 1 }]);
    json!({ "cluster_name": name, "endpoints": endpoints })
}

#[test]
fn envoy_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let host = "envoy-gateway.envoy-gateway-system.svc.cluster.local";
    let bootstrap = read(&json!({
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 19000 } } },
        "layered_runtime": { "layers": [{ "name": "global_config", "static_layer": {} }] },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds_cluster" } }],
                "set_node_on_first_message_only": true,
            },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "static_resources": {
            "listeners": [{ "name": "envoy-gateway-proxy-ready-0.0.0.0-19003" }],
            "clusters": [
                { "name": "prometheus_stats", "type": "STATIC", "load_assignment": {} },
                {
                    "name": "xds_cluster",
                    "connect_timeout": "10s",
                    "type": "STRICT_DNS",
                    "load_assignment": load_assignment("xds_cluster", host, 18000),
                    "typed_extension_protocol_options": http2(json!({
                        "connection_keepalive": { "interval": "30s", "timeout": "5s" },
                    })),
                    "transport_socket": sds_from_files(directory.path(), "envoy-gateway"),
                },
            ],
        },
        "overload_manager": { "refresh_interval": "0.250s" },
    }));
    let server = bootstrap.servers().next().unwrap();
    assert_eq!(server.uri.as_str(), format!("{host}:18000"));
    assert_eq!(server.channel_credentials, mutual_tls("envoy-gateway"));
    assert_eq!(server.api_type, Some(ApiType::AggregatedDeltaGrpc));
}

#[test]
fn contour() {
    let directory = tempfile::tempdir().unwrap();
    let source = json!({
        "api_config_source": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "contour", "authority": "contour" } }],
        },
        "resource_api_version": "V3",
    });
    let thresholds = json!([{ "priority": "HIGH", "max_connections": 100_000 }]);
    let bootstrap = read(&json!({
        "dynamic_resources": { "lds_config": source, "cds_config": source },
        "static_resources": { "clusters": [
            {
                "name": "contour",
                "alt_stat_name": "contour_8001",
                "type": "STRICT_DNS",
                "connect_timeout": "5s",
                "load_assignment": load_assignment("contour", "contour", 8001),
                "circuit_breakers": { "thresholds": thresholds },
                "typed_extension_protocol_options": http2(json!({})),
                "upstream_connection_options": { "tcp_keepalive": { "keepalive_probes": 3 } },
                "transport_socket": sds_from_files(directory.path(), "contour"),
            },
            { "name": "envoy-admin", "type": "STATIC", "load_assignment": {} },
        ] },
        "default_regex_engine": { "name": "envoy.regex_engines.google_re2" },
        "admin": { "address": { "pipe": { "path": "/admin/admin.sock" } } },
    }));
    for type_url in [Listener::TYPE_URL, Cluster::TYPE_URL] {
        let server = bootstrap.sources_of(type_url)[0].server().unwrap();
        assert_eq!(server.uri.as_str(), "contour:8001");
        assert_eq!(server.channel_credentials, mutual_tls("contour"));
        assert_eq!(server.authority.as_deref(), Some("contour"));
    }
}

#[test]
fn consul() {
    let ads = json!({ "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" });
    let document = json!({
        "node": { "cluster": "web", "id": "web-sidecar-proxy", "metadata": { "namespace": "default" } },
        "static_resources": { "clusters": [{
            "name": "local_agent",
            "ignore_health_on_host_removal": false,
            "connect_timeout": "1s",
            "type": "STATIC",
            "typed_extension_protocol_options": http2(json!({})),
            "loadAssignment": load_assignment("local_agent", "127.0.0.1", 8502),
        }] },
        "stats_config": { "use_all_default_tags": true },
        "dynamic_resources": {
            "lds_config": ads,
            "cds_config": ads,
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": {
                    "initial_metadata": [{ "key": "x-consul-token", "value": "MARKER" }],
                    "envoy_grpc": { "cluster_name": "local_agent" },
                },
            },
        },
    });
    let bootstrap = read(&document);
    let server = bootstrap.servers().next().unwrap();
    assert_eq!(server.uri.as_str(), "127.0.0.1:8502");
    assert_eq!(server.initial_metadata.iter().collect::<Vec<_>>(), [("x-consul-token", &b"MARKER"[..])]);
    assert!(!format!("{bootstrap:?}{:?}", bootstrap.warnings()).contains("MARKER"));
}

#[test]
fn traffic_director() {
    let bootstrap = read(&json!({
        "node": {
            "id": "projects/123/networks/default/nodes/b7f9c818",
            "metadata": { "TRAFFICDIRECTOR_NETWORK_NAME": "default" },
            "locality": { "zone": "us-central1-a" },
        },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{ "google_grpc": {
                    "target_uri": "trafficdirector.googleapis.com:443",
                    "stat_prefix": "trafficdirector",
                    "channel_credentials": {
                        "ssl_credentials": { "root_certs": { "filename": "/etc/ssl/certs/ca-certificates.crt" } },
                    },
                    "call_credentials": [{ "google_compute_engine": {} }],
                    "channel_args": { "args": { "grpc.http2.max_pings_without_data": { "int_value": 0 } } },
                } }],
            },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "cluster_manager": { "load_stats_config": { "api_type": "GRPC" } },
    }));
    let server = bootstrap.servers().next().unwrap();
    assert_eq!(server.uri.as_str(), "trafficdirector.googleapis.com:443");
    let tls = TlsConfig::default().with_ca_certificate_file("/etc/ssl/certs/ca-certificates.crt");
    assert_eq!(server.channel_credentials, ChannelCredentials::Tls(tls));
    let compute = CustomCredentials::new("google_compute_engine", json!({}));
    assert_eq!(server.call_credentials, [CallCredentials::Custom(compute)]);
}

#[test]
fn istio() {
    let retries = json!({ "retry_back_off": { "base_interval": "1s", "max_interval": "10s" } });
    let bootstrap = read(&json!({
        "node": { "id": "sidecar~10.0.0.1~shop.default~default.svc.cluster.local", "cluster": "shop.default" },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "set_node_on_first_message_only": true,
                "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc", "retry_policy": retries } }],
            },
            "lds_config": { "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" },
            "cds_config": { "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" },
        },
        "static_resources": { "clusters": [{
            "name": "xds-grpc",
            "type": "STATIC",
            "connect_timeout": "1s",
            "lb_policy": "ROUND_ROBIN",
            "load_assignment": { "cluster_name": "xds-grpc", "endpoints": [{ "lb_endpoints": [
                { "endpoint": { "address": { "pipe": { "path": "./etc/istio/proxy/XDS" } } } },
            ] }] },
            "health_checks": [{ "timeout": "1s", "interval": "10s" }],
            "typed_extension_protocol_options": http2(json!({})),
        }] },
    }));
    assert_eq!(bootstrap.servers().next().unwrap().uri.as_str(), "unix:./etc/istio/proxy/XDS");
    let warnings: Vec<_> = bootstrap.warnings().iter().map(ToString::to_string).collect();
    let retries = "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.retry_policy: not used: the client \
                   reconnects with a backoff of its own";
    assert!(warnings.iter().any(|warning| warning == retries), "{warnings:?}");
}
