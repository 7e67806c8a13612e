//! `walk`: the tree of listener, routes, clusters and endpoints.

use serde_json::{Value, json};
use xdskit::{
    control_plane::type_url,
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config, scope},
    },
};

use super::{Server, keys, process::Process};

impl Server {
    pub(crate) fn walk(&self, args: &str) -> Process {
        Process::start("walk", self.args(args))
    }
}

/// Serves a target whose requests all go to one cluster with one endpoint.
pub(crate) fn serve(control_plane: &TestControlPlane, name: &str, endpoint: &str) {
    control_plane.update(|tx| {
        tx.set(listener(name).rds(name));
        tx.set(route_config(name).virtual_host([name], [route::prefix("/").cluster(name)]));
        tx.set(cluster(name));
        tx.set(endpoints(name).locality("eu", "a", [endpoint]));
    });
}

#[tokio::test]
async fn headers_choose_the_scope() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    server.control_plane.update(|tx| {
        tx.set(listener("shop").srds(["x-region", "x-tier"]));
        tx.set(scope("eu-gold", ["eu", "gold"]).rds("shop"));
        tx.set(scope("us-gold", ["us", "gold"]));
    });
    let mut walk = server.walk("--json --header x-region=eu --header X-Tier=gold xds:///shop");
    let line = walk.line().await.unwrap();
    assert!(line.ends_with("\"warnings\":[],\"scope\":\"eu-gold\"}"), "{line}");
    let mut walk = server.walk("--header x-region=eu --header X-Tier=gold xds:///shop");
    let line = walk.line().await.unwrap();
    assert_eq!(line, "● xds:///shop  listener shop → scope eu-gold → routes shop → virtual host shop (shop)");
    let line = server.walk("--json --header x-region=eu xds:///shop").json().await;
    assert_eq!(line["error"]["code"], "NOT_FOUND");
}

#[tokio::test]
async fn a_tree_has_its_shape() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(listener("shop").rds("shop-routes"));
        let routes = [
            route::prefix("/cart/").weighted([("cart", 90), ("canary", 10)]),
            route::prefix("/db/").cluster("db"),
            route::prefix("/").cluster("dns"),
        ];
        let other = [route::prefix("/").cluster("of-another-host")];
        tx.set(
            route_config("shop-routes").virtual_host(["other"], other).virtual_host(["shop", "*"], routes),
        );
        tx.set(cluster("cart").eds_service("cart-endpoints"));
        let places = endpoints("cart-endpoints").locality("eu", "a", ["10.0.0.2:80", "10.0.0.1:80"]);
        let places = places.draining("10.0.0.2:80").locality("eu", "b", ["[2001:db8::1]:80"]).priority(1);
        tx.set(places.healthy("[2001:db8::1]:80"));
        tx.set(cluster("dns").logical_dns("127.0.0.1", 8080));
        tx.set(cluster("db").aggregate(["db-1", "nowhere", "db-2"]));
        tx.set(cluster("db-1"));
        tx.set(endpoints("db-1").locality("eu", "a", ["10.0.1.1:80"]).unhealthy("10.0.1.1:80"));
        tx.set(cluster("db-2"));
        tx.set(endpoints("db-2").locality("eu", "a", ["10.0.1.2:80"]));
        tx.set(cluster("of-another-host"));
    });
    let mut walk = server.walk("--protocol sotw --json --resource-timeout 0.3 xds:///shop");

    let line = walk.line().await.unwrap();
    let head = r#"{"target":"xds:///shop","listener":"shop","route_config":"shop-routes","virtual_host":"shop","clusters":{"canary":{"kind":null,"endpoints":[],"leaves":[],"error":{"code":"NOT_FOUND","message":"#;
    assert!(line.starts_with(head), "{line}");
    let tree: Value = serde_json::from_str(&line).unwrap();
    let missing = &tree["clusters"]["canary"]["error"]["message"];
    for part in ["Cluster", "\"canary\"", "node id: test"] {
        assert!(missing.as_str().unwrap().contains(part), "{part} is not in {missing}");
    }
    let of = |kind: &str, endpoints: &[&str], leaves: &[&str]| json!({"kind": kind, "endpoints": endpoints, "leaves": leaves, "error": null});
    let clusters = tree["clusters"].as_object().unwrap();
    assert_eq!(keys(&tree["clusters"]), ["canary", "cart", "db", "db-1", "db-2", "dns", "nowhere"]);
    assert_eq!(clusters["cart"], of("eds", &["10.0.0.1:80", "[2001:db8::1]:80"], &[]));
    assert_eq!(clusters["dns"], of("logical_dns", &["127.0.0.1:8080"], &[]));
    assert_eq!(clusters["db"], of("aggregate", &[], &["db-1", "db-2"]));
    assert_eq!(clusters["db-1"], of("eds", &[], &[]), "that nothing is usable is no error");
    assert_eq!(clusters["db-2"], of("eds", &["10.0.1.2:80"], &[]));
    assert_eq!(clusters["nowhere"]["error"]["code"], "NOT_FOUND");
    assert_eq!(tree["warnings"], json!([]));
}

