//! What a call allocates.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use bytes::Bytes;
use tonic::{
    Request, client::Grpc, client::GrpcService, codegen::StdError, codegen::http::uri::PathAndQuery,
};
use xdskit::{
    Bootstrap, Client,
    metrics::ChannelMetrics,
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
