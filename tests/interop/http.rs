//! A minimal HTTP/1.1 client for a proxy, and a server behind it.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::library::within;

/// Serves its name at every path, until the test ends. Returns its address.
pub(crate) async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("it has one");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, name));
        }
    });
    addr
}

/// Responds to the requests of one connection, which have no bodies.
async fn answer(stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if line == "\r\n" {
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            stream.write_all(response.as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}

/// Sends a GET request. Returns the response, including the headers.
pub(crate) async fn get(from: SocketAddr, path: &str) -> String {
    within("an answer to a request", async {
        let mut stream = TcpStream::connect(from).await.expect("the server listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: test.example\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("the server answers");
        response
    })
    .await
}
