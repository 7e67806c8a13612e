//! The discovery services of all resource types: one table for clients and servers, in both versions of the transport
//! protocol.

use crate::config::TransportApiVersion;

/// The discovery service of one type, beside the aggregated service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// The names in v3.
    pub(crate) v3: Spelling,
    /// The names in v2; types that were added later have none.
    pub(crate) v2: Option<Spelling>,
    /// The last part of the REST path, after `/v3/discovery:` or `/v2/discovery:`, if the type has one (D10).
    pub(crate) rest: Option<&'static str>,
}

/// The names of a type and its methods in one version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spelling {
    /// The type URL.
    pub(crate) type_url: &'static str,
    /// The gRPC methods.
    pub(crate) methods: Methods,
}

/// The methods of a service, as request paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Methods {
    /// `None` for types of the incremental variant alone (B3.5).
    pub(crate) sotw: Option<&'static str>,
    /// The method of the incremental variant.
    pub(crate) delta: &'static str,
}

impl TransportApiVersion {
    /// Returns the methods of the aggregated service.
    pub(crate) const fn ads(self) -> &'static Methods {
        match self {
            Self::V2 => &ADS_V2,
            Self::V3 => &ADS_V3,
        }
    }

    /// Returns the method of load reports, whose messages are the same in both versions (LR2.1).
    pub(crate) const fn load_reporting(self) -> &'static str {
        match self {
            Self::V2 => "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats",
            Self::V3 => "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
        }
    }

    /// Returns the prefix of a service's REST path, before its [`rest`](Service::rest).
    pub(crate) const fn rest_prefix(self) -> &'static str {
        match self {
            Self::V2 => "/v2/discovery:",
            Self::V3 => "/v3/discovery:",
        }
    }

    /// Returns the type URL on the wire in this version, from that of v3. A type without a v2 name keeps that of v3.
    pub(crate) fn spell(self, type_url: &str) -> &str {
        match self {
            Self::V2 if type_url == WRAPPER => WRAPPER_V2,
            Self::V2 => {
                let v2 = Service::of(type_url).and_then(|service| service.v2.as_ref());
                v2.map_or(type_url, |v2| v2.type_url)
            }
            Self::V3 => type_url,
        }
    }

    /// Returns the v3 type URL for one that was received in this version. Type URLs that are not of v2 are unchanged.
    pub(crate) fn unspell(self, type_url: &str) -> &str {
        match self {
            Self::V2 if type_url == WRAPPER_V2 => WRAPPER,
            Self::V2 => Service::of_v2(type_url).map_or(type_url, |service| service.v3.type_url),
            Self::V3 => type_url,
        }
    }
}

impl Service {
    /// Returns the service of a type, by the type's v3 type URL. Types of applications have none.
    pub(crate) fn of(type_url: &str) -> Option<&'static Self> {
        // A scan, since there are ten entries.
        SERVICES.iter().find(|service| service.v3.type_url == type_url)
    }

    /// Returns the service of a type, by the type's v2 type URL.
    pub(crate) fn of_v2(type_url: &str) -> Option<&'static Self> {
        SERVICES.iter().find(|service| service.v2.as_ref().is_some_and(|v2| v2.type_url == type_url))
    }

    /// Returns all services.
    pub(crate) fn all() -> &'static [Self] {
        &SERVICES
    }

    /// Returns the names in a version, if the type is in it.
    pub(crate) fn spelling(&self, version: TransportApiVersion) -> Option<&Spelling> {
        match version {
            TransportApiVersion::V2 => self.v2.as_ref(),
            TransportApiVersion::V3 => Some(&self.v3),
        }
    }
}

impl Methods {
    /// Returns the method of a variant, if the service has it.
    pub(crate) fn of_variant(&self, is_delta: bool) -> Option<&'static str> {
        if is_delta { Some(self.delta) } else { self.sotw }
    }
}

/// The wrapper with a name and a version for a resource.
pub(crate) use crate::base::type_url::WRAPPER;

/// The type URL of the wrapper in V2.
pub(crate) const WRAPPER_V2: &str = "type.googleapis.com/envoy.api.v2.Resource";

