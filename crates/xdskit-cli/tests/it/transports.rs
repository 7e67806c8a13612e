//! `walk` over each transport: the same mesh results in the same tree.

use std::{fs, path::Path};

use prost::Message;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use xdskit::{
    control_plane::AnyResource,
    pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use super::process::Process;
use crate::common::resources::of_any_version;

/// A mesh with all elements of trees: weighted clusters, priorities, health, weights, aggregates.
fn fill(control_plane: &TestControlPlane) {
    control_plane.update(|tx| {
        // They are sent by servers of v2, too.
        tx.set(of_any_version(listener("shop").rds("routes")));
        let routes = [
            route::prefix("/cart/").weighted([("cart", 90), ("canary", 10)]),
            route::path("/users").header("x-probe", "yes").cluster("users"),
        ];
        tx.set(route_config("routes").virtual_host(["shop", "*.shop.example"], routes));
        for cluster in clusters() {
            tx.set(cluster);
        }
        let cart = endpoints("of-cart").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]).weight(3);
        let cart = cart.unhealthy("10.0.0.2:80").locality("eu", "b", ["10.0.0.3:80"]).priority(1);
        tx.set(cart.drop_percent("overload", 7));
        tx.set(endpoints("canary").locality("us", "", ["[2001:db8::1]:80"]));
        tx.set(endpoints("users-others").locality("us", "", ["10.0.1.1:80"]));
    });
}

fn clusters() -> [AnyResource; 5] {
    let users = cluster("users").aggregate(["users-main", "users-others"]);
    [
        of_any_version(cluster("cart").eds_service("of-cart")),
        of_any_version(cluster("canary")),
        users.into(),
        cluster("users-main").logical_dns("127.0.0.1", 8080).into(),
        of_any_version(cluster("users-others")),
    ]
}

/// Returns the final tree of `walk --json` with a bootstrap.
async fn tree(folder: &Path, name: &str, bootstrap: &Value) -> Value {
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, bootstrap.to_string()).expect("a file");
    let path = path.to_str().expect("temporary folders have names in UTF-8");
    let mut walk = Process::start("walk", ["--bootstrap", path, "--json", "xds:///shop"]);
    // Clusters have errors until their endpoints are received; the complete tree has none.
    let is_whole = |line: &Value| {
        let clusters = line["clusters"].as_object();
        clusters.is_some_and(|all| all.len() == 5 && all.values().all(|cluster| cluster["error"].is_null()))
    };
    walk.json_until(is_whole).await
}

#[tokio::test]
async fn the_same_mesh_is_the_same_tree_over_each_of_the_six_transports() {
    let control_plane = TestControlPlane::start().await;
    fill(&control_plane);
    let folder = tempfile::tempdir().expect("a folder");
    let server = |fields: Value| {
        let mut server = json!({
            "server_uri": control_plane.addr().to_string(), "channel_creds": [{ "type": "insecure" }],
        });
        let fields = fields.as_object().expect("an object").clone();
        server.as_object_mut().expect("an object").extend(fields);
        json!({ "node": { "id": "test" }, "xds_servers": [server] })
    };
    let expected = tree(folder.path(), "ads", &server(json!({ "api_type": "AGGREGATED_GRPC" }))).await;
    assert_eq!(expected["route_config"], "routes");
    assert_eq!(expected["clusters"]["cart"]["endpoints"], json!(["10.0.0.1:80", "10.0.0.3:80"]));
    assert_eq!(expected["clusters"]["users"]["leaves"], json!(["users-main", "users-others"]));
    for (name, fields) in [
        ("ads-delta", json!({ "api_type": "AGGREGATED_DELTA_GRPC" })),
        ("per-type", json!({ "api_type": "GRPC" })),
        ("per-type-delta", json!({ "api_type": "DELTA_GRPC" })),
        ("rest", json!({ "api_type": "REST", "refresh_delay": "0.02s" })),
        // And with the names of v2.
        ("ads-v2", json!({ "transport_api_version": "V2" })),
        ("per-type-delta-v2", json!({ "api_type": "DELTA_GRPC", "transport_api_version": "V2" })),
        ("rest-v2", json!({ "api_type": "REST", "refresh_delay": "0.02s", "transport_api_version": "V2" })),
    ] {
        assert_eq!(tree(folder.path(), name, &server(fields)).await, expected, "{name}");
    }
    let files = write_files(&control_plane, folder.path()).await;
    assert_eq!(tree(folder.path(), "files", &files).await, expected, "files");
}

