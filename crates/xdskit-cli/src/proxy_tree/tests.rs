use prost::Message;
use xdskit::{
    pb::{
        envoy::{
            config::{
                core::v3::{Address, Locality, SocketAddress, address, socket_address::PortSpecifier},
                listener::v3::{
                    self as pb, Filter, FilterChain, FilterChainMatch, ListenerFilter, filter::ConfigType,
                },
                route::v3::RouteConfiguration,
            },
            extensions::filters::network::{
                http_connection_manager::v3::{
                    HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
                },
                tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
            },
        },
        google::protobuf::{Any, UInt32Value},
    },
    resource::Context,
    testing::resources::{cluster, endpoints, route, route_config},
    tool_support::not_found,
};

use super::*;
use crate::{paint::Paint, tree::Artist};

/// Puts a message into the mesh, as a client in observing mode provides it.
fn put<C: Content>(mesh: &mut Mesh, name: &str, message: &impl Message) {
    put_bytes::<C>(mesh, name, message.encode_to_vec());
}

fn put_bytes<C: Content>(mesh: &mut Mesh, name: &str, bytes: Vec<u8>) {
    let inspected = Inspected::<C::Resource>::parse(&bytes.into(), &Context::new()).expect("a message");
    C::of(mesh).set(&name.into(), Some(Entry::present(&inspected, None)));
}

fn absent(name: &str) -> WatchError {
    not_found("a/b.Cluster", name, "me", "does not exist")
}

fn any(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_url}"), value: message.encode_to_vec().into() }
}

fn filter(name: &str, type_url: &str, message: &impl Message) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(any(type_url, message))) }
}

fn http(routes: RouteSpecifier) -> Filter {
    let manager = HttpConnectionManager { route_specifier: Some(routes), ..Default::default() };
    filter(
        "http",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        &manager,
    )
}

fn rds(name: &str) -> Filter {
    http(RouteSpecifier::Rds(Rds { route_config_name: name.to_owned(), ..Default::default() }))
}

fn tcp(cluster: &str) -> Filter {
    let proxy = TcpProxy { cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())) };
    filter("tcp", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", &proxy)
}

fn chain(name: &str, filters: Vec<Filter>) -> FilterChain {
    FilterChain { name: name.to_owned(), filters, ..Default::default() }
}

