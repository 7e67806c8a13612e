//! An HTTP filter of the application in a mesh: its configuration comes from the control plane, with an override for a route.
//!
//! ```console
//! $ cargo run --example filters
//! ```
//!
//! The server, the control plane and the client run in this process, on loopback. The filter is in `quota`; this file adds it to
//! the client, configures it as a control plane does, and makes calls. The program ends by itself; its exit code is 1 if a call
//! does not end as it should.

#[path = "../greeter/server.rs"]
mod greeter;
#[path = "../common/print_line.rs"]
mod print_line;
mod quota;

use std::{error::Error, process::ExitCode, time::Duration};

use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Channel, Client,
    config::Bootstrap,
    pb::{
        envoy::{
            config::listener::v3::{ApiListener, Listener},
            extensions::filters::network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, http_filter::ConfigType,
            },
        },
        google::protobuf::{Any, Struct, Value, value::Kind},
        xds::r#type::v3::TypedStruct,
    },
    resource::{Extension, Registry},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use self::{
    greeter::{GREET, Greeter, Texts},
    print_line::print_line,
    quota::Quota,
};

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
    eprintln!("filters: {error}");
    ExitCode::FAILURE
}

/// There are no options.
fn usage(argument: Option<&str>) -> Option<ExitCode> {
    let usage = "usage: filters\n\nCalls a server through an HTTP filter of its own, and ends by itself.";
    match argument? {
        "--help" | "-h" => {
            print_line(usage);
            Some(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("filters: unknown argument {unknown}; it takes none\n{usage}");
            Some(ExitCode::from(2))
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let server = Greeter::start("one").await?;
    let mesh = TestControlPlane::start().await;
    mesh.set(listener("greeter").rds("routes").edit(|listener| add_filter(listener, "quota", quota(2))));
    let gold = route::prefix("").header("x-tenant", "gold").cluster("greeters").edit(|route| {
        route.typed_per_filter_config.insert("quota".to_owned(), quota(4));
    });
    let others = route::prefix("").cluster("greeters");
    mesh.set(route_config("routes").virtual_host(["*"], [gold, others]));
    mesh.set(cluster("greeters"));
    mesh.set(endpoints("greeters").locality("eu", "a", [&*server.address.to_string()]));

    // The filter is added before the client is built, which would reject the listener otherwise.
    let registry = Registry::new().with_client_filter::<Quota>();
    let bootstrap = Bootstrap::from_json(&mesh.bootstrap_json())?;
    let client = Client::builder(bootstrap).extensions(registry).build()?;
    let channel = client.channel("xds:///greeter").build()?;
    let mut greeter = Grpc::new(channel.clone());

    for (tenant, requests) in [("iron", 2), ("gold", 4)] {
        print_line(format_args!("{tenant} has {requests} requests"));
        for _ in 0..requests {
            print_line(format_args!("  {}", greet(&mut greeter, tenant).await?));
        }
        match greet(&mut greeter, tenant).await {
            Err(status) if status.code() == Code::ResourceExhausted => {
                print_line(format_args!("  {}", status.message()));
            }
            other => return Err(format!("there should be no request left: {other:?}").into()),
        }
    }

    channel.shutdown(Duration::from_secs(1)).await;
    server.shut_down().await
}

async fn greet(greeter: &mut Grpc<Channel>, tenant: &'static str) -> Result<String, Status> {
    greeter.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let mut request = Request::new("mesh".to_owned());
    request.metadata_mut().insert("x-tenant", tonic::metadata::MetadataValue::from_static(tenant));
    let response = greeter.unary(request, PathAndQuery::from_static(GREET), Texts).await?;
    let left = response.metadata().get("x-quota-left").and_then(|left| left.to_str().ok());
    Ok(format!("{} greets, {} left", response.get_ref(), left.unwrap_or("none")))
}

/// The configuration of the filter, as a control plane sends it.
fn quota(requests: u32) -> Any {
    let number = Value { kind: Some(Kind::NumberValue(requests.into())) };
    let settings = Struct { fields: [("requests".to_owned(), number)].into() };
    let type_url = format!("type.googleapis.com/{}", Quota::TYPE_NAME);
    any("xds.type.v3.TypedStruct", &TypedStruct { type_url, value: Some(settings) })
}

/// Adds a filter in front of the others of a listener.
fn add_filter(listener: &mut Listener, name: &str, config: Any) {
    let api = listener.api_listener.take().and_then(|api| api.api_listener).unwrap_or_default();
    let mut manager = HttpConnectionManager::decode(&*api.value).unwrap_or_default();
    let config_type = Some(ConfigType::TypedConfig(config));
    let filter = HttpFilter { name: name.to_owned(), config_type, ..HttpFilter::default() };
    manager.http_filters.insert(0, filter);
    let api = Any { value: manager.encode_to_vec().into(), ..api };
    listener.api_listener = Some(ApiListener { api_listener: Some(api) });
}

fn any(type_name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: message.encode_to_vec().into() }
}

/// The time that all of it may take.
const CURFEW: Duration = Duration::from_secs(20);
