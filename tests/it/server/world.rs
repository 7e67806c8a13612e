//! A server with its management server, its service and its resources.

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};
use tonic::{
    Request, Response, Status,
    body::Body,
    client::Grpc as Client,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, UnaryService},
    transport::{Channel, Endpoint},
};
use xdskit::{
    Bootstrap, Server,
    pb::{
        envoy::{
            config::{
                core::v3::{
                    Address, AggregatedConfigSource, ConfigSource, SocketAddress,
                    address::Address as AddressKind, config_source::ConfigSourceSpecifier,
                    socket_address::PortSpecifier,
                },
                listener::v3::{self as listener, filter::ConfigType},
                route::v3::{self as route, route::Action, route_match::PathSpecifier},
            },
            extensions::filters::network::http_connection_manager::v3::{
                self as hcm, http_connection_manager::RouteSpecifier,
            },
        },
        google::protobuf::Any,
    },
    server::{Fallback, InboundRequest, RequestBody, ServerBuilder, ServerHandle, ServingState},
    testing::TestControlPlane,
};

use crate::common::{raw::Raw, soon};

pub(crate) const ECHO: &str = "/test.Echo/Echo";
/// As [`ECHO`], after the release.
pub(crate) const HOLD: &str = "/test.Echo/Hold";

pub(crate) struct World {
    pub(crate) control: TestControlPlane,
    pub(crate) server: ServerHandle,
    pub(crate) echo: Echo,
    pub(crate) address: SocketAddr,
}

/// Answers with the message of a request, and what the server shows of it.
#[derive(Clone)]
pub(crate) struct Echo {
    /// Held calls are answered when it is true.
    released: watch::Sender<bool>,
    /// The number of held calls that have begun.
    held: watch::Sender<usize>,
}

impl World {
    /// A server on a port of the system, which serves the routes `routes` below `/test.Echo/`.
    pub(crate) async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    pub(crate) async fn start_with(settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let world = Self::without_resources(settings).await;
        world.control.set(world.listener(vec![chain("main", rds("routes"))]));
        world.control.set(served("routes", &["/test.Echo/"]));
        soon(world.server.serving()).await;
        world
    }

    pub(crate) async fn without_resources(settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let control = TestControlPlane::start().await;
        let echo = Echo::new();
        let builder = Server::builder(bootstrap(&control))
            .xds_credentials(Fallback::Plaintext)
            .listen("127.0.0.1:0".parse().unwrap());
        let server = settings(builder).serve(echo.clone()).unwrap();
        let address = server.addresses()[0];
        Self { control, server, echo, address }
    }

    /// The Listener of the server.
    pub(crate) fn listener(&self, chains: Vec<listener::FilterChain>) -> listener::Listener {
        listener(self.address, chains)
    }

    /// Waits until the state of the server fulfils a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&ServingState) -> bool) -> ServingState {
        soon(async {
            loop {
                let (_, state) = self.server.states().remove(0);
                if condition(&state) {
                    return state;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// A client of tonic, which connects again when its connection has ended.
    pub(crate) fn client(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect_lazy()
    }

    /// Makes calls until one fulfils a condition.
    pub(crate) async fn until_call(&self, condition: impl Fn(&Result<Response<Bytes>, Status>) -> bool) {
        let client = self.client();
        soon(async { while !condition(&call(&client, ECHO, "a").await) {} }).await;
    }
}

impl Echo {
    pub(crate) fn new() -> Self {
        Self { released: watch::Sender::new(false), held: watch::Sender::new(0) }
    }

    /// Answers all held calls, and later ones at once.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until so many calls have been held.
    pub(crate) async fn holds(&self, calls: usize) {
        soon(self.held.subscribe().wait_for(|held| *held >= calls)).await.unwrap();
    }
}

impl Service<http::Request<RequestBody>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move {
            let inbound = request.extensions().get::<InboundRequest>().expect("the server's").clone();
            let authority = request.uri().authority().map(ToString::to_string);
            let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
            let is_grpc = request.headers().get("content-type").is_some_and(|ty| ty == "application/grpc");
            if request.uri().path() == HOLD {
                echo.held.send_modify(|held| *held += 1);
                echo.released.subscribe().wait_for(|released| *released).await.unwrap();
            }
            let mut response = match is_grpc {
                true => Grpc::new(Raw).unary(Unary, request).await,
                false => http::Response::new(Body::new(http_body_util::Full::new(Bytes::from(format!(
                    "{} {}",
                    request.method(),
                    request.uri()
                ))))),
            };
            for (name, value) in [
                ("x-listener", inbound.listener().to_owned()),
                ("x-chain", inbound.filter_chain().to_owned()),
                ("x-virtual-host", inbound.virtual_host().to_owned()),
                ("x-route", inbound.route().to_owned()),
                ("x-local", inbound.local_addr().to_string()),
                ("x-peer", inbound.peer_addr().to_string()),
                ("x-tls", inbound.is_tls().to_string()),
                ("x-authority", authority.unwrap_or_default()),
                ("x-host", host.unwrap_or_default()),
            ] {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            Ok(response)
        })
    }
}

struct Unary;

impl UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

/// Makes a unary call.
pub(crate) async fn call(
    channel: &Channel,
    path: &'static str,
    message: &'static str,
) -> Result<Response<Bytes>, Status> {
    let mut client = Client::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static(path);
    soon(client.unary(Request::new(Bytes::from_static(message.as_bytes())), path, Raw)).await
}

/// Sends bytes on a connection of their own, and reads all that comes back.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    // A reset is an end as well.
    drop(soon(stream.read_to_end(&mut all)).await);
    String::from_utf8_lossy(&all).into_owned()
}

/// Whether a connection is closed without a byte.
pub(crate) async fn is_closed_at_once(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return true };
    let mut byte = [0];
    matches!(soon(stream.read(&mut byte)).await, Ok(0) | Err(_))
}

