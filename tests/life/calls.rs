//! What a call allocates.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use bytes::Bytes;
use prost::Message;
use tonic::{
    Request, client::Grpc, client::GrpcService, codegen::StdError, codegen::http::uri::PathAndQuery,
};
use xdskit::{
    Bootstrap, Client,
    metrics::ChannelMetrics,
    pb::{
        envoy::{
            config::{
                common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation::Action},
                core::v3::{HeaderValue, HeaderValueOption},
                listener::v3::ApiListener,
            },
            extensions::filters::{
                common::fault::v3::{
                    FaultDelay,
                    fault_delay::{FaultDelaySecifier, HeaderDelay},
                },
                http::{
                    fault::v3::HttpFault,
                    header_mutation::v3::{HeaderMutation, Mutations},
                },
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                },
            },
            r#type::v3::FractionalPercent,
        },
        google::protobuf::Any,
    },
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use crate::{
    ALLOCATOR, TURN,
    common::{raw::Raw, soon},
};

#[tokio::test]
async fn ch11_3_a_unary_call_allocates_less_than_with_tonics_channel() {
    let _turn = TURN.lock().await;
    let address = serve();
    let (_server, client) = mesh(address).await;
    let ours = per_call(client.channel("xds:///shop").build().unwrap()).await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let tonics = per_call(endpoint.connect_lazy()).await;
    assert!(ours <= 24.0 && ours < tonics, "{ours} allocations, {tonics} with tonic's channel");
    println!("{ours} allocations a call, {tonics} with tonic's channel");
}

#[tokio::test]
async fn ch9_20_metrics_allocate_nothing_for_a_call_beside_what_the_meter_does() {
    let _turn = TURN.lock().await;
    let (_server, client) = mesh(serve()).await;
    let without = per_call(client.channel("xds:///shop").build().unwrap()).await;
    // A meter that does nothing.
    let metrics = ChannelMetrics::builder().enable_all().all_methods().optional_labels([
        "grpc.lb.locality",
        "grpc.lb.backend_service",
        "grpc.client.call.custom",
    ]);
    let metrics = metrics.build(&opentelemetry::global::meter("nothing"));
    let with = per_call(client.channel("xds:///shop").metrics(&metrics).build().unwrap()).await;
    assert!(with <= without, "{with} allocations with metrics, {without} without");
}

#[tokio::test]
async fn ch5_19_filters_that_do_not_wait_allocate_once_for_all_of_them() {
    let _turn = TURN.lock().await;
    let (server, client) = mesh(serve()).await;
    let without = per_call(client.channel("xds:///shop").build().unwrap()).await;
    // Their hooks read headers, and find nothing to change: what a change allocates is that of the headers.
    server.set(listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        let filters = [("a", mutation()), ("b", delay()), ("c", mutation()), ("d", delay())];
        let filters = filters.map(|(name, config)| {
            let config_type = Some(ConfigType::TypedConfig(config));
            HttpFilter { name: name.to_owned(), config_type, ..HttpFilter::default() }
        });
        drop(manager.http_filters.splice(0..0, filters));
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    }));
    let (_other, client) = (client, Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap()));
    let client = client.build().unwrap();
    let with = per_call(client.channel("xds:///shop").build().unwrap()).await;
    let is_once = with > without && with <= without + 1.0;
    assert!(is_once, "{with} allocations with filters, {without} without");
}

/// The mutation of headers that neither requests nor responses have.
fn mutation() -> Any {
    let header = HeaderValue { key: "x-absent".into(), value: "1".into(), ..HeaderValue::default() };
    let overwrite_if_exists =
        HeaderValueOption { header: Some(header), append_action: 3, ..HeaderValueOption::default() };
    let mutations = vec![
        Mutation { action: Some(Action::Remove("x-absent".into())) },
        Mutation { action: Some(Action::Append(overwrite_if_exists)) },
    ];
    let mutations = Mutations {
        request_mutations: mutations.clone(),
        response_mutations: mutations,
        ..Mutations::default()
    };
    any(
        "header_mutation.v3.HeaderMutation",
        &HeaderMutation { mutations: Some(mutations), ..HeaderMutation::default() },
    )
}

