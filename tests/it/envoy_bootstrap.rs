//! Envoy's bootstrap: the fragments that the protocol's documents show, in files, with the address of a server that is there.

use std::time::Duration;

use tonic::transport::Certificate;

use crate::common::{
    resources::of_any_version,
    soon,
    tls::{Ca, Files, TlsServer},
};
use xdskit::{
    Client, ResourceSelector,
    config::{Bootstrap, KeepAlive},
    control_plane,
    error::Code,
    pb::envoy::config::core::v3::{
        self as pb, config_source::ConfigSourceSpecifier, grpc_service::TargetSpecifier,
    },
    resource::{Cluster, ClusterLoadAssignment, Listener},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

/// A server with a cluster, its endpoints, and a listener.
async fn server() -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.set(of_any_version(cluster("shop")));
    server.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    server.set(of_any_version(listener("shop").rds("shop-routes")));
    server.set(route_config("shop-routes").virtual_host(["shop"], [route::prefix("/").cluster("shop")]));
    server
}

/// Reads a document from a file, as an application does.
fn load(document: &str) -> Bootstrap {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.yaml");
    std::fs::write(&path, document).unwrap();
    Bootstrap::from_file(&path).unwrap_or_else(|error| panic!("{error}\n{document}"))
}

fn client(document: &str) -> Client {
    Client::builder(load(document)).build().unwrap()
}

/// Puts the server's address into the place of those of a document.
fn at(server: &TestControlPlane, document: &str) -> String {
    let addr = server.addr();
    document.replace("HOST", &addr.ip().to_string()).replace("PORT", &addr.port().to_string())
}

/// The newest edition's, for ADS.
const NEWEST: &str = r#"
node:
  cluster: envoy_cluster
  id: envoy_node

dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
    - envoy_grpc:
        cluster_name: ads_cluster
  cds_config:
    resource_api_version: V3
    ads: {}
  lds_config:
    resource_api_version: V3
    ads: {}

static_resources:
  clusters:
  - name: ads_cluster
    connect_timeout: 5s
    type: STRICT_DNS
    load_assignment:
      cluster_name: ads_cluster
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                address: HOST
                port_value: PORT
    # One of the two ways to find out that the server is gone.
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            connection_keepalive:
              interval: 30s
              timeout: 5s
    upstream_connection_options:
      tcp_keepalive: {}
"#;

/// The older editions', for ADS.
const OLDER: &str = r#"
node:
  id: older_node
dynamic_resources:
  cds_config: {ads: {}}
  lds_config: {ads: {}}
  ads_config:
    api_type: GRPC
    grpc_services:
      envoy_grpc:
        cluster_name: ads_cluster
static_resources:
  clusters:
  - name: ads_cluster
    connect_timeout: { seconds: 5 }
    type: STATIC
    hosts:
    - socket_address:
        address: HOST
        port_value: PORT
    lb_policy: ROUND_ROBIN
    http2_protocol_options:
      connection_keepalive:
        interval: 30s
        timeout: 5s
    upstream_connection_options:
      tcp_keepalive:
        ...
admin:
  ...
"#;

/// That of the overview of dynamic resources, where two types have streams of their own.
const BY_TYPE: &str = r#"
node:
  cluster: envoy_cluster
  id: envoy_node

dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
    - envoy_grpc:
        cluster_name: xds_cluster
  cds_config:
    resource_api_version: V3
    api_config_source:
      api_type: GRPC
      transport_api_version: V3
      grpc_services:
      - envoy_grpc:
          cluster_name: xds_cluster
  lds_config:
    resource_api_version: V3
    api_config_source:
      api_type: GRPC
      transport_api_version: V3
      grpc_services:
      - envoy_grpc:
          cluster_name: xds_cluster

static_resources:
  clusters:
  - type: STRICT_DNS
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options: {}
    name: xds_cluster
    load_assignment:
      cluster_name: xds_cluster
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                address: HOST
                port_value: PORT
"#;

