//! The settings of servers in a bootstrap.

use super::*;
use crate::{
    config::{ConfigSource, PathSource, Polling, TransportApiVersion},
    resource::{Cluster, ClusterLoadAssignment, RouteConfiguration},
};

#[test]
fn bs2_server_uri_is_understood() {
    assert_eq!(server_problems(json!({ "server_uri": null })), ["xds_servers[0].server_uri: missing"]);
    assert_eq!(server_problems(json!({ "server_uri": "" })), ["xds_servers[0].server_uri: empty"]);
    assert_eq!(
        server_problems(json!({ "server_uri": 1 })),
        ["xds_servers[0].server_uri: expected a string, found a number"]
    );
    assert_eq!(
        server_problems(json!({ "server_uri": "xds:///a" })),
        [
            "xds_servers[0].server_uri: \"xds:///a\": not supported: a management server cannot be found through xDS itself"
        ]
    );
    assert_eq!(
        server_problems(json!({ "server_uri": "https://a" })),
        ["xds_servers[0].server_uri: an https URI contradicts channel credentials `insecure`"]
    );
    let server = read_server(json!({ "server_uri": "unix:///etc/istio/proxy/XDS" }));
    assert_eq!(*server.uri.address(), ServerAddress::Unix("/etc/istio/proxy/XDS".into()));
}

#[test]
fn metadata_of_a_server_is_text_or_bytes() {
    let entries = json!([{ "key": "X-Token", "value": "a b" }, { "key": "x-bin", "raw_value": "AP8=" }]);
    let server = read_server(json!({ "initial_metadata": entries }));
    let metadata: Vec<_> = server.initial_metadata.iter().collect();
    assert_eq!(metadata, [("x-token", &b"a b"[..]), ("x-bin", b"\0\xff")]);
    for (text, bytes) in
        [("AP8", &b"\0\xff"[..]), ("+/8=", b"\xfb\xff"), ("-_8=", b"\xfb\xff"), ("-_8", b"\xfb\xff")]
    {
        let entries = json!([{ "key": "x-bin", "raw_value": text }]);
        let server = read_server(json!({ "initial_metadata": entries }));
        let metadata: Vec<_> = server.initial_metadata.iter().collect();
        assert_eq!(metadata, [("x-bin", bytes)], "{text}");
    }
    assert!(read_server(json!({})).initial_metadata.is_empty());
    assert_ne!(server, read_server(json!({})), "it is a part of the identity");
}

#[test]
fn metadata_that_is_invalid_is_an_error_without_its_value() {
    let metadata = |entries: Value| {
        let problems = server_problems(json!({ "initial_metadata": entries }));
        assert!(!format!("{problems:?}").contains("MARKER"), "{problems:?}");
        problems[0].strip_prefix("xds_servers[0].initial_metadata").unwrap().to_owned()
    };
    let entry = |key: &str, value: &str| metadata(json!([{ "key": key, "value": value }]));
    assert_eq!(metadata(json!({})), ": expected a list, found an object");
    assert_eq!(metadata(json!([{ "value": "MARKER" }])), "[0].key: missing");
    assert_eq!(metadata(json!([{ "key": "x" }])), "[0].value: missing");
    assert_eq!(metadata(json!([{ "key": "x", "value": 1 }])), "[0].value: expected a string, found a number");
    assert_eq!(entry("a b", "MARKER"), "[0].key: must consist of letters, digits and `_`, `-`, `.`");
    assert_eq!(entry("grpc-x", "MARKER"), "[0].key: is reserved for the protocol");
    let text = "[0].value: must be printable ASCII text without spaces at its ends";
    assert_eq!(entry("x", "MARKER\n"), text);
    assert_eq!(metadata(json!([{ "key": "x-bin", "raw_value": "MARKER!" }])), "[0].raw_value: not base64");
    let both = json!([{ "key": "x", "raw_value": "AA==", "value": "MARKER" }]);
    assert_eq!(metadata(both), "[0].raw_value: is there beside value");
    let many: Vec<_> = (0..65).map(|_| json!({ "key": "x", "value": "MARKER" })).collect();
    assert_eq!(metadata(json!(many)), "[64].key: there are more than 64 entries");
    let large = "MARKER".repeat(3000);
    assert_eq!(entry("x", &large), "[0].value: all metadata is larger than 16 KiB");
}

#[test]
fn a27_7_the_first_supported_channel_credentials_are_used() {
    let credentials = |types: &[&str]| {
        let entries: Vec<_> = types.iter().map(|name| json!({ "type": name })).collect();
        read_server(json!({ "channel_creds": entries })).channel_credentials
    };
    let tls = ChannelCredentials::Tls(TlsConfig::default());
    assert_eq!(credentials(&["insecure", "tls"]), ChannelCredentials::Insecure);
    assert_eq!(credentials(&["tls", "insecure"]), tls);
    assert_eq!(credentials(&["google_default", "x", "tls"]), tls);
}