fn socket(address: &str, port: u32) -> Address {
    let port_specifier = Some(PortSpecifier::PortValue(port));
    let socket = SocketAddress { address: address.to_owned(), port_specifier, ..Default::default() };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

fn listener(name: &str, filter_chains: Vec<FilterChain>) -> pb::Listener {
    let address = Some(socket("10.0.0.1", 15001));
    pb::Listener { name: name.to_owned(), address, filter_chains, ..Default::default() }
}

/// A cluster whose endpoints are in itself.
fn inline(name: &str, kind: i32) -> xdskit::pb::envoy::config::cluster::v3::Cluster {
    let assignment = endpoints(name).locality("", "", ["10.0.9.1:80"]).into_message();
    cluster(name)
        .edit(|cluster| {
            cluster.cluster_discovery_type =
                Some(xdskit::pb::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::Type(kind));
            cluster.eds_cluster_config = None;
            cluster.load_assignment = Some(assignment);
        })
        .into_message()
}

fn artist() -> Artist {
    Artist { paint: Paint::for_output(&tempfile::tempfile().expect("a file, which is no terminal")) }
}

fn drawn(mesh: &Mesh, name: &str) -> String {
    mesh.draw(artist(), name).join("\n")
}

/// A proxy's listener with HTTP and TCP, with what gRPC's rules reject in each type.
fn sidecar() -> Mesh {
    let mut mesh = Mesh::default();
    let mut outbound = listener("out", vec![chain("web", vec![rds("web")])]);
    let matching = FilterChainMatch {
        destination_port: Some(UInt32Value { value: 5432 }),
        server_names: vec!["db".to_owned()],
        ..Default::default()
    };
    let database = FilterChain { filter_chain_match: Some(matching), ..chain("", vec![tcp("db")]) };
    outbound.filter_chains.push(database);
    outbound.default_filter_chain = Some(chain("", vec![tcp("sink"), Filter::default()]));
    outbound.listener_filters = vec![ListenerFilter { name: "tls_inspector".to_owned() }];
    put::<Listener>(&mut mesh, "out", &outbound);
    let routes =
        [route::prefix("/cart/").weighted([("cart", 3), ("gone", 1)]), route::path("/db").cluster("db")];
    put::<RouteTable>(
        &mut mesh,
        "web",
        &route_config("web").virtual_host(["shop", "*"], routes).into_message(),
    );
    put::<Cluster>(&mut mesh, "cart", &cluster("cart").eds_service("cart-v1").into_message());
    let places = endpoints("cart-v1").locality("eu", "a", ["10.0.0.2:80"]).unhealthy("10.0.0.2:80");
    put::<Assignment>(
        &mut mesh,
        "cart-v1",
        &places.locality("eu", "b", ["10.0.0.3:80"]).priority(1).into_message(),
    );
    put::<Cluster>(&mut mesh, "db", &inline("db", 1));
    put::<Cluster>(&mut mesh, "sink", &{
        let mut sink = inline("sink", 0);
        sink.load_assignment = None;
        sink
    });
    mesh.clusters.set(&"gone".into(), Some(Entry::Absent(absent("gone"))));
    mesh
}

#[test]
fn the_tree_of_a_proxy_has_marks_on_what_grpc_rejects() {
    let tree = "\
! listener out  10.0.0.1:15001  gRPC rejects it: listener_filters: not supported; must be empty
├─ chain web
│  └─ HTTP → routes web
├─ chain  port 5432  server name db
│  └─ TCP → db
├─ default chain
│  ├─ TCP → sink
│  └─ filter 
├─ ● routes web
│  └─ virtual host shop (shop, *)
│     ├─ /cart/*  → 75 % cart, 25 % ✗ gone
│     └─ /db      → db
├─ ● cart  EDS cart-v1
│  ├─ priority 0 eu/a  ✗ 10.0.0.2:80 unhealthy
│  └─ priority 1 eu/b  ● 10.0.0.3:80
├─ ✗ gone  NOT_FOUND: Cluster \"gone\": does not exist [node id: me]
├─ ! db    STRICT_DNS  gRPC rejects it: type: STRICT_DNS is not supported, only EDS and LOGICAL_DNS
│  └─ ● 10.0.9.1:80
└─ ! sink  STATIC  gRPC rejects it: type: STATIC is not supported, only EDS and LOGICAL_DNS";
    assert_eq!(drawn(&sidecar(), "out"), tree);
}

#[test]
fn a_tree_is_known_when_all_that_it_leads_to_is() {
    let all = sidecar();
    let out: Arc<str> = "out".into();
    let demand = all.demand([&out]);
    let names = |names: &std::collections::BTreeSet<Arc<str>>| {
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(&demand.routes), ["web"]);
    assert_eq!(names(&demand.clusters), ["cart", "db", "gone", "sink"]);
    assert_eq!(names(&demand.endpoints), ["cart-v1"]);
    assert!(all.knows(&out) && all.is_incomplete(&out), "a cluster is missing");

    let mut mesh = sidecar();
    mesh.endpoints.set(&"cart-v1".into(), None);
    assert!(!mesh.knows(&out));
    let mut mesh = sidecar();
    mesh.routes.set(&"web".into(), None);
    assert!(!mesh.knows(&out));
    assert_eq!(names(&mesh.demand([&out]).clusters), ["db", "sink"], "those of TCP do not wait");
    let mut mesh = sidecar();
    mesh.clusters.set(&"gone".into(), None);
    assert!(!mesh.knows(&out));
    mesh.clusters.complete(None);
    assert!(mesh.knows(&out), "another cluster does not exist");
    assert!(drawn(&mesh, "out").contains("✗ gone  does not exist: the server has sent all others"));
    put::<Cluster>(&mut mesh, "gone", &inline("gone", 0));
    assert!(!mesh.is_incomplete(&out));
}

#[test]
fn rings_and_chains_of_aggregates_end() {
    let mut mesh = Mesh::default();
    put::<Listener>(&mut mesh, "out", &listener("out", vec![chain("", vec![tcp("ring"), tcp("chain-0")])]));
    put::<Cluster>(&mut mesh, "ring", &cluster("ring").aggregate(["other", "ring"]).into_message());
    put::<Cluster>(&mut mesh, "other", &cluster("other").aggregate(["ring"]).into_message());
    for depth in 0..10_000 {
        let (name, child) = (format!("chain-{depth}"), format!("chain-{}", depth + 1));
        put::<Cluster>(&mut mesh, &name, &cluster(name.as_str()).aggregate([child]).into_message());
    }
    assert_eq!(mesh.demand([&"out".into()]).clusters.len(), 2 + 1 + 16);
    let tree = drawn(&mesh, "out");
    assert!(
        tree.contains(
            "├─ ● ring     aggregate\n│  ├─ ● other  aggregate  ring  see the cluster of this name\n"
        ),
        "{tree}"
    );
    assert!(tree.ends_with("chain-16  aggregate  more than 16 aggregates in a chain"), "{tree}");
}

#[test]
fn a_tree_has_a_maximum_of_lines() {
    let mut mesh = Mesh::default();
    let chains = (0..draw::MAX_LINES + 10).map(|number| chain(&number.to_string(), Vec::new()));
    put::<Listener>(&mut mesh, "out", &listener("out", chains.collect()));
    let lines = mesh.draw(artist(), "out");
    assert_eq!(lines.len(), draw::MAX_LINES + 1);
    assert_eq!(lines.last().expect("a line"), "… and 11 more lines; --json has all of it");
    mesh.listeners = Resources::default();
    put::<Listener>(&mut mesh, "out", &listener("out", vec![chain("", Vec::new()); draw::MAX_LINES - 1]));
    assert_eq!(mesh.draw(artist(), "out").len(), draw::MAX_LINES);
}

#[test]
fn the_text_of_a_server_controls_no_terminal() {
    let odd = |word: &str| format!("{word}\n\u{1b}[2J\u{9b}1m");
    let mut mesh = Mesh::default();
    let matching = FilterChainMatch { server_names: vec![odd("server")], ..Default::default() };
    let odd_chain = FilterChain {
        filter_chain_match: Some(matching),
        transport_socket: Some(xdskit::pb::envoy::config::core::v3::TransportSocket {
            name: odd("socket"),
            config_type: None,
        }),
        ..chain(
            &odd("chain"),
            vec![rds(&odd("routes")), tcp(&odd("tcp")), Filter { name: odd("filter"), ..Default::default() }],
        )
    };
    let mut message = listener(&odd("out"), vec![odd_chain]);
    message.address = Some(socket(&odd("address"), 1));
    put::<Listener>(&mut mesh, &odd("out"), &message);
    let routes = [route::path(odd("/path")).header(odd("header"), odd("value")).cluster(odd("cluster"))];
    let routes = route_config(odd("routes")).virtual_host([odd("domain")], routes).into_message();
    put::<RouteTable>(&mut mesh, &odd("routes"), &routes);
    put::<Cluster>(
        &mut mesh,
        &odd("cluster"),
        &cluster(odd("cluster")).eds_service(odd("service")).into_message(),
    );
    let assignment = endpoints(odd("service")).locality(&odd("region"), "", ["10.0.0.1:80"]);
    put::<Assignment>(&mut mesh, &odd("service"), &assignment.into_message());
    let mut kind = inline(&odd("tcp"), 1);
    if let Some(place) = kind.load_assignment.as_mut().and_then(|all| all.endpoints.first_mut()) {
        place.locality = Some(Locality { zone: odd("zone"), ..Default::default() });
    }
    put::<Cluster>(&mut mesh, &odd("tcp"), &kind);

    let lines = mesh.draw(artist(), &odd("out"));
    assert!(lines.iter().all(|line| !line.contains(|c: char| c.is_control())), "{lines:#?}");
    let text = lines.join("\n");
    for word in [
        "out", "address", "chain", "server", "socket", "routes", "filter", "/path", "header", "value",
        "domain", "cluster", "service", "region", "tcp", "zone",
    ] {
        assert!(text.contains(&format!("{word}\\n\\u{{1b}}[2J")), "{word} is not in {text}");
    }
    let json = mesh.report("*", &odd("out").into());
    assert!(!json.trim_end().contains(|c: char| c.is_control()), "{json}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let mut mesh = Mesh::default();
    let mut broken = rds("web");
    if let Some(ConfigType::TypedConfig(config)) = &mut broken.config_type {
        config.value = b"\x1a\x01\xff".as_slice().into();
    }
    let inline_routes = http(RouteSpecifier::RouteConfig(RouteConfiguration::default()));
    let filters = vec![
        broken,
        inline_routes,
        tcp("bad"),
        http(RouteSpecifier::Rds(Rds { route_config_name: "worse".to_owned(), ..Default::default() })),
    ];
    put::<Listener>(&mut mesh, "out", &listener("out", vec![chain("", filters)]));
    // A name, and a field that is cut off.
    put_bytes::<Cluster>(&mut mesh, "bad", b"\x0a\x03bad\x1a\x01\xff".to_vec());
    put_bytes::<RouteTable>(&mut mesh, "worse", b"\x0a\x05worse\x12\x01\xff".to_vec());
    let tree = drawn(&mesh, "out");
    for part in [
        "✗ filter http: not a valid message",
        "HTTP → its routes",
        "✗ routes worse  gRPC rejects it",
        "✗ cannot be read: not a valid message",
        "✗ bad  gRPC rejects it",
    ] {
        assert!(tree.contains(part), "{part:?} is not in\n{tree}");
    }
    assert!(mesh.is_incomplete(&"out".into()));
}

#[test]
fn a_tree_as_json() {
    let line = sidecar().report("*", &"out".into());
    let tree: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&tree["target"], &tree["listener"], &tree["address"]),
        (&"*".into(), &"out".into(), &"10.0.0.1:15001".into())
    );
    assert_eq!(tree["invalid"], "listener_filters: not supported; must be empty");
    let expected = serde_json::json!([
        {"kind": "matching", "name": "web", "conditions": [], "transport_socket": null, "filters": [{"http": [{"named": "web"}]}]},
        {"kind": "matching", "name": "", "conditions": ["port 5432", "server name db"], "transport_socket": null,
         "filters": [{"tcp": [{"cluster": "db", "weight": 1}]}]},
        {"kind": "default", "name": "", "conditions": [], "transport_socket": null,
         "filters": [{"tcp": [{"cluster": "sink", "weight": 1}]}, {"other": ""}]},
    ]);
    assert_eq!(tree["chains"], expected);
    let host = &tree["routes"]["web"]["virtual_hosts"][0];
    assert_eq!(host["routes"][0]["clusters"][1], serde_json::json!({"cluster": "gone", "weight": 1}));
    let cart = serde_json::json!({
        "kind": "EDS", "service": "cart-v1", "children": [],
        "localities": [
            {"name": "eu/a", "priority": 0, "weight": 1, "endpoints": [{"address": "10.0.0.2:80", "health": "unhealthy"}]},
            {"name": "eu/b", "priority": 1, "weight": 1, "endpoints": [{"address": "10.0.0.3:80", "health": "usable"}]},
        ],
        "invalid": null, "error": null, "warning": null, "endpoints": {"invalid": null, "error": null, "warning": null},
    });
    assert_eq!(tree["clusters"]["cart"], cart);
    assert_eq!(tree["clusters"]["gone"]["error"]["code"], "NOT_FOUND");
    assert_eq!(
        tree["clusters"]["sink"]["invalid"],
        "type: STATIC is not supported, only EDS and LOGICAL_DNS"
    );
}

#[test]
fn absent_listeners_have_a_line() {
    let lines = draw_absence(artist(), "a\n*", &crate::json::Problem::from(&absent("a")));
    assert_eq!(lines, ["✗ listener a\\n*  NOT_FOUND: Cluster \"a\": does not exist [node id: me]"]);
}
