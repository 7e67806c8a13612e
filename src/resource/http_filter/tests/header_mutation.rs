//! Changes of headers: rules H14 and H15.

use serde_json::json;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                common::mutation_rules::v3::{
                    HeaderMutation as Mutation,
                    header_mutation::{Action, RemoveOnMatch},
                },
                core::v3::{HeaderValue, HeaderValueOption},
            },
            extensions::filters::http::header_mutation::v3 as pb,
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        google::protobuf::BoolValue,
    },
    resource::remarks,
};

fn config_of(actions: impl IntoIterator<Item = Option<Action>>) -> pb::HeaderMutation {
    let request_mutations = actions.into_iter().map(|action| Mutation { action }).collect();
    let mutations = Some(pb::Mutations { request_mutations, ..Default::default() });
    pb::HeaderMutation { mutations, ..Default::default() }
}

fn parsed(actions: impl IntoIterator<Item = Option<Action>>) -> Result<HeaderMutation, Invalid> {
    HeaderMutation::parse(Payload::Message(config_of(actions).encode_to_vec().into()), &Context::new())
}

fn option(key: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue { key: key.into(), value: value.into(), raw_value: Bytes::new() };
    HeaderValueOption { header: Some(header), ..Default::default() }
}

fn append(key: &str, value: &str) -> Option<Action> {
    Some(Action::Append(option(key, value)))
}

fn remove(key: &str) -> Option<Action> {
    Some(Action::Remove(key.into()))
}

