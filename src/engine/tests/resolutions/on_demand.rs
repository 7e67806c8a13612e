//! Virtual hosts that resolutions request on demand (VHDS): the messages on the wire, and the effects of the responses.

use std::time::Duration;

use prost::Message;

use super::{super::rig::Rig, response as in_sotw};
use crate::{
    base::WatchId,
    control_plane::AnyResource,
    pb::{
        envoy::{
            config::route::v3 as pb,
            service::discovery::v3::{
                DeltaDiscoveryResponse, Resource as Wrapper, ResourceError, ResourceName,
            },
        },
        google::{protobuf::Any, rpc::Status},
    },
    resource::{Resource, RouteConfiguration, VirtualHost},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

/// A resource in its wrapper, with other names that it has.
pub(super) fn wrapped(resource: impl Into<AnyResource>, name: &str, aliases: &[&str]) -> Wrapper {
    let resource = resource.into();
    Wrapper {
        name: name.into(),
        version: "1".into(),
        aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        resource: Some(Any { type_url: resource.type_url().to_owned(), value: resource.bytes().clone() }),
        ..Wrapper::default()
    }
}

/// A virtual host of this name for the host `shop`.
fn shop(name: &str, cluster: &str) -> AnyResource {
    let config =
        route_config("").virtual_host(["shop"], [route::prefix("/").cluster(cluster)]).into_message();
    let host = pb::VirtualHost { name: name.into(), ..config.virtual_hosts[0].clone() };
    AnyResource::encode(VirtualHost::TYPE_URL, name, &host)
}

pub(super) fn response<T: Resource>(resources: Vec<Wrapper>) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        nonce: "n".into(),
        type_url: T::TYPE_URL.into(),
        resources,
        ..DeltaDiscoveryResponse::default()
    }
}

impl Rig {
    /// What a response of the incremental variant leads to, answers and reads left out.
    pub(super) fn receive_delta(&mut self, response: &DeltaDiscoveryResponse) -> Vec<String> {
        let mut outputs = self.receive_raw(1, response.encode_to_vec());
        for _ in 0..4 {
            outputs.extend(self.sent(1));
            outputs.extend(self.pass(Duration::from_millis(250)));
        }
        outputs.retain(|outputs| outputs != "read" && !outputs.ends_with(" n"));
        outputs
    }

    /// The clusters of the virtual host come, with an endpoint each.
    pub(super) fn serve(&mut self, name: &str) -> Vec<String> {
        let requested = self.receive_delta(&response::<crate::resource::Cluster>(vec![wrapped(
            cluster(name),
            name,
            &[],
        )]));
        assert_eq!(requested, [format!("send ClusterLoadAssignment +{name}")]);
        let at = endpoints(name).locality("eu", "a", ["10.0.0.1:80"]);
        self.receive_delta(&response::<crate::resource::ClusterLoadAssignment>(vec![wrapped(at, name, &[])]))
    }
}

/// A stream on which `xds:///shop` was followed to `routes`, which hold nothing.
fn rig_with_routes() -> (Rig, WatchId) {
    let mut rig = Rig::delta();
    let watch_id = rig.next_watch_id();
    rig.engine.resolve(watch_id, &"xds:///shop".into(), rig.now);
    rig.drain();
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive_delta(&response::<crate::resource::Listener>(vec![wrapped(
        listener("shop").rds("routes"),
        "shop",
        &[],
    )]));
    assert_eq!(outputs, ["send RouteConfiguration +routes"]);
    let routes = wrapped(route_config("routes").vhds(), "routes", &[]);
    assert_eq!(
        rig.receive_delta(&response::<RouteConfiguration>(vec![routes])),
        ["send VirtualHost +routes/shop"]
    );
    (rig, watch_id)
}

fn missing() -> String {
    "#1 NOT_FOUND: VirtualHost \"routes/shop\"".to_owned()
}

#[test]
fn b2_19_a_virtual_host_comes_under_its_own_name_or_has_the_requested_one_as_an_alias() {
    for (name, aliases) in [("routes/shop", &[][..]), ("any name", &["routes/other", "routes/shop"])] {
        let (mut rig, _) = rig_with_routes();
        let outputs =
            rig.receive_delta(&response::<VirtualHost>(vec![wrapped(shop(name, "a"), name, aliases)]));
        assert_eq!(outputs, ["send Cluster +a"], "{name}");
        assert_eq!(rig.serve("a"), ["#1 tree routes: a=10.0.0.1:80"]);
    }
}