#[tokio::test]
async fn what_is_known_of_a_cluster_stands_beside_its_error() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        let routes = [route::prefix("/").weighted([("lost", 1), ("all", 1), ("bad", 1)])];
        tx.set(listener("shop").inline_routes(route_config("").virtual_host(["*"], routes)));
        tx.set(cluster("lost"));
        tx.set(cluster("all").aggregate(["all"]));
        tx.set(cluster("bad").edit(|cluster| cluster.eds_cluster_config = None));
    });
    let tree = server.walk("--json --resource-timeout 0.3 xds:///shop").json().await;
    for (name, kind, code, part) in [
        ("lost", json!("eds"), "NOT_FOUND", "ClusterLoadAssignment \"lost\""),
        ("all", json!("aggregate"), "FAILED_PRECONDITION", "no leaf clusters"),
        ("bad", Value::Null, "INVALID_ARGUMENT", "eds_cluster_config"),
    ] {
        let cluster = &tree["clusters"][name];
        assert_eq!(keys(cluster), ["endpoints", "error", "kind", "leaves"]);
        let nothing = (&json!([]), &json!([]));
        assert_eq!((&cluster["kind"], (&cluster["endpoints"], &cluster["leaves"])), (&kind, nothing));
        assert_eq!(cluster["error"]["code"], code);
        let message = cluster["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn each_change_of_a_tree_is_a_line() {
    let server = Server::start().await;
    let routes = |to: &str| {
        let routes = route_config("").virtual_host(["*"], [route::prefix("/").cluster(to)]);
        server.control_plane.set(listener("shop").inline_routes(routes));
    };
    let cart = |name: &str, endpoint: &str| {
        server.control_plane.update(|tx| {
            tx.set(cluster(name));
            tx.set(endpoints(name).locality("eu", "a", [endpoint]));
        });
    };
    routes("cart");
    cart("cart", "10.0.0.1:80");
    let mut walk = server.walk("--json xds:///shop");
    let first = walk.json().await;
    assert_eq!((&first["route_config"], &first["virtual_host"]), (&json!(""), &json!("*")));
    assert_eq!(first["clusters"]["cart"]["endpoints"], json!(["10.0.0.1:80"]));

    cart("cart", "10.0.0.2:80");
    assert_eq!(walk.json().await["clusters"]["cart"]["endpoints"], json!(["10.0.0.2:80"]));

    // A change without an effect on the tree prints no line: the next line is that of the routes.
    server.control_plane.set(endpoints("cart").locality("eu", "b", ["10.0.0.2:80"]));
    cart("other", "10.0.0.3:80");
    routes("other");
    let moved = walk.json().await;
    assert_eq!(keys(&moved["clusters"]), ["other"]);
    assert_eq!(moved["clusters"]["other"]["endpoints"], json!(["10.0.0.3:80"]));
    assert!(!walk.has_line());
}

#[tokio::test]
async fn each_target_has_its_lines() {
    let server = Server::start().await;
    for number in 1..=3 {
        serve(&server.control_plane, &format!("service-{number}"), "10.0.0.1:80");
    }
    let bad = "xds://nobody/shop not-a-target";
    let mut walk = server.walk(&format!("--json xds:///service-1 xds:///service-2 xds:///service-3 {bad}"));
    let mut lines = Vec::new();
    for _ in 0..5 {
        let line = walk.json().await;
        let target = line["target"].as_str().unwrap().to_owned();
        lines
            .push((target, line["listener"].as_str().or(line["error"]["code"].as_str()).unwrap().to_owned()));
    }
    lines.sort();
    let lines: Vec<_> = lines.iter().map(|(target, what)| (target.as_str(), what.as_str())).collect();
    let expected = [
        ("not-a-target", "INVALID_ARGUMENT"),
        ("xds:///service-1", "service-1"),
        ("xds:///service-2", "service-2"),
        ("xds:///service-3", "service-3"),
        ("xds://nobody/shop", "INVALID_ARGUMENT"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn targets_that_lead_nowhere_have_a_reason() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(listener("lost").rds("nobody"));
        tx.set(listener("other").rds("routes"));
        tx.set(route_config("routes").virtual_host(["a.example"], []).virtual_host(["*.b.example"], []));
    });
    for (name, code, parts) in [
        ("none", "NOT_FOUND", &["Listener", "\"none\""] as &[_]),
        ("lost", "NOT_FOUND", &["RouteConfiguration", "\"nobody\""]),
        ("other", "NOT_FOUND", &["could not find VirtualHost for \"other\"", "a.example", "*.b.example"]),
    ] {
        let mut walk = server.walk(&format!("--json --resource-timeout 0.3 xds:///{name}"));
        let line = walk.json().await;
        assert_eq!(keys(&line), ["error", "target"]);
        assert_eq!(
            (&line["target"], &line["error"]["code"]),
            (&json!(format!("xds:///{name}")), &json!(code))
        );
        let message = line["error"]["message"].as_str().unwrap();
        assert!(parts.iter().chain(&["node id: test"]).all(|part| message.contains(part)), "{message}");

        serve(&server.control_plane, name, "10.0.0.1:80");
        let found = walk.json_until(|line| line["listener"] == *name).await;
        assert_eq!(found["clusters"][name]["endpoints"], json!(["10.0.0.1:80"]));
        server.control_plane.remove(type_url::LISTENER, name);
        assert_eq!(walk.json().await["error"]["code"], "NOT_FOUND");
    }
}

#[tokio::test]
async fn a_lost_server_is_one_warning_for_all_that_may_be_stale() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let mut walk = server.walk("--json xds:///shop");
    let good = walk.json().await;
    assert_eq!(good["warnings"], json!([]));

    server.control_plane.stop().await;
    let stale = walk.json_until(|line| line["warnings"][0]["message"].to_string().contains("3 more")).await;
    assert_eq!(stale["warnings"].as_array().unwrap().len(), 1, "{stale}");
    assert_eq!(stale["warnings"][0]["code"], "UNAVAILABLE");
    let message = stale["warnings"][0]["message"].as_str().unwrap();
    for part in ["Listener \"shop\" and 3 more resources", "node id: test", "Connection refused"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(stale["clusters"], good["clusters"]);

    server.control_plane.restart().await;
    assert_eq!(walk.json_until(|line| line["warnings"] == json!([])).await, good);
}

#[tokio::test]
async fn a_rejection_is_a_warning_of_its_own() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let mut walk = server.walk("--json xds:///shop");
    let good = walk.json().await;
    server.control_plane.set(cluster("shop").edit(|cluster| cluster.eds_cluster_config = None));
    let kept = walk.json().await;
    assert_eq!(
        (&kept["clusters"], &kept["warnings"][0]["code"]),
        (&good["clusters"], &json!("INVALID_ARGUMENT"))
    );
    let message = kept["warnings"][0]["message"].as_str().unwrap();
    assert!(message.contains("eds_cluster_config"), "{message}");
}

