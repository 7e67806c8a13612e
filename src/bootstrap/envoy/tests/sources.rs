//! The sources of each resource type.

use super::*;
use crate::resource::ExtensionConfig;

fn dynamic(fields: Value) -> Value {
    with(json!({ "dynamic_resources": fields }))
}

/// The sources of Listeners, with `fields` in an `api_config_source`.
fn api_with(fields: Value) -> Value {
    let mut source = api("GRPC");
    merge(&mut source, fields);
    dynamic(json!({ "lds_config": { "api_config_source": source } }))
}

fn listener_server(document: &Value) -> Server {
    Server::clone(read(document).sources_of(Listener::TYPE_URL)[0].server().unwrap())
}

#[test]
fn ads_config_is_the_source_of_all_types_by_an_aggregated_stream() {
    for (name, expected) in [
        ("GRPC", ApiType::AggregatedGrpc),
        ("DELTA_GRPC", ApiType::AggregatedDeltaGrpc),
        ("AGGREGATED_GRPC", ApiType::AggregatedGrpc),
        ("AGGREGATED_DELTA_GRPC", ApiType::AggregatedDeltaGrpc),
    ] {
        let ads = json!({ "ads": {}, "resource_api_version": "V3" });
        let document =
            dynamic(json!({ "ads_config": api(name), "lds_config": ads, "cds_config": { "self": {} } }));
        let bootstrap = read(&document);
        let expected = [("xds.example.com:18000".to_owned(), Some(expected))];
        for type_url in [Listener::TYPE_URL, Cluster::TYPE_URL, ClusterLoadAssignment::TYPE_URL] {
            assert_eq!(servers(bootstrap.sources_of(type_url)), expected);
        }
        assert_eq!(bootstrap.warnings(), []);
    }
    let mut rest = api("REST");
    merge(&mut rest, json!({ "grpc_services": null, "cluster_names": ["xds"], "refresh_delay": "1s" }));
    assert_eq!(
        problems(&dynamic(json!({ "ads_config": rest }))),
        ["dynamic_resources.ads_config.api_type: there is no aggregated REST"]
    );
}

#[test]
fn ads_without_ads_config_is_an_error() {
    for name in ["ads", "self"] {
        assert_eq!(
            problems(&dynamic(json!({ "cds_config": { name: {} } }))),
            [format!("dynamic_resources.cds_config.{name}: there is no dynamic_resources.ads_config")]
        );
    }
}

#[test]
fn a_type_may_have_a_source_of_its_own_and_others_have_none_then() {
    let lds = json!({ "api_config_source": api("DELTA_GRPC") });
    let cds = json!({ "path_config_source": {
        "path": "/etc/xds/cds.yaml", "watched_directory": { "path": "/etc/xds", "watch_modify": true },
    } });
    let bootstrap = read(&dynamic(json!({ "lds_config": lds, "cds_config": cds })));
    let own = [("xds.example.com:18000".to_owned(), Some(ApiType::DeltaGrpc))];
    assert_eq!(servers(bootstrap.sources_of(Listener::TYPE_URL)), own);
    assert_eq!(servers(bootstrap.sources_of(ExtensionConfig::TYPE_URL)), own, "listeners name them");
    let file = PathSource::new("/etc/xds/cds.yaml").with_watched_directory("/etc/xds").with_watch_modify();
    assert_eq!(bootstrap.sources_of(Cluster::TYPE_URL), [ConfigSource::Path(file.into())]);
    assert_eq!(bootstrap.sources_of(ClusterLoadAssignment::TYPE_URL), []);

    let beside = read(&dynamic(json!({ "ads_config": api("GRPC"), "cds_config": { "path": "/c.json" } })));
    let file = ConfigSource::Path(PathSource::new("/c.json").into());
    assert_eq!(beside.sources_of(Cluster::TYPE_URL), [file], "as it was in version 2");
    let ads = [("xds.example.com:18000".to_owned(), Some(ApiType::AggregatedGrpc))];
    assert_eq!(servers(beside.sources_of(ClusterLoadAssignment::TYPE_URL)), ads);
}

