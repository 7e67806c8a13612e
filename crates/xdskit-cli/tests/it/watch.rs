//! `watch`: the example and its output, which scripts read.

use std::fs;

use serde_json::{Value, json};
use xdskit::{
    control_plane::type_url,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use super::{Server, brief, keys, process::Process};

impl Server {
    pub(crate) fn watch(&self, args: &str) -> Process {
        Process::start("watch", self.args(args))
    }
}

#[tokio::test]
async fn present_absent_and_warning_have_their_shapes() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop").eds_service("shop-endpoints"));
    let mut watch = server.watch("--json cluster=shop");

    let line = watch.line().await.unwrap();
    let head = r#"{"watch":"cluster=shop","name":"shop","state":"present","version":"#;
    assert!(line.starts_with(head), "{line}");
    let good: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(keys(&good), ["name", "resource", "state", "version", "warning", "watch"]);
    assert_eq!(good["version"], server.control_plane.version(type_url::CLUSTER));
    assert_eq!((&good["resource"]["name"], &good["warning"]), (&json!("shop"), &Value::Null));
    assert_eq!(good["resource"]["service_name"], "shop-endpoints");

    server.control_plane.set(cluster("shop").edit(|cluster| cluster.eds_cluster_config = None));
    let bad = watch.json().await;
    assert_eq!(keys(&bad["warning"]), ["code", "message"]);
    assert_eq!(bad["warning"]["code"], "INVALID_ARGUMENT");
    for part in ["Cluster", "\"shop\"", "eds_cluster_config", "node id: test"] {
        assert!(bad["warning"]["message"].as_str().unwrap().contains(part), "{part} is not in {bad}");
    }
    assert_eq!((&bad["version"], &bad["resource"]), (&good["version"], &good["resource"]));

    server.control_plane.remove(type_url::CLUSTER, "shop");
    let line = watch.line().await.unwrap();
    let head =
        r#"{"watch":"cluster=shop","name":"shop","state":"absent","error":{"code":"NOT_FOUND","message":""#;
    assert!(line.starts_with(head), "{line}");
    let gone: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(keys(&gone), ["error", "name", "state", "watch"]);

    server.control_plane.set(cluster("shop").eds_service("other"));
    let back = watch.json().await;
    assert_eq!((&back["warning"], &back["resource"]["service_name"]), (&Value::Null, &json!("other")));
}

#[tokio::test]
async fn what_does_not_come_in_time_does_not_exist() {
    for protocol in ["sotw", "delta"] {
        let server = Server::start().await;
        server.control_plane.hold_type(type_url::ENDPOINTS);
        let options = format!("--protocol {protocol} --json --resource-timeout 0.2 endpoints=nobody");
        let mut watch = server.watch(&options);
        let line = watch.json().await;
        assert_eq!((&line["state"], &line["error"]["code"]), (&json!("absent"), &json!("NOT_FOUND")));
        let message = line["error"]["message"].as_str().unwrap();
        assert!(message.contains("did not send it in time"), "{message}");
    }
}

#[tokio::test]
async fn each_member_of_a_wildcard_has_its_lines() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(cluster("a"));
        tx.set(cluster("b"));
    });
    let mut watch = server.watch("--json cluster=*");
    let both = [watch.json().await, watch.json().await];
    assert_eq!(both.map(|line| brief(&line)), ["cluster=* a present", "cluster=* b present"]);

    server.control_plane.set(cluster("c"));
    assert_eq!(brief(&watch.json().await), "cluster=* c present");
    server.control_plane.remove(type_url::CLUSTER, "a");
    let gone = watch.json().await;
    assert_eq!((brief(&gone).as_str(), &gone["error"]["code"]), ("cluster=* a absent", &json!("NOT_FOUND")));
}

