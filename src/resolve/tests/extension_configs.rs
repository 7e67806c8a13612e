//! Configurations of HTTP filters that are resources of their own: rules EX2 to EX4.

use prost::Message;

use super::rig::*;
use crate::{
    error::Code,
    pb::{
        envoy::{
            config::{
                core::v3::{
                    AggregatedConfigSource, ConfigSource, ExtensionConfigSource, TypedExtensionConfig,
                    config_source::ConfigSourceSpecifier,
                },
                listener::v3::ApiListener,
            },
            extensions::filters::{
                http::fault::v3::HttpFault,
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                },
            },
        },
        google::protobuf::{Any, UInt32Value},
    },
    resolve::{Seen, reference::Reference},
    resource::http_filter::HttpFilterConfig,
    testing::resources::{ListenerBuilder, cluster, endpoints, listener, route, route_config},
};

const FAULT: &str = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// A configuration of a fault filter, with a number to know it by.
fn fault(number: u32) -> Any {
    let fault = HttpFault { max_active_faults: Some(UInt32Value { value: number }), ..Default::default() };
    Any { type_url: FAULT.into(), value: fault.encode_to_vec().into() }
}

/// A listener with a discovered filter `late` before its router.
fn with_filter(edit: impl FnOnce(&mut ExtensionConfigSource)) -> ListenerBuilder {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource {});
    let mut source = ExtensionConfigSource {
        config_source: Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() }),
        type_urls: vec![FAULT.into()],
        ..Default::default()
    };
    edit(&mut source);
    let config_type = Some(ConfigType::ConfigDiscovery(source));
    let late = HttpFilter { name: "late".into(), config_type, ..Default::default() };
    listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        manager.http_filters.insert(0, late);
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    })
}

fn with_default(source: &mut ExtensionConfigSource) {
    source.default_config = Some(fault(0));
}

/// The server sends the configuration.
fn config(rig: &mut Rig, config: Any) -> Vec<String> {
    let message = TypedExtensionConfig { name: "late".into(), typed_config: Some(config) };
    rig.handle(Seen::ExtensionConfig(Reference::from("late"), present(&message, None)))
}

fn no_config(rig: &mut Rig, code: Code) -> Vec<String> {
    rig.handle(Seen::ExtensionConfig(Reference::from("late"), absent("late", code)))
}

/// The number of the fault filter in the tree.
fn number(rig: &Rig) -> Option<u32> {
    let tree = rig.tree.as_ref().unwrap();
    let filters = &tree.listener().api().unwrap().http_filters;
    assert_eq!((filters.len(), &filters[1].config), (2, &HttpFilterConfig::Router));
    let HttpFilterConfig::Fault(fault) = &filters[0].config else { panic!("{filters:?}") };
    fault.max_active_faults
}

/// A target with everything but the configuration.
fn waiting(listener: ListenerBuilder) -> (Rig, Vec<String>) {
    let mut rig = Rig::new();
    assert_eq!(rig.listener(listener), ["+extension late", "+routes routes"], "they are requested together");
    let mut orders = rig.routes(routes());
    orders.extend(rest(&mut rig));
    (rig, orders)
}

fn routes() -> crate::testing::resources::RouteConfigBuilder {
    route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("a")])
}

