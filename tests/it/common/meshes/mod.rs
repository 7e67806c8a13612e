//! Complete configurations as the servers of known meshes send them, field by field.

pub(crate) mod istio;
pub(crate) mod traffic_director;

use bytes::Bytes;
use prost::Message;
use xdskit::pb::{
    envoy::{
        config::{
            core::v3::{
                Address, AggregatedConfigSource, ApiVersion, ConfigSource, SelfConfigSource, SocketAddress,
                TransportSocket, address, config_source::ConfigSourceSpecifier,
                socket_address::PortSpecifier, transport_socket,
            },
            route::v3::{
                NonForwardingAction, Route, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
                route_match::PathSpecifier,
            },
        },
        extensions::filters::{
            http::{fault::v3::HttpFault, router::v3::Router},
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, http_filter::ConfigType,
            },
        },
    },
    google::protobuf::{Any, Struct, UInt32Value, Value, value::Kind},
};

/// A resource in the form in which a server sends it.
pub(crate) struct Sent {
    pub(crate) type_url: String,
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// A server's configuration for one application.
pub(crate) struct Mesh {
    /// All resources.
    pub(crate) resources: Vec<Sent>,
    /// The application's bootstrap, without its servers.
    pub(crate) bootstrap: &'static str,
    /// The targets of the application, each with its clusters, in order.
    pub(crate) targets: Vec<(&'static str, Vec<&'static str>)>,
    /// The listeners of the application as a server.
    pub(crate) served: Vec<&'static str>,
}

fn any(type_name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: message.encode_to_vec().into() }
}

/// A message followed by fields that this crate does not use, as real servers send them.
fn with_unknown(any: Any, unknown: &[u8]) -> Any {
    Any { value: Bytes::from([&any.value[..], unknown].concat()), ..any }
}

fn resource(type_name: &str, name: &str, message: &impl Message, unknown: &[u8]) -> Sent {
    let any = with_unknown(any(type_name, message), unknown);
    Sent { type_url: any.type_url, name: name.to_owned(), bytes: any.value }
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128 && number < 32, "one byte each is enough here");
    let tag = [u32::from(number) << 3 | 2, bytes.len() as u32].map(|byte| byte as u8);
    // Field numbers from 16 on take two bytes.
    match number {
        0..16 => [&tag[..], bytes].concat(),
        _ => [&[tag[0] | 0x80, number >> 4], &tag[1..], bytes].concat(),
    }
}

fn ads() -> Option<ConfigSource> {
    source(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}))
}

fn itself() -> Option<ConfigSource> {
    source(ConfigSourceSpecifier::Self_(SelfConfigSource::default()))
}

fn source(specifier: ConfigSourceSpecifier) -> Option<ConfigSource> {
    Some(ConfigSource {
        config_source_specifier: Some(specifier),
        resource_api_version: ApiVersion::V3.into(),
        ..ConfigSource::default()
    })
}

fn address(host: &str, port: u32) -> Option<Address> {
    let socket = SocketAddress {
        address: host.into(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..SocketAddress::default()
    };
    Some(Address { address: Some(address::Address::SocketAddress(socket)) })
}

fn fault() -> HttpFilter {
    http_filter("envoy.filters.http.fault", any(FAULT, &HttpFault::default()))
}

fn router() -> HttpFilter {
    // With a setting of the router's statistics, which clients ignore.
    http_filter("envoy.filters.http.router", with_unknown(any(ROUTER, &Router {}), &[0x08, 0x00]))
}

fn http_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}

/// With the prefix of statistics, which proxies require.
fn manager(message: &HttpConnectionManager) -> Any {
    with_unknown(any(MANAGER, message), &field(2, b"mesh"))
}

fn tls(type_name: &str, message: &impl Message) -> Option<TransportSocket> {
    Some(TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(type_name, message))),
    })
}

/// The routes of a server that accepts all requests.
fn everything(name: &str) -> RouteConfiguration {
    let everything = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".into())),
            ..RouteMatch::default()
        }),
        action: Some(Action::NonForwardingAction(NonForwardingAction {})),
        ..Route::default()
    };
    let virtual_host =
        VirtualHost { domains: vec!["*".into()], routes: vec![everything], ..VirtualHost::default() };
    RouteConfiguration {
        name: name.into(),
        virtual_hosts: vec![virtual_host],
        ..RouteConfiguration::default()
    }
}

fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

/// A struct of strings.
fn texts<const N: usize>(fields: [(&str, &str); N]) -> Struct {
    let fields = fields.map(|(key, text)| {
        let kind = Some(Kind::StringValue(text.into()));
        (key.to_owned(), Value { kind })
    });
    Struct { fields: fields.into() }
}

const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