#[test]
fn what_is_not_heeded_of_a_source_is_a_warning() {
    let mut source = api("GRPC");
    merge(&mut source, json!({ "rate_limit_settings": {}, "refresh_delay": "1s", "x": 1 }));
    let file = json!({ "path": "p", "watched_directory": { "path": "d", "y": 1 } });
    let document = dynamic(json!({
        "lds_config": { "api_config_source": source, "initial_fetch_timeout": "1s" },
        "cds_config": { "path_config_source": file },
    }));
    assert_eq!(
        warnings(&document),
        [
            "dynamic_resources.lds_config.initial_fetch_timeout: not used: the time to wait is the client's \
             resource_timeout",
            "dynamic_resources.lds_config.api_config_source.rate_limit_settings: not used: requests are coalesced",
            "dynamic_resources.lds_config.api_config_source.refresh_delay: not used",
            "dynamic_resources.lds_config.api_config_source.x: not used",
            "dynamic_resources.cds_config.path_config_source.watched_directory.y: not used",
        ]
    );
}

#[test]
fn what_would_change_what_is_done_is_an_error() {
    let service = |fields: Value| {
        let mut service = json!({ "envoy_grpc": { "cluster_name": "xds" } });
        merge(&mut service, fields);
        json!({ "grpc_services": [service] })
    };
    for (fields, expected) in [
        (json!({ "config_validators": [{}] }), "config_validators: not supported"),
        (json!({ "cluster_names": ["xds"] }), "cluster_names: valid for REST only: use grpc_services"),
        (
            json!({ "api_type": "SOAP" }),
            "api_type: \"SOAP\" is not supported; known are REST, GRPC, DELTA_GRPC, \
            AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC",
        ),
        (
            service(json!({ "google_grpc": { "target_uri": "a:1" } })),
            "grpc_services[0].google_grpc: is there beside envoy_grpc",
        ),
        (
            service(json!({ "envoy_grpc": null })),
            "grpc_services[0]: no service: one of envoy_grpc, google_grpc is missing",
        ),
        (
            service(json!({ "initial_metadata": [{ "key": "grpc-x", "value": "MARKER" }] })),
            "grpc_services[0].initial_metadata[0].key: is reserved for the protocol",
        ),
        (
            service(json!({ "initial_metadata": [{ "key": "x", "value": "MARKER %HOSTNAME%" }] })),
            "grpc_services[0].initial_metadata[0].value: commands (`%...%`) are not supported; `%` itself is written `%%`",
        ),
        (
            service(json!({ "initial_metadata": [{ "key": "x-bin", "raw_value": "MARKER!" }] })),
            "grpc_services[0].initial_metadata[0].raw_value: not base64",
        ),
        (
            service(json!({ "envoy_grpc": { "cluster_name": "xds", "authority": "a b" } })),
            "grpc_services[0].envoy_grpc.authority: must be a host, and a port if there is one",
        ),
    ] {
        let expected = format!("dynamic_resources.lds_config.api_config_source.{expected}");
        assert_eq!(problems(&api_with(fields)), [expected]);
    }
}

#[test]
fn the_version_of_the_transport_is_in_either_field() {
    let (v2, v3) = (TransportApiVersion::V2, TransportApiVersion::V3);
    for (transport, resources, expected) in
        [("V3", "V3", v3), ("AUTO", "AUTO", v3), ("V2", "AUTO", v2), ("AUTO", "V2", v2), ("V2", "V2", v2)]
    {
        let mut document = api_with(json!({ "transport_api_version": transport }));
        document["dynamic_resources"]["lds_config"]["resource_api_version"] = resources.into();
        assert_eq!(listener_server(&document).transport_api_version, expected);
    }
    let mut document = api_with(json!({}));
    document["dynamic_resources"]["lds_config"]["resource_api_version"] = "V2".into();
    assert_eq!(
        problems(&document),
        ["dynamic_resources.lds_config.api_config_source.transport_api_version: another one than \
          resource_api_version is not supported"]
    );
}

