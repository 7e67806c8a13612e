//! Aliases of resources: only a claim that is wrong is rejected.

use prost::Message;

use super::super::rig::{Full, Rig, any, delta_response};
use crate::pb::{
    envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
    google::protobuf::Any,
};

/// A resource by its name, text and aliases.
type Aliased = (&'static str, Option<&'static str>, &'static [&'static str]);

fn wrapped((name, text, aliases): &Aliased) -> Resource {
    Resource {
        name: (*name).into(),
        version: "1".into(),
        resource: text.map(|text| any::<Full>(name, text)),
        aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        ..Resource::default()
    }
}

fn several(resources: &[Aliased], removed: &[&str]) -> Vec<u8> {
    let response = DeltaDiscoveryResponse {
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        resources: resources.iter().map(wrapped).collect(),
        removed_resources: removed.iter().map(|name| (*name).into()).collect(),
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec()
}

fn received(names: &[&str], response: Vec<u8>) -> Vec<String> {
    let mut rig = Rig::delta();
    rig.open::<Full>(names);
    rig.receive_raw(1, response)
}

#[test]
fn b2_19_an_alias_that_a_resource_has_twice_is_accepted() {
    let outputs = received(&["h", "r"], several(&[("r", Some("x"), &["h", "h", "r"])], &[]));
    assert_eq!(outputs, ["#2 present 1 x", "#1 present 1 x", "read", "send Full m"]);
    let outputs = received(&["h"], several(&[("h", None, &["h", "h"])], &[]));
    assert_eq!(outputs, ["#1 absent NOT_FOUND", "read", "send Full m"]);
}

#[test]
fn a46_of_two_resources_with_the_same_alias_the_second_alias_is_rejected_alone() {
    let both = [("r1", Some("1"), &["h"][..]), ("r2", Some("2"), &["h"])];
    let nack = "INVALID_ARGUMENT: resources[1].aliases: \"h\" belongs to resources[0] of the response";
    let outputs = received(&["h", "r1", "r2"], several(&both, &[]));
    let seen = ["#2 present 1 1", "#3 present 1 2", "#1 present 1 1"];
    assert_eq!(outputs[..3], seen);
    assert_eq!(outputs[3..], ["read".to_owned(), format!("send Full m {nack}")]);

    let mut rig = Rig::new();
    rig.open::<Full>(&["h", "r1", "r2"]);
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource";
    let any = |aliased| Any { type_url: type_url.into(), value: wrapped(aliased).encode_to_vec().into() };
    let response = DiscoveryResponse {
        version_info: "1".into(),
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        resources: both.iter().map(any).collect(),
        ..DiscoveryResponse::default()
    };
    let outputs = rig.receive(1, &response);
    assert_eq!(outputs[..3], seen);
    assert_eq!(outputs[3..], ["read".to_owned(), format!("send Full [h,r1,r2] /m {nack}")]);
}

#[test]
fn a46_an_alias_that_is_the_name_of_another_resource_is_rejected_alone() {
    for (index, resources) in [
        (1, [("a", Some("1"), &[][..]), ("b", Some("2"), &["a"])]),
        (0, [("b", Some("2"), &["a"]), ("a", Some("1"), &[][..])]),
    ] {
        let outputs = received(&["a", "b"], several(&resources, &[]));
        assert!(outputs.contains(&"#1 present 1 1".to_owned()), "{outputs:?}");
        assert!(outputs.contains(&"#2 present 1 2".to_owned()), "{outputs:?}");
        let other = 1 - index;
        let reason =
            format!("resources[{index}].aliases: \"a\" belongs to resources[{other}] of the response");
        assert_eq!(outputs[3], format!("send Full m INVALID_ARGUMENT: {reason}"));
    }
    let outputs = received(&["a", "b"], several(&[("b", Some("2"), &["a"])], &["a"]));
    assert_eq!(outputs[..2], ["#2 present 1 2", "#1 absent NOT_FOUND"]);
    let reason = "resources[0].aliases: \"a\" belongs to removed_resources[0] of the response";
    assert_eq!(outputs[3], format!("send Full m INVALID_ARGUMENT: {reason}"));
}

#[test]
fn b2_19_an_alias_that_moves_to_another_resource_follows_it() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["h"]);
    let outputs = rig.receive_raw(1, several(&[("r1", Some("1"), &["h"])], &[]));
    assert_eq!(outputs, ["#1 present 1 1", "read", "send Full m"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, several(&[("r2", Some("2"), &["h"])], &["r1"]));
    assert_eq!(
        outputs,
        ["#1 present 1 2", "read", "send Full m"],
        "the end of the former one is not its end"
    );
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Full>("o", &[], &["r2"]));
    assert_eq!(outputs[0], "#1 absent NOT_FOUND");
}
