//! The names that extensions have in v2 of the API. A server of v2 sends them inside of its resources, in messages that are read
//! like those of v3: fields kept their numbers.

use super::Invalid;
use crate::wire::Fields;

/// Returns the name in v3 of a message, by its name in any version.
pub(super) fn v3_name(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("envoy.") else { return name };
    RENAMED.iter().find(|(v2, _)| *v2 == rest).map_or(name, |(_, v3)| v3)
}

/// Rejects a cluster of v2 with TLS in a field of its own, which v3 does not have. To ignore it would send in plain text what
/// the server configured for TLS (A29-1).
pub(super) fn check_cluster(cluster: &[u8]) -> Result<(), Invalid> {
    match has_field(cluster, CLUSTER_TLS) {
        true => Err(Invalid::field("tls_context", TLS_OF_V2)),
        false => Ok(()),
    }
}

/// Rejects a listener of v2 that has such a field in a filter chain, for the same reason as [`check_cluster`].
pub(super) fn check_listener(listener: &[u8]) -> Result<(), Invalid> {
    let fields = Fields::of(listener).map_while(Result::ok);
    let mut chains = fields.filter(|field| matches!(field.number, FILTER_CHAINS | DEFAULT_FILTER_CHAIN));
    match chains.any(|chain| chain.bytes().is_ok_and(|chain| has_field(chain, CHAIN_TLS))) {
        true => Err(Invalid::field("filter_chains.tls_context", TLS_OF_V2)),
        false => Ok(()),
    }
}

/// What is no message is an error elsewhere.
fn has_field(message: &[u8], number: u32) -> bool {
    Fields::of(message).map_while(Result::ok).any(|field| field.number == number)
}

/// The reason for rejecting TLS settings that v3 has no field for.
const TLS_OF_V2: &str = "is a field of v2 and not supported; use transport_socket";

/// `Cluster.tls_context` of v2.
const CLUSTER_TLS: u32 = 11;
/// `Listener.filter_chains`, in both versions.
const FILTER_CHAINS: u32 = 3;
/// `Listener.default_filter_chain`, in both versions.
const DEFAULT_FILTER_CHAIN: u32 = 25;
/// `FilterChain.tls_context` of v2.
const CHAIN_TLS: u32 = 2;

