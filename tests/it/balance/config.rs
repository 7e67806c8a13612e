//! Snapshots: those of builders, their errors, and what a balancer does with changes.

use std::time::Instant;

use xdskit::{
    Snapshot, Target,
    control_plane::type_url,
    pb::envoy::extensions::transport_sockets::tls::v3::{
        UpstreamTlsContext, certificate_validation_context::SystemRootCerts,
        common_tls_context::ValidationContextType,
    },
    resolve::SnapshotError,
    testing::resources::upstream_tls,
};

use super::*;

fn one() -> EndpointsBuilder {
    endpoints("shop").locality("eu", "a", ["10.0.0.1:80"])
}

fn build(builder: SnapshotBuilder) -> Result<String, String> {
    let snapshot = builder.build(Instant::now()).map_err(|error| error.to_string())?;
    Ok(snapshot.clusters().map(|cluster| cluster.name().to_owned()).collect::<Vec<_>>().join(" "))
}

#[test]
fn a_snapshot_is_built_of_addresses_by_priority() {
    let builder = Snapshot::builder("xds:///shop")
        .cluster("shop", [[address(1)].as_slice(), &[address(2), address(3)]])
        .cluster("cart", [[address(4)].as_slice()]);
    assert_eq!(build(builder.clone()), Ok("cart shop".to_owned()), "a cluster without a route, too");
    let mut world = World::new(builder);
    assert_eq!((world.reached("shop"), world.reached("cart")), (vec![address(1)], vec![address(4)]));
    let query = RouteQuery::new("/anything", 1);
    let Pick::Endpoint(attempt) = world.pick_for(&PickRequest::by_route(&query)) else { panic!() };
    assert_eq!(attempt.cluster(), "shop", "the first cluster");
    world.lose(1, Peer::Refuses);
    assert_eq!(world.reached("shop"), [address(2), address(3)]);
}

#[test]
fn a_snapshot_has_the_virtual_host_of_its_target() {
    let to = |cluster: &str| [route::prefix("").cluster(cluster)];
    let hosts =
        route_config("routes").virtual_host(["shop.example"], to("shop")).virtual_host(["*"], to("cart"));
    let of = |target: Target| {
        let builder = Snapshot::builder(target).resource(listener("edge").inline_routes(hosts.clone()));
        builder.build(Instant::now()).map(|snapshot| snapshot.virtual_host().name.to_string())
    };
    assert_eq!(of(Target::new("xds:///any")).unwrap(), "*");
    let target = Target::new("xds://mesh/any").with_authority("shop.example");
    assert_eq!(of(target).unwrap(), "shop.example");
}

#[test]
fn a_snapshot_has_the_resources_that_were_added_last() {
    let first = shop(cluster("shop"), one());
    let second = first.resource(endpoints("shop").locality("eu", "a", ["10.0.0.2:80"]));
    assert_eq!(World::new(second).reached("shop"), [address(2)]);
}

