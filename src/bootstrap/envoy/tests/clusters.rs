//! Clusters as management servers.

use super::*;

fn with_cluster(fields: Value) -> Value {
    with(json!({ "static_resources": { "clusters": [cluster(fields)] } }))
}

fn all_servers(fields: Value) -> Vec<Server> {
    let bootstrap = read(&with_cluster(fields));
    bootstrap.servers().map(|server| Server::clone(server)).collect()
}

fn server(fields: Value) -> Server {
    let mut servers = all_servers(fields);
    assert_eq!(servers.len(), 1);
    servers.remove(0)
}

fn cluster_problems(fields: Value) -> Vec<String> {
    let prefix = "static_resources.clusters[0]";
    let problems = problems(&with_cluster(fields));
    problems.iter().map(|problem| problem.strip_prefix(prefix).unwrap_or(problem).to_owned()).collect()
}

fn uris(endpoints: Value) -> Vec<String> {
    let servers = all_servers(json!({ "load_assignment": assignment(endpoints) }));
    servers.iter().map(|server| server.uri.to_string()).collect()
}

fn pipe(path: &str) -> Value {
    json!({ "endpoint": { "address": { "pipe": { "path": path } } } })
}

#[test]
fn endpoints_are_addresses_names_or_sockets() {
    for (endpoint, expected) in [
        (endpoint("127.0.0.1", 1), "127.0.0.1:1"),
        (endpoint("::1", 2), "[::1]:2"),
        (endpoint("xds.example.com", 3), "xds.example.com:3"),
        (pipe("/run/xds.sock"), "unix:///run/xds.sock"),
        (pipe("./etc/xds.sock"), "unix:./etc/xds.sock"),
    ] {
        assert_eq!(uris(json!([endpoint])), [expected]);
    }
    assert_eq!(
        *server(json!({})).uri.address(),
        ServerAddress::Host { host: "xds.example.com".into(), port: 18000 }
    );
}

#[test]
fn several_addresses_are_one_server_and_several_names_stand_in_for_each_other() {
    let (v4, v6) = (["10.0.0.1", "10.0.0.2"], ["::1", "::2"]);
    let all = |hosts: &[&str]| uris(hosts.iter().map(|host| endpoint(host, 80)).collect());
    assert_eq!(all(&v4), ["ipv4:10.0.0.1:80,10.0.0.2:80"]);
    assert_eq!(all(&v6), ["ipv6:[::1]:80,[::2]:80"]);
    assert_eq!(all(&[v4[0], v6[0]]), ["10.0.0.1:80", "[::1]:80"]);
    assert_eq!(all(&["a", "b"]), ["a:80", "b:80"]);
    let second = json!({ "priority": 1, "lb_endpoints": [endpoint("second", 2)] });
    let first = json!({ "lb_endpoints": [endpoint("first", 1)] });
    let servers = all_servers(json!({ "load_assignment": { "endpoints": [second, first] } }));
    assert_eq!(servers.iter().map(|server| server.uri.as_str()).collect::<Vec<_>>(), ["first:1", "second:2"]);
}

#[test]
fn an_endpoint_that_cannot_be_reached_is_an_error() {
    let address = |address: Value| {
        let endpoint = json!({ "endpoint": { "address": address } });
        let problems = cluster_problems(json!({ "load_assignment": assignment(json!([endpoint])) }));
        let prefix = ".load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.";
        problems[0].strip_prefix(prefix).unwrap().to_owned()
    };
    let socket = |fields: Value| {
        let mut socket = json!({ "address": "a", "port_value": 80 });
        merge(&mut socket, fields);
        address(json!({ "socket_address": socket }))
    };
    assert_eq!(address(json!({})), "socket_address: missing");
    assert_eq!(
        address(json!({ "pipe": { "path": "@a" } })),
        "pipe.path: an abstract socket is not supported"
    );
    assert_eq!(address(json!({ "envoy_internal_address": {} })), "envoy_internal_address: not supported");
    assert_eq!(socket(json!({ "port_value": null })), "socket_address.port_value: missing");
    assert_eq!(socket(json!({ "named_port": "xds" })), "socket_address.named_port: not supported");
    assert_eq!(
        socket(json!({ "protocol": "UDP" })),
        "socket_address.protocol: \"UDP\" is not supported; known are TCP"
    );
    for port in [json!(0), json!(65536)] {
        let expected = "socket_address.port_value: a port is a number from 1 to 65535";
        assert_eq!(socket(json!({ "port_value": port })), expected);
    }
    let bad = "socket_address.address: \"a b:80\": \"a b\" is not a host: invalid international domain name";
    assert_eq!(socket(json!({ "address": "a b" })), bad);
}