/// The value of a header that is added, or the path and the reason why it is rejected.
fn value(value: &str) -> Result<String, String> {
    let mutation = parsed([append("x", value)]).map_err(|error| error.to_string())?;
    match &*mutation.mutations.request_mutations {
        [HeaderAction::Append(append)] => Ok(append.value.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn h14_accepts_every_action() {
    let key_matcher =
        StringMatcher { match_pattern: Some(MatchPattern::Prefix("x-".into())), ignore_case: false };
    let matching = Some(Action::RemoveOnMatch(RemoveOnMatch { key_matcher: Some(key_matcher) }));
    let with_action =
        |append_action| Some(Action::Append(HeaderValueOption { append_action, ..option("X-A", "1") }));
    let older = |value| {
        Some(Action::Append(HeaderValueOption { append: Some(BoolValue { value }), ..option("b", "2") }))
    };
    let actions = [
        with_action(0),
        with_action(1),
        with_action(2),
        with_action(3),
        older(true),
        older(false),
        remove("X-B"),
        matching,
    ];
    let config = serde_json::to_value(parsed(actions).unwrap()).unwrap();
    let append = |name, value, append_action| json!({"append": {"name": name, "value": value, "append_action": append_action}});
    let expected = json!([
        append("x-a", "1", "APPEND_IF_EXISTS_OR_ADD"),
        append("x-a", "1", "ADD_IF_ABSENT"),
        append("x-a", "1", "OVERWRITE_IF_EXISTS_OR_ADD"),
        append("x-a", "1", "OVERWRITE_IF_EXISTS"),
        append("b", "2", "APPEND_IF_EXISTS_OR_ADD"),
        append("b", "2", "OVERWRITE_IF_EXISTS_OR_ADD"),
        json!({"remove": "x-b"}),
    ]);
    let requests = config["mutations"]["request_mutations"].as_array().unwrap();
    assert_eq!(requests[..7], expected.as_array().unwrap()[..]);
    assert!(requests[7].get("remove_on_match").is_some(), "{config}");
}

#[test]
fn h14_accepts_an_empty_value_that_is_kept_and_ignores_any_other() {
    let kept = Some(Action::Append(HeaderValueOption { keep_empty_value: true, ..option("x", "") }));
    let mutations = parsed([append("x", ""), kept, append("x", "")]).unwrap().mutations;
    let [HeaderAction::Append(kept)] = &*mutations.request_mutations else { panic!("{mutations:?}") };
    assert_eq!(&*kept.value, "");
}

#[test]
fn h14_accepts_mutations_of_responses_and_of_parts_of_the_routes() {
    let mutation = Mutation { action: remove("x") };
    let mutations = Some(pb::Mutations {
        response_mutations: vec![mutation.clone()],
        response_trailers_mutations: vec![mutation.clone(), mutation],
        ..Default::default()
    });
    let per_route = pb::HeaderMutationPerRoute { mutations };
    let payload = Payload::Message(per_route.encode_to_vec().into());
    let HeaderMutationPerRoute { mutations } =
        HeaderMutationPerRoute::parse(payload, &Context::new()).unwrap();
    let lengths = (mutations.response_mutations.len(), mutations.response_trailers_mutations.len());
    assert_eq!(lengths, (1, 2));
    let empty = filter("a", HeaderMutation::TYPE_NAME);
    assert_eq!(names([empty, router()]).unwrap(), ["a", "router"]);
}

#[test]
fn h14_rejects_names_that_are_malformed_or_reserved() {
    let long = "x".repeat(16_385);
    for name in [
        "",
        " ",
        "x y",
        "x:",
        "é",
        "x\n",
        &long,
        ":path",
        "Host",
        "host",
        "grpc-timeout",
        "grpc-",
        "TE",
        "content-type",
        "content-length",
        "user-agent",
        "connection",
        "transfer-encoding",
        "trailer",
    ] {
        for (action, field) in [(append(name, "1"), "append.header.key"), (remove(name), "remove")] {
            let error = parsed([remove("good"), action]).unwrap_err();
            assert_eq!(error.path(), format!("mutations.request_mutations[1].{field}"), "{name:?}");
        }
    }
    assert!(parsed([append(&long[1..], "1"), remove("grpc"), remove("x-host")]).is_ok());
}

#[test]
fn h14_rejects_actions_that_are_not_supported() {
    let path = |action| parsed([action]).unwrap_err().path().to_owned();
    let at = |path: &str| format!("mutations.request_mutations[0]{path}");
    assert_eq!(path(None), at(""));
    let append = |option: HeaderValueOption| Some(Action::Append(option));
    assert_eq!(path(append(HeaderValueOption { header: None, ..option("x", "1") })), at(".append.header"));
    assert_eq!(
        path(append(HeaderValueOption { append_action: 4, ..option("x", "1") })),
        at(".append.append_action")
    );
    let both =
        HeaderValueOption { append: Some(BoolValue { value: true }), append_action: 1, ..option("x", "1") };
    assert_eq!(path(append(both)), at(".append.append"));
    let key_matcher = Some(StringMatcher { match_pattern: None, ignore_case: false });
    for key_matcher in [None, key_matcher] {
        let matching = Some(Action::RemoveOnMatch(RemoveOnMatch { key_matcher }));
        assert_eq!(path(matching), at(".remove_on_match.key_matcher"));
    }
}

#[test]
fn h14_fields_that_are_not_executed_are_remarks() {
    // `mutations { query_parameter_mutations { remove: "x" }, request_trailers_mutations { remove: "x" } }`
    let bytes = [0x0a, 10, 0x1a, 3, 0x12, 1, b'x', 0x2a, 3, 0x0a, 1, b'x'];
    for type_name in [HeaderMutation::TYPE_NAME, HeaderMutationPerRoute::TYPE_NAME] {
        let remarks = remarks::collect(|| match type_name {
            HeaderMutation::TYPE_NAME => {
                let with_fields = with_config("a", any(type_name, bytes.to_vec()));
                parse(Side::Client, [with_fields, router()]).map(|_| ())
            }
            _ => overridden(any(type_name, bytes.to_vec())).map(|_| ()),
        });
        let ignored = ["Mutations.query_parameter_mutations", "Mutations.request_trailers_mutations"];
        assert_eq!(remarks.unwrap().1.not_executed(), ignored);
    }
}

#[test]
fn h15_accepts_values_that_are_sent_as_they_are() {
    assert_eq!(value("a b\t\"c\"; é").unwrap(), "a b\t\"c\"; é");
    assert_eq!(value("100%% of 5%%").unwrap(), "100% of 5%");
    assert_eq!(value("%%%%").unwrap(), "%%");
    parsed([append("x-bin", "YWRh,YQ==")]).unwrap();
    let raw =
        HeaderValue { key: "x".into(), value: String::new(), raw_value: Bytes::from_static(b"%REQ(x)%") };
    let raw = HeaderValueOption { header: Some(raw), ..Default::default() };
    let mutations = parsed([Some(Action::Append(raw))]).unwrap().mutations;
    let [HeaderAction::Append(raw)] = &*mutations.request_mutations else { panic!("{mutations:?}") };
    assert_eq!(&*raw.value, "%REQ(x)%", "a raw value is no format");
}

#[test]
fn h15_rejects_values_with_commands_and_malformed_ones() {
    for format in ["%REQ(x-user)%", "a%DOWNSTREAM_REMOTE_ADDRESS%b", "100%", "%%%"] {
        let error = value(format).unwrap_err();
        assert!(error.contains("command operators"), "{error}");
    }
    for malformed in ["\n", "a\rb", "\0", "\u{7f}", &"x".repeat(16_385)] {
        value(malformed).unwrap_err();
    }
    let text = parsed([append("x-bin", "a da")]).unwrap_err();
    assert_eq!(
        text.path(),
        "mutations.request_mutations[0].append.header.value",
        "binary metadata are base64"
    );
    let both = HeaderValue { raw_value: Bytes::from_static(b"1"), ..option("x", "1").header.unwrap() };
    let malformed =
        HeaderValue { key: "x".into(), value: String::new(), raw_value: Bytes::from_static(b"\xff") };
    for header in [both, malformed] {
        let option = HeaderValueOption { header: Some(header), ..Default::default() };
        let error = parsed([Some(Action::Append(option))]).unwrap_err();
        assert_eq!(error.path(), "mutations.request_mutations[0].append.header.raw_value");
    }
}
