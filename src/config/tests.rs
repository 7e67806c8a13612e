use std::{collections::HashSet, path::PathBuf};

use serde_json::Value;

use crate::{
    name::ResourceName,
    resource::{Listener, Resource},
};

use super::*;

fn endpoint(text: &str) -> ServerAddress {
    match text.parse::<ServerUri>() {
        Ok(uri) => uri.address().clone(),
        Err(error) => panic!("{error}"),
    }
}

fn host(host: &str, port: u16) -> ServerAddress {
    ServerAddress::Host { host: host.to_owned(), port }
}

fn addresses(texts: &[&str]) -> ServerAddress {
    ServerAddress::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn reason(text: &str) -> String {
    match text.parse::<ServerUri>() {
        Ok(uri) => panic!("{text} is {:?}", uri.address()),
        Err(error) => error.reason().to_owned(),
    }
}

fn builder() -> BootstrapBuilder {
    Bootstrap::builder().server(Server::new("localhost:18000").insecure())
}

fn problems(builder: BootstrapBuilder) -> Vec<String> {
    match builder.build() {
        Ok(bootstrap) => panic!("{bootstrap:?}"),
        Err(error) => error.errors().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn server_uris_of_every_form_are_understood() {
    let table = [
        ("localhost:18000", host("localhost", 18000)),
        ("xds.example.com", host("xds.example.com", 443)),
        ("istiod_1.istio-system.svc:15010", host("istiod_1.istio-system.svc", 15010)),
        ("10.0.0.1:80", host("10.0.0.1", 80)),
        ("[::1]:80", host("::1", 80)),
        ("[2001:db8::1]", host("2001:db8::1", 443)),
        ("dns:///xds.example.com:80", host("xds.example.com", 80)),
        ("dns:xds.example.com:80", host("xds.example.com", 80)),
        ("dns:///xds.example.com", host("xds.example.com", 443)),
        ("dns:///[::1]:80", host("::1", 80)),
        ("http://127.0.0.1:18000", host("127.0.0.1", 18000)),
        ("http://localhost/", host("localhost", 80)),
        ("https://xds.example.com", host("xds.example.com", 443)),
        ("https://[::1]:8443", host("::1", 8443)),
        ("ipv4:10.0.0.1:80", addresses(&["10.0.0.1:80"])),
        ("ipv4:10.0.0.1:80,10.0.0.2", addresses(&["10.0.0.1:80", "10.0.0.2:443"])),
        ("ipv6:[::1]:80", addresses(&["[::1]:80"])),
        ("ipv6:[::1],[2001:db8::1]:80", addresses(&["[::1]:443", "[2001:db8::1]:80"])),
        ("unix:/run/xds.sock", ServerAddress::Unix("/run/xds.sock".into())),
        ("unix:///run/xds.sock", ServerAddress::Unix("/run/xds.sock".into())),
        ("unix:run/xds.sock", ServerAddress::Unix("run/xds.sock".into())),
    ];
    for (text, expected) in table {
        assert_eq!(endpoint(text), expected, "{text}");
        assert_eq!(text.parse::<ServerUri>().unwrap().as_str(), text);
    }
}

#[test]
fn server_uris_that_cannot_be_understood_are_errors() {
    let table = [
        ("", "empty"),
        (":80", "no host"),
        ("dns:///", "no host"),
        ("dns://8.8.8.8/xds.example.com", "a DNS server of its own (\"8.8.8.8\") is not supported"),
        ("dns://xds.example.com:80", "the form is `dns:///host:port`, with three slashes"),
        ("a:b", "port \"b\": a port is a number from 1 to 65535"),
        ("a:", "port \"\": a port is a number from 1 to 65535"),
        ("a:0", "port \"0\": a port is a number from 1 to 65535"),
        ("a:65536", "port \"65536\": a port is a number from 1 to 65535"),
        ("a:+80", "port \"+80\": a port is a number from 1 to 65535"),
        ("::1", "too many colons: an IPv6 address needs brackets"),
        ("[::1", "too many colons: an IPv6 address needs brackets"),
        ("[::x]:80", "\"::x\" is not an IPv6 address"),
        ("[::1]80", "\"80\" cannot follow an address in brackets"),
        ("http:8080", "`//` is missing after the scheme"),
        ("http:///", "empty host"),
        ("http://a:0", "a port is a number from 1 to 65535"),
        ("http://a:99999", "invalid port number"),
        ("http://u@a:80", "a user in the URI is not supported"),
        ("http://a:80/xds", "nothing can follow the port: gRPC has no base path"),
        ("https://a?x", "nothing can follow the port: gRPC has no base path"),
        ("ipv4:a:80", "\"a:80\" is not an IPv4 address with a port from 1 to 65535"),
        ("ipv4:", "\"\" is not an IPv4 address with a port from 1 to 65535"),
        ("ipv4:10.0.0.1:0", "\"10.0.0.1:0\" is not an IPv4 address with a port from 1 to 65535"),
        (
            "ipv6:10.0.0.1:80",
            "\"10.0.0.1:80\" is not an IPv6 address in brackets with a port from 1 to 65535",
        ),
        ("unix:", "no path of a socket"),
        ("unix://host/path", "after `unix://` the path must be absolute"),
        ("xds:///a", "not supported: a management server cannot be found through xDS itself"),
        (
            "ftp://a",
            "scheme \"ftp\" is not supported; known are host:port, dns:, ipv4:, ipv6:, unix:, http:// and https://",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(reason(text), expected, "{text}");
    }
    for text in ["unix-abstract:a", "passthrough:a:1", "vsock:1:2", "google-c2p:a"] {
        assert!(reason(text).contains("is not supported"), "{text}");
    }
    assert!(reason("a b:80").starts_with("\"a b\" is not a host"));
    assert!(reason("a/b:80").starts_with("\"a/b\" is not a host"));
}

#[test]
fn endpoints_have_an_http_authority() {
    let table = [
        ("a.example:80", "a.example:80"),
        ("https://a.example", "a.example:443"),
        ("[::1]:80", "[::1]:80"),
        ("ipv4:10.0.0.1:80,10.0.0.2:80", "10.0.0.1:80"),
        ("ipv6:[::1]:80", "[::1]:80"),
        ("unix:/run/xds", "localhost"),
    ];
    for (text, expected) in table {
        assert_eq!(endpoint(text).authority(), expected);
    }
}

#[test]
fn the_identity_of_a_server_is_all_that_makes_its_stream() {
    let jwt = |path: &str| CallCredentials::JwtTokenFile(PathBuf::from(path));
    let server = || Server::new("a:1");
    let distinct = [
        server().insecure(),
        Server::new("dns:///a:1").insecure(),
        server().tls(TlsConfig::default()),
        server().tls(TlsConfig::default().with_ca_certificate_file("a")),
        server().tls(TlsConfig::default().with_ca_certificate_file("b")),
        server().insecure().call_credentials(jwt("a")),
        server().insecure().call_credentials(jwt("b")),
        server().insecure().features(["fail_on_data_errors"]),
        server().insecure().api_type(ApiType::AggregatedDeltaGrpc),
    ];
    let servers: HashSet<Server> = distinct.iter().cloned().map(|server| server.build().unwrap()).collect();
    assert_eq!(servers.len(), distinct.len());
    let same = server().insecure().features(["xds_v3"]).build().unwrap();
    assert!(servers.contains(&same), "unknown features are no part of it");
}

#[test]
fn the_scheme_of_a_uri_implies_credentials_and_must_not_contradict_them() {
    let credentials = |server: ServerBuilder| server.build().map(|server| server.channel_credentials);
    let tls = ChannelCredentials::Tls(TlsConfig::default());
    assert_eq!(credentials(Server::new("http://a:1")), Ok(ChannelCredentials::Insecure));
    assert_eq!(credentials(Server::new("https://a:1")), Ok(tls));
    let problem = |server: ServerBuilder| server.build().unwrap_err().to_string();
    assert_eq!(
        problem(Server::new("https://a:1").insecure()),
        "server.server_uri: an https URI contradicts channel credentials `insecure`"
    );
    assert_eq!(
        problem(Server::new("http://a:1").tls(TlsConfig::default())),
        "server.server_uri: an http URI contradicts channel credentials `tls`"
    );
    assert_eq!(
        problem(Server::new("a:1")),
        "server.channel_creds: missing: call `insecure()` or `tls(..)`, or use a URI that begins with http:// or https://"
    );
}

#[test]
fn a_builder_reports_all_problems_with_their_paths() {
    let no_key = TlsConfig { certificate_file: Some("c".into()), ..TlsConfig::default() };
    let bad_files = FileWatcherConfig::identity("/a/c", "/b/k");
    let bootstrap = Bootstrap::builder()
        .server(Server::new("http://a"))
        .server(Server::new(""))
        .server(Server::new("a").tls(TlsConfig::default().with_identity("/a/c", "/b/k")))
        .authority("x", AuthorityBuilder::default().server(Server::new("a")).client_listener_template("%s"))
        .certificate_provider("p", CertificateProvider::FileWatcher(bad_files))
        .allowed_grpc_service("s", AllowedGrpcService::new(ChannelCredentials::Tls(no_key)))
        .client_listener_template("xdstp://%s");
    assert_eq!(
        problems(bootstrap),
        [
            "certificate_providers[\"p\"].config.private_key_file: not in the directory of certificate_file",
            "allowed_grpc_services[\"s\"].channel_creds[0].config.private_key_file: missing beside certificate_file",
            "xds_servers[1].server_uri: empty",
            "xds_servers[2].channel_creds[0].config.private_key_file: not in the directory of certificate_file",
            "authorities[\"x\"].client_listener_resource_name_template: must start with \"xdstp://x/\"",
            "authorities[\"x\"].xds_servers[0].channel_creds: missing: call `insecure()` or `tls(..)`, \
             or use a URI that begins with http:// or https://",
            "client_default_listener_resource_name_template: resource name \"xdstp://name\": \
             resource type at byte 12: missing",
        ]
    );
    assert_eq!(problems(Bootstrap::builder()), ["xds_servers: must have at least one server"]);
}

#[test]
fn a_builder_makes_what_json_makes() {
    let built = Bootstrap::builder()
        .node(
            Node::new("n").with_cluster("c").with_locality(Locality::new("r", "z", "")).with_metadata("k", 1),
        )
        .server(
            Server::new("a:1").insecure().features(["trusted_xds_server"]).api_type(ApiType::AggregatedGrpc),
        )
        .server(Server::new("b:1").tls(TlsConfig::default()))
        .authority(
            "x",
            AuthorityBuilder::default().server(Server::new("http://c")).fallback_on_reachability_only(),
        )
        .certificate_provider("p", CertificateProvider::FileWatcher(FileWatcherConfig::roots("ca.pem")))
        .server_listener_template("s/%s")
        .allowed_grpc_service("dns:///e", AllowedGrpcService::new(ChannelCredentials::Insecure))
        .build()
        .unwrap();
    let read = Bootstrap::from_json(
        r#"{
            "xds_servers": [
                { "server_uri": "a:1", "channel_creds": [{ "type": "insecure" }],
                  "server_features": ["trusted_xds_server"], "api_type": "AGGREGATED_GRPC" },
                { "server_uri": "b:1", "channel_creds": [{ "type": "tls" }] }
            ],
            "node": { "id": "n", "cluster": "c", "locality": { "region": "r", "zone": "z" }, "metadata": { "k": 1 } },
            "authorities": { "x": { "xds_servers": [
                { "server_uri": "http://c", "channel_creds": [{ "type": "insecure" }] }
            ], "fallback_on_reachability_only": true } },
            "allowed_grpc_services": { "dns:///e": { "channel_creds": [{ "type": "insecure" }] } },
            "certificate_providers": {
                "p": { "plugin_name": "file_watcher", "config": { "ca_certificate_file": "ca.pem" } }
            },
            "server_listener_resource_name_template": "s/%s"
        }"#,
    );
    assert_eq!(Ok(built), read);
}

#[test]
fn a47_3_templates_encode_values_only_in_xdstp_names() {
    let expand = |template: &str, value: &str| Template::parse(template).unwrap().expand(value);
    assert_eq!(expand("%s", "a b/[::1]:80"), "a b/[::1]:80");
    assert_eq!(expand("x/%s/%s?q=%s", "v"), "x/v/v?q=v");
    assert_eq!(expand("fixed", "v"), "fixed");
    assert_eq!(expand("%s", "%s"), "%s");
    assert_eq!(
        expand("xdstp://a/t/%s/%s", "a b/[::1]:80?#%"),
        "xdstp://a/t/a%20b/%5B::1%5D:80%3F%23%25/a%20b/%5B::1%5D:80%3F%23%25"
    );
    assert_eq!(expand("xdstp://a/t/%s", "-._~!$&'()*+,;=:@/"), "xdstp://a/t/-._~!$&'()*+,;=:@/");
    assert_eq!(expand("xdstp://a/t/fixed", "v"), "xdstp://a/t/fixed");
}

#[test]
fn a47_4_the_authority_of_a_target_has_escapes_for_what_no_authority_can_have() {
    let bootstrap = builder().build().unwrap();
    let service = |target: &str| bootstrap.read_target(target).unwrap().1;
    assert_eq!(service("xds:///shop:8000"), "shop:8000");
    assert_eq!(service("xds:///ns/shop"), "ns%2Fshop");
    assert_eq!(service("xds:///ns%2Fshop"), "ns%2Fshop");
    assert_eq!(service("xds:///a|b c"), "a%7Cb%20c");
    assert_eq!(service("xds:///grün%3F"), "gr%C3%BCn%3F");
    assert_eq!(service("xds:///[::1]:80"), "[::1]:80");
}

#[test]
fn a47_1_a_target_with_authority_uses_its_template() {
    let bootstrap = builder()
        .authority("a.example", AuthorityBuilder::default())
        .authority("b/c", AuthorityBuilder::default())
        .authority("d", AuthorityBuilder::default().client_listener_template("xdstp://d/t/x/%s?k=v"))
        .build()
        .unwrap();
    let name = |target: &str| bootstrap.listener_name(target).unwrap_or_else(|error| panic!("{error}"));
    let listener = "envoy.config.listener.v3.Listener";
    assert_eq!(name("xds://a.example/svc").as_str(), format!("xdstp://a.example/{listener}/svc"));
    assert_eq!(name("xds://a.example/a/b").id(), "a/b");
    assert_eq!(name("xds://a.example/[::1]:80").id(), "[::1]:80");
    assert_eq!(name("xds://b%2Fc/svc").as_str(), format!("xdstp://b%2Fc/{listener}/svc"));
    assert_eq!(name("xds://d/svc").as_str(), "xdstp://d/t/x/svc?k=v");
    assert_eq!(
        bootstrap.listener_name("xds://e/svc").unwrap_err().to_string(),
        "target \"xds://e/svc\": authority \"e\" is not found in the bootstrap"
    );
}

#[test]
fn a47_2_a_target_without_authority_uses_the_default_template() {
    let bootstrap = builder().build().unwrap();
    for (target, expected) in [
        ("xds:///svc", "svc"),
        ("xds:svc", "svc"),
        ("xds:/svc", "svc"),
        ("xds:svc:80", "svc:80"),
        ("xds:///svc:80", "svc:80"),
        ("xds:///a/b", "a/b"),
        ("xds:///a%20b%3F", "a b?"),
    ] {
        assert_eq!(bootstrap.listener_name(target).unwrap().as_str(), expected, "{target}");
    }
    let xdstp = |authority: &str| {
        let builder = builder().client_listener_template("xdstp://a/envoy.config.listener.v3.Listener/%s");
        builder.authority(authority, AuthorityBuilder::default()).build().unwrap()
    };
    let name = xdstp("a").listener_name("xds:///svc").unwrap();
    assert_eq!(name.as_str(), "xdstp://a/envoy.config.listener.v3.Listener/svc");
    // A47-11: the name's authority must be configured.
    assert!(matches!(xdstp("b").listener_name("xds:///svc"), Err(TargetError::UnknownAuthority { .. })));
}

#[test]
fn targets_of_other_forms_are_errors() {
    let bootstrap = builder().build().unwrap();
    for (target, reason) in [
        ("svc", "does not start with `xds:`"),
        ("dns:///svc", "does not start with `xds:`"),
        ("xds:", "no name of a service"),
        ("xds:///", "no name of a service"),
        ("xds://svc", "no name of a service"),
        ("xds:///svc?a=b", "a query or a fragment has no meaning; write `%3F` or `%23` for the characters"),
        ("xds:///svc%", "service: `%` is not followed by two hexadecimal digits"),
        ("xds://a%/svc", "authority: `%` is not followed by two hexadecimal digits"),
    ] {
        let error = bootstrap.listener_name(target).unwrap_err();
        assert_eq!(error.to_string(), format!("target {target:?}: {reason}"));
    }
}

#[test]
fn a36_1_a_server_is_named_by_its_address() {
    let name = |template: &str, address: &str| {
        let bootstrap = builder().authority("a", AuthorityBuilder::default());
        let bootstrap = bootstrap.server_listener_template(template).build().unwrap();
        bootstrap.server_listener_name(address.parse().unwrap())
    };
    assert_eq!(
        name("grpc/server?addr=%s", "0.0.0.0:8080").unwrap().as_str(),
        "grpc/server?addr=0.0.0.0:8080"
    );
    assert_eq!(name("%s", "[::]:8080").unwrap().as_str(), "[::]:8080");
    assert_eq!(name("xdstp://a/t/%s", "[::]:8080").unwrap().id(), "[::]:8080");
    assert!(matches!(name("xdstp://b/t/%s", "[::]:80"), Err(TargetError::UnknownAuthority { .. })));
    let without = builder().build().unwrap().server_listener_name("[::]:80".parse().unwrap());
    assert_eq!(without, Err(TargetError::NoServerTemplate));
}

#[test]
fn x7_a_node_gives_the_context_parameters_it_has() {
    let node = Node::new("n")
        .with_locality(Locality::new("r", "", "s"))
        .with_metadata("foo", "bar")
        .with_metadata("num", 42)
        .with_metadata("yes", true)
        .with_metadata("none", Value::Null);
    let keys = ["id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "user_agent_name"];
    let metadata = ["metadata.foo", "metadata.num", "metadata.yes", "metadata.none", "metadata.x", "x"];
    let params = node.context_params(&[&keys[..], &metadata[..]].concat());
    assert_eq!(
        params.iter().collect::<Vec<_>>(),
        [
            ("xds.node.id", "n"),
            ("xds.node.locality.region", "r"),
            ("xds.node.locality.sub_zone", "s"),
            ("xds.node.metadata.foo", "\"bar\""),
            ("xds.node.metadata.none", "null"),
            ("xds.node.metadata.num", "42"),
            ("xds.node.metadata.yes", "true"),
            ("xds.node.user_agent_name", "xdskit"),
        ]
    );
}

#[test]
fn x7_a_bootstrap_chooses_what_is_added_to_names() {
    let bootstrap = builder()
        .node(Node::new("n").with_metadata("team", "a"))
        .node_context_params(["id", "metadata.team", "locality.zone"])
        .client_feature_context_params(["f"])
        .build()
        .unwrap();
    assert_eq!(bootstrap.node_context_params(), ["id", "metadata.team", "locality.zone"]);
    assert_eq!(bootstrap.client_feature_context_params(), ["f"]);
    let name = ResourceName::parse("xdstp://a/T/*").unwrap();
    assert_eq!(
        bootstrap.additions().add_to(&name).as_str(),
        "xdstp://a/T/*?xds.client_feature.f=true&xds.node.id=n&xds.node.metadata.team=%22a%22"
    );
    let error =
        builder().node_context_params(["id", "name", "metadata."]).client_feature_context_params([""]);
    let error = error.build().unwrap_err().to_string();
    for wrong in [
        "node_context_params[1]: \"name\"",
        "node_context_params[2]",
        "client_feature_context_params[0]: empty",
    ] {
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn x11_every_authority_resolves_by_its_own_entry() {
    let own = |uri: &str| AuthorityBuilder::default().server(Server::new(uri).insecure());
    let bootstrap = builder()
        .authority("a1", own("a:1"))
        .authority("a2", own("b:1"))
        .authority("a3", own("b:1"))
        .authority("", own("c:1"))
        .build()
        .unwrap();
    let server = |name: &str| {
        let name = ResourceName::parse(name).unwrap();
        bootstrap
            .sources_for(&name, Listener::TYPE_URL)
            .map(|sources| sources[0].server().unwrap().uri.as_str().to_owned())
    };
    assert_eq!(server("xdstp://a1/t/i").as_deref(), Ok("a:1"));
    assert_eq!(server("xdstp://a2/t/i"), server("xdstp://a3/t/i"));
    assert_eq!(server("xdstp:///t/i").as_deref(), Ok("c:1"));
    assert_eq!(server("opaque").as_deref(), Ok("localhost:18000"));
    assert_eq!(server("xdstp://x/t/i"), Err(UnknownAuthority { authority: "x".to_owned() }));
}

mod plugins;