#[test]
fn a_management_server_is_a_cluster_that_needs_no_other_to_be_found() {
    assert_eq!(
        cluster_problems(json!({ "type": "EDS" })),
        [".type: \"EDS\" is not supported; known are STATIC, STRICT_DNS, LOGICAL_DNS"]
    );
    let no_endpoint = "has no endpoint, where a management server is expected";
    let empty = json!({ "load_assignment": {} });
    assert_eq!(cluster_problems(empty), [format!(".load_assignment: {no_endpoint}")]);
    assert_eq!(cluster_problems(json!({ "load_assignment": null })), [format!(".name: {no_endpoint}")]);
    let of_v2 = |hosts: Value| cluster_problems(json!({ "load_assignment": null, "hosts": hosts }));
    assert_eq!(of_v2(json!([])), [format!(".hosts: {no_endpoint}")]);
    assert_eq!(of_v2(json!(1)), [".hosts: expected a list, found a number"], "it is reported once");
    let dns = json!({ "type": null, "cluster_type": { "name": "envoy.cluster.dns", "typed_config": {} } });
    assert_eq!(server(dns).uri.as_str(), "xds.example.com:18000");
    let custom = cluster_problems(json!({ "cluster_type": { "name": "envoy.clusters.aggregate" } }));
    assert!(
        custom[0].starts_with(".cluster_type.name: \"envoy.clusters.aggregate\" is not supported"),
        "{custom:?}"
    );
}

#[test]
fn clusters_that_can_be_management_servers_can_be_named_by_resources() {
    let strange = json!({ "name": "data", "type": "EDS", "eds_cluster_config": {} });
    let resources = json!({ "clusters": [strange, cluster(json!({}))] });
    let bootstrap = read(&with(json!({ "static_resources": resources })));
    let named: Vec<_> = bootstrap.named_servers().keys().map(String::as_str).collect();
    assert_eq!(named, ["xds"]);
}

#[test]
fn only_clusters_that_a_source_names_are_looked_at() {
    let strange = json!({ "name": "data", "type": "ORIGINAL_DST", "transport_socket": { "name": "x" } });
    let resources = json!({ "clusters": [strange, cluster(json!({}))] });
    assert_eq!(warnings(&with(json!({ "static_resources": resources }))), [""; 0]);
    let twice = with(json!({ "static_resources": { "clusters": [cluster(json!({})), cluster(json!({}))] } }));
    assert_eq!(problems(&twice), ["static_resources.clusters[1].name: \"xds\" is there twice"]);
}

#[test]
fn what_is_not_heeded_of_a_cluster_is_a_warning() {
    let document = with_cluster(json!({
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "upstream_connection_options": { "tcp_keepalive": {} },
        "http2_protocol_options": {},
    }));
    let expected = [
        ".connect_timeout: not used: it is a setting of the client",
        ".lb_policy: not used",
        ".upstream_connection_options: not used",
    ];
    assert_eq!(warnings(&document), expected.map(|warning| format!("static_resources.clusters[0]{warning}")));
}

#[test]
fn keepalive_is_read_where_either_version_has_it() {
    let options =
        json!({ "connection_keepalive": { "interval": "20s", "timeout": { "seconds": 5, "nanos": 5 } } });
    let expected = KeepAlive::new(Duration::from_secs(20), Duration::new(5, 5));
    assert_eq!(server(json!({ "http2_protocol_options": options })).keep_alive, Some(expected));
    let current = |options: Value| {
        let options = json!({ "@type": "x", "explicit_http_config": { "http2_protocol_options": options } });
        json!({ "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
        } })
    };
    assert_eq!(server(current(options)).keep_alive, Some(expected));
    assert_eq!(server(current(json!({}))).keep_alive, None);
    let zero = json!({ "connection_keepalive": { "interval": "0s", "timeout": "1s" } });
    let problem = cluster_problems(json!({ "http2_protocol_options": zero }));
    assert_eq!(problem, [".http2_protocol_options.connection_keepalive.interval: must be at least 1 ms"]);
}

#[test]
fn envoy_grpc_may_have_an_authority_of_its_own() {
    let mut document = with(json!({}));
    document["dynamic_resources"]["ads_config"]["grpc_services"][0]["envoy_grpc"]["authority"] =
        "xds.internal".into();
    let bootstrap = read(&document);
    assert_eq!(bootstrap.servers().next().unwrap().authority.as_deref(), Some("xds.internal"));
}

fn tls(context: Value) -> Value {
    let mut config = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    });
    merge(&mut config, context);
    json!({ "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": config } })
}

#[test]
fn tls_is_by_files_with_the_name_of_the_server() {
    let context = json!({
        "sni": "xds.internal",
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": [{
                "certificate_chain": { "filename": "/a/cert.pem" }, "private_key": { "filename": "/b/key.pem" },
            }],
            "validation_context": {
                "trusted_ca": { "filename": "/ca.pem" },
                "match_typed_subject_alt_names": [
                    { "san_type": "DNS", "matcher": { "exact": "xds.internal" } },
                ],
            },
        },
    });
    let expected = TlsConfig::default()
        .with_ca_certificate_file("/ca.pem")
        .with_identity("/a/cert.pem", "/b/key.pem")
        .with_server_name("xds.internal");
    assert_eq!(server(tls(context.clone())).channel_credentials, ChannelCredentials::Tls(expected.clone()));
    assert_eq!(warnings(&with_cluster(tls(context.clone()))), [""; 0]);
    let older = json!({ "tls_context": context });
    assert_eq!(server(older).channel_credentials, ChannelCredentials::Tls(expected));
    for socket in [
        json!({ "name": "envoy.transport_sockets.raw_buffer" }),
        json!({ "name": "x", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
        } }),
    ] {
        let plain = server(json!({ "transport_socket": socket }));
        assert_eq!(plain.channel_credentials, ChannelCredentials::Insecure);
    }
}