/// What the documents have in common where they are about other things.
const CLUSTER: &str = r#"
static_resources:
  clusters:
  - name: xds_cluster
    type: STRICT_DNS
    http2_protocol_options: {}
    load_assignment:
      cluster_name: xds_cluster
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: HOST, port_value: PORT } } }
"#;

async fn sees_everything(client: &Client) {
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    soon(client.watch::<Listener>("shop").ready()).await.unwrap();
    soon(client.watch::<ClusterLoadAssignment>("shop").ready()).await.unwrap();
}

#[tokio::test]
async fn the_newest_editions_bootstrap_works_as_it_is_printed() {
    let server = server().await;
    let document = at(&server, NEWEST);
    let bootstrap = load(&document);
    assert_eq!(bootstrap.node().id, "envoy_node");
    let keepalive = KeepAlive::new(Duration::from_secs(30), Duration::from_secs(5));
    assert_eq!(bootstrap.servers().next().unwrap().keep_alive, Some(keepalive));
    let warnings: Vec<_> = bootstrap.warnings().iter().map(|warning| warning.path()).collect();
    let cluster = "static_resources.clusters[0]";
    assert_eq!(
        warnings,
        [format!("{cluster}.connect_timeout"), format!("{cluster}.upstream_connection_options")]
    );
    let client = client(&document);
    sees_everything(&client).await;
    assert_eq!(server.clients(), 1, "one stream for all types");
}

#[tokio::test]
async fn the_older_editions_bootstrap_works_as_it_is_printed() {
    let server = server().await;
    let document = at(&server, OLDER);
    assert_eq!(load(&document).warnings().last().unwrap().path(), "admin");
    sees_everything(&client(&document)).await;
    let without =
        document.replace("      connection_keepalive:\n        interval: 30s\n        timeout: 5s\n", "");
    let without = without.replace("http2_protocol_options:\n", "http2_protocol_options: {}\n");
    assert_eq!(load(&without).servers().next().unwrap().keep_alive, None);
    sees_everything(&client(&without)).await;
}

#[tokio::test]
async fn the_incremental_variant_works_in_its_place() {
    let server = server().await;
    let document = at(&server, NEWEST).replace("api_type: GRPC", "api_type: DELTA_GRPC");
    sees_everything(&client(&document)).await;
    assert_eq!(server.clients(), 1);
}