#[test]
fn a27_7_no_supported_channel_credentials_is_an_error() {
    let table = [
        (json!(null), "xds_servers[0].channel_creds: missing"),
        (json!([]), "xds_servers[0].channel_creds: must have at least one entry"),
        (json!("tls"), "xds_servers[0].channel_creds: expected a list, found a string"),
        (json!([null]), "xds_servers[0].channel_creds[0]: expected an object, found null"),
        (json!([{}]), "xds_servers[0].channel_creds[0].type: missing"),
        (json!([{ "type": 1 }]), "xds_servers[0].channel_creds[0].type: expected a string, found a number"),
        (
            json!([{ "type": "google_default" }, { "type": "alts", "config": 1 }]),
            "xds_servers[0].channel_creds: no supported type among \"google_default\", \"alts\"; \
             supported are \"insecure\", \"tls\"",
        ),
    ];
    for (credentials, expected) in table {
        assert_eq!(server_problems(json!({ "channel_creds": credentials })), [expected]);
    }
}

#[test]
fn a65_tls_reads_its_files() {
    let server = read_server(tls_with(json!({
        "certificate_file": "/c/cert.pem",
        "private_key_file": "/c/key.pem",
        "ca_certificate_file": "/r/ca.pem",
        "spiffe_trust_bundle_map_file": "/r/map.json",
        "refresh_interval": "1.5s",
    })));
    let mut expected = TlsConfig::default()
        .with_identity("/c/cert.pem", "/c/key.pem")
        .with_ca_certificate_file("/r/ca.pem")
        .with_refresh_interval(Duration::from_millis(1500));
    expected.spiffe_trust_bundle_map_file = Some("/r/map.json".into());
    assert_eq!(server.channel_credentials, ChannelCredentials::Tls(expected));
}

#[test]
fn a65_tls_without_files_uses_the_roots_of_the_system() {
    let default = ChannelCredentials::Tls(TlsConfig::default());
    for config in [json!(null), json!({}), json!({ "ca_certificate_file": "", "certificate_file": "" })] {
        assert_eq!(read_server(tls_with(config)).channel_credentials, default);
    }
    assert_eq!(TlsConfig::default().refresh_interval, Duration::from_secs(600));
}

#[test]
fn a65_tls_mistakes_are_reported_with_their_field() {
    let table = [
        (json!(1), ": expected an object, found a number"),
        (json!({ "certificate_file": "a" }), ".private_key_file: missing beside certificate_file"),
        (json!({ "private_key_file": "a" }), ".certificate_file: missing beside private_key_file"),
        (
            json!({ "certificate_file": "/a/c", "private_key_file": "/b/k" }),
            ".private_key_file: not in the directory of certificate_file",
        ),
        (json!({ "ca_certificate_file": 1 }), ".ca_certificate_file: expected a string, found a number"),
        (
            json!({ "refresh_interval": "10m" }),
            ".refresh_interval: \"10m\" is not a duration such as \"600s\" or \"1.5s\"",
        ),
        (json!({ "refresh_interval": 600 }), ".refresh_interval: expected a string, found a number"),
        (json!({ "refresh_interval": "0s" }), ".refresh_interval: must be more than 0 s"),
    ];
    for (config, expected) in table {
        let expected = format!("xds_servers[0].channel_creds[0].config{expected}");
        assert_eq!(server_problems(tls_with(config)), [expected]);
    }
}

#[test]
fn supported_channel_credentials_are_checked_even_if_not_used() {
    let credentials = json!([
        { "type": "insecure" },
        { "type": "x", "config": { "certificate_file": "a" } },
        { "type": "tls", "config": { "certificate_file": "a" } },
    ]);
    assert_eq!(
        server_problems(json!({ "channel_creds": credentials })),
        ["xds_servers[0].channel_creds[2].config.private_key_file: missing beside certificate_file"]
    );
}

