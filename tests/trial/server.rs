//! The server for the examples of the documents: a management server with the service `shop`, whose cluster `cart`
//! has one backend, and a cluster `empty` without any. Its argument is the file for the bootstrap, which is written
//! when the server is ready.

use std::{env, error::Error, fs, net::SocketAddr};

use tokio::net::TcpListener;
use tonic::{codegen::tokio_stream::wrappers::TcpListenerStream, service::Routes, transport::Server};
use xdskit::testing::{
    TestControlPlane,
    resources::{cluster, endpoints, listener, route, route_config},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("the argument is the file for the bootstrap")?;
    let backend = backend().await?.to_string();
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop"));
        tx.set(route_config("shop").virtual_host(["*"], [route::prefix("/").cluster("cart")]));
        tx.set(cluster("cart"));
        tx.set(endpoints("cart").locality("eu", "a", [&*backend]));
        tx.set(cluster("empty"));
        tx.set(endpoints("empty"));
    });
    fs::write(format!("{file}.new"), server.bootstrap_json())?;
    fs::rename(format!("{file}.new"), file)?;
    std::future::pending().await
}

/// Responds to each call with `UNIMPLEMENTED`.
async fn backend() -> Result<SocketAddr, Box<dyn Error>> {
    let socket = TcpListener::bind("127.0.0.1:0").await?;
    let address = socket.local_addr()?;
    let incoming = TcpListenerStream::new(socket);
    tokio::spawn(Server::builder().add_routes(Routes::default()).serve_with_incoming(incoming));
    Ok(address)
}
