//! `walk` without `--json`: trees as text.

use xdskit::{
    control_plane::type_url,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use super::{Server, process::Process, walk::serve};

/// Reads one tree, and the blank line before it, if there must be one.
async fn expect_tree(walk: &mut Process, tree: &[&str]) {
    for (index, expected) in tree.iter().enumerate() {
        let line = walk.line().await.expect("a line before the end");
        assert_eq!(line, *expected, "line {index}");
    }
}

#[tokio::test]
async fn a_tree_leads_from_the_listener_to_the_endpoints() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(listener("shop").rds("shop-routes"));
        let routes = [
            route::path("/health").header("x-probe", "yes").cluster("web"),
            route::prefix("/cart/").weighted([("cart", 995), ("canary", 5)]),
            route::path_separated_prefix("/pay").cluster("web"),
            route::regex("/[0-9]+").per_million(250_000).cluster("db"),
            route::prefix("/").non_forwarding(),
        ];
        let domains = ["shop", "shop.a", "shop.b", "shop.c"];
        tx.set(route_config("shop-routes").virtual_host(domains, routes));
        tx.set(cluster("web").logical_dns("127.0.0.1", 80));
        let cart = endpoints("cart-endpoints").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]).weight(3);
        let cart = cart.draining("10.0.0.1:80").unhealthy("10.0.0.2:80");
        let cart = cart.locality("eu", "b", ["10.0.0.3:80", "10.0.0.4:80"]).priority(1).weight(3);
        let cart = cart.endpoint_weight("10.0.0.3:80", 5).locality("eu", "c", ["10.0.0.5:80"]).priority(1);
        tx.set(cart.drop_percent("overload", 7));
        tx.set(cluster("cart").eds_service("cart-endpoints"));
        tx.set(cluster("canary"));
        let many: Vec<_> = (0..14).map(|host| format!("10.0.9.{host}:80")).collect();
        let many = endpoints("canary").locality("eu", "a", many.iter().map(String::as_str));
        tx.set(many.unhealthy("10.0.9.13:80"));
        tx.set(cluster("db").aggregate(["db-main", "db-others"]));
        tx.set(cluster("db-others").aggregate(["db-main", "db-replica"]));
        tx.set(cluster("db-main"));
        tx.set(endpoints("db-main"));
        tx.set(cluster("db-replica"));
        tx.set(endpoints("db-replica").locality("eu", "", ["10.0.1.1:80"]));
    });
    let mut walk = server.walk("xds:///shop");
    let tree = [
        "● xds:///shop  listener shop → routes shop-routes → virtual host shop (shop, shop.a, shop.b, …)",
        "├─ /health  x-probe: yes    → web",
        "├─ /cart/*                  → 99.5 % cart, 0.5 % canary",
        "├─ /pay, /pay/*             → web",
        "├─ ~ /[0-9]+  25 % of them  → db",
        "├─ /*                       → ✗ served by the server itself: requests fail",
        "├─ ● web     DNS 127.0.0.1:80  ● 127.0.0.1:80",
        "├─ ● cart    EDS cart-endpoints",
        "│  ├─ drops 7 % of the requests (overload)",
        "│  ├─ priority 0 eu/a  ◌ 10.0.0.1:80 draining  ✗ 10.0.0.2:80 unhealthy",
        "│  ├─ priority 1 in use eu/b 75 %  ● 10.0.0.3:80 ×5  ● 10.0.0.4:80 ×1",
        "│  └─ priority 1 in use eu/c 25 %  ● 10.0.0.5:80",
        "├─ ● canary  EDS",
        "│  └─ eu/a  ● 10.0.9.0:80  ● 10.0.9.1:80  ● 10.0.9.2:80  ● 10.0.9.3:80",
        "│       ● 10.0.9.4:80  ● 10.0.9.5:80  ● 10.0.9.6:80  ● 10.0.9.7:80",
        "│       ● 10.0.9.8:80  ● 10.0.9.9:80  ● 10.0.9.10:80  ● 10.0.9.11:80",
        "│       … and 2 more, 1 of them not usable",
        "└─ ● db      aggregate",
        "   ├─ ✗ db-main    EDS  no endpoints",
        "   └─ ● db-others  aggregate",
        "      ├─ ✗ db-main     as above",
        "      └─ ● db-replica  EDS  in use  eu  ● 10.0.1.1:80",
    ];
    expect_tree(&mut walk, &tree).await;
}