/// The resources below the routes.
fn rest(rig: &mut Rig) -> Vec<String> {
    let mut orders = rig.cluster(cluster("a"));
    orders.extend(rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.1:80"])));
    orders
}

/// A tree whose filter has the number 1.
fn serving(listener: ListenerBuilder) -> Rig {
    let (mut rig, _) = waiting(listener);
    config(&mut rig, fault(1));
    rest(&mut rig);
    assert_eq!(number(&rig), Some(1));
    rig
}

#[test]
fn ex2_accepts_a_configuration_in_the_place_of_its_filter_and_its_updates() {
    let (mut rig, orders) = waiting(with_filter(|_| {}));
    assert!(orders.is_empty(), "it waits for the configuration: {orders:?}");
    assert_eq!(config(&mut rig, fault(1)), ["+cluster a"]);
    assert_eq!(rest(&mut rig), ["+endpoints a", "routes: a=10.0.0.1:80"]);
    assert_eq!(number(&rig), Some(1));
    assert_eq!(config(&mut rig, fault(2)), ["routes: a=10.0.0.1:80"]);
    assert_eq!(number(&rig), Some(2));
    let before = rig.tree.clone().unwrap();
    rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.2:80"]));
    assert!(rig.tree.as_ref().unwrap().has_routes_of(&before), "the listener is the same");
    assert_eq!(rig.listener(listener("shop").rds("routes")), ["-extension late", "routes: a=10.0.0.2:80"]);
}

#[test]
fn ex2_rejects_a_configuration_of_another_type_and_keeps_the_last() {
    let router = || Any { type_url: ROUTER.into(), ..Any::default() };
    let mut rig = serving(with_filter(|_| {}));
    assert_eq!(config(&mut rig, router()), ["routes: a=10.0.0.1:80 (INVALID_ARGUMENT)"]);
    assert_eq!(number(&rig), Some(1));
    let reason = rig.tree.as_ref().unwrap().routing.warnings[0].to_string();
    assert!(reason.contains("Router\" is not one of the type_urls of the filter"), "{reason}");
    assert_eq!(config(&mut rig, fault(3)), ["routes: a=10.0.0.1:80"]);
    assert_eq!(number(&rig), Some(3));
    let (mut rig, _) = waiting(with_filter(|_| {}));
    let orders = config(&mut rig, router());
    assert!(orders.len() == 1 && orders[0].starts_with("INVALID_ARGUMENT"), "there is none: {orders:?}");
    let (mut rig, _) = waiting(with_filter(with_default));
    config(&mut rig, router());
    rest(&mut rig);
    assert_eq!(number(&rig), Some(0), "the default is");
}

#[test]
fn ex3_accepts_a_filter_without_a_configuration_by_its_default() {
    for code in [Code::NotFound, Code::Unavailable, Code::InvalidArgument] {
        let (mut rig, orders) = waiting(with_filter(with_default));
        assert!(orders.is_empty(), "it waits for the configuration: {orders:?}");
        assert_eq!(no_config(&mut rig, code), ["+cluster a"]);
        assert_eq!(rest(&mut rig), ["+endpoints a".to_owned(), format!("routes: a=10.0.0.1:80 ({code})")]);
        assert_eq!(number(&rig), Some(0));
        config(&mut rig, fault(1));
        assert_eq!(number(&rig), Some(1));
    }
    let mut rig = serving(with_filter(with_default));
    no_config(&mut rig, Code::NotFound);
    assert_eq!(number(&rig), Some(1), "a replacement may be about to come");
    rig.pass(GRACE);
    assert_eq!(number(&rig), Some(0));
}

#[test]
fn ex3_rejects_a_target_whose_filter_has_neither_a_configuration_nor_a_default() {
    let (mut rig, _) = waiting(with_filter(|_| {}));
    let orders = no_config(&mut rig, Code::NotFound);
    assert!(orders.len() == 1 && orders[0].starts_with("NOT_FOUND"), "{orders:?}");
    assert!(orders[0].contains("TypedExtensionConfig \"late\""), "{orders:?}");
    let mut rig = serving(with_filter(|_| {}));
    let orders = no_config(&mut rig, Code::NotFound);
    assert_eq!(orders, ["routes: a=10.0.0.1:80 (NOT_FOUND)"], "a replacement may be about to come");
    let orders = rig.pass(GRACE);
    assert!(orders.len() == 1 && orders[0].starts_with("NOT_FOUND"), "{orders:?}");
}

#[test]
fn ex4_accepts_a_default_that_is_used_until_the_source_has_responded() {
    let at_once = |source: &mut ExtensionConfigSource| {
        with_default(source);
        source.apply_default_config_without_warming = true;
    };
    let (mut rig, orders) = waiting(with_filter(at_once));
    assert_eq!(orders, ["+cluster a", "+endpoints a", "routes: a=10.0.0.1:80"]);
    assert_eq!(number(&rig), Some(0));
    assert_eq!(config(&mut rig, fault(1)), ["routes: a=10.0.0.1:80"]);
    assert_eq!(number(&rig), Some(1));
}
