//! Filters whose configuration is a resource of its own: rule L23.

use super::*;
use crate::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ConfigSource, ExtensionConfigSource, PathConfigSource,
    config_source::ConfigSourceSpecifier,
};

fn discovered(types: &[&str], edit: impl FnOnce(&mut ExtensionConfigSource)) -> hcm::HttpFilter {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource {});
    let mut source = ExtensionConfigSource {
        config_source: Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() }),
        type_urls: types.iter().map(|name| format!("type.googleapis.com/{name}")).collect(),
        ..Default::default()
    };
    edit(&mut source);
    let config_type = Some(ConfigType::ConfigDiscovery(source));
    hcm::HttpFilter { name: "late".into(), config_type, ..Default::default() }
}

fn config_of(filters: &[HttpFilter], place: usize) -> &DiscoveredFilter {
    let HttpFilterConfig::Discovered(discovered) = &filters[place].config else { panic!("{filters:?}") };
    discovered
}

#[test]
fn l23_accepts_a_filter_whose_configuration_is_discovered() {
    let plain = discovered(&[FAULT], |_| {});
    let parsed = parse(Side::Client, [plain, router()]).unwrap();
    let filter = config_of(&parsed, 0);
    assert!(filter.permits(FAULT) && !filter.permits(ROUTER));
    assert_eq!((&filter.default_config, &filter.source), (&None, &None));
    let with_default = discovered(&[FAULT], |source| {
        source.default_config = Some(any(FAULT, ""));
        source.apply_default_config_without_warming = true;
    });
    let parsed = parse(Side::Client, [with_default, router()]).unwrap();
    let filter = config_of(&parsed, 0);
    assert!(matches!(filter.default_config, Some(HttpFilterConfig::Fault(_))));
    assert!(filter.apply_default_config_without_warming);
    let json = serde_json::to_value(&parsed[0]).unwrap();
    assert_eq!(json["config"]["discovered"]["type_names"], serde_json::json!([FAULT]));
}

#[test]
fn l23_accepts_a_discovered_filter_that_ends_the_chain() {
    let parsed = parse(Side::Client, [discovered(&[ROUTER], |_| {})]).unwrap();
    assert!(config_of(&parsed, 0).permits(ROUTER));
    let early = error([discovered(&[ROUTER], |_| {}), router()]);
    assert!(early.contains("ends the chain but is not the last filter"), "{early}");
}

#[test]
fn l23_ignores_types_that_are_not_supported_beside_others() {
    let parsed =
        remarks::collect(|| parse(Side::Client, [discovered(&["T", FAULT, RBAC], |_| {}), router()]));
    let (filters, remarks) = parsed.unwrap();
    assert_eq!(&*config_of(&filters, 0).type_names, [FAULT.into()]);
    let left_out: Vec<_> = remarks.left_out().iter().map(ToString::to_string).collect();
    let of =
        |name: &str| format!("http_filters[0].type_urls: \"type.googleapis.com/{name}\" is not supported");
    assert_eq!(left_out, [of("T"), of(RBAC)]);
    assert_eq!(names([optional(discovered(&["T"], |_| {})), router()]).unwrap(), ["router"]);
}

#[test]
fn l23_rejects_a_discovered_filter_that_cannot_be_used() {
    type Edit = fn(&mut ExtensionConfigSource);
    let file = |source: &mut ExtensionConfigSource| {
        let path = PathConfigSource { path: "/f".into(), ..Default::default() };
        let specifier = Some(ConfigSourceSpecifier::PathConfigSource(path));
        source.config_source =
            Some(ConfigSource { config_source_specifier: specifier, ..Default::default() });
    };
    let table: [(&[&str], Edit, &str); 7] = [
        (&["T"], |_| {}, ": no type of config_discovery.type_urls is supported"),
        (&[], |_| {}, ": no type of config_discovery.type_urls is supported"),
        (
            &[FAULT, ROUTER],
            |_| {},
            ".config_discovery.type_urls: has types that end the chain and types that do not",
        ),
        (
            &[FAULT],
            |source| source.default_config = Some(any(ROUTER, "")),
            ".config_discovery.default_config: type \"envoy.extensions.filters.http.router.v3.Router\" is not a supported one of type_urls",
        ),
        (
            &[FAULT],
            |source| source.apply_default_config_without_warming = true,
            ".config_discovery.apply_default_config_without_warming: needs a default_config",
        ),
        (
            &[FAULT],
            |source| source.config_source = None,
            ".config_discovery.config_source: must be ads or self, is not set",
        ),
        (&[FAULT], file, ".config_discovery.config_source: only the sources ads and self are supported"),
    ];
    for (types, edit, reason) in table {
        assert_eq!(error([discovered(types, edit), router()]), format!("http_filters[0]{reason}"));
    }
    let bad = discovered(&[FAULT], |source| source.default_config = Some(any(FAULT, GARBAGE)));
    assert_eq!(error_path([bad, router()]), "http_filters[0].config_discovery.default_config");
    let of_server = parse(Side::Server, [discovered(&[RBAC], |_| {}), router()]).unwrap_err();
    assert_eq!(of_server.to_string(), "http_filters[0]: config_discovery is not supported");
}
