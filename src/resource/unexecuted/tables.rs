//! The fields that management servers may send and that channels do not execute, by their numbers, whether or not the messages
//! of this crate have them. Names and statistics of proxies, metadata without a meaning of its own, and fields that reject a
//! resource are not among them.

use super::{
    Entry::{Ignored, Inside},
    Table,
};

pub(in crate::resource) static CLUSTER: Table = Table(&[
    (4, Ignored("Cluster.connect_timeout")),
    (5, Ignored("Cluster.per_connection_buffer_limit_bytes")),
    (8, Ignored("Cluster.health_checks")),
    (9, Ignored("Cluster.max_requests_per_connection")),
    (10, Inside(&CIRCUIT_BREAKERS)),
    (13, Ignored("Cluster.http_protocol_options")),
    (14, Ignored("Cluster.http2_protocol_options")),
    (16, Ignored("Cluster.dns_refresh_rate")),
    (17, Ignored("Cluster.dns_lookup_family")),
    (18, Ignored("Cluster.dns_resolvers")),
    (19, Inside(&OUTLIER_DETECTION)),
    (20, Ignored("Cluster.cleanup_interval")),
    (21, Ignored("Cluster.upstream_bind_config")),
    (22, Ignored("Cluster.lb_subset_config")),
    (26, Ignored("Cluster.protocol_selection")),
    (27, Inside(&COMMON_LB_CONFIG)),
    (28, Ignored("Cluster.alt_stat_name")),
    (29, Ignored("Cluster.common_http_protocol_options")),
    (30, Ignored("Cluster.upstream_connection_options")),
    (31, Ignored("Cluster.close_connections_on_host_health_failure")),
    (32, Ignored("Cluster.ignore_health_on_host_removal")),
    (34, Ignored("Cluster.original_dst_lb_config")),
    (36, Ignored("Cluster.typed_extension_protocol_options")),
    (37, Inside(&LEAST_REQUEST_LB_CONFIG)),
    (39, Ignored("Cluster.respect_dns_ttl")),
    (40, Ignored("Cluster.filters")),
    (44, Ignored("Cluster.dns_failure_refresh_rate")),
    (45, Ignored("Cluster.use_tcp_for_dns_lookups")),
    (46, Ignored("Cluster.upstream_http_protocol_options")),
    (47, Ignored("Cluster.track_timeout_budgets")),
    (48, Inside(&UPSTREAM_CONFIG)),
    (49, Ignored("Cluster.track_cluster_stats")),
    (50, Ignored("Cluster.preconnect_policy")),
    (51, Ignored("Cluster.connection_pool_per_downstream_connection")),
    (53, Ignored("Cluster.dns_resolution_config")),
    (54, Ignored("Cluster.wait_for_warm_on_init")),
    (55, Ignored("Cluster.typed_dns_resolver_config")),
    (56, Ignored("Cluster.round_robin_lb_config")),
    (58, Ignored("Cluster.dns_jitter")),
    (59, Ignored("Cluster.transport_socket_matcher")),
    (60, Ignored("Cluster.per_connection_buffer_high_watermark_timeout")),
    (61, Ignored("Cluster.stats_matcher")),
    (62, Ignored("Cluster.queuing_policies")),
]);

static COMMON_LB_CONFIG: Table = Table(&[
    (1, Ignored("CommonLbConfig.healthy_panic_threshold")),
    (2, Ignored("CommonLbConfig.zone_aware_lb_config")),
    (4, Ignored("CommonLbConfig.update_merge_window")),
    (5, Ignored("CommonLbConfig.ignore_new_hosts_until_first_hc")),
    (6, Ignored("CommonLbConfig.close_connections_on_host_set_change")),
    (7, Ignored("CommonLbConfig.consistent_hashing_lb_config")),
]);

static LEAST_REQUEST_LB_CONFIG: Table = Table(&[
    (2, Ignored("LeastRequestLbConfig.active_request_bias")),
    (3, Ignored("LeastRequestLbConfig.slow_start_config")),
]);

static THRESHOLDS: Table = Table(&[
    (2, Ignored("Thresholds.max_connections")),
    (3, Ignored("Thresholds.max_pending_requests")),
    (5, Ignored("Thresholds.max_retries")),
    (6, Ignored("Thresholds.track_remaining")),
    (7, Ignored("Thresholds.max_connection_pools")),
    (8, Ignored("Thresholds.retry_budget")),
]);

