//! Scopes of routes (SRDS): how resolutions request them, and the effects of the responses.

use std::time::Duration;

use super::{
    super::rig::Rig,
    on_demand::{response as in_delta, wrapped},
    response,
};
use crate::{
    config::Target,
    control_plane::AnyResource,
    pb::envoy::service::discovery::v3::DeltaDiscoveryResponse,
    resource::{Listener, ScopedRouteConfiguration},
    testing::resources::{cluster, endpoints, listener, route, route_config, scope},
};

fn target() -> Target {
    Target::new("xds:///shop").with_header("x-region", "eu")
}

fn of_the_request(outputs: Vec<String>, ty: &str) -> Vec<String> {
    outputs.into_iter().filter(|outputs| outputs.starts_with(&format!("send {ty} "))).collect()
}

#[test]
fn all_scopes_are_requested_and_one_is_followed() {
    let mut rig = Rig::new();
    rig.resolve(target());
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive_all("1", [listener("shop").srds(["x-region"])]);
    assert_eq!(of_the_request(outputs, "ScopedRouteConfiguration"), ["send ScopedRouteConfiguration [] /"]);
    let scopes = || [scope("asia", ["asia"]), scope("eu", ["eu"])];
    let outputs = rig.receive_all("1", scopes());
    assert_eq!(of_the_request(outputs, "RouteConfiguration"), ["send RouteConfiguration [eu] /"]);
    rig.receive_all("1", [route_config("eu").virtual_host(["shop"], [route::prefix("/").cluster("a")])]);
    rig.receive_all("1", [cluster("a")]);
    let outputs = rig.receive_all("1", [endpoints("a").locality("eu", "a", ["10.0.0.1:80"])]);
    assert!(outputs.contains(&"#1 tree eu: a=10.0.0.1:80".to_owned()), "{outputs:?}");
    let (_, outputs) = rig.resolve(Target::new("xds:///shop").with_header("x-region", "asia"));
    assert_eq!(of_the_request(outputs, "RouteConfiguration"), ["send RouteConfiguration [asia,eu] 1/n1"]);
    let (_, outputs) = rig.resolve(Target::new("xds:///shop").with_header("x-region", "mars"));
    assert!(outputs.iter().any(|outputs| outputs.starts_with("#3 NOT_FOUND")), "{outputs:?}");
}

#[test]
fn a_set_of_scopes_is_seen_as_a_whole() {
    let mut rig = Rig::new();
    rig.resolve(target());
    rig.connect(1);
    rig.sent(1);
    rig.receive_all("1", [listener("shop").srds(["x-region"])]);
    let many = (0..500).map(|i| scope(format!("scope-{i}"), [format!("{i}")]));
    let outputs = rig.receive_all("1", many.chain([scope("zone", ["eu"])]));
    assert!(outputs.iter().all(|outputs| !outputs.contains("NOT_FOUND")), "{outputs:?}");
    assert_eq!(of_the_request(outputs, "RouteConfiguration"), ["send RouteConfiguration [zone] /"]);
}

#[test]
fn scopes_are_unsubscribed_with_the_last_resolution() {
    let mut rig = Rig::new();
    let (watch_id, _) = rig.resolve(target());
    rig.connect(1);
    rig.sent(1);
    rig.receive_all("1", [listener("shop").srds(["x-region"])]);
    rig.receive_all("1", [scope("eu", ["eu"])]);
    rig.unwatch(watch_id);
    for _ in 0..8 {
        rig.sent(1);
        rig.pass(Duration::from_millis(250));
    }
    // The end of a legacy wildcard cannot be expressed: what comes is answered, and not followed.
    let outputs = rig.receive(1, &response("2", [scope("eu", ["eu"]).rds("other")]));
    assert!(outputs.iter().all(|outputs| !outputs.contains("RouteConfiguration [other]")), "{outputs:?}");
}

#[test]
fn b2_14_a_scope_in_use_that_is_removed_serves_for_the_grace() {
    let mut rig = Rig::delta();
    rig.resolve(target());
    rig.connect(1);
    rig.sent(1);
    let own = |name: &str| {
        let routes = route_config("own").virtual_host(["shop"], [route::prefix("/").cluster("a")]);
        AnyResource::from(scope(name, ["eu"]).inline_routes(routes))
    };
    let by_region = wrapped(listener("shop").srds(["x-region"]), "shop", &[]);
    assert_eq!(rig.receive_delta(&in_delta::<Listener>(vec![by_region])), ["send ScopedRouteConfiguration"]);
    let scopes = in_delta::<ScopedRouteConfiguration>(vec![wrapped(own("one"), "one", &[])]);
    assert_eq!(rig.receive_delta(&scopes), ["send Cluster +a"]);
    assert_eq!(rig.serve("a"), ["#1 tree own: a=10.0.0.1:80"]);
    let removed = |name: &str| DeltaDiscoveryResponse {
        removed_resources: vec![name.into()],
        ..in_delta::<ScopedRouteConfiguration>(Vec::new())
    };
    rig.receive_delta(&in_delta::<ScopedRouteConfiguration>(vec![wrapped(own("two"), "two", &[])]));
    let outputs = rig.receive_delta(&removed("one"));
    assert!(
        outputs.contains(&"#1 tree own: a=10.0.0.1:80".to_owned()),
        "the other has the key, too: {outputs:?}"
    );
    let outputs = rig.receive_raw(1, prost::Message::encode_to_vec(&removed("two")));
    assert!(outputs.contains(&"#1 tree own: a=10.0.0.1:80".to_owned()), "{outputs:?}");
    let outputs = rig.pass(Duration::from_secs(1));
    assert!(
        outputs.iter().any(|outputs| outputs.contains("NOT_FOUND") && outputs.contains("the keys are: none")),
        "{outputs:?}"
    );
}
