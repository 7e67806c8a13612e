//! `serve`: an xDS-enabled server, driven by lines of JSON.

use serde_json::json;

use super::{Process, Server};
use crate::server::world::{chain, exchange, listener, rds, served};

#[tokio::test]
async fn sv2_1_the_example_serves_reports_and_ends() {
    let control = Server::start().await;
    let args = control.args("--listen 127.0.0.1:0 --template grpc/server?addr=%s --credentials xds");
    let mut serve = Process::start("serve", args);
    let first = serve.json().await;
    assert_eq!((&first["state"], &first["reason"]), (&json!("STARTING"), &json!("")));
    let address = first["listener"].as_str().unwrap().parse().unwrap();
    control.control_plane.set(listener(address, vec![chain("main", rds("routes"))]));
    control.control_plane.set(served("routes", &["/"]));
    let serving = serve.json().await;
    assert_eq!(serving, json!({"listener": address.to_string(), "state": "SERVING", "reason": ""}));
    let text = exchange(
        address,
        b"POST /x HTTP/1.1\r\nhost: a\r\nx-echo-x-b: c\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
    )
    .await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\nx-b: c\r\n"), "{text}");
    assert!(text.contains("\"body\":\"hi\"") && text.contains("\"x-route\":\"below /\""), "{text}");
    serve.send(br#"{"status":true}"#).await;
    let status = serve.json().await;
    assert_eq!(status["listeners"][0]["state"], json!("SERVING"));
    serve.send(br#"{"quit":true}"#).await;
    let stopped = serve.json().await;
    assert_eq!(stopped["state"], json!("STOPPED"));
    assert!(serve.exit().await.success());
}