#[test]
fn tls_without_roots_checks_with_those_of_the_system_and_warns() {
    for (context, path) in [
        (json!({}), ""),
        (json!({ "common_tls_context": {} }), ".common_tls_context"),
        (
            json!({ "common_tls_context": { "validation_context": {} } }),
            ".common_tls_context.validation_context",
        ),
    ] {
        let document = with_cluster(tls(context));
        let server = read(&document).servers().next().unwrap().clone();
        assert_eq!(server.channel_credentials, ChannelCredentials::Tls(TlsConfig::default()));
        let reason = "no trusted_ca: the server's certificate is checked with the system's roots";
        let path = format!("static_resources.clusters[0].transport_socket.typed_config{path}");
        assert_eq!(warnings(&document), [format!("{path}: {reason}")]);
    }
}

#[test]
fn unsupported_fields_with_their_defaults_are_as_good_as_absent() {
    let file = json!({ "filename": "f" });
    let document = with_cluster(tls(json!({
        "allow_renegotiation": false, "auto_host_sni": false, "sni": "s",
        "common_tls_context": {
            "tls_params": { "cipher_suites": [] }, "validation_context": { "trusted_ca": file, "verify_certificate_hash": [] },
        },
    })));
    let server = read(&document).servers().next().unwrap().clone();
    assert!(matches!(server.channel_credentials, ChannelCredentials::Tls(_)));
    assert_eq!(warnings(&document), [""; 0]);
}

#[test]
fn security_that_is_not_supported_is_an_error() {
    let file = json!({ "filename": "f" });
    for (context, expected) in [
        (json!({ "allow_renegotiation": true }), ".allow_renegotiation: not supported"),
        (
            json!({ "common_tls_context": { "tls_certificate_provider_instance": {} } }),
            ".common_tls_context.tls_certificate_provider_instance: not supported",
        ),
        (
            json!({ "common_tls_context": {
                "combined_validation_context": {}, "validation_context": { "trusted_ca": file },
            } }),
            ".common_tls_context.combined_validation_context: is there beside validation_context",
        ),
        (
            json!({ "common_tls_context": { "tls_certificates": [{ "certificate_chain": file }] } }),
            ".common_tls_context.tls_certificates[0].private_key: missing",
        ),
        (
            json!({ "common_tls_context": { "tls_params": { "tls_minimum_protocol_version": "TLSv1_3" } } }),
            ".common_tls_context.tls_params.tls_minimum_protocol_version: \"TLSv1_3\" is not supported; known are \
             TLS_AUTO, TLSv1_0, TLSv1_1, TLSv1_2",
        ),
        (
            json!({ "common_tls_context": { "validation_context": { "verify_certificate_hash": ["x"] } } }),
            ".common_tls_context.validation_context.verify_certificate_hash: not supported",
        ),
        (
            json!({ "common_tls_context": { "validation_context": { "trusted_ca": { "inline_string": "PEM" } } } }),
            ".common_tls_context.validation_context.trusted_ca.inline_string: not supported: give a filename",
        ),
        (
            json!({ "common_tls_context": { "validation_context": {
                "trusted_ca": file, "trust_chain_verification": "ACCEPT_UNTRUSTED",
            } } }),
            ".common_tls_context.validation_context.trust_chain_verification: \"ACCEPT_UNTRUSTED\" is not supported; \
             known are VERIFY_TRUST_CHAIN",
        ),
        (
            json!({ "sni": "a", "common_tls_context": { "validation_context": {
                "trusted_ca": file, "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": "b" } }],
            } } }),
            ".common_tls_context.validation_context.match_typed_subject_alt_names[0]: not supported: the certificate must \
             have the name that is in `sni`, exactly",
        ),
    ] {
        assert_eq!(cluster_problems(tls(context)), [format!(".transport_socket.typed_config{expected}")]);
    }
    let quic = json!({ "transport_socket": { "name": "quic", "typed_config": { "@type": "t/Quic" } } });
    assert_eq!(
        cluster_problems(quic),
        [
            ".transport_socket.typed_config.@type: Quic is not supported; known are UpstreamTlsContext, RawBuffer"
        ]
    );
    let missing = json!({ "transport_socket": { "name": "tls" } });
    assert_eq!(cluster_problems(missing), [".transport_socket.typed_config: missing"]);
    let by_endpoint = json!({ "transport_socket_matches": [{}] });
    assert_eq!(cluster_problems(by_endpoint), [".transport_socket_matches: not supported"]);
}
