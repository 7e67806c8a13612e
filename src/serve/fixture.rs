//! Resources of a server, and a machine whose outputs are texts, for tests.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;

use super::{Accept, ConnectionId, Identity, ListenerMachine, Output, Settings};
use crate::{
    base::Version,
    error::{Blame, Code, Subject, WatchError},
    observed::Observed,
    pb::{
        envoy::{
            config::{
                core::v3::{
                    Address, AggregatedConfigSource, ConfigSource, SocketAddress,
                    address::Address as AddressKind, config_source::ConfigSourceSpecifier,
                    socket_address::PortSpecifier,
                },
                listener::v3 as listener,
                route::v3::{self as route, NonForwardingAction, route::Action, route_match::PathSpecifier},
            },
            extensions::filters::network::http_connection_manager::v3::{
                self as hcm, http_connection_manager::RouteSpecifier,
            },
        },
        google::protobuf::Any,
    },
    resource::{Context, Listener, Resource, RouteConfiguration, filter_chain::Connection},
};

/// A machine, its clock, and what it has reported.
pub(super) struct Server {
    pub(super) machine: ListenerMachine,
    pub(super) now: Instant,
    /// Whether orders to listen succeed.
    pub(super) port_is_free: bool,
}

impl Server {
    pub(super) fn new(settings: Settings) -> Self {
        Self::of(settings, false)
    }

    /// A server whose socket listens already.
    pub(super) fn handed_over(settings: Settings) -> Self {
        Self::of(settings, true)
    }

    fn of(settings: Settings, is_listening: bool) -> Self {
        let now = Instant::now();
        let identity =
            Identity { name: "server".into(), address: address(), node: "node".into(), is_listening };
        Self { machine: ListenerMachine::new(identity, settings, 7, now), now, port_is_free: true }
    }

    pub(super) fn listener(&mut self, listener: &Arc<Listener>) -> Vec<String> {
        self.machine.handle_listener(&present(listener), self.now);
        self.outputs()
    }

    pub(super) fn no_listener(&mut self, code: Code) -> Vec<String> {
        self.machine.handle_listener(&absent(code, "the server"), self.now);
        self.outputs()
    }

    pub(super) fn routes(&mut self, routes: &Arc<RouteConfiguration>) -> Vec<String> {
        let name = routes.name.clone();
        self.machine.handle_routes(&name, Arc::new(present(routes)), self.now);
        self.outputs()
    }

    pub(super) fn no_routes(&mut self, name: &str) -> Vec<String> {
        self.machine.handle_routes(name, Arc::new(absent(Code::NotFound, "the routes")), self.now);
        self.outputs()
    }

    /// Accepts a connection from another host.
    pub(super) fn accept(&mut self) -> Accept {
        self.machine.accept(&Connection::new(address(), ([192, 0, 2, 1], 5000).into()), self.now)
    }

    /// Accepts a connection, and ends its handshake.
    pub(super) fn connect(&mut self) -> ConnectionId {
        let Accept::Serve { connection, .. } = self.accept() else { panic!("not accepted") };
        self.machine.handle_established(connection, self.now);
        connection
    }

    pub(super) fn close(&mut self, connection: ConnectionId) -> Vec<String> {
        self.machine.handle_closed(connection, self.now);
        self.outputs()
    }

    pub(super) fn shut_down(&mut self, within: Option<Duration>) -> Vec<String> {
        self.machine.shut_down(within, self.now);
        self.outputs()
    }

    /// Lets time pass, with the timers that are due.
    pub(super) fn pass(&mut self, seconds: f64) -> Vec<String> {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut all = Vec::new();
        while let Some((at, _)) = self.machine.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            all.extend(self.outputs());
        }
        self.now = end;
        all
    }

    /// The outputs up to now, as texts. The socket is opened as ordered.
    pub(super) fn outputs(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(output) = self.machine.poll_output() {
            texts.push(text(&output));
            if matches!(output, Output::Open) {
                match self.port_is_free {
                    true => self.machine.handle_opened(self.now),
                    false => self.machine.handle_open_failed("address in use", self.now),
                }
            }
        }
        texts
    }
}

fn text(output: &Output) -> String {
    match output {
        Output::WatchRoutes(name) => format!("watch {name}"),
        Output::EndRoutes(name) => format!("end {name}"),
        Output::Open => "open".to_owned(),
        Output::Close => "close".to_owned(),
        Output::AddChain { chain, config, .. } => format!("add {} as {}", config.chain().name, chain.0),
        Output::SetRouting { chain, .. } => format!("route {}", chain.0),
        Output::RemoveChain(chain) => format!("remove {}", chain.0),
        Output::Drain(connection) => format!("drain {}", connection.0),
        Output::CloseConnection(connection, reason) => format!("close {}: {}", connection.0, reason.as_str()),
        Output::Drained { connections } => format!("drained {connections}"),
        Output::State(state) => state.to_string(),
        Output::RouteErrors(errors) => format!("errors {errors:?}"),
    }
}