/// The names in v2, without `envoy.`, and those in v3.
#[rustfmt::skip]
const RENAMED: &[(&str, &str)] = &[
    ("api.v2.auth.DownstreamTlsContext", "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
    ("api.v2.auth.UpstreamTlsContext", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
    ("api.v2.core.Address", "envoy.config.core.v3.Address"),
    ("config.cluster.aggregate.v2alpha.ClusterConfig", "envoy.extensions.clusters.aggregate.v3.ClusterConfig"),
    ("config.filter.http.ext_authz.v2.ExtAuthz", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"),
    ("config.filter.http.ext_authz.v2.ExtAuthzPerRoute", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"),
    ("config.filter.http.fault.v2.HTTPFault", "envoy.extensions.filters.http.fault.v3.HTTPFault"),
    ("config.filter.http.rbac.v2.RBAC", "envoy.extensions.filters.http.rbac.v3.RBAC"),
    ("config.filter.http.rbac.v2.RBACPerRoute", "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"),
    ("config.filter.http.router.v2.Router", "envoy.extensions.filters.http.router.v3.Router"),
    ("config.filter.network.http_connection_manager.v2.HttpConnectionManager", "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pb::{
            envoy::config::{
                cluster::v3::{self as cluster, cluster::ClusterDiscoveryType},
                core::v3 as core,
            },
            envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType,
            google::protobuf::Any,
        },
        resource::{Cluster, Context, Listener, Resource, samples::*},
    };

    /// The message by its name in v2.
    fn of_v2(any: &Any) -> Any {
        let name = any.type_url.rsplit('/').next().unwrap();
        let (v2, _) = RENAMED.iter().find(|(_, v3)| *v3 == name).unwrap();
        Any { type_url: format!("type.googleapis.com/envoy.{v2}"), ..any.clone() }
    }

    #[test]
    fn each_extension_with_a_name_in_v2_is_that_of_v3() {
        for (v2, v3) in RENAMED {
            assert_eq!(v3_name(&format!("envoy.{v2}")), *v3);
            assert_eq!(v3_name(v3), *v3);
        }
        assert_eq!(v3_name("envoy.other"), "envoy.other");
        assert_eq!(v3_name("config.filter.http.router.v2.Router"), "config.filter.http.router.v2.Router");
    }

    #[test]
    fn l1_l14_accepts_the_extensions_of_v2() {
        let mut manager = manager();
        let v3 = api_listener(&manager);
        for filter in &mut manager.http_filters {
            let Some(ConfigType::TypedConfig(any)) = &mut filter.config_type else { continue };
            *any = of_v2(any);
        }
        let mut v2 = api_listener(&manager);
        let api = v2.api_listener.as_mut().unwrap();
        api.api_listener = api.api_listener.as_ref().map(of_v2);
        assert_eq!(parse::<Listener>(&v2), parse::<Listener>(&v3));
        assert!(parse::<Listener>(&v2).is_ok());
    }

    #[test]
    fn c4_accepts_an_aggregate_of_v2() {
        let value = b"\x0a\x01a".to_vec();
        let config = |name| {
            let typed_config = Some(any(name, value.clone()));
            let of =
                cluster::cluster::CustomClusterType { name: "envoy.clusters.aggregate".into(), typed_config };
            let kind = Some(ClusterDiscoveryType::ClusterType(of));
            parse::<Cluster>(&cluster::Cluster {
                name: "all".into(),
                cluster_discovery_type: kind,
                ..Default::default()
            })
        };
        let v2 = config("envoy.config.cluster.aggregate.v2alpha.ClusterConfig");
        assert_eq!(v2, config("envoy.extensions.clusters.aggregate.v3.ClusterConfig"));
        assert!(v2.is_ok(), "{v2:?}");
    }

    #[test]
    fn c20_rejects_tls_of_v2_in_a_field_of_its_own() {
        let mut bytes = prost::Message::encode_to_vec(&cluster::Cluster {
            name: "shop".into(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(3)),
            ..Default::default()
        });
        bytes.extend([0x5a, 0]);
        let error = Cluster::parse(&bytes.into(), &Context::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tls_context: is a field of v2 and not supported; use transport_socket"
        );
        // filter_chains { tls_context {} }
        let mut bytes = prost::Message::encode_to_vec(&socket_listener(vec![]));
        bytes.extend([0x1a, 2, 0x12, 0]);
        let error = Listener::parse(&bytes.into(), &Context::new()).unwrap_err();
        assert!(error.to_string().starts_with("filter_chains.tls_context: is a field of v2"), "{error}");
    }

    #[test]
    fn c20_accepts_tls_of_v2() {
        let socket = |name: &str| core::TransportSocket {
            name: "envoy.transport_sockets.tls".into(),
            config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(name, Vec::new()))),
        };
        let rejected = |name| {
            let ads = core::config_source::ConfigSourceSpecifier::Ads(core::AggregatedConfigSource {});
            let source = core::ConfigSource { config_source_specifier: Some(ads), ..Default::default() };
            let eds = cluster::cluster::EdsClusterConfig { eds_config: Some(source), ..Default::default() };
            rejection::<Cluster>(&cluster::Cluster {
                name: "shop".into(),
                cluster_discovery_type: Some(ClusterDiscoveryType::Type(3)),
                eds_cluster_config: Some(eds),
                transport_socket: Some(socket(name)),
                ..Default::default()
            })
        };
        let v2 = rejected("envoy.api.v2.auth.UpstreamTlsContext");
        assert_eq!(v2, rejected("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"));
        assert!(v2.contains("common_tls_context"), "{v2}");
    }
}