/// Writes the resources of a control plane to files in different formats; returns a bootstrap with these files.
async fn write_files(control_plane: &TestControlPlane, folder: &Path) -> Value {
    let listeners = poll(control_plane, "listeners").await;
    fs::write(folder.join("listeners.json"), &listeners).expect("a file");
    let mut routes = "# What is JSON is YAML as well.\n".to_owned();
    routes.push_str(&poll(control_plane, "routes").await);
    fs::write(folder.join("routes.yaml"), routes).expect("a file");
    fs::write(folder.join("clusters.pb"), binary(&clusters())).expect("a file");
    fs::write(folder.join("endpoints.pb_text"), ENDPOINTS).expect("a file");
    let file = |name: &str| json!([{ "path_config_source": { "path": folder.join(name) } }]);
    json!({
        "node": { "id": "test" },
        "type_sources": {
            "envoy.config.listener.v3.Listener": file("listeners.json"),
            "envoy.config.route.v3.RouteConfiguration": file("routes.yaml"),
            "envoy.config.cluster.v3.Cluster": file("clusters.pb"),
            "envoy.config.endpoint.v3.ClusterLoadAssignment": file("endpoints.pb_text"),
        },
    })
}

/// Returns all resources of a type, from the control plane's gateway.
async fn poll(control_plane: &TestControlPlane, types: &str) -> String {
    let mut gateway = TcpStream::connect(control_plane.addr()).await.expect("a connection");
    let request = format!(
        "POST /v3/discovery:{types} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    gateway.write_all(request.as_bytes()).await.expect("it reads");
    let mut response = String::new();
    gateway.read_to_string(&mut response).await.expect("it answers");
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    body.to_owned()
}

fn binary(resources: &[AnyResource]) -> Vec<u8> {
    let any = |resource: &AnyResource| Any {
        type_url: resource.type_url().to_owned(),
        value: resource.bytes().clone(),
    };
    let resources = resources.iter().map(any).collect();
    let response = DiscoveryResponse { version_info: "1".into(), resources, ..Default::default() };
    response.encode_to_vec()
}

/// A file in the form in which it would be written by hand.
const ENDPOINTS: &str = r#"
version_info: "1"
resources {
  [type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment] {
    cluster_name: "of-cart"
    endpoints {
      locality { region: "eu" zone: "a" }
      load_balancing_weight { value: 3 }
      lb_endpoints { endpoint { address { socket_address { address: "10.0.0.1" port_value: 80 } } } }
      lb_endpoints {
        health_status: UNHEALTHY
        endpoint { address { socket_address { address: "10.0.0.2" port_value: 80 } } }
      }
    }
    endpoints {
      locality { region: "eu" zone: "b" }
      load_balancing_weight { value: 1 }
      priority: 1
      lb_endpoints { endpoint { address { socket_address { address: "10.0.0.3" port_value: 80 } } } }
    }
    policy { drop_overloads { category: "overload" drop_percentage { numerator: 7 denominator: HUNDRED } } }
  }
}
resources {
  [type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment] {
    cluster_name: "canary"
    endpoints {
      locality { region: "us" }
      load_balancing_weight { value: 1 }
      lb_endpoints { endpoint { address { socket_address { address: "2001:db8::1" port_value: 80 } } } }
    }
  }
}
resources {
  [type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment] {
    cluster_name: "users-others"
    endpoints {
      locality { region: "us" }
      load_balancing_weight { value: 1 }
      lb_endpoints { endpoint { address { socket_address { address: "10.0.1.1" port_value: 80 } } } }
    }
  }
}
"#;
