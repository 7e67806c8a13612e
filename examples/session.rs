//! A client that keeps the cookie of its session, so that its calls stay on one server: while others share the calls, while the
//! server drains, and until it stops.
//!
//! ```console
//! $ cargo run --example session
//! ```
//!
//! The servers, the control plane and the client run in this process, on loopback. The program ends by itself; its exit code is 1
//! if a call fails or a session moves without a reason. The client's part is `Client::call`: a cookie is a header like any other.

#[path = "common/print_line.rs"]
mod print_line;

use std::{
    convert::Infallible,
    error::Error,
    future::{Ready, ready},
    io,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    task::{Context, Poll},
    time::Duration,
};

use prost::Message;
use tokio::{sync::oneshot, time::timeout};
use tonic::{
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
    server::NamedService,
    transport::{Server, server::TcpIncoming},
};
use xdskit::{
    Channel,
    config::Bootstrap,
    pb::{
        envoy::{
            config::{
                cluster::v3::cluster::CommonLbConfig,
                core::v3::{HealthStatus, HealthStatusSet, TypedExtensionConfig},
                listener::v3::ApiListener,
            },
            extensions::{
                filters::{
                    http::stateful_session::v3::StatefulSession,
                    network::http_connection_manager::v3::{
                        HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                    },
                },
                http::stateful_session::cookie::v3::CookieBasedSessionState,
            },
            r#type::http::v3::Cookie,
        },
        google::protobuf::Any,
    },
    testing::{
        TestControlPlane,
        resources::{
            ClusterBuilder, EndpointsBuilder, ListenerBuilder, cluster, endpoints, listener, route,
            route_config,
        },
    },
};

use self::print_line::print_line;

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(end) = usage(std::env::args().nth(1).as_deref()) {
        return end;
    }
    let error = match timeout(CURFEW, run()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not at its end after {CURFEW:?}"),
    };
    eprintln!("session: {error}");
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage = "usage: session\n\nKeeps a session on one server of a mesh by a cookie, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            print_line(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("session: unknown argument {unknown}; it takes none\n{usage}");
            Some(ExitCode::from(2))
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut servers =
        ["one", "two", "three"].map(Backend::start).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mesh = TestControlPlane::start().await;
    mesh.set(listener_with_sessions("sid"));
    mesh.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("carts")]));
    mesh.set(cluster_with_draining());
    mesh.set(carts(&servers));
    let bootstrap = Bootstrap::from_json(&mesh.bootstrap_json())?;
    let channel = Channel::builder("xds:///shop").bootstrap(bootstrap).build()?;

    print_line("without a cookie, the calls are shared");
    let mut names = Vec::new();
    while !["one", "two", "three"].iter().all(|it| names.contains(&(*it).to_owned())) {
        names.push(Client::new(&channel).call().await?);
    }
    print_line(format_args!("  {}", last(&names).join(" ")));

    print_line("\na client that keeps the cookie of its first call stays on its server");
    let mut client = Client::new(&channel);
    let home = client.call().await?;
    print_line(format_args!("  {}", client.cookie.as_deref().unwrap_or("no cookie")));
    client.stays(&home).await?;

    print_line(format_args!("\n{home} drains: its sessions stay, and new ones go elsewhere"));
    let place = servers.iter().position(|it| it.name == home).ok_or("there is no such server")?;
    mesh.set(carts(&servers).draining(&servers[place].address.to_string()));
    let mut others = Vec::new();
    while others.len() < 10 {
        match Client::new(&channel).call().await? {
            name if name == home => others.clear(),
            name => others.push(name),
        }
    }
    print_line(format_args!("  new sessions: {}", others.join(" ")));
    client.stays(&home).await?;

    print_line(format_args!("\n{home} is removed: the session goes on elsewhere, with another cookie"));
    let removed = servers.remove(place);
    mesh.set(carts(&servers));
    let mut next = home.clone();
    while next == home {
        next = client.call().await?;
    }
    drop(removed);
    print_line(format_args!("  {}", client.cookie.as_deref().unwrap_or("no cookie")));
    client.stays(&next).await?;
    channel.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// A client with one session.