#[tokio::test]
async fn each_type_can_be_watched() {
    let server = Server::start().await;
    let types = [
        ("listener", type_url::LISTENER),
        ("route", type_url::ROUTE_CONFIGURATION),
        ("cluster", type_url::CLUSTER),
        ("endpoints", type_url::ENDPOINTS),
        ("scoped-route", type_url::SCOPED_ROUTE_CONFIGURATION),
        ("virtual-host", type_url::VIRTUAL_HOST),
        ("secret", type_url::SECRET),
        ("runtime", type_url::RUNTIME),
    ];
    let names = types.map(|(kind, _)| format!("{kind}=shop")).join(" ");
    // Virtual hosts are in the incremental variant alone.
    let _watch = server.watch(&format!("--protocol delta {names}"));
    for (_, type_url) in types {
        server.control_plane.expect_names(type_url, &["shop"]).await.unwrap();
    }
}

#[tokio::test]
async fn resources_show_what_they_hold_as_written() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(listener("shop").rds("shop-routes"));
        let routes = [route::prefix("/cart/").weighted([("cart", 90), ("canary", 10)])];
        tx.set(route_config("shop-routes").virtual_host(["shop.example"], routes));
        let places = endpoints("cart").locality("eu", "a", ["10.0.0.1:80", "[2001:db8::1]:80"]);
        tx.set(places.draining("10.0.0.1:80").drop_percent("overload", 7));
    });
    for (target, parts) in [
        ("listener=shop", &["\"shop-routes\"", "\"router\""] as &[_]),
        ("route=shop-routes", &["\"shop.example\"", "\"/cart/\"", "\"canary\"", "90"]),
        ("endpoints=cart", &["\"10.0.0.1:80\"", "\"[2001:db8::1]:80\"", "\"DRAINING\"", "\"overload\""]),
    ] {
        let line = server.watch(&format!("--json {target}")).line().await.unwrap();
        for part in parts {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop"));
    server.control_plane.stop().await;
    let mut watch = server.watch("--json cluster=shop route=* cluster=*");
    let mut absent = [watch.json().await, watch.json().await, watch.json().await];
    absent.sort_by_key(brief);
    for (line, expected) in
        absent.iter().zip(["cluster=* * absent", "cluster=shop shop absent", "route=* * absent"])
    {
        assert_eq!((brief(line).as_str(), &line["error"]["code"]), (expected, &json!("UNAVAILABLE")));
        let message = line["error"]["message"].as_str().unwrap();
        assert!(message.contains(&server.control_plane.addr().to_string()), "{message}");
    }

    server.control_plane.restart().await;
    watch.json_until(|line| brief(line) == "cluster=shop shop present").await;

    server.control_plane.stop().await;
    let stale = watch.json_until(|line| line["watch"] == "cluster=shop" && !line["warning"].is_null()).await;
    assert_eq!((&stale["state"], &stale["warning"]["code"]), (&json!("present"), &json!("UNAVAILABLE")));
    server.control_plane.restart().await;
    watch.json_until(|line| line["watch"] == "cluster=shop" && line["warning"].is_null()).await;
}

#[tokio::test]
async fn commands_begin_and_end_watches() {
    let server = Server::start().await;
    let both = |n: &str| {
        server.control_plane.update(|tx| {
            tx.set(cluster("a").eds_service(n));
            tx.set(cluster("b").eds_service(n));
        })
    };
    both("1");
    let mut watch = server.watch("--json");
    watch.send(b"watch cluster=a").await;
    assert_eq!(brief(&watch.json().await), "cluster=a a present");
    // A repeated one changes nothing, or there would be a second line before that of b.
    watch.send(b"watch cluster=a\nwatch cluster=b\r").await;
    assert_eq!(brief(&watch.json().await), "cluster=b b present");

    watch.send(b"unwatch cluster=nothing\nunwatch cluster=a").await;
    server.control_plane.expect_names(type_url::CLUSTER, &["b"]).await.unwrap();
    both("2");
    assert_eq!(brief(&watch.json().await), "cluster=b b present");

    watch.send(b"watch cluster=a").await;
    assert_eq!(brief(&watch.json().await), "cluster=a a present");
    watch.send(b"quit").await;
    assert_eq!(watch.exit().await.code(), Some(0));
    assert_eq!(watch.line().await, None);
}

#[tokio::test]
async fn a_bad_command_is_an_error_and_no_end() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop"));
    let mut watch = server.watch("--json");
    for (line, part) in [
        (b"frobnicate" as &[u8], "frobnicate"),
        (b"watch shop", "TYPE=NAME"),
        (b"watch cluster=", "no name"),
        (b"unwatch clusters=shop", "unknown type \"clusters\""),
        (b"quit now", "quit now"),
        (b"watch cluster=\xff\xfe", "UTF-8"),
    ] {
        watch.send(line).await;
        watch.complaint(part).await;
    }
    watch.send(b"\nwatch cluster=shop").await;
    assert_eq!(brief(&watch.json().await), "cluster=shop shop present");
    assert!(!watch.has_line());
}