/// The request paths of a service by the names of its methods; `-` in place of the first if there is no state of the world.
macro_rules! methods {
    ($service:literal, -, $delta:literal) => {
        Methods { sotw: None, delta: concat!("/", $service, "/", $delta) }
    };
    ($service:literal, $sotw:literal, $delta:literal) => {
        Methods { sotw: Some(concat!("/", $service, "/", $sotw)), delta: concat!("/", $service, "/", $delta) }
    };
}

/// The type URL and the request paths of a type in one version.
macro_rules! spelling {
    ($type:literal, $service:literal, $sotw:tt, $delta:literal) => {
        Spelling {
            type_url: concat!("type.googleapis.com/", $type),
            methods: methods!($service, $sotw, $delta),
        }
    };
}

/// A row of the table; a type without `v2` is newer than that version.
macro_rules! service {
    ($rest:expr, ($sotw:tt, $delta:literal), v3: ($type:literal, $service:literal)) => {
        Service { v3: spelling!($type, $service, $sotw, $delta), v2: None, rest: $rest }
    };
    (
        $rest:expr, ($sotw:tt, $delta:literal),
        v3: ($type:literal, $service:literal), v2: ($type2:literal, $service2:literal)
    ) => {
        Service {
            v3: spelling!($type, $service, $sotw, $delta),
            v2: Some(spelling!($type2, $service2, $sotw, $delta)),
            rest: $rest,
        }
    };
}

/// The methods of the aggregated service in v3.
static ADS_V3: Methods = methods!(
    "envoy.service.discovery.v3.AggregatedDiscoveryService",
    "StreamAggregatedResources",
    "DeltaAggregatedResources"
);
/// The methods of the aggregated service in v2.
static ADS_V2: Methods = methods!(
    "envoy.service.discovery.v2.AggregatedDiscoveryService",
    "StreamAggregatedResources",
    "DeltaAggregatedResources"
);