#[test]
fn d12_rest_has_clusters_and_a_refresh_delay() {
    let rest = |fields: Value| {
        let mut source = json!({ "api_type": "REST", "grpc_services": null, "cluster_names": ["xds"] });
        merge(&mut source, fields);
        api_with(source)
    };
    let server = listener_server(&rest(json!({ "refresh_delay": "1.5s", "request_timeout": "5s" })));
    let polling = Polling::every(Duration::from_millis(1500)).with_request_timeout(Duration::from_secs(5));
    assert_eq!((server.api_type, server.polling), (Some(ApiType::Rest), Some(polling)));
    for (fields, expected) in [
        (json!({}), "refresh_delay: missing: REST is polled"),
        (json!({ "refresh_delay": "0s" }), "refresh_delay: must be at least 1 ms"),
        (
            json!({ "refresh_delay": "1m" }),
            "refresh_delay: \"1m\" is not a duration such as \"600s\" or \"1.5s\"",
        ),
        (
            json!({ "refresh_delay": "1s", "cluster_names": [] }),
            "cluster_names: must have at least one cluster",
        ),
        (
            json!({ "refresh_delay": "1s", "grpc_services": [{}] }),
            "grpc_services: not valid for REST: use cluster_names",
        ),
    ] {
        let expected = format!("dynamic_resources.lds_config.api_config_source.{expected}");
        assert_eq!(problems(&rest(fields)), [expected]);
    }
}

#[test]
fn d14_several_services_or_clusters_stand_in_for_each_other_in_order() {
    let second =
        cluster(json!({ "name": "second", "load_assignment": assignment(json!([endpoint("b", 2)])) }));
    let clusters = json!({ "clusters": [second, cluster(json!({}))] });
    let services = ["xds", "second", "xds"].map(|name| json!({ "envoy_grpc": { "cluster_name": name } }));
    let grpc = json!({ "api_type": "GRPC", "grpc_services": services });
    let names = json!(["xds", "second"]);
    let rest = json!({ "api_type": "REST", "refresh_delay": "1s", "cluster_names": names });
    for source in [grpc, rest] {
        let document = json!({
            "dynamic_resources": { "lds_config": { "api_config_source": source } },
            "static_resources": clusters,
        });
        let uris: Vec<_> = servers(read(&document).sources_of(Listener::TYPE_URL));
        let uris: Vec<_> = uris.iter().map(|(uri, _)| uri.as_str()).collect();
        assert_eq!(uris, ["xds.example.com:18000", "b:2"], "equal servers are one");
    }
}

#[test]
fn google_grpc_is_a_target_with_its_credentials() {
    let google = |fields: Value| {
        let mut grpc = json!({ "target_uri": "dns:///xds.example.com:443", "stat_prefix": "xds" });
        merge(&mut grpc, fields);
        api_with(json!({ "grpc_services": { "google_grpc": grpc } }))
    };
    let plain = google(json!({}));
    assert_eq!(listener_server(&plain).channel_credentials, ChannelCredentials::Insecure);
    assert_eq!(warnings(&plain), [""; 0]);
    let ssl = json!({
        "root_certs": { "filename": "/ca.pem" },
        "cert_chain": { "filename": "/a/cert.pem" },
        "private_key": { "filename": "/b/key.pem" },
    });
    let secured = listener_server(&google(json!({ "channel_credentials": { "ssl_credentials": ssl } })));
    let tls =
        TlsConfig::default().with_ca_certificate_file("/ca.pem").with_identity("/a/cert.pem", "/b/key.pem");
    assert_eq!(secured.channel_credentials, ChannelCredentials::Tls(tls));
    for (fields, expected) in [
        (json!({ "target_uri": "" }), ".target_uri: empty"),
        (json!({ "channel_credentials": {} }), ".channel_credentials.ssl_credentials: missing"),
        (
            json!({ "channel_credentials": { "google_default": {}, "ssl_credentials": {} } }),
            ".channel_credentials.google_default: is there beside ssl_credentials",
        ),
        (
            json!({ "call_credentials": [{ "access_token": "MARKER" }] }),
            ".call_credentials: are sent over secured connections only: there are no channel_credentials",
        ),
        (
            json!({ "channel_credentials": { "ssl_credentials": { "root_certs": { "inline_string": "x" } } } }),
            ".channel_credentials.ssl_credentials.root_certs.inline_string: not supported: give a filename",
        ),
    ] {
        let path = "dynamic_resources.lds_config.api_config_source.grpc_services.google_grpc";
        assert_eq!(problems(&google(fields)), [format!("{path}{expected}")]);
    }
}