/// A delay of requests with a header that none has.
fn delay() -> Any {
    let delay = FaultDelay {
        fault_delay_secifier: Some(FaultDelaySecifier::HeaderDelay(HeaderDelay {})),
        percentage: Some(FractionalPercent { numerator: 100, denominator: 0 }),
    };
    any("fault.v3.HTTPFault", &HttpFault { delay: Some(delay), ..HttpFault::default() })
}

fn any(name: &str, message: &impl Message) -> Any {
    let type_url = format!("type.googleapis.com/envoy.extensions.filters.http.{name}");
    Any { type_url, value: message.encode_to_vec().into() }
}

/// A mesh whose only endpoint has this address.
async fn mesh(address: SocketAddr) -> (TestControlPlane, Client) {
    let server = TestControlPlane::start().await;
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server.set(cluster("cart"));
    server.set(endpoints("cart").locality("eu", "a", [address.to_string().as_str()]));
    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap()).build().unwrap();
    (server, client)
}

/// The allocations of a unary call of 100 B, after the first ones.
async fn per_call<T>(channel: T) -> f64
where
    T: GrpcService<tonic::body::Body> + Clone,
    T::Error: Into<StdError>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let message = Bytes::from(vec![7; 100]);
    let call = async || {
        let mut grpc = Grpc::new(channel.clone());
        soon(grpc.ready()).await.map_err(Into::into).unwrap();
        let path = PathAndQuery::from_static("/test.Echo/Echo");
        let response = soon(grpc.unary(Request::new(message.clone()), path, Raw)).await.unwrap();
        assert_eq!(response.into_inner().len(), 5);
    };
    for _ in 0..200 {
        call().await;
    }
    // Whatever else the process does now and then is no part of a call.
    let mut least = f64::MAX;
    for _ in 0..5 {
        let before = ALLOCATOR.stats();
        for _ in 0..CALLS {
            call().await;
        }
        let change = ALLOCATOR.stats() - before;
        least = least.min((change.allocations + change.reallocations) as f64 / f64::from(CALLS));
    }
    least
}

const CALLS: u32 = 100;

/// A server that allocates nothing for a call: it answers each request with the same bytes.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| serve_connection(stream.unwrap()));
        }
    });
    address
}

fn serve_connection(mut io: TcpStream) {
    io.set_nodelay(true).unwrap();
    let mut buffer = [0; 64 << 10];
    io.read_exact(&mut buffer[..24]).unwrap();
    // SETTINGS, and a window of the connection that is large enough for all calls.
    io.write_all(b"\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\x3f\xff\0\0").unwrap();
    loop {
        let mut head = [0; 9];
        match io.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return,
            read => read.unwrap(),
        }
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        io.read_exact(&mut buffer[..length]).unwrap();
        let [_, _, _, kind, flags, stream @ ..] = head;
        match (kind, flags & 1) {
            // The end of a request, in HEADERS or DATA.
            (0 | 1, 1) => respond(&mut io, stream),
            (4, 0) => io.write_all(b"\0\0\0\x04\x01\0\0\0\0").unwrap(),
            _ => {}
        }
    }
}

/// `:status: 200`, `content-type: application/grpc`, an empty message, and `grpc-status: 0`.
fn respond(io: &mut TcpStream, stream: [u8; 4]) {
    let mut response = [0; RESPONSE.len()];
    response.copy_from_slice(RESPONSE);
    for at in STREAMS {
        response[at..at + 4].copy_from_slice(&stream);
    }
    io.write_all(&response).unwrap();
}

const RESPONSE: &[u8] = b"\0\0\x14\x01\x04\0\0\0\0\x88\x0f\x10\x10application/grpc\
\0\0\x0a\0\0\0\0\0\0\0\0\0\0\x05hello\
\0\0\x0f\x01\x05\0\0\0\0\0\x0bgrpc-status\x010";
/// Where the ids of the stream are in it.
const STREAMS: [usize; 3] = [5, 34, 53];