#[tokio::test]
async fn the_end_of_the_input_is_not_the_end() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop"));
    let mut watch = server.watch("--json cluster=shop");
    watch.close_stdin();
    watch.json().await;
    server.control_plane.set(cluster("shop").eds_service("other"));
    assert_eq!(watch.json().await["resource"]["service_name"], "other");
}

#[cfg(unix)]
#[tokio::test]
async fn sigint_is_a_good_end() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop"));
    let mut watch = server.watch("cluster=shop");
    watch.line().await;
    watch.interrupt();
    assert_eq!(watch.exit().await.code(), Some(0));
}

#[tokio::test]
async fn it_ends_though_nobody_reads_what_it_prints() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        for number in 0..2000 {
            tx.set(cluster(format!("cluster-{number}")));
        }
    });
    let mut watch = Process::start_unread("watch", server.args("--json cluster=*"));
    server.control_plane.expect_ack(type_url::CLUSTER).await.unwrap();
    watch.send(b"quit").await;
    assert_eq!(watch.exit().await.code(), Some(0));
}

#[tokio::test]
async fn bad_arguments_and_bootstraps_are_reported_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file(
        "good",
        r#"{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}]}"#,
    );
    let not_json = file("not-json", "{ xds_servers");
    let without = file("without", r#"{"node":{"id":"me"}}"#);
    let empty = file("empty", r#"{"xds_servers":[]}"#);
    let wrong = file("wrong", r#"{"xds_servers":[{"server_uri":1}]}"#);
    for (args, parts) in [
        (vec!["--bootstrap", "no/such/file"], vec!["no/such/file", "cannot be read"]),
        (vec!["--bootstrap", &not_json], vec![&not_json, "not JSON"]),
        (vec!["--bootstrap", &without], vec![&without, "xds_servers"]),
        (vec!["--bootstrap", &empty], vec![&empty, "xds_servers"]),
        (vec!["--bootstrap", &wrong], vec![&wrong, "xds_servers[0].server_uri"]),
        (vec!["--bootstrap", &good, "clusters=shop"], vec!["unknown type \"clusters\""]),
        (vec!["--bootstrap", &good, "--bogus"], vec!["unknown option --bogus"]),
        (vec!["--bootstrap", &good, "--protocol", "rest"], vec!["rest", "must be sotw or delta"]),
        (vec!["--bootstrap", &good, "--resource-timeout", "soon"], vec!["--resource-timeout", "soon"]),
        (vec![], vec!["--bootstrap PATH is missing"]),
    ] {
        let mut watch = Process::start("watch", &args);
        assert_eq!(watch.exit().await.code(), Some(2), "{args:?}");
        assert_eq!(watch.line().await, None, "{args:?}");
        let line = watch.complaint(parts[0]).await;
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} are not in {line:?}");
    }
}

#[tokio::test]
async fn without_json_there_is_plain_text_for_people() {
    let server = Server::start().await;
    server.control_plane.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    let mut watch = server.watch("endpoints=shop");
    let mut text = watch.line().await.unwrap();
    assert_eq!(
        text,
        format!("● endpoints shop  version {}", server.control_plane.version(type_url::ENDPOINTS))
    );
    while !text.contains("10.0.0.1:80") {
        text = watch.line().await.unwrap();
        assert!(!text.contains('\u{1b}'), "no colours where there is no terminal: {text:?}");
    }
}