#[test]
fn google_credentials_are_for_implementations_of_the_application() {
    let grpc = json!({
        "target_uri": "trafficdirector.googleapis.com:443",
        "channel_credentials": { "google_default": {} },
        "call_credentials": [{ "google_compute_engine": {} }, { "access_token": "MARKER" }],
    });
    let server = listener_server(&api_with(json!({ "grpc_services": { "google_grpc": grpc } })));
    let custom = |name, config| CustomCredentials::new(name, config);
    let default = ChannelCredentials::Custom(custom("google_default", Value::Null));
    assert_eq!(server.channel_credentials, default);
    let calls = [
        CallCredentials::Custom(custom("google_compute_engine", json!({}))),
        CallCredentials::Custom(custom("access_token", json!("MARKER"))),
    ];
    assert_eq!(server.call_credentials, calls);
    assert!(!format!("{server:?}").contains("MARKER"));
}

#[test]
fn metadata_of_a_service_is_that_of_its_servers() {
    let service = json!({
        "envoy_grpc": { "cluster_name": "xds" },
        "initial_metadata": [
            { "key": "X-Consul-Token", "value": "100%%" }, { "key": "x-bin", "rawValue": "AP8=" },
        ],
    });
    let server = listener_server(&api_with(json!({ "grpc_services": [service] })));
    let metadata: Vec<_> = server.initial_metadata.iter().collect();
    assert_eq!(metadata, [("x-consul-token", &b"100%"[..]), ("x-bin", b"\0\xff")]);
}

#[test]
fn wishes_about_connecting_are_warnings() {
    let envoy = json!({ "cluster_name": "xds", "retry_policy": { "num_retries": 3 } });
    let service = json!({ "envoy_grpc": envoy, "retry_policy": {}, "timeout": "1s" });
    let document = api_with(json!({ "grpc_services": [service] }));
    let path = "dynamic_resources.lds_config.api_config_source.grpc_services[0]";
    let reconnects = "not used: the client reconnects with a backoff of its own";
    assert_eq!(
        warnings(&document),
        [
            format!("{path}.retry_policy: {reconnects}"),
            format!("{path}.timeout: not used: a stream has no end"),
            format!("{path}.envoy_grpc.retry_policy: {reconnects}"),
        ]
    );
    let google = json!({ "target_uri": "a:1", "channel_args": { "args": {} } });
    let document = api_with(json!({ "grpc_services": [{ "google_grpc": google }] }));
    assert_eq!(
        warnings(&document),
        [format!("{path}.google_grpc.channel_args: not used: connections have the settings of the client")]
    );
}

#[test]
fn x11_the_first_config_source_that_names_an_authority_is_its_and_the_default_is_the_last() {
    let names = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    let document = with(json!({
        "config_sources": [
            { "authorities": names(&["a", "b"]), "path": "/first.json" },
            { "authorities": names(&["b", ""]), "api_config_source": api("AGGREGATED_DELTA_GRPC") },
            { "authorities": names(&["ads"]), "ads": {} },
        ],
        "default_config_source": { "path": "/default.json" },
    }));
    let bootstrap = read(&document);
    let of = |name: &str| {
        let sources = bootstrap.sources_for(&ResourceName::parse(name).unwrap(), Cluster::TYPE_URL).unwrap();
        sources.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of("xdstp://a/t/i"), ["/first.json"]);
    assert_eq!(of("xdstp://b/t/i"), ["/first.json"]);
    assert_eq!(of("xdstp:///t/i"), ["xds.example.com:18000"]);
    assert_eq!(of("xdstp://ads/t/i"), ["xds.example.com:18000"]);
    assert_eq!(of("xdstp://other/t/i"), ["/default.json"]);
    assert_eq!(of("opaque"), ["xds.example.com:18000"]);
    assert_eq!(
        warnings(&document),
        ["config_sources[1].authorities[0]: not used: a source before has this authority"]
    );
    for (source, expected) in [
        (json!({ "path": "p" }), "config_sources[0].authorities: missing: it is the source of no authority"),
        (
            json!({ "path": "p", "authorities": names(&["a", "a"]) }),
            "config_sources[0].authorities[1]: authority \"a\" is there twice",
        ),
        (json!({ "path": "p", "authorities": [{}] }), "config_sources[0].authorities[0].name: missing"),
    ] {
        assert_eq!(problems(&with(json!({ "config_sources": [source] }))), [expected]);
    }
}