#[test]
fn a_snapshot_of_invalid_resources_has_a_typed_error() {
    let bad = cluster("shop").outlier_detection(outlier_detection().max_ejection_percent(101));
    let error = shop(bad, one()).build(Instant::now()).unwrap_err();
    assert!(matches!(error, SnapshotError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("outlier_detection.max_ejection_percent"), "{error}");
    let error = shop(cluster("shop"), one()).encoded("type.googleapis.com/a.B", &b""[..]);
    assert!(
        matches!(error.build(Instant::now()), Err(SnapshotError::Type { type_url }) if type_url.ends_with("a.B"))
    );
    let error = Snapshot::builder("shop").build(Instant::now()).unwrap_err();
    assert!(matches!(error, SnapshotError::Target(_)), "{error}");
    let error = Snapshot::builder("xds:///shop").build(Instant::now()).unwrap_err();
    assert!(matches!(&error, SnapshotError::Unresolved(error) if error.is_not_found()), "{error}");
    let error = shop(cluster("shop"), one()).encoded(type_url::CLUSTER, &b"\xff"[..]).build(Instant::now());
    assert!(matches!(error, Err(SnapshotError::Invalid { .. })));
    let missing = Snapshot::builder("xds:///shop").resource(listener("shop").rds("routes"));
    assert!(build(missing).unwrap_err().contains("routes"));
}

#[test]
fn a_snapshot_of_resources_that_need_more_than_can_be_added_has_an_error() {
    let dns = Snapshot::builder("xds:///shop").resource(cluster("shop").logical_dns("shop.example", 80));
    assert_eq!(
        build(dns),
        Err("a snapshot cannot be built of resources that need the addresses of shop.example:80".to_owned())
    );
    let routes = route_config("routes").virtual_host(["cart"], [route::prefix("").cluster("cart")]).vhds();
    let on_demand = Snapshot::builder("xds:///shop").resource(listener("shop").inline_routes(routes));
    let error = build(on_demand).unwrap_err();
    assert!(error.contains("the virtual host routes/shop"), "{error}");
}

#[test]
fn a_snapshot_without_the_endpoints_of_a_cluster_has_the_reason() {
    let mut world = World::new(Snapshot::builder("xds:///shop").resource(cluster("shop")));
    let Pick::Fail(error) = world.pick("shop") else { panic!() };
    assert!(matches!(error, PickError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("was not added to the snapshot"), "{error}");
}

#[test]
fn an_aggregate_has_the_endpoints_of_its_first_leaf_that_can_be_reached() {
    let mesh = Snapshot::builder("xds:///shop")
        .resource(cluster("all").aggregate(["near", "far"]))
        .cluster("near", [[address(1)].as_slice()])
        .cluster("far", [[address(2)].as_slice()]);
    let mut world = World::new(mesh);
    assert_eq!(world.reached("all"), [address(1)]);
    let targets: Vec<_> = world.connections.values().map(|target| target.cluster().to_owned()).collect();
    assert_eq!((targets, world.attempt("all").cluster()), (vec!["near".to_owned()], "all"));
    // One of its leaves by itself has the same connections.
    assert_eq!(world.reached("near"), [address(1)]);
    assert_eq!(world.connections.len(), 1);
    world.lose(1, Peer::Refuses);
    assert_eq!(world.connected(), [address(2)], "before any request");
    assert_eq!(world.reached("all"), [address(2)]);
}

#[test]
fn picks_wait_for_the_first_snapshot_and_fail_without_a_listener() {
    let mut world = World::waiting(Settings::new(1));
    assert!(matches!(world.pick("shop"), Pick::Wait));
    assert!(world.picker.snapshot().is_none());
    let waiting = world.picker.clone();
    world.update(shop(cluster("shop"), one()));
    let request = PickRequest::to_cluster("shop", 1);
    assert!(world.picker.has_changed(&waiting, &request));
    assert_eq!(world.reached("shop"), [address(1)]);
    let Pick::Fail(error) = world.pick("cart") else { panic!() };
    assert_eq!(error, PickError::NoCluster("cluster cart is not in the snapshot of xds:///shop".into()));
    let Err(SnapshotError::Unresolved(missing)) = Snapshot::builder("xds:///shop").build(world.now) else {
        panic!()
    };
    world.balancer.handle_resolution(Err(missing), world.now);
    world.drain();
    assert!(world.connections.is_empty());
    let Pick::Fail(error) = world.pick("shop") else { panic!() };
    assert!(matches!(error, PickError::Unresolved(_)), "{error}");
    world.update(shop(cluster("shop"), one()));
    assert_eq!(world.reached("shop"), [address(1)]);
    world.balancer.close(world.now);
    world.drain();
    assert!(world.connections.is_empty() && matches!(world.pick("shop"), Pick::Wait));
}

#[test]
fn a_cluster_that_leaves_the_snapshot_is_disconnected_and_may_come_back() {
    let both = || Snapshot::builder("xds:///shop").cluster("shop", [[address(1)].as_slice()]);
    let with_cart = || both().cluster("cart", [[address(2)].as_slice()]);
    let mut world = World::new(with_cart());
    assert_eq!((world.reached("shop"), world.reached("cart")), (vec![address(1)], vec![address(2)]));
    world.update(both());
    assert_eq!(world.connected(), [address(1)]);
    assert!(matches!(world.pick("cart"), Pick::Fail(PickError::NoCluster(_))));
    world.update(with_cart());
    assert_eq!(world.reached("cart"), [address(2)]);
}

#[test]
fn ch7_1_clusters_with_tls_are_connected_only_if_the_application_has_chosen_how() {
    let tls = upstream_tls("roots").san("shop.example").sni("shop.example").edit(system_roots);
    let mesh = || shop(cluster("shop").tls(tls.clone()), one());
    let mut refused = World::new(mesh());
    let Pick::Fail(error) = refused.pick("shop") else { panic!() };
    assert!(matches!(error, PickError::Unavailable(_)), "{error}");
    assert!(refused.connections.is_empty());
    let mut insecure = World::with_settings(Settings::new(1).with_insecure_credentials(), mesh());
    assert_eq!(insecure.reached("shop"), [address(1)]);
    let target = insecure.connections.values().next().unwrap();
    assert_eq!((target.tls(), target.server_name(), target.proxy()), (None, None, None));
    let mut xds = World::with_settings(Settings::new(1).with_xds_credentials(), mesh());
    assert_eq!(xds.reached("shop"), [address(1)]);
    let target = xds.connections.values().next().unwrap();
    assert_eq!((target.tls().is_some(), target.server_name()), (true, Some("shop.example")));
}

/// Verifies certificates by the roots of the system, in place of those of a provider of a bootstrap.
fn system_roots(tls: &mut UpstreamTlsContext) {
    let common = tls.common_tls_context.as_mut().unwrap();
    if let Some(ValidationContextType::ValidationContext(validation)) = &mut common.validation_context_type {
        validation.ca_certificate_provider_instance = None;
        validation.system_root_certs = Some(SystemRootCerts {});
    }
}