#[test]
fn b2_18_an_alias_that_is_not_found_is_an_error_at_once() {
    let (mut rig, _) = rig_with_routes();
    let unset = Wrapper {
        resource: None,
        version: String::new(),
        ..wrapped(shop("", "a"), "shop", &["routes/shop"])
    };
    let outputs = rig.receive_delta(&response::<VirtualHost>(vec![unset]));
    assert_eq!(outputs.len(), 1);
    assert!(outputs[0].starts_with(&missing()), "{outputs:?}");
}

fn removed(names: &[&str]) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        removed_resources: names.iter().map(|name| (*name).into()).collect(),
        ..response::<VirtualHost>(Vec::new())
    }
}

/// The same with a tree, whose virtual host has the name `all`, and the one that was requested for an alias.
fn rig_with_alias() -> Rig {
    let (mut rig, _) = rig_with_routes();
    rig.receive_delta(&response::<VirtualHost>(vec![wrapped(shop("all", "a"), "all", &["routes/shop"])]));
    rig.serve("a");
    rig
}

#[test]
fn b2_19_what_is_removed_by_its_own_name_is_so_for_its_aliases() {
    for names in [&["all"][..], &["all", "routes/shop"], &["routes/shop", "all"]] {
        let mut rig = rig_with_alias();
        let outputs = rig.receive_raw(1, removed(names).encode_to_vec());
        assert!(outputs.contains(&"send VirtualHost n".to_owned()), "it is accepted: {outputs:?}");
        let outputs = rig.pass(Duration::from_secs(1));
        assert!(outputs.iter().any(|outputs| outputs.starts_with(&missing())), "{names:?}: {outputs:?}");
    }
}

#[test]
fn b2_19_an_alias_goes_over_to_another_resource() {
    let another = || wrapped(shop("new", "a"), "new", &["routes/shop"]);
    for first in [response::<VirtualHost>(vec![another()]), response::<VirtualHost>(Vec::new())] {
        let mut rig = rig_with_alias();
        rig.receive_delta(&first);
        let both = DeltaDiscoveryResponse { resources: vec![another()], ..removed(&["all"]) };
        let outputs = rig.receive_delta(&both);
        assert!(outputs.iter().all(|outputs| !outputs.contains("NOT_FOUND")), "{outputs:?}");
        let outputs = rig.receive_delta(&removed(&["all"]));
        assert!(
            outputs.iter().all(|outputs| !outputs.contains("NOT_FOUND")),
            "it is of no meaning now: {outputs:?}"
        );
        let outputs = rig.receive_delta(&removed(&["new"]));
        assert!(outputs.iter().any(|outputs| outputs.starts_with(&missing())), "{outputs:?}");
    }
}

#[test]
fn b2_19_a_name_that_was_an_alias_can_be_a_name_of_its_own() {
    let mut rig = rig_with_alias();
    rig.receive_delta(&response::<VirtualHost>(vec![wrapped(shop("routes/shop", "a"), "routes/shop", &[])]));
    let outputs = rig.receive_delta(&removed(&["all"]));
    assert!(outputs.iter().all(|outputs| !outputs.contains("NOT_FOUND")), "{outputs:?}");
}

/// By its own name, a server would take it for held under names that are new as well; an alias is no resource's name.
#[test]
fn b2_1_the_version_of_a_resource_requested_by_an_alias_is_not_sent() {
    let mut rig = rig_with_alias();
    rig.disconnect(1, crate::protocol::DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    let mut outputs = rig.connect(2);
    for _ in 0..8 {
        outputs.extend(rig.sent(2));
    }
    assert!(outputs.contains(&"send VirtualHost +routes/shop".to_owned()), "{outputs:?}");
    assert!(outputs.contains(&"send RouteConfiguration +routes {routes=1}".to_owned()), "{outputs:?}");
}

#[test]
fn b2_26_a_heartbeat_of_a_resource_is_one_for_its_aliases() {
    let (mut rig, _) = rig_with_routes();
    let seconds = |seconds| Some(crate::pb::google::protobuf::Duration { seconds, nanos: 0 });
    let mortal = Wrapper { ttl: seconds(10), ..wrapped(shop("all", "a"), "all", &["routes/shop"]) };
    rig.receive_delta(&response::<VirtualHost>(vec![mortal.clone()]));
    rig.serve("a");
    for _ in 0..3 {
        assert_eq!(rig.pass(Duration::from_secs(5)), [""; 0]);
        let beat = Wrapper { resource: None, aliases: Vec::new(), ..mortal.clone() };
        assert_eq!(rig.receive_delta(&response::<VirtualHost>(vec![beat])), [""; 0]);
    }
    let outputs = rig.pass(Duration::from_secs(11));
    assert!(
        outputs.iter().any(|outputs| outputs.starts_with(&missing()) && outputs.contains("TTL")),
        "{outputs:?}"
    );
}

#[test]
fn errors_and_removals_of_a_virtual_host_are_those_of_the_target() {
    let (mut rig, _) = rig_with_routes();
    let removed = DeltaDiscoveryResponse {
        removed_resources: vec!["routes/shop".into()],
        ..response::<VirtualHost>(Vec::new())
    };
    let outputs = rig.receive_delta(&removed);
    assert!(outputs[0].starts_with(&missing()), "{outputs:?}");
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "routes/shop".into(), ..ResourceName::default() }),
        error_detail: Some(Status { code: 7, message: "not for you".into(), ..Status::default() }),
    };
    let refused =
        DeltaDiscoveryResponse { resource_errors: vec![error], ..response::<VirtualHost>(Vec::new()) };
    let outputs = rig.receive_delta(&refused);
    assert!(outputs[0].contains("PERMISSION_DENIED") && outputs[0].contains("not for you"), "{outputs:?}");
}