#[tokio::test]
async fn what_a_server_sends_controls_no_terminal() {
    let server = Server::start().await;
    let odd = |word: &str| format!("{word}\n\u{1b}[2J");
    server.control_plane.update(|tx| {
        tx.set(listener("shop").rds(odd("routes")));
        let routes = [
            route::path(odd("/cart")).cluster(odd("web")),
            route::prefix("/").header("x-probe", odd("yes")).cluster("web"),
        ];
        tx.set(route_config(odd("routes")).virtual_host(["shop"], routes));
        tx.set(cluster(odd("web")).eds_service(odd("service")));
        tx.set(
            endpoints(odd("service")).locality(&odd("eu"), "", ["10.0.0.1:80"]).drop_percent(odd("load"), 7),
        );
        tx.set_error(type_url::CLUSTER, "web", 7, &odd("refused"));
    });
    let mut walk = server.walk("xds:///shop");
    let mut words = ["routes", "/cart", "web", "service", "yes", "eu", "load", "refused"].to_vec();
    while !words.is_empty() {
        let line = walk.line().await.expect("a line before the end");
        assert!(!line.starts_with("\u{1b}") && !line.contains("\u{1b}[2J"), "{line:?}");
        words.retain(|word| !line.contains(&format!("{word}\\n\\u{{1b}}[2J")));
    }
}

#[tokio::test]
async fn only_what_changes_is_added() {
    let server = Server::start().await;
    serve(&server.control_plane, "a", "10.0.0.1:80");
    serve(&server.control_plane, "b", "10.0.0.2:80");
    let mut walk = server.walk("xds:///a xds:///b");
    let mut before = Vec::new();
    for _ in 0..7 {
        before.push(walk.line().await.unwrap());
    }
    before.sort_unstable();
    assert_eq!(before[0], "", "trees are apart");

    server.control_plane.set(endpoints("b").locality("eu", "a", ["10.0.0.3:80"]));
    let tree = [
        "",
        "● xds:///b  listener b → routes b → virtual host b (b)",
        "├─ /*  → b",
        "└─ ● b  EDS  eu/a  ● 10.0.0.3:80",
    ];
    expect_tree(&mut walk, &tree).await;
    assert!(!walk.has_line());
}

#[tokio::test]
async fn errors_stand_where_they_are() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(listener("shop").rds("routes"));
        let routes = [route::prefix("/a").cluster("nowhere"), route::prefix("/b").cluster("empty")];
        let routes = routes.into_iter().chain([
            route::prefix("/c").cluster("sick"),
            route::prefix("/d").cluster("lost"),
            route::prefix("/e").cluster("all"),
        ]);
        tx.set(route_config("routes").virtual_host(["shop"], routes).virtual_host(["*.example"], []));
        tx.set(cluster("empty"));
        tx.set(endpoints("empty"));
        tx.set(cluster("sick"));
        tx.set(endpoints("sick").locality("", "a", ["10.0.0.1:80"]).unhealthy("10.0.0.1:80"));
        tx.set(cluster("lost"));
        tx.set(cluster("all").aggregate(["nowhere", "empty"]));
    });
    let node = "[node id: test]";
    let mut walk = server.walk("--resource-timeout 0.3 xds:///shop");
    let addr = server.control_plane.addr();
    let nothing = |kind, name| {
        format!(
            "NOT_FOUND: {kind} \"{name}\": does not exist: xDS server {addr} did not send it in time; is the name correct and visible to this node? {node}"
        )
    };
    let (nowhere, lost) = (nothing("Cluster", "nowhere"), nothing("ClusterLoadAssignment", "lost"));
    let tree = [
        "● xds:///shop  listener shop → routes routes → virtual host shop (shop)",
        "├─ /a*  → ✗ nowhere",
        "├─ /b*  → ✗ empty",
        "├─ /c*  → ✗ sick",
        "├─ /d*  → ✗ lost",
        "├─ /e*  → ✗ all",
        &format!("├─ ✗ nowhere  {nowhere}"),
        "├─ ✗ empty    EDS  no endpoints",
        "├─ ✗ sick     EDS  no usable endpoints  a  ✗ 10.0.0.1:80 unhealthy",
        &format!("├─ ✗ lost     EDS  {lost}"),
        "└─ ✗ all      aggregate  nothing to send to in any of these",
        "   ├─ ✗ nowhere  as above",
        "   └─ ✗ empty    as above",
    ];
    expect_tree(&mut walk, &tree).await;

    server.control_plane.set(route_config("routes").virtual_host(["*.example"], []));
    let why = "could not find VirtualHost for \"shop\"; the domains are: *.example";
    let why = format!("└─ NOT_FOUND: RouteConfiguration \"routes\": {why} {node}");
    expect_tree(&mut walk, &["", "✗ xds:///shop", &why]).await;

    server.control_plane.remove(type_url::LISTENER, "shop");
    let why = format!("└─ NOT_FOUND: Listener \"shop\": xDS server {addr} has deleted it {node}");
    expect_tree(&mut walk, &["", "✗ xds:///shop", &why]).await;
}