#[tokio::test]
async fn a_server_that_was_never_there_is_an_error_until_it_comes() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    server.control_plane.stop().await;
    let mut walk = server.walk("--json xds:///shop");
    assert_eq!(walk.json().await["error"]["code"], "UNAVAILABLE");
    server.control_plane.restart().await;
    walk.json_until(|line| line["listener"] == "shop").await;
}

#[cfg(unix)]
#[tokio::test]
async fn sigint_is_a_good_end() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    for args in ["--json xds:///shop", "xds:///shop"] {
        let mut walk = server.walk(args);
        walk.line().await;
        walk.interrupt();
        assert_eq!(walk.exit().await.code(), Some(0));
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_reported_with_exit_code_2() {
    let server = Server::start().await;
    let bootstrap = server.bootstrap().to_str().unwrap().to_owned();
    for (args, part) in [
        (vec!["xds:///shop"], "--bootstrap PATH is missing"),
        (vec![], "TARGET"),
        (vec!["--bootstrap", &bootstrap], "TARGET"),
        (vec!["--bootstrap", "no/such/file", "xds:///shop"], "no/such/file"),
        (vec!["--bootstrap", &bootstrap, "--bogus", "xds:///shop"], "unknown option --bogus"),
        (vec!["--bootstrap", &bootstrap, "--protocol", "rest", "xds:///shop"], "must be sotw or delta"),
    ] {
        let mut walk = Process::start("walk", &args);
        assert_eq!(walk.exit().await.code(), Some(2), "{args:?}");
        assert_eq!(walk.line().await, None, "{args:?}");
        walk.complaint(part).await;
    }
    let mut help = Process::start("walk", ["--help"]);
    assert_eq!(help.exit().await.code(), Some(0));
}