static OUTLIER_DETECTION: Table = Table(&[
    (1, Ignored("OutlierDetection.consecutive_5xx")),
    (5, Ignored("OutlierDetection.enforcing_consecutive_5xx")),
    (10, Ignored("OutlierDetection.consecutive_gateway_failure")),
    (11, Ignored("OutlierDetection.enforcing_consecutive_gateway_failure")),
    (12, Ignored("OutlierDetection.split_external_local_origin_errors")),
    (13, Ignored("OutlierDetection.consecutive_local_origin_failure")),
    (14, Ignored("OutlierDetection.enforcing_consecutive_local_origin_failure")),
    (15, Ignored("OutlierDetection.enforcing_local_origin_success_rate")),
    (18, Ignored("OutlierDetection.enforcing_failure_percentage_local_origin")),
    (22, Ignored("OutlierDetection.max_ejection_time_jitter")),
    (23, Ignored("OutlierDetection.successful_active_health_check_uneject_host")),
    (24, Ignored("OutlierDetection.monitors")),
    (25, Ignored("OutlierDetection.always_eject_one_host")),
    (26, Ignored("OutlierDetection.detect_degraded_hosts")),
]);

static HTTP_OPTIONS: Table = Table(&[
    (1, Inside(&COMMON_HTTP_OPTIONS)),
    (2, Ignored("upstreams.HttpProtocolOptions.upstream_http_protocol_options")),
    (4, Ignored("upstreams.HttpProtocolOptions.use_downstream_protocol_config")),
    (5, Ignored("upstreams.HttpProtocolOptions.auto_config")),
    (6, Ignored("upstreams.HttpProtocolOptions.http_filters")),
    (7, Ignored("upstreams.HttpProtocolOptions.header_validation_config")),
    (8, Ignored("upstreams.HttpProtocolOptions.outlier_detection")),
    (9, Ignored("upstreams.HttpProtocolOptions.request_mirror_policies")),
    (10, Ignored("upstreams.HttpProtocolOptions.hash_policy")),
    (11, Ignored("upstreams.HttpProtocolOptions.retry_policy")),
]);

static COMMON_HTTP_OPTIONS: Table = Table(&[
    (2, Ignored("HttpProtocolOptions.max_headers_count")),
    (3, Ignored("HttpProtocolOptions.max_connection_duration")),
    (4, Ignored("HttpProtocolOptions.max_stream_duration")),
    (5, Ignored("HttpProtocolOptions.headers_with_underscores_action")),
    (6, Ignored("HttpProtocolOptions.max_requests_per_connection")),
    (7, Ignored("HttpProtocolOptions.max_response_headers_kb")),
    (8, Ignored("HttpProtocolOptions.max_connection_duration_jitter")),
]);

pub(in crate::resource) static ROUTE_CONFIGURATION: Table = Table(&[
    (2, Inside(&VIRTUAL_HOST)),
    (3, Ignored("RouteConfiguration.internal_only_headers")),
    (4, Ignored("RouteConfiguration.response_headers_to_add")),
    (5, Ignored("RouteConfiguration.response_headers_to_remove")),
    (6, Ignored("RouteConfiguration.request_headers_to_add")),
    (7, Ignored("RouteConfiguration.validate_clusters")),
    (8, Ignored("RouteConfiguration.request_headers_to_remove")),
    (10, Ignored("RouteConfiguration.most_specific_header_mutations_wins")),
    (11, Ignored("RouteConfiguration.max_direct_response_body_size_bytes")),
    (13, Ignored("RouteConfiguration.request_mirror_policies")),
    (14, Ignored("RouteConfiguration.ignore_port_in_host_matching")),
    (15, Ignored("RouteConfiguration.ignore_path_parameters_in_path_matching")),
    (16, Ignored("RouteConfiguration.typed_per_filter_config")),
    (18, Ignored("RouteConfiguration.vhost_header")),
    (19, Ignored("RouteConfiguration.route_specifiers")),
]);