#[test]
fn a_virtual_host_that_comes_after_the_does_not_exist_time_is_used() {
    let (mut rig, _) = rig_with_routes();
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs[0].starts_with(&missing()), "{outputs:?}");
    let outputs = rig.receive_delta(&response::<VirtualHost>(vec![wrapped(
        shop("routes/shop", "a"),
        "routes/shop",
        &[],
    )]));
    let [error, sent] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(error.starts_with(&missing()) && error.contains("wait for the clusters a"), "{error}");
    assert_eq!(sent, "send Cluster +a");
    assert_eq!(rig.serve("a"), ["#1 tree routes: a=10.0.0.1:80"]);
}

#[test]
fn a_virtual_host_in_use_that_is_removed_serves_for_the_grace() {
    let (mut rig, _) = rig_with_routes();
    rig.receive_delta(&response::<VirtualHost>(vec![wrapped(shop("routes/shop", "a"), "routes/shop", &[])]));
    rig.serve("a");
    let removed = DeltaDiscoveryResponse {
        removed_resources: vec!["routes/shop".into()],
        ..response::<VirtualHost>(Vec::new())
    };
    let outputs = rig.receive_raw(1, removed.encode_to_vec());
    assert!(outputs.contains(&"#1 tree routes: a=10.0.0.1:80".to_owned()), "{outputs:?}");
    let outputs = rig.pass(Duration::from_secs(1));
    assert!(outputs.iter().any(|outputs| outputs.starts_with(&missing())), "{outputs:?}");
}

#[test]
fn a_virtual_host_is_unsubscribed_with_the_resolution() {
    let (mut rig, watch_id) = rig_with_routes();
    rig.receive_delta(&response::<VirtualHost>(vec![wrapped(shop("routes/shop", "a"), "routes/shop", &[])]));
    rig.serve("a");
    let mut outputs = rig.unwatch(watch_id);
    for _ in 0..8 {
        outputs.extend(rig.sent(1));
        outputs.extend(rig.pass(Duration::from_millis(250)));
    }
    assert!(outputs.contains(&"send VirtualHost -routes/shop".to_owned()), "{outputs:?}");
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn b3_5_virtual_hosts_on_demand_are_not_requested_in_the_state_of_the_world() {
    let mut rig = Rig::new();
    let watch_id = rig.next_watch_id();
    rig.engine.resolve(watch_id, &"xds:///shop".into(), rig.now);
    rig.drain();
    rig.connect(1);
    rig.sent(1);
    let routes = listener("shop").inline_routes(route_config("routes").vhds());
    let outputs = rig.receive(1, &in_sotw("1", [routes]));
    let text = "#1 UNIMPLEMENTED: VirtualHost \"routes/shop\": the type needs an api_type of \
                AGGREGATED_DELTA_GRPC or DELTA_GRPC, which that of xDS server 127.0.0.1:1 is not [node id: n]";
    assert!(outputs.contains(&text.to_owned()), "{outputs:?}");
    assert!(!outputs.iter().any(|outputs| outputs.contains("send VirtualHost")), "{outputs:?}");
    assert!(rig.unwatch(watch_id).iter().all(|outputs| !outputs.contains("VirtualHost")));
}
