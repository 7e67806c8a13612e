use serde_json::json;

use super::*;
use crate::{
    pb::envoy::config::{
        core::v3::{
            AggregatedConfigSource, ConfigSource, SelfConfigSource, config_source::ConfigSourceSpecifier,
        },
        route::v3::{
            ScopedRouteConfiguration as Message,
            scoped_route_configuration::{
                Key,
                key::{Fragment, fragment::Type},
            },
        },
    },
    resource::{
        Listener,
        listener::RouteSource,
        samples::{api_listener, manager, parse, rejection},
    },
};
use fragment_builder::header_value_extractor::KvElement;
use hcm::{
    ScopedRds, ScopedRouteConfigurationsList, http_connection_manager::RouteSpecifier,
    scoped_routes::ScopeKeyBuilder,
};

fn source(specifier: ConfigSourceSpecifier) -> Option<ConfigSource> {
    Some(ConfigSource { config_source_specifier: Some(specifier), ..Default::default() })
}

fn ads() -> Option<ConfigSource> {
    source(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}))
}

fn scope(name: &str) -> Message {
    let fragment = Fragment { r#type: Some(Type::StringKey("eu".into())) };
    Message {
        name: name.into(),
        key: Some(Key { fragments: vec![fragment] }),
        route_configuration_name: "routes".into(),
        ..Default::default()
    }
}

fn list(scopes: Vec<Message>) -> Option<ConfigSpecifier> {
    let list = ScopedRouteConfigurationsList { scoped_route_configurations: scopes };
    Some(ConfigSpecifier::ScopedRouteConfigurationsList(list))
}

fn srds(from: Option<ConfigSource>, locator: &str) -> Option<ConfigSpecifier> {
    let srds_resources_locator = locator.into();
    Some(ConfigSpecifier::ScopedRds(ScopedRds { scoped_rds_config_source: from, srds_resources_locator }))
}

fn extractor(name: &str, element_separator: &str, extract_type: Option<ExtractType>) -> HeaderValueExtractor {
    HeaderValueExtractor { name: name.into(), element_separator: element_separator.into(), extract_type }
}

fn fragment(extractor: HeaderValueExtractor) -> FragmentBuilder {
    FragmentBuilder { r#type: Some(fragment_builder::Type::HeaderValueExtractor(extractor)) }
}

fn pair_of(separator: &str, key: &str) -> Option<ExtractType> {
    Some(ExtractType::Element(KvElement { separator: separator.into(), key: key.into() }))
}

fn with(fragments: Vec<FragmentBuilder>) -> hcm::ScopedRoutes {
    hcm::ScopedRoutes {
        name: "scopes".into(),
        scope_key_builder: Some(ScopeKeyBuilder { fragments }),
        rds_config_source: ads(),
        config_specifier: srds(ads(), ""),
    }
}

fn message() -> hcm::ScopedRoutes {
    with(vec![fragment(extractor("x-region", "", Some(ExtractType::Index(0))))])
}

fn listener(message: hcm::ScopedRoutes) -> crate::pb::envoy::config::listener::v3::Listener {
    let route_specifier = Some(RouteSpecifier::ScopedRoutes(message));
    api_listener(&hcm::HttpConnectionManager { route_specifier, ..manager() })
}

fn accepted(message: hcm::ScopedRoutes) -> Arc<ScopedRoutes> {
    let parsed: Listener = parse(&listener(message)).unwrap();
    match &parsed.api().expect("an API listener").routes {
        RouteSource::Scoped(scoped) => scoped.clone(),
        other @ (RouteSource::Rds(_) | RouteSource::Inline(_)) => panic!("{other:?}"),
    }
}

/// Returns the reason of the error, behind the path of the scoped routes.
fn reason_of(message: hcm::ScopedRoutes) -> String {
    let error = rejection::<Listener>(&listener(message));
    error
        .strip_prefix("api_listener.api_listener.scoped_routes")
        .expect(&error)
        .trim_start_matches('.')
        .to_owned()
}

/// Returns the key of a request with one header, as text.
fn key(fragments: Vec<HeaderValueExtractor>, value: &str) -> String {
    let scoped = accepted(with(fragments.into_iter().map(fragment).collect()));
    match scoped.key(|name| (name == "x").then_some(value)) {
        Ok(key) => key.join("|"),
        Err(missing) => format!("no {missing}"),
    }
}

#[test]
fn l6_accepts_scoped_routes_of_a_client() {
    let json = json!({
        "name": "scopes", "key_builder": [{ "header": "x-region", "index": 0 }], "scoped_rds": null,
    });
    assert_eq!(serde_json::to_value(&*accepted(message())).unwrap(), json);
}

#[test]
fn sc1_accepts_a_name() {
    assert_eq!(&*accepted(message()).name, "scopes");
}

#[test]
fn sc1_rejects_an_empty_name() {
    assert_eq!(reason_of(hcm::ScopedRoutes { name: String::new(), ..message() }), "name: must not be empty");
}

#[test]
fn sc2_accepts_a_fragment_of_each_kind() {
    let fragments = vec![
        fragment(extractor("a", "", Some(ExtractType::Index(0)))),
        fragment(extractor("b", ";", Some(ExtractType::Index(7)))),
        fragment(extractor("c", ";", pair_of("=", "k"))),
    ];
    assert_eq!(accepted(with(fragments)).key_builder.len(), 3);
}

#[test]
fn sc2_rejects_fragments_that_cannot_be_built() {
    let keyless = hcm::ScopedRoutes { scope_key_builder: None, ..message() };
    assert_eq!(reason_of(keyless), "scope_key_builder.fragments: must not be empty");
    assert_eq!(reason_of(with(Vec::new())), "scope_key_builder.fragments: must not be empty");
    let untyped = reason_of(with(vec![FragmentBuilder { r#type: None }]));
    let at = "scope_key_builder.fragments[0]";
    assert_eq!(untyped, format!("{at}: no type that is supported; expected header_value_extractor"));
    for (extractor, reason) in [
        (extractor("", "", Some(ExtractType::Index(0))), ".name: must not be empty"),
        (extractor("a", "", None), ": neither index nor element is set"),
        (
            extractor("a", "", Some(ExtractType::Index(1))),
            ".index: must be 0 where element_separator is empty",
        ),
        (extractor("a", ";", pair_of("", "k")), ".element.separator: must not be empty"),
        (extractor("a", ";", pair_of("=", "")), ".element.key: must not be empty"),
    ] {
        assert_eq!(
            reason_of(with(vec![fragment(extractor)])),
            format!("{at}.header_value_extractor{reason}")
        );
    }
}

#[test]
fn sc3_accepts_scopes_in_the_listener() {
    let listed = hcm::ScopedRoutes { config_specifier: list(vec![scope("a"), scope("b")]), ..message() };
    let scoped = accepted(listed);
    let ScopeSource::Inline(scopes) = &scoped.scopes else { panic!("{scoped:?}") };
    assert_eq!(scopes.iter().map(|scope| &*scope.name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn sc3_rejects_scopes_in_the_listener_that_would_be_rejected_by_themselves() {
    let listed = |scopes| reason_of(hcm::ScopedRoutes { config_specifier: list(scopes), ..message() });
    let at = "scoped_route_configurations_list.scoped_route_configurations";
    assert_eq!(listed(Vec::new()), format!("{at}: must not be empty"));
    assert_eq!(listed(vec![scope("a"), scope("")]), format!("{at}[1].name: must not be empty"));
    let neither = hcm::ScopedRoutes { config_specifier: None, ..message() };
    assert_eq!(reason_of(neither), ": neither scoped_route_configurations_list nor scoped_rds is set");
}

#[test]
fn sc4_accepts_scopes_and_routes_from_the_same_server() {
    let own = || source(ConfigSourceSpecifier::Self_(SelfConfigSource::default()));
    for (scopes, routes) in [(ads(), ads()), (own(), own()), (ads(), None)] {
        let message =
            hcm::ScopedRoutes { rds_config_source: routes, config_specifier: srds(scopes, ""), ..message() };
        assert_eq!(accepted(message).scopes, ScopeSource::Srds(None));
    }
}

#[test]
fn sc4_rejects_scopes_and_routes_from_elsewhere() {
    let elsewhere = || source(ConfigSourceSpecifier::Path("/scopes".into()));
    let reason = "only the sources ads and self are supported";
    let scopes = hcm::ScopedRoutes { config_specifier: srds(elsewhere(), ""), ..message() };
    assert_eq!(reason_of(scopes), format!("scoped_rds.scoped_rds_config_source: {reason}"));
    let unset = hcm::ScopedRoutes { config_specifier: srds(None, ""), ..message() };
    assert_eq!(reason_of(unset), "scoped_rds.scoped_rds_config_source: must be ads or self, is not set");
    let routes = hcm::ScopedRoutes { rds_config_source: elsewhere(), ..message() };
    assert_eq!(reason_of(routes), format!("rds_config_source: {reason}"));
}

#[test]
fn sc5_accepts_the_name_of_a_glob_collection() {
    let name = "xdstp://mesh/envoy.config.route.v3.ScopedRouteConfiguration/shop/*?b=2&a=1";
    let located = accepted(hcm::ScopedRoutes { config_specifier: srds(ads(), name), ..message() });
    let canonical = "xdstp://mesh/envoy.config.route.v3.ScopedRouteConfiguration/shop/*?a=1&b=2";
    assert_eq!(located.scopes, ScopeSource::Srds(Some(canonical.into())));
}

#[test]
fn sc5_rejects_names_of_other_collections() {
    for (name, reason) in [
        ("scopes", "\"scopes\" is no glob collection of envoy.config.route.v3.ScopedRouteConfiguration"),
        ("xdstp://mesh/envoy.config.route.v3.ScopedRouteConfiguration/one", "is no glob collection"),
        ("xdstp://mesh/envoy.config.listener.v3.Listener/*", "is no glob collection"),
        ("xdstp:", "xdstp:"),
    ] {
        let error = reason_of(hcm::ScopedRoutes { config_specifier: srds(ads(), name), ..message() });
        assert!(
            error.starts_with("scoped_rds.srds_resources_locator: ") && error.contains(reason),
            "{error}"
        );
    }
}

#[test]
fn a_fragment_is_the_value_or_the_element_at_an_index() {
    let whole = || vec![extractor("x", "", Some(ExtractType::Index(0)))];
    assert_eq!(key(whole(), "a;b"), "a;b");
    assert_eq!(key(whole(), ""), "", "a header without a value is one");
    let at = |index| vec![extractor("x", ";", Some(ExtractType::Index(index)))];
    assert_eq!(
        (key(at(0), "a;b;"), key(at(1), "a;b;"), key(at(2), "a;b;")),
        ("a".into(), "b".into(), "".into())
    );
    assert_eq!(key(at(3), "a;b;"), "no element 3 of the header \"x\"");
    assert_eq!(key(vec![extractor("y", "", Some(ExtractType::Index(0)))], "a"), "no the header \"y\"");
}

#[test]
fn a_fragment_is_the_value_of_the_first_pair_with_the_key() {
    let of = |separator| vec![extractor("x", separator, pair_of("=", "vip"))];
    assert_eq!(key(of(";"), "a=1;vip=2;vip=3"), "2");
    assert_eq!(key(of(";"), "vip=2=3;b"), "2=3", "it is split once");
    assert_eq!(key(of(";"), ";vip;a=1"), "", "what has no separator is all key, and empty elements are none");
    assert_eq!(key(of(";"), "vip2=1; vip=3"), "no element \"vip\" of the header \"x\"");
    assert_eq!(key(of(""), "vip=2;a=1"), "2;a=1", "the whole value is the only element");
}

#[test]
fn a_key_has_all_of_its_fragments_in_their_order() {
    let fragments = || {
        vec![
            extractor("x", ",", Some(ExtractType::Index(1))),
            extractor("x", ",", Some(ExtractType::Index(0))),
        ]
    };
    assert_eq!(key(fragments(), "a,b"), "b|a");
    assert_eq!(key(fragments(), "a"), "no element 1 of the header \"x\"");
}