pub(in crate::resource) static VIRTUAL_HOST: Table = Table(&[
    (3, Inside(&ROUTE)),
    (4, Ignored("VirtualHost.require_tls")),
    (5, Ignored("VirtualHost.virtual_clusters")),
    (6, Ignored("VirtualHost.rate_limits")),
    (7, Ignored("VirtualHost.request_headers_to_add")),
    (8, Ignored("VirtualHost.cors")),
    (10, Ignored("VirtualHost.response_headers_to_add")),
    (11, Ignored("VirtualHost.response_headers_to_remove")),
    (13, Ignored("VirtualHost.request_headers_to_remove")),
    (14, Ignored("VirtualHost.include_request_attempt_count")),
    (16, Inside(&RETRY_POLICY)),
    (17, Ignored("VirtualHost.hedge_policy")),
    (18, Ignored("VirtualHost.per_request_buffer_limit_bytes")),
    (19, Ignored("VirtualHost.include_attempt_count_in_response")),
    (20, Ignored("VirtualHost.retry_policy_typed_config")),
    (21, Ignored("VirtualHost.matcher")),
    (22, Ignored("VirtualHost.request_mirror_policies")),
    (23, Ignored("VirtualHost.include_is_timeout_retry_header")),
    (25, Ignored("VirtualHost.request_body_buffer_limit")),
    (26, Ignored("VirtualHost.route_specifiers")),
]);

static ROUTE: Table = Table(&[
    (1, Inside(&ROUTE_MATCH)),
    (2, Inside(&ROUTE_ACTION)),
    (5, Ignored("Route.decorator")),
    (9, Ignored("Route.request_headers_to_add")),
    (10, Ignored("Route.response_headers_to_add")),
    (11, Ignored("Route.response_headers_to_remove")),
    (12, Ignored("Route.request_headers_to_remove")),
    (15, Ignored("Route.tracing")),
    (16, Ignored("Route.per_request_buffer_limit_bytes")),
    (19, Ignored("Route.stat_prefix")),
    (20, Ignored("Route.request_body_buffer_limit")),
    (21, Ignored("Route.route_specifiers")),
]);

static ROUTE_MATCH: Table = Table(&[
    (8, Ignored("RouteMatch.grpc")),
    (11, Ignored("RouteMatch.tls_context")),
    (13, Ignored("RouteMatch.dynamic_metadata")),
    (16, Ignored("RouteMatch.filter_state")),
    (17, Ignored("RouteMatch.cookies")),
]);

static ROUTE_ACTION: Table = Table(&[
    (3, Inside(&WEIGHTED_CLUSTER)),
    (4, Ignored("RouteAction.metadata_match")),
    (5, Ignored("RouteAction.prefix_rewrite")),
    (6, Ignored("RouteAction.host_rewrite_literal")),
    (8, Ignored("RouteAction.timeout")),
    (9, Inside(&RETRY_POLICY)),
    (11, Ignored("RouteAction.priority")),
    (13, Ignored("RouteAction.rate_limits")),
    (14, Ignored("RouteAction.include_vh_rate_limits")),
    (17, Ignored("RouteAction.cors")),
    (20, Ignored("RouteAction.cluster_not_found_response_code")),
    (23, Ignored("RouteAction.max_grpc_timeout")),
    (24, Ignored("RouteAction.idle_timeout")),
    (25, Ignored("RouteAction.upgrade_configs")),
    (26, Ignored("RouteAction.internal_redirect_action")),
    (27, Ignored("RouteAction.hedge_policy")),
    (28, Ignored("RouteAction.grpc_timeout_offset")),
    (29, Ignored("RouteAction.host_rewrite_header")),
    (30, Ignored("RouteAction.request_mirror_policies")),
    (31, Ignored("RouteAction.max_internal_redirects")),
    (32, Ignored("RouteAction.regex_rewrite")),
    (33, Ignored("RouteAction.retry_policy_typed_config")),
    (34, Ignored("RouteAction.internal_redirect_policy")),
    (35, Ignored("RouteAction.host_rewrite_path_regex")),
    (36, Inside(&MAX_STREAM_DURATION)),
    (38, Ignored("RouteAction.append_x_forwarded_host")),
    (40, Ignored("RouteAction.early_data_policy")),
    (41, Ignored("RouteAction.path_rewrite_policy")),
    (42, Ignored("RouteAction.flush_timeout")),
    (44, Ignored("RouteAction.host_rewrite")),
    (45, Ignored("RouteAction.path_rewrite")),
]);

static MAX_STREAM_DURATION: Table = Table(&[(3, Ignored("MaxStreamDuration.grpc_timeout_header_offset"))]);

