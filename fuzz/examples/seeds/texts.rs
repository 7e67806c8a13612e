//! Bootstraps and names.

/// gRPC's.
pub(crate) const BOOTSTRAP: &str = r#"{
  "xds_servers": [{
    "server_uri": "xds.example:443",
    "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/ca.pem", "refresh_interval": "60s"}}],
    "initial_metadata": [{"key": "x-token", "value": "a"}, {"key": "x-bin", "raw_value": "AP8="}],
    "server_features": ["xds_v3", "trusted_xds_server", "ignore_resource_deletion"]
  }],
  "node": {"id": "n", "cluster": "c", "locality": {"region": "r", "zone": "z", "sub_zone": "s"}, "metadata": {"a": [1, null]}},
  "authorities": {"a.example": {
    "client_listener_resource_name_template": "xdstp://a.example/envoy.config.listener.v3.Listener/%s",
    "xds_servers": [{"server_uri": "[::1]:15010", "channel_creds": [{"type": "insecure"}]}]
  }},
  "client_default_listener_resource_name_template": "%s",
  "server_listener_resource_name_template": "server/%s",
  "certificate_providers": {"ca": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca.pem"}}}
}"#;

/// Envoy's, as YAML.
pub(crate) const ENVOY_YAML: &str = r#"node: { id: n, cluster: c, locality: { region: r, zone: z, subZone: s }, metadata: { a: [1, null] } }
node_context_params: [id, metadata, locality.zone]
dynamic_resources:
  ads_config:
    api_type: AGGREGATED_DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services:
    - envoy_grpc: { cluster_name: xds, authority: xds.internal, retry_policy: {} }
      initial_metadata: [{ key: x-token, value: a%% }, { key: x-bin, raw_value: AP8= }]
    - google_grpc:
        target_uri: dns:///xds.example:443
        channel_credentials: { ssl_credentials: { root_certs: { filename: /ca.pem } } }
        call_credentials: [{ google_compute_engine: {} }]
  lds_config:
    authorities: [{ name: a.example }]
    ads: {}
  cds_config:
    resource_api_version: V2
    initial_fetch_timeout: 1s
    api_config_source: { api_type: REST, cluster_names: [xds, second], refresh_delay: 1.5s, request_timeout: { seconds: 1 } }
  lds_resources_locator: xdstp://a.example/envoy.config.listener.v3.ListenerCollection/foo
  cds_resources_locator: file:///cds.yaml
config_sources:
- authorities: [{ name: a.example }, { name: "" }]
  path_config_source: { path: /a.yaml, watched_directory: { path: / } }
default_config_source: { path: /b.json }
static_resources:
  clusters:
  - name: xds
    type: STATIC
    load_assignment:
      cluster_name: xds
      endpoints:
      - priority: 1
        lb_endpoints:
        - endpoint: { address: { pipe: { path: /xds.sock } } }
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 10.0.0.1, port_value: 80 } } }
        - endpoint: { address: { socket_address: { address: 10.0.0.2, port_value: 80 } } }
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: xds.internal
        common_tls_context:
          tls_certificates: [{ certificate_chain: { filename: /c.pem }, private_key: { filename: /k.pem } }]
          validation_context:
            trusted_ca: { filename: /ca.pem }
            match_typed_subject_alt_names: [{ san_type: DNS, matcher: { exact: xds.internal } }]
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        explicit_http_config: { http2_protocol_options: { connection_keepalive: { interval: 30s, timeout: 5s } } }
  - name: second
    type: STRICT_DNS
    hosts: [{ socket_address: { address: xds.example, port_value: 80 } }]
admin: {}
"#;

/// Envoy's, as JSON and in camel case.
pub(crate) const ENVOY_JSON: &str = r#"{"nodeContextParams":["cluster"],"dynamicResources":{"adsConfig":{"apiType":2,"grpcServices":{"envoyGrpc":{"clusterName":"xds"}}},"cdsConfig":{"self":{}},"cdsResourcesLocator":{"name":"xdstp:///envoy.config.cluster.v3.Cluster/*"}},"configSources":[{"authorities":[{"name":""}],"ads":{}}],"staticResources":{"clusters":[{"name":"xds","type":1,"loadAssignment":{"endpoints":[{"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"::1","portValue":"80"}}}}]}]},"tlsContext":{"commonTlsContext":{}}}]}}"#;

/// Names of resources.
pub(crate) const NAMES: [&str; 5] = [
    "outbound|80||shop.default.svc.cluster.local",
    "xdstp://mesh.example/envoy.config.listener.v3.Listener/shop/a?zone=b&env=prod%20x",
    "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/eds/*?a=b#alt=xdstp%3A//b/envoy.config.endpoint.v3.ClusterLoadAssignment/x",
    "xdstp://a/envoy.config.route.v3.RouteConfiguration/list#entry=one",
    "xdstp://a/x.Y/%2F%C3%A4?k=%26",
];