#[test]
fn a27_7_a97_1_types_of_the_application_are_read_with_their_configuration() {
    let types = CredentialTypes::default().with_channel("google_default").with_call("token");
    let document = |channel: Value| {
        let call = json!([{ "type": "other" }, { "type": "token", "config": [1] }]);
        json!({ "xds_servers": [{ "server_uri": "a", "channel_creds": channel, "call_creds": call }] })
            .to_string()
    };
    let read = |channel| Bootstrap::from_json_with(&document(channel), &types);
    let first = |channel| read(channel).unwrap().servers().next().unwrap().clone();
    let own = |name, config| ChannelCredentials::Custom(CustomCredentials::new(name, config));
    let server = first(json!([{ "type": "alts" }, { "type": "google_default" }, { "type": "tls" }]));
    assert_eq!(server.channel_credentials, own("google_default", Value::Null));
    assert_eq!(
        server.call_credentials,
        [CallCredentials::Custom(CustomCredentials::new("token", json!([1])))]
    );
    let configured = json!([{ "type": "google_default", "config": { "a": 1 } }]);
    assert_eq!(first(configured).channel_credentials, own("google_default", json!({ "a": 1 })));
    assert_eq!(
        first(json!([{ "type": "tls" }, { "type": "google_default" }])).channel_credentials,
        ChannelCredentials::Tls(TlsConfig::default())
    );
    let error = read(json!([{ "type": "alts" }])).unwrap_err();
    assert_eq!(
        error.errors()[0].to_string(),
        "xds_servers[0].channel_creds: no supported type among \"alts\"; supported are \"insecure\", \"tls\", \
         \"google_default\""
    );
    let debug = format!("{:?}", own("google_default", json!("secret")));
    assert!(debug.contains("google_default") && !debug.contains("secret"), "{debug}");
}

#[test]
fn a97_1_all_supported_call_credentials_are_used_in_order() {
    let jwt = |path: &str| json!({ "type": "jwt_token_file", "config": { "jwt_token_file": path } });
    let server = read_server(json!({ "call_creds": [jwt("b"), { "type": "x", "config": 1 }, jwt("a")] }));
    let expected = ["b", "a"].map(|path| CallCredentials::JwtTokenFile(path.into()));
    assert_eq!(server.call_credentials, expected);
    // Accepted with insecure channel credentials, too: the connection refuses to send a token in plain text.
    assert_eq!(server.channel_credentials, ChannelCredentials::Insecure);
    assert!(read_server(json!({})).call_credentials.is_empty());
}

#[test]
fn a97_1_bad_configuration_of_known_call_credentials_is_an_error() {
    let entry = |config| json!({ "call_creds": [{ "type": "jwt_token_file", "config": config }] });
    let table = [
        (entry(json!(null)), "[0].config: missing"),
        (entry(json!({})), "[0].config.jwt_token_file: missing"),
        (entry(json!({ "jwt_token_file": "" })), "[0].config.jwt_token_file: empty"),
        (
            entry(json!({ "jwt_token_file": 1 })),
            "[0].config.jwt_token_file: expected a string, found a number",
        ),
        (json!({ "call_creds": [{}] }), "[0].type: missing"),
        (json!({ "call_creds": {} }), ": expected a list, found an object"),
    ];
    for (fields, expected) in table {
        assert_eq!(server_problems(fields), [format!("xds_servers[0].call_creds{expected}")]);
    }
}

#[test]
fn a88_server_features_are_known_or_ignored_whatever_their_type() {
    let features = |list: Value| read_server(json!({ "server_features": list })).features;
    let all = [
        "ignore_resource_deletion",
        "trusted_xds_server",
        "fail_on_data_errors",
        "resource_timer_is_transient_error",
    ];
    for name in all {
        assert_eq!(features(json!([name])), ServerFeatures::from_iter([name]));
        assert_ne!(features(json!([name])), ServerFeatures::default());
    }
    assert_eq!(features(json!(all)), ServerFeatures::from_iter(all));
    let unknown =
        json!(["xds_v3", "resource_timer_is_transient_failure", 1, null, {}, ["trusted_xds_server"]]);
    assert_eq!(features(unknown), ServerFeatures::default());
    assert_eq!(
        server_problems(json!({ "server_features": "xds_v3" })),
        ["xds_servers[0].server_features: expected a list, found a string"]
    );
}

#[test]
fn api_type_is_one_of_envoys() {
    for api_type in ApiType::ALL {
        let server = json!({ "api_type": api_type.name(), "refresh_delay": "5s" });
        assert_eq!(read_server(server).api_type, Some(api_type));
    }
    assert_eq!(read_server(json!({})).api_type, None);
    assert_eq!(
        server_problems(json!({ "api_type": "SOTW" })),
        ["xds_servers[0].api_type: unknown \"SOTW\"; known are REST, GRPC, DELTA_GRPC, AGGREGATED_GRPC, \
          AGGREGATED_DELTA_GRPC"]
    );
    assert_eq!(
        server_problems(json!({ "api_type": 5 })),
        ["xds_servers[0].api_type: expected a string, found a number"]
    );
}