static WEIGHTED_CLUSTER: Table = Table(&[
    (1, Inside(&CLUSTER_WEIGHT)),
    (2, Ignored("WeightedCluster.runtime_key_prefix")),
    (4, Ignored("WeightedCluster.header_name")),
    (5, Ignored("WeightedCluster.use_hash_policy")),
]);

static CLUSTER_WEIGHT: Table = Table(&[
    (3, Ignored("ClusterWeight.metadata_match")),
    (4, Ignored("ClusterWeight.request_headers_to_add")),
    (5, Ignored("ClusterWeight.response_headers_to_add")),
    (6, Ignored("ClusterWeight.response_headers_to_remove")),
    (9, Ignored("ClusterWeight.request_headers_to_remove")),
    (11, Ignored("ClusterWeight.host_rewrite_literal")),
]);

static RETRY_POLICY: Table = Table(&[
    (3, Ignored("RetryPolicy.per_try_timeout")),
    (4, Ignored("RetryPolicy.retry_priority")),
    (5, Ignored("RetryPolicy.retry_host_predicate")),
    (6, Ignored("RetryPolicy.host_selection_retry_max_attempts")),
    (7, Ignored("RetryPolicy.retriable_status_codes")),
    (9, Ignored("RetryPolicy.retriable_headers")),
    (10, Ignored("RetryPolicy.retriable_request_headers")),
    (11, Ignored("RetryPolicy.rate_limited_retry_back_off")),
    (12, Ignored("RetryPolicy.retry_options_predicates")),
    (13, Ignored("RetryPolicy.per_try_idle_timeout")),
    (14, Ignored("RetryPolicy.refresh_cluster_on_retry")),
]);

pub(in crate::resource) static CONNECTION_MANAGER: Table = Table(&[
    (4, Inside(&ROUTE_CONFIGURATION)),
    (6, Ignored("HttpConnectionManager.add_user_agent")),
    (7, Ignored("HttpConnectionManager.tracing")),
    (8, Ignored("HttpConnectionManager.http_protocol_options")),
    (9, Ignored("HttpConnectionManager.http2_protocol_options")),
    (10, Ignored("HttpConnectionManager.server_name")),
    (12, Ignored("HttpConnectionManager.drain_timeout")),
    (13, Ignored("HttpConnectionManager.access_log")),
    (14, Ignored("HttpConnectionManager.use_remote_address")),
    (15, Ignored("HttpConnectionManager.generate_request_id")),
    (16, Ignored("HttpConnectionManager.forward_client_cert_details")),
    (17, Ignored("HttpConnectionManager.set_current_client_cert_details")),
    (18, Ignored("HttpConnectionManager.proxy_100_continue")),
    (20, Ignored("HttpConnectionManager.represent_ipv4_remote_address_as_ipv4_mapped_ipv6")),
    (21, Ignored("HttpConnectionManager.skip_xff_append")),
    (22, Ignored("HttpConnectionManager.via")),
    (23, Ignored("HttpConnectionManager.upgrade_configs")),
    (24, Ignored("HttpConnectionManager.stream_idle_timeout")),
    (25, Ignored("HttpConnectionManager.internal_address_config")),
    (26, Ignored("HttpConnectionManager.delayed_close_timeout")),
    (28, Ignored("HttpConnectionManager.request_timeout")),
    (29, Ignored("HttpConnectionManager.max_request_headers_kb")),
    (30, Ignored("HttpConnectionManager.normalize_path")),
    (32, Ignored("HttpConnectionManager.preserve_external_request_id")),
    (33, Ignored("HttpConnectionManager.merge_slashes")),
    (34, Ignored("HttpConnectionManager.server_header_transformation")),
    (35, Inside(&MANAGER_HTTP_OPTIONS)),
    (36, Ignored("HttpConnectionManager.request_id_extension")),
    (37, Ignored("HttpConnectionManager.always_set_request_id_in_response")),
    (38, Ignored("HttpConnectionManager.local_reply_config")),
    (39, Ignored("HttpConnectionManager.strip_matching_host_port")),
    (40, Ignored("HttpConnectionManager.stream_error_on_invalid_http_message")),
    (41, Ignored("HttpConnectionManager.request_headers_timeout")),
    (42, Ignored("HttpConnectionManager.strip_any_host_port")),
    (43, Ignored("HttpConnectionManager.path_normalization_options")),
    (44, Ignored("HttpConnectionManager.http3_protocol_options")),
    (45, Ignored("HttpConnectionManager.path_with_escaped_slashes_action")),
    (47, Ignored("HttpConnectionManager.strip_trailing_host_dot")),
    (48, Ignored("HttpConnectionManager.scheme_header_transformation")),
    (49, Ignored("HttpConnectionManager.proxy_status_config")),
    (50, Ignored("HttpConnectionManager.typed_header_validation_config")),
    (51, Ignored("HttpConnectionManager.append_x_forwarded_port")),
    (52, Ignored("HttpConnectionManager.early_header_mutation_extensions")),
    (53, Ignored("HttpConnectionManager.add_proxy_protocol_connection_state")),
    (54, Ignored("HttpConnectionManager.access_log_flush_interval")),
    (55, Ignored("HttpConnectionManager.flush_access_log_on_new_request")),
    (56, Ignored("HttpConnectionManager.access_log_options")),
    (57, Ignored("HttpConnectionManager.append_local_overload")),
    (58, Ignored("HttpConnectionManager.http1_safe_max_connection_duration")),
    (59, Ignored("HttpConnectionManager.stream_flush_timeout")),
    (60, Ignored("HttpConnectionManager.forward_client_cert_matcher")),
    (61, Ignored("HttpConnectionManager.forward_proto_config")),
    (62, Ignored("HttpConnectionManager.drain_timeout_jitter")),
]);