/// All services. A type without a line here is served by the aggregated service alone.
static SERVICES: [Service; 10] = [
    service!(
        Some("listeners"), ("StreamListeners", "DeltaListeners"),
        v3: ("envoy.config.listener.v3.Listener", "envoy.service.listener.v3.ListenerDiscoveryService"),
        v2: ("envoy.api.v2.Listener", "envoy.api.v2.ListenerDiscoveryService")
    ),
    service!(
        Some("routes"), ("StreamRoutes", "DeltaRoutes"),
        v3: ("envoy.config.route.v3.RouteConfiguration", "envoy.service.route.v3.RouteDiscoveryService"),
        v2: ("envoy.api.v2.RouteConfiguration", "envoy.api.v2.RouteDiscoveryService")
    ),
    service!(
        Some("scoped-routes"), ("StreamScopedRoutes", "DeltaScopedRoutes"),
        v3: ("envoy.config.route.v3.ScopedRouteConfiguration", "envoy.service.route.v3.ScopedRoutesDiscoveryService"),
        v2: ("envoy.api.v2.ScopedRouteConfiguration", "envoy.api.v2.ScopedRoutesDiscoveryService")
    ),
    // VHDS is incremental alone.
    service!(
        None, (-, "DeltaVirtualHosts"),
        v3: ("envoy.config.route.v3.VirtualHost", "envoy.service.route.v3.VirtualHostDiscoveryService"),
        v2: ("envoy.api.v2.route.VirtualHost", "envoy.api.v2.VirtualHostDiscoveryService")
    ),
    service!(
        Some("clusters"), ("StreamClusters", "DeltaClusters"),
        v3: ("envoy.config.cluster.v3.Cluster", "envoy.service.cluster.v3.ClusterDiscoveryService"),
        v2: ("envoy.api.v2.Cluster", "envoy.api.v2.ClusterDiscoveryService")
    ),
    service!(
        Some("endpoints"), ("StreamEndpoints", "DeltaEndpoints"),
        v3: ("envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.service.endpoint.v3.EndpointDiscoveryService"),
        v2: ("envoy.api.v2.ClusterLoadAssignment", "envoy.api.v2.EndpointDiscoveryService")
    ),
    service!(
        Some("secrets"), ("StreamSecrets", "DeltaSecrets"),
        v3: ("envoy.extensions.transport_sockets.tls.v3.Secret", "envoy.service.secret.v3.SecretDiscoveryService"),
        v2: ("envoy.api.v2.auth.Secret", "envoy.service.discovery.v2.SecretDiscoveryService")
    ),
    service!(
        Some("runtime"), ("StreamRuntime", "DeltaRuntime"),
        v3: ("envoy.service.runtime.v3.Runtime", "envoy.service.runtime.v3.RuntimeDiscoveryService"),
        v2: ("envoy.service.discovery.v2.Runtime", "envoy.service.discovery.v2.RuntimeDiscoveryService")
    ),
    service!(
        // ECDS and LEDS are newer than v2.
        Some("extension_configs"), ("StreamExtensionConfigs", "DeltaExtensionConfigs"),
        v3: (
            "envoy.config.core.v3.TypedExtensionConfig",
            "envoy.service.extension.v3.ExtensionConfigDiscoveryService"
        )
    ),
    // LEDS is incremental alone.
    service!(
        None, (-, "DeltaLocalityEndpoints"),
        v3: ("envoy.config.endpoint.v3.LbEndpoint", "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService")
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_services_are_those_of_the_requirements() {
        let written = Service::all().iter().map(|service| {
            let Spelling { type_url, methods } = &service.v3;
            let (_, delta) = methods.delta.rsplit_once('/').unwrap();
            let sotw = methods.sotw.map_or("–", |path| path.rsplit_once('/').unwrap().1);
            let v2 = service.v2.as_ref().map_or("–", |v2| v2.type_url.trim_start_matches(PREFIX));
            [type_url.trim_start_matches(PREFIX), v2, service_of(methods), sotw, delta]
        });
        assert_eq!(written.collect::<Vec<_>>(), TABLE);
    }

    #[test]
    fn services_of_v2_are_in_the_package_of_their_requests() {
        let services = Service::all().iter().filter_map(|service| service.v2.as_ref());
        let services: Vec<_> = services.map(|v2| service_of(&v2.methods)).collect();
        assert_eq!(
            services,
            [
                "envoy.api.v2.ListenerDiscoveryService",
                "envoy.api.v2.RouteDiscoveryService",
                "envoy.api.v2.ScopedRoutesDiscoveryService",
                "envoy.api.v2.VirtualHostDiscoveryService",
                "envoy.api.v2.ClusterDiscoveryService",
                "envoy.api.v2.EndpointDiscoveryService",
                "envoy.service.discovery.v2.SecretDiscoveryService",
                "envoy.service.discovery.v2.RuntimeDiscoveryService",
            ]
        );
    }

    #[test]
    fn methods_are_called_the_same_in_both_versions() {
        for service in Service::all() {
            let Some(v2) = &service.v2 else { continue };
            let name = |path: &'static str| path.rsplit_once('/').unwrap().1;
            assert_eq!(v2.methods.sotw.map(name), service.v3.methods.sotw.map(name));
            assert_eq!(name(v2.methods.delta), name(service.v3.methods.delta));
        }
    }

    #[test]
    fn no_path_and_no_type_stands_for_two() {
        let spellings = || Service::all().iter().flat_map(|service| [Some(&service.v3), service.v2.as_ref()]);
        let methods = spellings().flatten().map(|spelling| spelling.methods);
        let methods = methods.chain([*TransportApiVersion::V2.ads(), *TransportApiVersion::V3.ads()]);
        let paths: Vec<_> =
            methods.flat_map(|methods| [methods.sotw, Some(methods.delta)]).flatten().collect();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
        assert_eq!(paths.len(), 8 * 4 + 2 + 2 + 1, "ADS and seven types, ECDS, VHDS, LEDS");

        let types: Vec<_> = spellings().flatten().map(|spelling| spelling.type_url).collect();
        assert_eq!(types.iter().collect::<BTreeSet<_>>().len(), types.len());
        let rest: Vec<_> = Service::all().iter().filter_map(|service| service.rest).collect();
        assert_eq!(rest.iter().collect::<BTreeSet<_>>().len(), rest.len());
    }

    #[test]
    fn virtual_hosts_and_single_endpoints_are_not_to_be_had_by_rest() {
        let without = Service::all().iter().filter(|service| service.rest.is_none());
        let without: Vec<_> = without.map(|service| service.v3.type_url.trim_start_matches(PREFIX)).collect();
        assert_eq!(without, ["envoy.config.route.v3.VirtualHost", "envoy.config.endpoint.v3.LbEndpoint"]);
        let paths = Service::all().iter().filter_map(|service| service.rest);
        let paths: Vec<_> =
            paths.map(|rest| format!("{}{rest}", TransportApiVersion::V3.rest_prefix())).collect();
        assert_eq!(paths[2], "/v3/discovery:scoped-routes");
        assert_eq!(paths[7], "/v3/discovery:extension_configs");
    }

    #[test]
    fn what_is_spelled_in_a_version_is_read_as_the_same() {
        let own = "type.googleapis.com/example.Banner";
        let types = Service::all().iter().map(|service| service.v3.type_url).chain([own, WRAPPER]);
        for type_url in types {
            for api_version in [TransportApiVersion::V2, TransportApiVersion::V3] {
                assert_eq!(api_version.unspell(api_version.spell(type_url)), type_url);
            }
        }
        assert_eq!(
            TransportApiVersion::V2.spell(&format!("{PREFIX}{}", TABLE[6][0])),
            format!("{PREFIX}{}", TABLE[6][1])
        );
        assert_eq!(TransportApiVersion::V2.spell(own), own);
        assert_eq!(TransportApiVersion::V2.spell(WRAPPER), WRAPPER_V2);
    }

    fn service_of(methods: &Methods) -> &'static str {
        let (service, _) = methods.delta.trim_start_matches('/').split_once('/').unwrap();
        if let Some(sotw) = methods.sotw {
            assert!(sotw.starts_with(&format!("/{service}/")), "{sotw}");
        }
        service
    }

    const PREFIX: &str = "type.googleapis.com/";
    #[rustfmt::skip]
    const TABLE: [[&str; 5]; 10] = [
        ["envoy.config.listener.v3.Listener", "envoy.api.v2.Listener", "envoy.service.listener.v3.ListenerDiscoveryService", "StreamListeners", "DeltaListeners"],
        ["envoy.config.route.v3.RouteConfiguration", "envoy.api.v2.RouteConfiguration", "envoy.service.route.v3.RouteDiscoveryService", "StreamRoutes", "DeltaRoutes"],
        ["envoy.config.route.v3.ScopedRouteConfiguration", "envoy.api.v2.ScopedRouteConfiguration", "envoy.service.route.v3.ScopedRoutesDiscoveryService", "StreamScopedRoutes", "DeltaScopedRoutes"],
        ["envoy.config.route.v3.VirtualHost", "envoy.api.v2.route.VirtualHost", "envoy.service.route.v3.VirtualHostDiscoveryService", "–", "DeltaVirtualHosts"],
        ["envoy.config.cluster.v3.Cluster", "envoy.api.v2.Cluster", "envoy.service.cluster.v3.ClusterDiscoveryService", "StreamClusters", "DeltaClusters"],
        ["envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.api.v2.ClusterLoadAssignment", "envoy.service.endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", "DeltaEndpoints"],
        ["envoy.extensions.transport_sockets.tls.v3.Secret", "envoy.api.v2.auth.Secret", "envoy.service.secret.v3.SecretDiscoveryService", "StreamSecrets", "DeltaSecrets"],
        ["envoy.service.runtime.v3.Runtime", "envoy.service.discovery.v2.Runtime", "envoy.service.runtime.v3.RuntimeDiscoveryService", "StreamRuntime", "DeltaRuntime"],
        ["envoy.config.core.v3.TypedExtensionConfig", "–", "envoy.service.extension.v3.ExtensionConfigDiscoveryService", "StreamExtensionConfigs", "DeltaExtensionConfigs"],
        ["envoy.config.endpoint.v3.LbEndpoint", "–", "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService", "–", "DeltaLocalityEndpoints"],
    ];
}