#[tokio::test]
async fn types_with_sources_of_their_own_have_streams_of_their_own() {
    let server = server().await;
    for api_type in ["GRPC", "DELTA_GRPC"] {
        let document = at(&server, BY_TYPE).replace("api_type: GRPC", &format!("api_type: {api_type}"));
        assert_eq!(load(&document).warnings(), []);
        let client = client(&document);
        sees_everything(&client).await;
        assert_eq!(server.clients(), 3, "two of a type each, and one for the others");
        client.shutdown().await;
        soon(server.expect_clients(0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_type_without_a_source_is_refused() {
    let server = server().await;
    let dynamic = r#"
dynamic_resources:
  cds_config:
    api_config_source: { api_type: GRPC, grpc_services: [{ envoy_grpc: { cluster_name: xds_cluster } }] }
"#;
    let client = client(&at(&server, &format!("{dynamic}{CLUSTER}")));
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    let error = soon(client.watch::<Listener>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn sources_that_come_with_resources_name_clusters_of_the_bootstrap() {
    let server = server().await;
    let source = || pb::ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(pb::ApiConfigSource {
            api_type: pb::api_config_source::ApiType::Grpc.into(),
            grpc_services: vec![pb::GrpcService {
                target_specifier: Some(TargetSpecifier::EnvoyGrpc(pb::grpc_service::EnvoyGrpc {
                    cluster_name: "xds_cluster".into(),
                    ..Default::default()
                })),
                ..Default::default()
            }],
            ..Default::default()
        })),
        ..Default::default()
    };
    server.set(listener("shop").rds_from("shop-routes", source()));
    server.set(cluster("shop").eds_from(source()));
    let own = "{ api_config_source: { api_type: GRPC, grpc_services: [{ envoy_grpc: { cluster_name: xds_cluster } }] } }";
    let dynamic = format!("dynamic_resources:\n  lds_config: {own}\n  cds_config: {own}\n");
    let bootstrap = load(&at(&server, &format!("{dynamic}{CLUSTER}")));
    let client = Client::builder(bootstrap).follow_config_sources(true).build().unwrap();
    let snapshot = soon(client.resolve("xds:///shop").ready()).await.unwrap();
    assert_eq!(snapshot.clusters().count(), 1);
    assert_eq!(server.clients(), 4, "a stream for each type");
}

#[tokio::test]
async fn a_server_of_version_2_is_spoken_to_in_it() {
    let server = server().await;
    sees_everything(&client(&at(&server, NEWEST).replace("version: V3", "version: V2"))).await;
}

#[tokio::test]
async fn authorities_have_the_sources_that_name_them() {
    let (first, second) = (server().await, TestControlPlane::start().await);
    let name = |authority: &str| format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/shop");
    first.set(cluster(name("a")).eds_service("shop"));
    second.set(cluster(name("b")).eds_service("shop"));
    second.set(cluster(name("other")).eds_service("shop"));
    let source = |server: &TestControlPlane| {
        let target = server.addr();
        format!(
            "{{ api_type: AGGREGATED_GRPC, grpc_services: [{{ google_grpc: {{ target_uri: '{target}' }} }}] }}"
        )
    };
    let document = format!(
        "config_sources:\n- authorities: [{{ name: a }}]\n  api_config_source: {}\n\
         default_config_source:\n  api_config_source: {}\n",
        source(&first),
        source(&second),
    );
    let client = client(&document);
    for authority in ["a", "b", "other"] {
        soon(client.watch::<Cluster>(&name(authority)).ready()).await.unwrap();
    }
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "an opaque name is nobody's");
}

#[tokio::test]
async fn a_locator_is_watched_instead_of_the_wildcard() {
    let server = server().await;
    let member = "xdstp://some-authority/envoy.config.cluster.v3.Cluster/foo/a";
    server.set(cluster(member).eds_service("shop"));
    let dynamic = r#"
dynamic_resources:
  cds_resources_locator: xdstp://some-authority/envoy.config.cluster.v3.Cluster/foo/*
  cds_config:
    authorities: [{ name: some-authority }]
    api_config_source: { api_type: AGGREGATED_DELTA_GRPC, grpc_services: [{ envoy_grpc: { cluster_name: xds_cluster } }] }
"#;
    let client = client(&at(&server, &format!("{dynamic}{CLUSTER}")));
    let clusters = soon(client.watch_all::<Cluster>(ResourceSelector::All).ready()).await.unwrap();
    assert_eq!(clusters.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), [member], "and not `shop`");
    assert!(clusters.get(member).unwrap().is_present());
}

#[tokio::test]
async fn tls_uses_the_server_name_of_the_cluster() {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let control_plane = control_plane::ControlPlane::builder().build();
    control_plane.set(cluster("shop"));
    let server = TlsServer::start(control_plane, None, ca.server_config_for("xds.example.com")).await;
    let secured = |sni: &str| {
        let (host, port) =
            server.uri().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
        let socket = format!(
            r#"    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: {sni}
        common_tls_context: {{ validation_context: {{ trusted_ca: {{ filename: {} }} }} }}
"#,
            files.ca().display()
        );
        let document = format!("{BY_TYPE}{socket}");
        client(&document.replace("HOST", &host).replace("PORT", &port))
    };
    soon(secured("xds.example.com").watch::<Cluster>("shop").ready()).await.unwrap();
    let error = soon(secured("other.example.com").watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert!(error.reason().contains("is not for the host \"other.example.com\""), "{error}");
}

/// As Contour and Envoy Gateway have it.
#[tokio::test]
async fn mutual_tls_is_by_secrets_in_files() {
    let (files, ca, clients) = (Files::new(), Ca::new(), Ca::new());
    ca.write_root(&files.ca());
    clients.write_identity(&files.certificate(), &files.key());
    let own = format!(
        "tls_certificate: {{ certificate_chain: {{ filename: {} }}, private_key: {{ filename: {} }} }}",
        files.certificate().display(),
        files.key().display()
    );
    let roots = format!(
        "validation_context: {{ trusted_ca: {{ filename: {} }}, match_typed_subject_alt_names: [{{ san_type: DNS, matcher: {{ exact: \
         contour }} }}] }}",
        files.ca().display()
    );
    for (name, secret) in [("own", own), ("roots", roots)] {
        let text = format!("resources:\n- name: {name}\n  {secret}\n");
        std::fs::write(files.path(&format!("{name}.yaml")), text).unwrap();
    }
    let control_plane = control_plane::ControlPlane::builder().build();
    control_plane.set(cluster("shop"));
    let tls = ca.server_config_for("contour").client_ca_root(Certificate::from_pem(clients.root()));
    let server = TlsServer::start(control_plane, None, tls).await;
    let sds = |name: &str| {
        let path = files.path(&format!("{name}.yaml"));
        format!("{{ name: {name}, sds_config: {{ path_config_source: {{ path: {} }} }} }}", path.display())
    };
    let socket = format!(
        r#"    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificate_sds_secret_configs: [{}]
          validation_context_sds_secret_config: {}
"#,
        sds("own"),
        sds("roots")
    );
    let uri = server.uri();
    let (host, port) = uri.rsplit_once(':').unwrap();
    let document = format!("{BY_TYPE}{socket}").replace("HOST", host).replace("PORT", port);
    soon(client(&document).watch::<Cluster>("shop").ready()).await.unwrap();
    // The files that the secrets name are read for each connection.
    Ca::new().write_root(&files.ca());
    let error = soon(client(&document).watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert!(error.reason().contains("is not trusted by ca_certificate_file "), "{error}");
}

#[tokio::test]
async fn rest_is_polled() {
    let server = server().await;
    let dynamic = r#"
dynamic_resources:
  cds_config:
    api_config_source: { api_type: REST, cluster_names: [xds_cluster], refresh_delay: 0.01s, request_timeout: 5s }
"#;
    let client = client(&at(&server, &format!("{dynamic}{CLUSTER}")));
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    server.set(cluster("later"));
    soon(client.watch::<Cluster>("later").ready()).await.unwrap();
}

#[tokio::test]
async fn files_are_sources_of_types() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let clusters = write("cds.yaml", CLUSTERS_IN_A_FILE);
    let listeners = write("lds.yaml", LISTENERS_IN_A_FILE);
    let watched = directory.path().display();
    let document = format!(
        "dynamic_resources:\n  cds_config:\n    path_config_source:\n      path: {clusters}\n      \
         watched_directory: {{ path: {watched}, watch_modify: true }}\n  \
         lds_resources_locator: file://{listeners}\n"
    );
    assert_eq!(load(&document).warnings(), []);
    let client = client(&document);
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    let listeners = soon(client.watch_all::<Listener>(ResourceSelector::All).ready()).await.unwrap();
    assert_eq!(listeners.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["shop"]);
    let error = soon(client.watch::<ClusterLoadAssignment>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "no file is a source of the type");
}

/// A response, as in the documents about files.
const CLUSTERS_IN_A_FILE: &str = r#"
version_info: "1"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: shop
  type: EDS
  eds_cluster_config: { eds_config: { ads: {} } }
"#;

/// A collection of inline entries.
const LISTENERS_IN_A_FILE: &str = r#"
version: "1"
resource:
  "@type": type.googleapis.com/envoy.config.listener.v3.ListenerCollection
  entries:
  - inline_entry:
      name: shop
      version: "1"
      resource:
        "@type": type.googleapis.com/envoy.config.listener.v3.Listener
        name: shop
        api_listener:
          api_listener:
            "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
            rds: { route_config_name: shop-routes, config_source: { ads: {} } }
            http_filters:
            - name: router
              typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
"#;