#[tokio::test]
async fn stale_resources_have_a_reason_and_a_time() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let mut walk = server.walk("xds:///shop");
    let good = "● xds:///shop  listener shop → routes shop → virtual host shop (shop)";
    expect_tree(&mut walk, &[good, "├─ /*  → shop", "└─ ● shop  EDS  eu/a  ● 10.0.0.1:80"]).await;

    server.control_plane.set(cluster("shop").edit(|cluster| cluster.eds_cluster_config = None));
    let why = "Cluster \"shop\": eds_cluster_config: must be set [node id: test]";
    let tree = [
        "",
        good,
        "├─ /*  → shop",
        "└─ ! shop  EDS",
        &format!("   ├─ ! may be stale: INVALID_ARGUMENT: {why}"),
        "   └─ eu/a  ● 10.0.0.1:80",
    ];
    expect_tree(&mut walk, &tree).await;
    server.control_plane.set(cluster("shop"));
    expect_tree(&mut walk, &["", good, "├─ /*  → shop", "└─ ● shop  EDS  eu/a  ● 10.0.0.1:80"]).await;

    server.control_plane.stop().await;
    let stale = loop {
        let line = walk.line().await.unwrap();
        if line.contains("3 more") {
            break line;
        }
    };
    assert!(stale.starts_with("├─ ! may be stale since "), "{stale}");
    let cannot = "UTC: UNAVAILABLE: Listener \"shop\" and 3 more resources: cannot connect to xDS server";
    assert!(stale.contains(cannot), "{stale}");
    expect_tree(&mut walk, &["├─ /*  → shop", "└─ ● shop  EDS  eu/a  ● 10.0.0.1:80"]).await;
}

#[tokio::test]
async fn many_services_are_plain_text_where_there_is_no_terminal() {
    let server = Server::start().await;
    let names: Vec<_> = (1..=25).map(|number| format!("service-{number}")).collect();
    names.iter().for_each(|name| serve(&server.control_plane, name, "10.0.0.1:80"));
    let targets: Vec<_> = names.iter().map(|name| format!("xds:///{name}")).collect();
    let mut walk = server.walk(&targets.join(" "));
    let mut titles = Vec::new();
    while titles.len() < targets.len() {
        let line = walk.line().await.unwrap();
        assert!(!line.contains('\u{1b}'), "{line:?}");
        assert!(line.chars().count() <= 100, "{line}");
        if line.starts_with('●') {
            let [title, routes, cluster] = [line, walk.line().await.unwrap(), walk.line().await.unwrap()];
            assert!(routes.starts_with("├─ /*  → service-"), "{routes}");
            assert!(cluster.ends_with("  EDS  eu/a  ● 10.0.0.1:80"), "{cluster}");
            titles.push(title.split_whitespace().nth(1).unwrap().to_owned());
        }
    }
    titles.sort();
    let mut expected = targets;
    expected.sort();
    assert_eq!(titles, expected);
}