pub(super) fn address() -> SocketAddr {
    ([10, 0, 0, 1], 8080).into()
}

pub(super) fn present<T>(resource: &Arc<T>) -> Observed<T> {
    Observed::Present { resource: resource.clone(), version: Version::default(), warning: None, source: None }
}

pub(super) fn absent<T>(code: Code, name: &str) -> Observed<T> {
    let subject = Subject { type_url: "t/x.T", name: name.into(), node: "node".into() };
    Observed::Absent { reason: WatchError::new(code, Blame::Peer, subject, "is gone") }
}

/// A Listener with these chains, for the address of the tests.
pub(super) fn listener(chains: Vec<listener::FilterChain>) -> Arc<Listener> {
    parse(&listener_message(chains))
}

pub(super) fn listener_message(filter_chains: Vec<listener::FilterChain>) -> listener::Listener {
    let socket = SocketAddress {
        address: "10.0.0.1".into(),
        port_specifier: Some(PortSpecifier::PortValue(8080)),
        ..Default::default()
    };
    let address = Some(Address { address: Some(AddressKind::SocketAddress(socket)) });
    listener::Listener { name: "server".into(), address, filter_chains, ..Default::default() }
}

/// A chain for all connections.
pub(super) fn chain(name: &str, routes: RouteSpecifier) -> listener::FilterChain {
    let router = any("envoy.extensions.filters.http.router.v3.Router", Vec::new());
    chain_with(name, routes, vec![("router", router)])
}

/// A chain with HTTP filters.
pub(super) fn chain_with(
    name: &str,
    routes: RouteSpecifier,
    filters: Vec<(&str, Any)>,
) -> listener::FilterChain {
    let filters = filters.into_iter().map(|(name, config)| hcm::HttpFilter {
        name: name.into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    });
    let manager = hcm::HttpConnectionManager {
        route_specifier: Some(routes),
        http_filters: filters.collect(),
        ..Default::default()
    };
    let config = any(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        manager.encode_to_vec(),
    );
    let config_type = Some(listener::filter::ConfigType::TypedConfig(config));
    let filter = listener::Filter { name: "http".into(), config_type };
    listener::FilterChain { name: name.into(), filters: vec![filter], ..Default::default() }
}

/// A chain for the sources of a range.
pub(super) fn chain_from(name: &str, source: &str, routes: RouteSpecifier) -> listener::FilterChain {
    let (address, bits) = source.split_once('/').unwrap();
    let range = crate::pb::envoy::config::core::v3::CidrRange {
        address_prefix: address.into(),
        prefix_len: Some(crate::pb::google::protobuf::UInt32Value { value: bits.parse().unwrap() }),
    };
    let conditions = listener::FilterChainMatch { source_prefix_ranges: vec![range], ..Default::default() };
    listener::FilterChain { filter_chain_match: Some(conditions), ..chain(name, routes) }
}

pub(super) fn rds(name: &str) -> RouteSpecifier {
    let source = ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    RouteSpecifier::Rds(hcm::Rds { config_source: Some(source), route_config_name: name.into() })
}

pub(super) fn inline(message: route::RouteConfiguration) -> RouteSpecifier {
    RouteSpecifier::RouteConfig(message)
}

/// A route configuration that serves the paths below these.
pub(super) fn routes(name: &str, prefixes: &[&str]) -> Arc<RouteConfiguration> {
    parse(&routes_message(name, &[("*", prefixes)]))
}

/// A route configuration with a virtual host for each domain.
pub(super) fn routes_message(name: &str, hosts: &[(&str, &[&str])]) -> route::RouteConfiguration {
    let hosts = hosts.iter().map(|(domain, prefixes)| route::VirtualHost {
        name: format!("host {domain}"),
        domains: vec![(*domain).into()],
        routes: prefixes.iter().map(|prefix| served(prefix)).collect(),
        ..Default::default()
    });
    route::RouteConfiguration { name: name.into(), virtual_hosts: hosts.collect(), ..Default::default() }
}

pub(super) fn served(prefix: &str) -> route::Route {
    route::Route {
        name: format!("route {prefix}"),
        r#match: Some(route::RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(prefix.into())),
            ..Default::default()
        }),
        action: Some(Action::NonForwardingAction(NonForwardingAction {})),
        ..Default::default()
    }
}

pub(super) fn any(type_name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.into() }
}

pub(super) fn parse<T: Resource>(message: &impl Message) -> Arc<T> {
    Arc::new(T::parse(&message.encode_to_vec().into(), &Context::new()).unwrap())
}