struct Client {
    channel: Channel,
    cookie: Option<String>,
}

impl Client {
    fn new(channel: &Channel) -> Self {
        Self { channel: channel.clone(), cookie: None }
    }

    /// Makes a call with the cookie of the session, keeps the cookie of the response, and returns the name of the server.
    async fn call(&mut self) -> Result<String, Box<dyn Error>> {
        let mut request = Request::post("/shop.Cart/Add");
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        let response = self.channel.call(request.body(Body::empty())?).await?;
        if let Some(set) = response.headers().get("set-cookie") {
            // Its attributes are for a jar that holds more than one cookie.
            self.cookie = set.to_str()?.split("; ").next().map(str::to_owned);
        }
        let name = response.headers().get("x-backend");
        Ok(name.ok_or_else(|| format!("a call failed: {:?}", response.headers()))?.to_str()?.to_owned())
    }

    /// Makes calls, all of which go to a server.
    async fn stays(&mut self, home: &str) -> Result<(), Box<dyn Error>> {
        let mut names = Vec::new();
        for _ in 0..10 {
            names.push(self.call().await?);
        }
        print_line(format_args!("  this session: {}", names.join(" ")));
        if names.iter().any(|name| name != home) { Err("the session has moved".into()) } else { Ok(()) }
    }
}

/// A server that answers each call with its name. It stops when this is dropped.
struct Backend {
    name: &'static str,
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Answer {
    name: &'static str,
}

impl Backend {
    fn start(name: &'static str) -> io::Result<Self> {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = incoming.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(Answer { name });
        tokio::spawn(server.serve_with_incoming_shutdown(incoming, async {
            let _ = stopped.await;
        }));
        Ok(Self { name, address, _stop: stop })
    }
}

impl Service<Request<Body>> for Answer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "0")
            .header("x-backend", self.name);
        ready(Ok(response.body(Body::empty()).expect("the headers are valid")))
    }
}

impl NamedService for Answer {
    const NAME: &'static str = "shop.Cart";
}

/// The listener with the filter that keeps sessions, before the router.
fn listener_with_sessions(cookie: &str) -> ListenerBuilder {
    let cookie = Some(Cookie { name: cookie.to_owned(), ..Cookie::default() });
    let state = any(
        "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
        &CookieBasedSessionState { cookie },
    );
    let state = TypedExtensionConfig { name: "cookie".to_owned(), typed_config: Some(state) };
    let session = StatefulSession { session_state: Some(state), ..StatefulSession::default() };
    let config = any("envoy.extensions.filters.http.stateful_session.v3.StatefulSession", &session);
    let config_type = Some(ConfigType::TypedConfig(config));
    let filter = HttpFilter { name: "session".to_owned(), config_type, ..HttpFilter::default() };
    listener("shop").rds("routes").edit(|listener| {
        let Some(api) = listener.api_listener.take().and_then(|it| it.api_listener) else { return };
        let mut manager = HttpConnectionManager::decode(&*api.value).expect("a manager");
        manager.http_filters.insert(0, filter);
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    })
}

/// The cluster, whose sessions stay on servers that drain.
fn cluster_with_draining() -> ClusterBuilder {
    cluster("carts").edit(|cluster| {
        let statuses = [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Draining];
        let override_host_status = Some(HealthStatusSet { statuses: statuses.map(Into::into).into() });
        cluster.common_lb_config = Some(CommonLbConfig { override_host_status, ..Default::default() });
    })
}

fn carts(servers: &[Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = servers.iter().map(|server| server.address.to_string()).collect();
    endpoints("carts").locality("eu", "a", addresses.iter().map(String::as_str))
}

fn any(type_name: &str, config: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: config.encode_to_vec().into() }
}

/// The last ten.
fn last(names: &[String]) -> &[String] {
    &names[names.len().saturating_sub(10)..]
}

/// The time that all of it may take.
const CURFEW: Duration = Duration::from_secs(20);