/// The options of a connection manager, of which `max_stream_duration` (4) is executed.
static MANAGER_HTTP_OPTIONS: Table = Table(&[
    (1, Ignored("HttpProtocolOptions.idle_timeout")),
    (2, Ignored("HttpProtocolOptions.max_headers_count")),
    (3, Ignored("HttpProtocolOptions.max_connection_duration")),
    (5, Ignored("HttpProtocolOptions.headers_with_underscores_action")),
    (6, Ignored("HttpProtocolOptions.max_requests_per_connection")),
    (7, Ignored("HttpProtocolOptions.max_response_headers_kb")),
    (8, Ignored("HttpProtocolOptions.max_connection_duration_jitter")),
]);

pub(in crate::resource) static LOAD_ASSIGNMENT: Table = Table(&[
    (2, Inside(&LOCALITY_LB_ENDPOINTS)),
    (4, Inside(&ASSIGNMENT_POLICY)),
    (5, Ignored("ClusterLoadAssignment.named_endpoints")),
]);

static ASSIGNMENT_POLICY: Table = Table(&[
    (3, Ignored("ClusterLoadAssignment.Policy.overprovisioning_factor")),
    (4, Ignored("ClusterLoadAssignment.Policy.endpoint_stale_after")),
    (6, Ignored("ClusterLoadAssignment.Policy.weighted_priority_health")),
]);

/// Endpoints are not among the fields inside: they are too many to be scanned (`HEALTH_CHECK_CONFIG`).
static LOCALITY_LB_ENDPOINTS: Table = Table(&[(6, Ignored("LocalityLbEndpoints.proximity"))]);

pub(super) static ROUND_ROBIN: Table =
    Table(&[(1, Ignored("RoundRobin.slow_start_config")), (2, Ignored("RoundRobin.locality_lb_config"))]);

pub(super) static LEAST_REQUEST: Table = Table(&[
    (2, Ignored("LeastRequest.active_request_bias")),
    (3, Ignored("LeastRequest.slow_start_config")),
    (4, Ignored("LeastRequest.locality_lb_config")),
    (5, Ignored("LeastRequest.enable_full_scan")),
    (6, Ignored("LeastRequest.selection_method")),
]);

pub(super) static RING_HASH: Table = Table(&[
    (4, Ignored("RingHash.use_hostname_for_hashing")),
    (5, Ignored("RingHash.hash_balance_factor")),
    (6, Ignored("RingHash.consistent_hashing_lb_config")),
]);

pub(super) static CLIENT_SIDE_WEIGHTED_ROUND_ROBIN: Table = Table(&[
    (8, Ignored("ClientSideWeightedRoundRobin.slow_start_config")),
    (9, Ignored("ClientSideWeightedRoundRobin.oob_reporting_config")),
]);

