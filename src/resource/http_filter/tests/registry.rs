//! Filters that an application registers: A39-1.

use serde_json::json;

use super::*;
use crate::pb::google::protobuf::Value;

/// A filter that reads JSON and messages.
#[derive(Debug, PartialEq, Serialize)]
struct Tag {
    text: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct TagPerRoute(usize);

/// Ends the list of a server's filters.
#[derive(Debug, PartialEq, Serialize)]
struct Sink;

impl Extension for Tag {
    const TYPE_NAME: &'static str = "example.Tag";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        match payload {
            Payload::Struct(settings) => match settings.get("text").and_then(|text| text.as_str()) {
                Some(text) => Ok(Self { text: text.to_owned() }),
                None => Err(Invalid::field("text", "must be set")),
            },
            Payload::Message(bytes) => Ok(Self { text: String::from_utf8_lossy(&bytes).into_owned() }),
        }
    }
}

impl HttpFilterExtension for Tag {
    const SIDES: Sides = Sides::Client;
    type Override = TagPerRoute;
}

impl Extension for TagPerRoute {
    const TYPE_NAME: &'static str = "example.TagPerRoute";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self(payload.message()?.len()))
    }
}

impl Extension for Sink {
    const TYPE_NAME: &'static str = "example.Sink";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

impl HttpFilterExtension for Sink {
    const SIDES: Sides = Sides::Server;
    const IS_TERMINAL: bool = true;
    type Override = NoOverride;
}

/// Takes the place of the crate's own.
#[derive(Debug, PartialEq, Serialize)]
struct OwnFault;

impl Extension for OwnFault {
    const TYPE_NAME: &'static str = FAULT;

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

impl HttpFilterExtension for OwnFault {
    const SIDES: Sides = Sides::Both;
    type Override = Self;
}

fn registry() -> Registry {
    Registry::new().with_http_filter::<Tag>().with_http_filter::<Sink>()
}

fn parse_with(
    registry: &Registry,
    side: Side,
    filters: Vec<hcm::HttpFilter>,
) -> Result<Box<[HttpFilter]>, Invalid> {
    parse_filters(filters, side, &Context::new().with_registry(registry))
}

#[test]
fn a39_1_a_filter_of_the_application_is_parsed_and_typed() {
    let tag = with_config("t", any("example.Tag", "blue"));
    let parsed = parse_with(&registry(), Side::Client, vec![tag.clone(), router()]).unwrap();
    let HttpFilterConfig::Custom(custom) = &parsed[0].config else { panic!("{parsed:?}") };
    assert_eq!(custom.get::<Tag>(), Some(&Tag { text: "blue".into() }));
    assert_eq!((custom.get::<Sink>(), custom.type_name()), (None, "example.Tag"));
    let json = json!({"custom": {"example.Tag": {"text": "blue"}}});
    assert_eq!(serde_json::to_value(&parsed[0].config).unwrap(), json);
    // It is not known to others, nor on the other side.
    assert_eq!(error_path([tag.clone(), router()]), "http_filters[0]");
    let e = parse_with(&registry(), Side::Server, vec![tag, router()]).unwrap_err();
    assert_eq!(e.to_string(), "http_filters[0]: filter type \"example.Tag\" is for clients only");
}

#[test]
fn l17_accepts_a_typed_struct_of_a_filter_that_reads_json() {
    let blue = Value { kind: Some(crate::pb::google::protobuf::value::Kind::StringValue("blue".into())) };
    let value = crate::pb::google::protobuf::Struct { fields: [("text".to_owned(), blue)].into() };
    let typed = TypedStruct { type_url: "x/example.Tag".into(), value: Some(value) };
    let tag = with_config("t", any("xds.type.v3.TypedStruct", typed.encode_to_vec()));
    let parsed = parse_with(&registry(), Side::Client, vec![tag, router()]).unwrap();
    let HttpFilterConfig::Custom(custom) = &parsed[0].config else { panic!("{parsed:?}") };
    assert_eq!(custom.get::<Tag>(), Some(&Tag { text: "blue".into() }));
    // What it rejects has the path of the filter in front.
    let empty = with_config("t", typed_struct("xds.type.v3.TypedStruct", "example.Tag"));
    let e = parse_with(&registry(), Side::Client, vec![empty, router()]).unwrap_err();
    assert_eq!(e.to_string(), "http_filters[0].typed_config.text: must be set");
}

#[test]
fn l18_accepts_a_terminal_filter_of_the_application() {
    let sink = || filter("s", "example.Sink");
    assert_eq!(parse_with(&registry(), Side::Server, vec![sink()]).unwrap().len(), 1);
    let e = parse_with(&registry(), Side::Server, vec![sink(), router()]).unwrap_err();
    assert_eq!(e.path(), "http_filters[0]");
}

#[test]
fn fo5_rejects_an_override_of_a_filter_without_one() {
    let registry = registry();
    let cx = Context::new().with_registry(&registry);
    let e = overridden_in("s", wrapped(Some(any("example.Sink", "")), true, false), &cx).unwrap_err();
    let expected = "typed_per_filter_config[\"s\"]: \"example.Sink\" configures a filter but overrides none";
    assert_eq!(e.to_string(), expected);
    // `NoOverride` has no type name, which must not be taken for that of a missing configuration.
    let e = overridden_in("s", wrapped(None, false, false), &cx).unwrap_err();
    assert_eq!(e.to_string(), "typed_per_filter_config[\"s\"]: there is no configuration");
}

#[test]
fn a39_6_an_override_of_the_application_is_for_its_filter_alone() {
    let registry = registry();
    let cx = Context::new().with_registry(&registry);
    let setting = overridden_in("t", any("example.TagPerRoute", "abc"), &cx).unwrap().remove(0);
    let filters = vec![filter("t", "example.Tag"), filter("f", FAULT), router()];
    let parsed = parse_filters(filters, Side::Client, &cx).unwrap();
    let EffectiveFilter::Custom { filter, setting: Some(route) } = parsed[0].effective(Some(&setting)) else {
        panic!("{parsed:?}");
    };
    assert_eq!(filter.get::<Tag>(), Some(&Tag { text: String::new() }));
    assert_eq!(route.get::<TagPerRoute>(), Some(&TagPerRoute(3)));
    assert!(matches!(parsed[1].effective(Some(&setting)), EffectiveFilter::Fault(_)));
    let sink = parse_filters(vec![super::filter("s", "example.Sink")], Side::Server, &cx).unwrap();
    assert!(matches!(sink[0].effective(Some(&setting)), EffectiveFilter::Custom { setting: None, .. }));
}

#[test]
fn a39_1_a_filter_of_the_application_takes_the_place_of_the_crates() {
    let registry = Registry::new().with_http_filter::<OwnFault>();
    let cx = Context::new().with_registry(&registry);
    let parsed = parse_filters(vec![filter("f", FAULT), router()], Side::Server, &cx).unwrap();
    let setting = overridden_in("f", any(FAULT, GARBAGE), &cx).unwrap().remove(0);
    let EffectiveFilter::Custom { setting: Some(setting), .. } = parsed[0].effective(Some(&setting)) else {
        panic!("{parsed:?}");
    };
    assert_eq!(setting.get::<OwnFault>(), Some(&OwnFault));
    assert_ne!(registry, Registry::new());
    assert_ne!(registry, self::registry());
    assert_eq!(self::registry(), self::registry());
}