pub(crate) fn bootstrap(control: &TestControlPlane) -> Bootstrap {
    let mut bootstrap: serde_json::Value = serde_json::from_str(&control.bootstrap_json()).unwrap();
    bootstrap["server_listener_resource_name_template"] = "grpc/server?addr=%s".into();
    Bootstrap::from_json(&bootstrap.to_string()).unwrap()
}

pub(crate) fn listener(address: SocketAddr, chains: Vec<listener::FilterChain>) -> listener::Listener {
    let socket = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        ..Default::default()
    };
    listener::Listener {
        name: format!("grpc/server?addr={address}"),
        address: Some(Address { address: Some(AddressKind::SocketAddress(socket)) }),
        filter_chains: chains,
        ..Default::default()
    }
}

pub(crate) fn rds(name: &str) -> RouteSpecifier {
    let source = ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    RouteSpecifier::Rds(hcm::Rds { config_source: Some(source), route_config_name: name.into() })
}

/// A route configuration that serves the paths below these.
pub(crate) fn served(name: &str, prefixes: &[&str]) -> route::RouteConfiguration {
    let routes = prefixes.iter().map(|prefix| route::Route {
        name: format!("below {prefix}"),
        r#match: Some(route::RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix((*prefix).into())),
            ..Default::default()
        }),
        action: Some(Action::NonForwardingAction(route::NonForwardingAction {})),
        ..Default::default()
    });
    let host = route::VirtualHost {
        name: "all".into(),
        domains: vec!["*".into()],
        routes: routes.collect(),
        ..Default::default()
    };
    route::RouteConfiguration { name: name.into(), virtual_hosts: vec![host], ..Default::default() }
}

pub(crate) fn chain(name: &str, routes: RouteSpecifier) -> listener::FilterChain {
    chain_with(name, routes, Vec::new())
}

/// A chain with HTTP filters before the router.
pub(crate) fn chain_with(
    name: &str,
    routes: RouteSpecifier,
    filters: Vec<(&str, Any)>,
) -> listener::FilterChain {
    let router = ("router", any("envoy.extensions.filters.http.router.v3.Router", Vec::new()));
    let filters = filters.into_iter().chain([router]).map(|(name, config)| hcm::HttpFilter {
        name: name.into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    });
    let manager = hcm::HttpConnectionManager {
        route_specifier: Some(routes),
        http_filters: filters.collect(),
        ..Default::default()
    };
    let type_name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let config = ConfigType::TypedConfig(any(type_name, manager.encode_to_vec()));
    let filter = listener::Filter { name: "http".into(), config_type: Some(config) };
    listener::FilterChain { name: name.into(), filters: vec![filter], ..Default::default() }
}

pub(crate) fn any(type_name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.into() }
}

pub(crate) const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub(crate) const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// What nothing in these tests waits for.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);
