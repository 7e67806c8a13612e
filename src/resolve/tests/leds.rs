//! Endpoints of localities in collections of their own (LEDS, A95).

use std::sync::Arc;

use super::rig::{Rig, error, present};
use crate::{
    error::Code,
    observed::{ErasedMembers, Member, Observed},
    pb::envoy::config::{
        core::v3::{AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier},
        endpoint::v3::{LedsClusterLocalityConfig, locality_lb_endpoints::LbConfig},
    },
    resolve::Seen,
    resource::{Endpoint, Resource},
    testing::resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
};

const GLOB: &str = "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/shop/*";
const OTHER: &str = "xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/shop";
const NONE: [&str; 0] = [];

/// An assignment with one locality of its own, and one for each collection.
fn assignment(collections: &[&str]) -> EndpointsBuilder {
    let ads = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}));
    let mut assignment = endpoints("a").locality("eu", "own", ["10.0.0.1:80"]);
    for (index, name) in collections.iter().enumerate() {
        let zone = format!("z{index}");
        let leds = LedsClusterLocalityConfig {
            leds_config: Some(ConfigSource {
                config_source_specifier: ads.clone(),
                ..ConfigSource::default()
            }),
            leds_collection_name: (*name).into(),
        };
        assignment = assignment.locality("eu", &zone, []).edit(|message| {
            message.endpoints[index + 1].lb_config = Some(LbConfig::LedsClusterLocalityConfig(leds));
        });
    }
    assignment
}

/// What is seen of a collection: the addresses of its members.
fn members(collection: &str, addresses: &[&str], complete: bool) -> Seen {
    let source = endpoints("a").locality("", "", addresses.iter().copied()).into_message();
    let member = |message| {
        let member: Arc<Observed<Endpoint>> = present(message, None);
        Member(member)
    };
    let names = addresses.iter().map(|address| Arc::from(*address));
    let warning = addresses.is_empty().then(|| error::<Endpoint>(collection, Code::NotFound));
    let members = ErasedMembers {
        name: collection.into(),
        map: names.zip(source.endpoints[0].lb_endpoints.iter().map(member)).collect(),
        complete,
        warning: warning.filter(|_| complete),
        type_url: Endpoint::TYPE_URL,
        node: "n".into(),
    };
    Seen::LbEndpoints(collection.into(), Arc::new(members))
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    rig.routes(route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("a")]));
    assert_eq!(rig.cluster(cluster("a")), ["+endpoints a"]);
    rig
}

#[test]
fn a95_2_an_assignment_is_used_when_its_collections_are_known() {
    let mut rig = rig();
    let orders = rig.endpoints(assignment(&[GLOB, OTHER]));
    assert_eq!(orders, [format!("+collection {GLOB}"), format!("+collection {OTHER}")]);
    assert_eq!(rig.handle(members(GLOB, &["10.0.1.1:80"], true)), NONE);
    assert_eq!(rig.handle(members(OTHER, &[], false)), NONE, "it is not complete");
    assert_eq!(
        rig.handle(members(OTHER, &["10.0.2.1:80", "10.0.2.2:80"], true)),
        ["routes: a=10.0.0.1:80,10.0.1.1:80,10.0.2.1:80,10.0.2.2:80"]
    );
    // Members come and go, without a new assignment.
    assert_eq!(
        rig.handle(members(GLOB, &["10.0.1.3:80"], true)),
        ["routes: a=10.0.0.1:80,10.0.1.3:80,10.0.2.1:80,10.0.2.2:80"]
    );
    // A collection that does not exist is a locality without endpoints, with a warning.
    assert_eq!(rig.handle(members(OTHER, &[], true)), ["routes: a=10.0.0.1:80,10.0.1.3:80(NOT_FOUND)"]);
}

#[test]
fn a95_2_collections_are_watched_as_long_as_an_assignment_names_them() {
    let mut rig = rig();
    rig.endpoints(assignment(&[GLOB]));
    rig.handle(members(GLOB, &["10.0.1.1:80"], true));
    let orders = rig.endpoints(assignment(&[OTHER]));
    assert_eq!(orders, [format!("+collection {OTHER}"), format!("-collection {GLOB}")]);
    // The endpoints of before serve until those of the new collection are known.
    assert_eq!(rig.handle(members(OTHER, &["10.0.2.1:80"], true)), ["routes: a=10.0.0.1:80,10.0.2.1:80"]);
    let orders = rig.endpoints(assignment(&[]));
    assert_eq!(orders, [format!("-collection {OTHER}"), "routes: a=10.0.0.1:80".to_owned()]);
    assert_eq!(rig.handle(members(OTHER, &["10.0.2.2:80"], true)), NONE, "it was under way");

    rig.endpoints(assignment(&[GLOB]));
    let routes = route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("b")]);
    assert_eq!(rig.routes(routes), ["+cluster b"]);
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(endpoints("b").locality("eu", "a", ["10.0.0.2:80"]));
    assert!(orders.contains(&format!("-collection {GLOB}")), "the cluster is not used any more: {orders:?}");
}
