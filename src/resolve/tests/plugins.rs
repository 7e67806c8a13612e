//! Routes whose cluster a plugin chooses.

use std::sync::Arc;

use prost::Message;
use serde::Serialize;

use super::{super::*, rig::Rig};
use crate::{
    observed::Observed,
    pb::{
        envoy::config::{
            core::v3::TypedExtensionConfig,
            route::v3::{ClusterSpecifierPlugin, route::Action, route_action::ClusterSpecifier},
        },
        google::protobuf::Any,
    },
    resource::{Context, Extension, Invalid, Payload, Registry, Resource, RouteConfiguration, Version},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

/// A plugin without clusters.
#[derive(Debug, PartialEq, Serialize)]
struct Chooser;

impl Extension for Chooser {
    const TYPE_NAME: &'static str = "x.Chooser";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

/// Routes that a plugin decides about for `/by`, and otherwise to these clusters.
fn seen(clusters: &[&str]) -> Seen {
    let routes = clusters.iter().map(|name| route::prefix(format!("/{name}")).cluster(*name));
    let by_plugin = route::prefix("/by").cluster("?").edit(|message| {
        let Some(Action::Route(action)) = &mut message.action else { panic!("{message:?}") };
        action.cluster_specifier = Some(ClusterSpecifier::ClusterSpecifierPlugin("p".into()));
    });
    let mut message =
        route_config("routes").virtual_host(["shop"], [by_plugin].into_iter().chain(routes)).into_message();
    let typed_config = Some(Any { type_url: "t/x.Chooser".into(), ..Default::default() });
    message.cluster_specifier_plugins.push(ClusterSpecifierPlugin {
        extension: Some(TypedExtensionConfig { name: "p".into(), typed_config }),
        is_optional: false,
    });
    let registry = Registry::new().with_cluster_specifier::<Chooser>();
    let context = Context::new().with_registry(&registry);
    let resource = RouteConfiguration::parse(&message.encode_to_vec().into(), &context).unwrap();
    let version = Version::from("1");
    Seen::Routes(Arc::new(Observed::Present {
        resource: Arc::new(resource),
        version,
        warning: None,
        source: None,
    }))
}

#[test]
fn a_route_by_a_plugin_needs_no_cluster() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    assert_eq!(rig.handle(seen(&[])), ["routes: "]);
    let tree = rig.tree.clone().unwrap();
    let view = tree.route(&RouteQuery::new("/by/7", 0)).expect("the route");
    assert_eq!(view.plugin().map(|plugin| &*plugin.name), Some("p"));
    assert_eq!(view.plugin().unwrap().config.get(), Some(&Chooser));
    assert!(!view.is_unsupported() && view.forward().is_some());
    assert_eq!(
        (view.weighted_clusters().count(), view.pick_cluster().is_none(), tree.clusters().count()),
        (0, true, 0)
    );
    assert!(tree.route(&RouteQuery::new("/other", 0)).is_none());
}

#[test]
fn the_clusters_of_other_routes_are_there_as_ever() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    assert_eq!(rig.handle(seen(&["a"])), ["+cluster a"]);
    rig.cluster(cluster("a"));
    let orders = rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.1:80"]));
    assert_eq!(orders, ["routes: a=10.0.0.1:80"]);
    let tree = rig.tree.clone().unwrap();
    let view = tree.route(&RouteQuery::new("/a", 0)).expect("the route");
    assert_eq!(
        (view.plugin(), view.pick_cluster().map(|cluster| cluster.name().to_owned())),
        (None, Some("a".into()))
    );
}