#[test]
fn x11_the_source_of_a_type_comes_before_all_others_for_the_authorities_that_it_names() {
    let bootstrap = read(&with(json!({
        "dynamic_resources": {
            "ads_config": api("GRPC"),
            "lds_config": { "authorities": [{ "name": "a" }], "path": "/lds.json" },
        },
        "config_sources": [{ "authorities": [{ "name": "a" }], "path": "/a.json" }],
    })));
    let of = |type_url: &str| {
        let sources =
            bootstrap.sources_for(&ResourceName::parse("xdstp://a/t/i").unwrap(), type_url).unwrap();
        sources[0].to_string()
    };
    assert_eq!(of(Listener::TYPE_URL), "/lds.json");
    assert_eq!(of("type.googleapis.com/envoy.config.listener.v3.ListenerCollection"), "/lds.json");
    assert_eq!(of(Cluster::TYPE_URL), "/a.json");
}

#[test]
fn a_locator_names_the_collection_of_all_resources_of_a_type() {
    let list = "xdstp://a/envoy.config.listener.v3.ListenerCollection/foo";
    let glob = "xdstp://a/envoy.config.cluster.v3.Cluster/*";
    let document = |listeners: Value, clusters: Value| {
        dynamic(json!({
            "lds_config": { "authorities": [{ "name": "a" }], "api_config_source": api("AGGREGATED_DELTA_GRPC") },
            "lds_resources_locator": listeners,
            "cds_resources_locator": clusters,
        }))
    };
    let bootstrap = read(&document(json!(list), json!({ "name": glob })));
    assert_eq!(bootstrap.collection_of(Listener::TYPE_URL).unwrap().as_str(), list);
    assert_eq!(bootstrap.collection_of(Cluster::TYPE_URL).unwrap().as_str(), glob);
    assert_eq!(bootstrap.collection_of(ClusterLoadAssignment::TYPE_URL), None);
    assert_eq!(read(&document(json!(""), json!(null))).collection_of(Listener::TYPE_URL), None);
    let with_alternative = format!("{list}#alt=xdstp://a/envoy.config.listener.v3.Listener/*");
    let bootstrap = read(&document(json!(with_alternative), json!(null)));
    assert_eq!(bootstrap.collection_of(Listener::TYPE_URL).unwrap().to_string(), with_alternative);
    for (locator, expected) in [
        ("xdstp://b/envoy.config.listener.v3.Listener/*", "authority \"b\" has no source"),
        (
            glob,
            "must be of type envoy.config.listener.v3.Listener or envoy.config.listener.v3.ListenerCollection",
        ),
        ("opaque", "must be an xdstp:// URL of a collection, not of an entry, or a file:// URL"),
        (
            "xdstp://a/envoy.config.listener.v3.Listener/*#alt=xdstp://a/envoy.config.cluster.v3.Cluster/*",
            "alt: must be of type envoy.config.listener.v3.Listener or envoy.config.listener.v3.ListenerCollection",
        ),
        (
            "xdstp://a/envoy.config.listener.v3.ListenerCollection/foo#entry=e",
            "must be an xdstp:// URL of a collection, not of an entry, or a file:// URL",
        ),
        ("file://host/a", "the form is `file:///path`, with three slashes"),
        ("file:///a#entry=b", "a file has no directives and no parameters"),
    ] {
        let expected = format!("dynamic_resources.lds_resources_locator: {expected}");
        assert_eq!(problems(&document(json!(locator), json!(null))), [expected]);
    }
}

#[test]
fn a_locator_of_a_file_is_the_source_of_its_type() {
    let document = dynamic(json!({
        "lds_config": { "path": "/unused.json" }, "lds_resources_locator": "file:///etc/xds/my%20lds.yaml",
    }));
    let bootstrap = read(&document);
    let file = ConfigSource::Path(PathSource::new("/etc/xds/my lds.yaml").into());
    assert_eq!(bootstrap.sources_of(Listener::TYPE_URL), [file]);
    assert_eq!(bootstrap.collection_of(Listener::TYPE_URL), None);
    assert_eq!(
        warnings(&document),
        ["dynamic_resources.lds_config: not used: lds_resources_locator names a file"]
    );
}