static CIRCUIT_BREAKERS: Table = Table(&[(1, Inside(&THRESHOLDS))]);

/// `TypedExtensionConfig`, whose type the parser of clusters has checked (C33).
static UPSTREAM_CONFIG: Table = Table(&[(2, Inside(&UPSTREAM_ANY))]);

/// `Any`, with the HTTP options as its value.
static UPSTREAM_ANY: Table = Table(&[(2, Inside(&HTTP_OPTIONS))]);

pub(in crate::resource) static UPSTREAM_TLS_CONTEXT: Table = Table(&[
    (1, Inside(&COMMON_TLS_CONTEXT)),
    (3, Ignored("UpstreamTlsContext.allow_renegotiation")),
    (4, Ignored("UpstreamTlsContext.max_session_keys")),
    (5, Ignored("UpstreamTlsContext.enforce_rsa_key_usage")),
]);

/// Certificates in the message are left out where a provider replaces them; elsewhere they reject the cluster (T3, T4).
static COMMON_TLS_CONTEXT: Table = Table(&[
    (2, Ignored("CommonTlsContext.tls_certificates")),
    (3, Inside(&CERTIFICATE_VALIDATION_CONTEXT)),
    (4, Ignored("CommonTlsContext.alpn_protocols")),
    (6, Ignored("CommonTlsContext.tls_certificate_sds_secret_configs")),
    (8, Inside(&COMBINED_VALIDATION_CONTEXT)),
    (15, Ignored("CommonTlsContext.key_log")),
    (16, Ignored("CommonTlsContext.custom_tls_certificate_selector")),
    (17, Ignored("CommonTlsContext.read_ahead_buffer_size")),
]);

static COMBINED_VALIDATION_CONTEXT: Table = Table(&[
    (1, Inside(&CERTIFICATE_VALIDATION_CONTEXT)),
    (2, Ignored("CombinedCertificateValidationContext.validation_context_sds_secret_config")),
]);

/// Checks that are missing here reject the cluster (T7 to T11).
static CERTIFICATE_VALIDATION_CONTEXT: Table = Table(&[
    (1, Ignored("CertificateValidationContext.trusted_ca")),
    (8, Ignored("CertificateValidationContext.allow_expired_certificate")),
    (10, Ignored("CertificateValidationContext.trust_chain_verification")),
    (11, Ignored("CertificateValidationContext.watched_directory")),
    (14, Ignored("CertificateValidationContext.only_verify_leaf_cert_crl")),
    (16, Ignored("CertificateValidationContext.max_verify_depth")),
]);

pub(in crate::resource) static ROUTER: Table = Table(&[
    (2, Ignored("Router.start_child_span")),
    (3, Ignored("Router.upstream_log")),
    (5, Ignored("Router.strict_check_headers")),
    (6, Ignored("Router.respect_expected_rq_timeout")),
]);

pub(in crate::resource) static HTTP_FAULT: Table = Table(&[
    (3, Ignored("HTTPFault.upstream_cluster")),
    (4, Ignored("HTTPFault.headers")),
    (5, Ignored("HTTPFault.downstream_nodes")),
    (7, Ignored("HTTPFault.response_rate_limit")),
    (8, Ignored("HTTPFault.delay_percent_runtime")),
    (9, Ignored("HTTPFault.abort_percent_runtime")),
    (10, Ignored("HTTPFault.delay_duration_runtime")),
    (11, Ignored("HTTPFault.abort_http_status_runtime")),
    (12, Ignored("HTTPFault.max_active_faults_runtime")),
    (13, Ignored("HTTPFault.response_rate_limit_percent_runtime")),
    (14, Ignored("HTTPFault.abort_grpc_status_runtime")),
]);

pub(in crate::resource) static GCP_AUTHN: Table = Table(&[
    (1, Ignored("GcpAuthnFilterConfig.http_uri")),
    (2, Ignored("GcpAuthnFilterConfig.retry_policy")),
    (4, Ignored("GcpAuthnFilterConfig.token_header")),
    (5, Ignored("GcpAuthnFilterConfig.cluster")),
    (6, Ignored("GcpAuthnFilterConfig.timeout")),
]);

pub(in crate::resource) static COOKIE_SESSION: Table = Table(&[(1, Inside(&SESSION_COOKIE))]);

static SESSION_COOKIE: Table = Table(&[(4, Ignored("Cookie.attributes"))]);
