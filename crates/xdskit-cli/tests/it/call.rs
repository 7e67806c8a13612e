//! The example `call`, which scripts drive.

use serde_json::{Value, json};
use xdskit::testing::resources::{cluster, endpoints, listener, route, route_config};

use super::{
    Server,
    backend::{Backend, ECHO, FAIL, HOLD},
    process::Process,
};

async fn server(backend: &Backend) -> Server {
    let server = Server::start().await;
    let control_plane = &server.control_plane;
    control_plane.set(listener("shop").rds("routes"));
    control_plane.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("called")]));
    control_plane.set(cluster("called"));
    control_plane.set(endpoints("called").locality("eu", "a", [backend.text().as_str()]));
    server
}

async fn send(call: &mut Process, line: &str) {
    call.send(line.as_bytes()).await;
}

async fn answer(call: &mut Process) -> Value {
    serde_json::from_str(&call.line().await.unwrap()).expect("a JSON object")
}

#[tokio::test]
async fn each_command_is_answered_by_a_line() {
    let one = Backend::start("one").await;
    let server = server(&one).await;
    let mut call = Process::start("call", server.args("--target xds:///shop"));
    send(
        &mut call,
        &json!({"id": "a", "method": ECHO, "headers": {"x-user": "ada"}, "body": "hello"}).to_string(),
    )
    .await;
    let seen = answer(&mut call).await;
    assert_eq!(seen["id"], "a");
    assert_eq!((&seen["code"], &seen["message"], &seen["body"]), (&json!("OK"), &json!(""), &json!("hello")));
    assert_eq!(seen["headers"]["x-backend"], "one");
    assert!(seen["trailers"].is_object() && seen["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{seen}");

    send(&mut call, &json!({"id": 2, "method": FAIL, "body": "the disk is gone"}).to_string()).await;
    let seen = answer(&mut call).await;
    assert_eq!((&seen["id"], &seen["code"]), (&json!(2), &json!("DATA_LOSS")));
    assert_eq!((&seen["message"], &seen["body"]), (&json!("the disk is gone"), &json!("")));

    send(&mut call, &json!({"id": "c", "method": ECHO, "count": 100, "parallel": 10}).to_string()).await;
    let seen = answer(&mut call).await;
    let expected = json!({"id": "c", "count": 100, "codes": {"OK": 100}, "messages": {}, "by": {"one": 100}});
    assert!(expected.as_object().unwrap().iter().all(|(key, value)| seen[key] == *value), "{seen}");
    let ms: Vec<f64> = seen["ms"].as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect();
    assert!(ms.len() == 4 && ms.is_sorted(), "{seen}");

    send(&mut call, &json!({"id": "d", "method": HOLD, "timeout": 0.05}).to_string()).await;
    assert_eq!(answer(&mut call).await["code"], "DEADLINE_EXCEEDED");

    send(&mut call, &json!({"id": "s", "status": true}).to_string()).await;
    let seen = answer(&mut call).await;
    assert_eq!((&seen["id"], &seen["status"]["state"]), (&json!("s"), &json!("READY")));
    let endpoint = &seen["status"]["leaves"][0]["priorities"][0]["localities"][0]["endpoints"][0];
    assert_eq!(endpoint["addresses"], json!([one.text()]));
    send(&mut call, &json!({"id": "q", "quit": true}).to_string()).await;
    assert!(call.exit().await.success());
}

#[tokio::test]
async fn the_end_of_the_input_ends_it_after_outstanding_calls() {
    let one = Backend::start("one").await;
    let server = server(&one).await;
    let mut call = Process::start("call", server.args("--target xds:///shop"));
    send(&mut call, &json!({"id": "a", "method": HOLD}).to_string()).await;
    one.holds(1).await;
    call.close_stdin();
    one.release();
    assert_eq!(answer(&mut call).await["code"], "OK");
    assert!(call.exit().await.success());
}

#[tokio::test]
async fn a_line_that_is_no_command_is_answered_with_the_reason() {
    let one = Backend::start("one").await;
    let server = server(&one).await;
    let mut call = Process::start("call", server.args("--target xds:///shop"));
    for (line, id, part) in [
        ("{", Value::Null, "line 1: EOF"),
        (r#"{"id":"a"}"#, json!("a"), "missing field `method`"),
        (r#"{"id":"a","method":"Echo"}"#, json!("a"), "/pkg.Service/Method"),
        (r#"{"id":"a","method":"/a/b","cout":1}"#, json!("a"), "unknown field `cout`"),
        (r#"{"id":"a","method":"/a/b","timeout":-1}"#, json!("a"), "timeout"),
        (r#"{"id":"a","method":"/a/b","parallel":0}"#, json!("a"), "parallel"),
        (r#"{"id":"a","method":"/a/b","headers":{"a b":"c"}}"#, json!("a"), "the header \"a b\""),
    ] {
        send(&mut call, line).await;
        let seen = answer(&mut call).await;
        assert_eq!((&seen["id"], &seen["code"]), (&id, &json!("INVALID_ARGUMENT")), "{seen}");
        assert!(seen["message"].as_str().unwrap().contains(part), "{seen}");
    }
    assert_eq!(one.calls(), 0);
}

#[tokio::test]
async fn one_call_of_the_command_line_is_printed_for_people() {
    let one = Backend::start("one").await;
    let server = server(&one).await;
    let mut call = Process::start("call", server.args(&format!("--target xds:///shop {ECHO} hello")));
    assert!(call.line().await.unwrap().starts_with("OK in "));
    let mut lines = vec![call.line().await.unwrap()];
    while lines.last().unwrap() != "hello" {
        lines.push(call.line().await.unwrap());
    }
    assert!(lines.contains(&"header   x-backend: one".to_owned()), "{lines:?}");
    assert!(call.exit().await.success());
}

#[tokio::test]
async fn the_subcommand_of_the_tool_is_the_example() {
    let one = Backend::start("one").await;
    let server = server(&one).await;
    let mut call = server.tool("call", &["--target=xds:///shop", ECHO, "hello"]);
    let text = call.text().await;
    assert!(text.starts_with("OK in ") && text.contains("header   x-backend: one\n"), "{text}");
    assert!(text.ends_with("\nhello\n"), "{text}");
    assert_eq!(call.exit().await.code(), Some(0));

    let mut call = server.tool("call", &["--target=xds:///shop"]);
    send(&mut call, &json!({"id": 7, "method": ECHO, "count": 20, "parallel": 4}).to_string()).await;
    let seen = answer(&mut call).await;
    assert_eq!((&seen["codes"], &seen["by"]), (&json!({"OK": 20}), &json!({"one": 20})));
    call.close_stdin();
    assert_eq!(call.exit().await.code(), Some(0));
}