#[test]
fn d12_rest_needs_a_refresh_delay_and_has_a_timeout() {
    let polling = |fields: Value| {
        let mut server = json!({ "api_type": "REST" });
        merge(&mut server, fields);
        read_server(server).polling.unwrap()
    };
    let every = Polling::every(Duration::from_millis(1500));
    assert_eq!(polling(json!({ "refresh_delay": "1.5s" })), every);
    assert_eq!(every.request_timeout, Duration::from_secs(1));
    let fields = json!({ "refresh_delay": "1.5s", "request_timeout": "5s" });
    assert_eq!(polling(fields), every.with_request_timeout(Duration::from_secs(5)));
    for (fields, problem) in [
        (json!({}), "refresh_delay: missing: REST is polled"),
        (json!({ "request_timeout": "5s" }), "refresh_delay: missing: REST is polled"),
        (json!({ "refresh_delay": "0s" }), "refresh_delay: must be at least 1 ms"),
        (json!({ "refresh_delay": "1s", "request_timeout": "0s" }), "request_timeout: must be at least 1 ms"),
        (
            json!({ "refresh_delay": "soon" }),
            "refresh_delay: \"soon\" is not a duration such as \"600s\" or \"1.5s\"",
        ),
    ] {
        let mut server = json!({ "api_type": "REST" });
        merge(&mut server, fields);
        assert_eq!(server_problems(server), [format!("xds_servers[0].{problem}")]);
    }
}

#[test]
fn the_version_of_the_transport_is_3_or_2() {
    assert_eq!(read_server(json!({})).transport_api_version, TransportApiVersion::V3);
    for (name, version) in
        [("AUTO", TransportApiVersion::V3), ("V3", TransportApiVersion::V3), ("V2", TransportApiVersion::V2)]
    {
        let server = read_server(json!({ "transport_api_version": name }));
        assert_eq!(server.transport_api_version, version);
    }
    assert_eq!(
        server_problems(json!({ "transport_api_version": "V1" })),
        ["xds_servers[0].transport_api_version: unknown \"V1\"; known are V2, V3"]
    );
}

#[test]
fn a_type_may_have_sources_of_its_own() {
    let file = json!({ "path_config_source": {
        "path": "/etc/xds/clusters.yaml", "watched_directory": { "path": "/etc/xds" },
    }, "server_features": ["ignore_resource_deletion"] });
    let bootstrap = read(&json!({
        "type_sources": { "envoy.config.cluster.v3.Cluster": [file, server(json!({ "server_uri": "b:1" }))] },
        "authorities": { "a": { "type_sources": { Listener::TYPE_URL: [server(json!({}))] } } },
        "default_authority": { "xds_servers": [server(json!({ "server_uri": "d:1" }))] },
    }));
    let sources = |name: &str, type_url| {
        let sources = bootstrap.sources_for(&ResourceName::parse(name).unwrap(), type_url).unwrap();
        sources.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(sources("shop", Cluster::TYPE_URL), ["/etc/xds/clusters.yaml", "b:1"]);
    assert_eq!(sources("shop", Listener::TYPE_URL), [""; 0]);
    assert_eq!(sources("xdstp://a/t/i", Listener::TYPE_URL), ["localhost:18000"]);
    assert_eq!(sources("xdstp://a/t/i", Cluster::TYPE_URL), [""; 0], "it has sources of its own");
    assert_eq!(sources("xdstp://other/t/i", Cluster::TYPE_URL), ["d:1"], "C11: the default is the last");
    let file = PathSource::new("/etc/xds/clusters.yaml")
        .with_watched_directory("/etc/xds")
        .with_features(["ignore_resource_deletion"]);
    assert_eq!(bootstrap.sources_of(Cluster::TYPE_URL)[0], ConfigSource::Path(file.into()));

    let by_type = read(&json!({ "type_sources": {
        Listener::TYPE_URL: [{ "path_config_source": { "path": "l" } }],
        Cluster::TYPE_URL: [server(json!({}))],
    } }));
    let of = |type_url| by_type.sources_of(type_url).len();
    assert_eq!(of(ClusterLoadAssignment::TYPE_URL), 1, "`self` of a server");
    assert_eq!(of(RouteConfiguration::TYPE_URL), 0, "a file has one type alone");

    let types = |list: Value| problems(&json!({ "type_sources": { "t": list } }));
    assert_eq!(types(json!([])), ["type_sources[\"t\"]: must have at least one source"]);
    assert_eq!(
        types(json!([{ "path_config_source": {} }])),
        ["type_sources[\"t\"][0].path_config_source.path: missing"]
    );
    assert_eq!(
        types(json!([{ "path_config_source": { "path": "p", "watched_directory": { "path": "" } } }])),
        ["type_sources[\"t\"][0].path_config_source.watched_directory.path: empty"]
    );
}

#[test]
fn a47_6_equal_servers_are_one() {
    let bootstrap = read(&json!({
        "xds_servers": [server(json!({ "server_features": ["xds_v3"] })), server(json!({ "server_uri": "b:1" }))],
        "authorities": { "a": { "xds_servers": [server(json!({}))] } },
    }));
    let default = bootstrap.servers().next().unwrap();
    let own = bootstrap.authorities()["a"].sources()[0].server().unwrap();
    assert!(std::sync::Arc::ptr_eq(default, own));
}
