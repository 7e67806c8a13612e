//! List collections: rules X12 to X14.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Rig, any, wrapped};
use crate::{
    base::WatchId,
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    pb::{
        envoy::{
            config::cluster::v3::ClusterCollection,
            service::discovery::v3::{DiscoveryResponse, Resource as Wrapper},
        },
        google::protobuf::Any,
        xds::core::v3::{
            CollectionEntry, ContextParams, ResourceLocator,
            collection_entry::{InlineEntry, ResourceSpecifier},
            resource_locator::ContextParamSpecifier,
        },
    },
    protocol::DisconnectKind,
};

const LIST: &str = "xdstp://a/test.FullCollection/shop";

fn rig() -> Rig {
    let server = Server::new("127.0.0.1:1").insecure();
    let bootstrap = Bootstrap::builder().server(server).authority("a", AuthorityBuilder::default());
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// Watches the members of the list, and lets the request go.
fn open() -> (Rig, WatchId) {
    let mut rig = rig();
    let (watch_id, outputs) = rig.watch_all::<Full>(LIST);
    assert_eq!(outputs, ["connect 0.1"]);
    assert_eq!(rig.connect(1)[1], format!("send FullCollection [{LIST}] / node"));
    rig.sent(1);
    (rig, watch_id)
}

fn inline(name: &str, text: &str) -> CollectionEntry {
    let resource = Some(any::<Full>(name, text));
    let entry = InlineEntry { name: name.into(), version: "i".into(), resource };
    CollectionEntry { resource_specifier: Some(ResourceSpecifier::InlineEntry(entry)) }
}

fn locator(id: &str) -> CollectionEntry {
    located(id, &[])
}

/// A locator with context parameters.
fn located(id: &str, params: &[(&str, &str)]) -> CollectionEntry {
    let (authority, resource_type, id) = ("a".into(), "test.Full".into(), id.into());
    let params = params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let context_param_specifier = Some(ContextParamSpecifier::ExactContext(ContextParams { params }));
    let locator = ResourceLocator {
        authority,
        resource_type,
        id,
        context_param_specifier,
        ..ResourceLocator::default()
    };
    CollectionEntry { resource_specifier: Some(ResourceSpecifier::Locator(locator)) }
}

/// The list with locators that are texts.
fn list_of_texts(version: &str, texts: &[&str]) -> DiscoveryResponse {
    let field = |value: &[u8]| {
        let mut bytes = vec![0x0a];
        prost::encoding::encode_varint(value.len() as u64, &mut bytes);
        bytes.extend(value);
        bytes
    };
    let value: Vec<u8> = texts.iter().flat_map(|text| field(&field(text.as_bytes()))).collect();
    let list = Any { type_url: "type.googleapis.com/test.FullCollection".into(), value: value.into() };
    of_type("test.FullCollection", version, LIST, Some(list))
}

fn of_type(ty: &str, version: &str, name: &str, resource: Option<Any>) -> DiscoveryResponse {
    let wrapper = Wrapper { name: name.into(), resource, ..Wrapper::default() };
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".into();
    DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("n{version}"),
        type_url: format!("type.googleapis.com/{ty}"),
        resources: vec![Any { type_url, value: wrapper.encode_to_vec().into() }],
        ..DiscoveryResponse::default()
    }
}

fn list_named(version: &str, name: &str, entries: Vec<CollectionEntry>) -> DiscoveryResponse {
    // All collections look alike on the wire.
    let value = ClusterCollection { entries }.encode_to_vec().into();
    let list = Any { type_url: "type.googleapis.com/test.FullCollection".into(), value };
    of_type("test.FullCollection", version, name, Some(list))
}

fn list(version: &str, entries: Vec<CollectionEntry>) -> DiscoveryResponse {
    list_named(version, LIST, entries)
}

/// A response comes, and all is written that is to be written then: what is published.
fn receive(rig: &mut Rig, response: &DiscoveryResponse) -> Vec<String> {
    let mut outputs = rig.receive(1, response);
    for _ in 0..4 {
        outputs.extend(rig.pass(Duration::from_millis(20)));
        outputs.extend(rig.sent(1));
    }
    outputs.retain(|outputs| outputs.starts_with('#'));
    outputs.iter().map(|outputs| outputs.replace(LIST, "LIST").replace("xdstp://a/test.Full/", "")).collect()
}

/// Requested members arrive.
fn members(rig: &mut Rig, version: &str, members: &[(&str, &str)]) -> Vec<String> {
    let resources = members
        .iter()
        .map(|(name, text)| wrapped::<Full>(&format!("xdstp://a/test.Full/{name}"), Some(text)));
    receive(rig, &super::rig::response::<Full>(version, resources.collect()))
}

#[test]
fn x12_a_list_is_fetched_and_then_its_members_by_their_locators() {
    let (mut rig, _) = open();
    let outputs = rig.receive(1, &list("1", vec![locator("x"), locator("y")]));
    assert_eq!(outputs, ["read", &format!("send FullCollection [{LIST}] 1/n1")]);
    let outputs = rig.sent(1);
    let names = "xdstp://a/test.Full/x,xdstp://a/test.Full/y";
    assert_eq!(outputs, [format!("send Full [{names}] /")]);
    rig.sent(1);
    let outputs = members(&mut rig, "1", &[("x", "1"), ("y", "bad")]);
    assert_eq!(outputs.last().unwrap(), "#1 {x: present 1 1, y: absent INVALID_ARGUMENT} complete");
}

#[test]
fn x12_a_locator_may_be_an_old_style_name() {
    let (mut rig, _) = open();
    rig.receive(1, &list_of_texts("1", &["old|80", "xdstp://a/test.Full/x"]));
    assert_eq!(rig.sent(1), ["send Full [old|80,xdstp://a/test.Full/x] /"]);
    rig.sent(1);
    let old = any::<Full>("old|80", "1");
    let x = wrapped::<Full>("xdstp://a/test.Full/x", Some("2"));
    let outputs = receive(&mut rig, &super::rig::response::<Full>("1", vec![old, x]));
    assert_eq!(outputs.last().unwrap(), "#1 {old|80: present 1 1, x: present 1 2} complete");
}

#[test]
fn x12_members_are_requested_as_they_are_located_without_the_context_parameters_of_the_list() {
    let mut rig = rig();
    let name = format!("{LIST}?zone=z&env=e");
    rig.watch_all::<Full>(&name);
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &list_named("1", &name, vec![locator("x"), located("y", &[("zone", "other")])]));
    let names = "xdstp://a/test.Full/x,xdstp://a/test.Full/y?zone=other";
    assert_eq!(rig.sent(1), [format!("send Full [{names}] /")]);
    rig.sent(1);
    let outputs = members(&mut rig, "1", &[("x", "1"), ("y?zone=other", "2")]);
    assert_eq!(outputs.last().unwrap(), "#1 {x: present 1 1, y?zone=other: present 1 2} complete");
}

#[test]
fn x8_a_list_with_context_parameters_of_the_client_in_a_locator_is_rejected() {
    let (mut rig, _) = open();
    let outputs = rig.receive(1, &list("1", vec![locator("x"), located("y", &[("xds.node.id", "n")])]));
    let reason =
        "entries[1].locator: resource name \"xdstp://a/test.Full/y?xds.node.id=n\": context parameters";
    assert!(outputs.iter().any(|outputs| outputs.contains(reason)), "{outputs:?}");
}

#[test]
fn x12_a_list_is_complete_when_all_of_its_members_are_known() {
    let (mut rig, _) = open();
    let outputs = receive(&mut rig, &list("1", vec![inline("i", "1"), locator("x"), locator("y")]));
    assert_eq!(outputs, ["#1 {LIST#entry=i: present i 1} incomplete"]);
    let outputs = members(&mut rig, "1", &[("x", "2")]);
    assert_eq!(outputs.last().unwrap(), "#1 {x: present 1 2, LIST#entry=i: present i 1} incomplete");
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(
        outputs.last().unwrap().ends_with("complete") && !outputs.last().unwrap().contains("incomplete"),
        "{outputs:?}"
    );
    assert!(outputs.last().unwrap().contains("test.Full/y: absent NOT_FOUND"), "{outputs:?}");
}

#[test]
fn x13_inline_entries_are_members_by_their_name_or_place() {
    let (mut rig, _) = open();
    let entries = vec![inline("i", "1"), inline("", "2"), inline("", "3")];
    let outputs = receive(&mut rig, &list("1", entries));
    assert_eq!(
        outputs,
        ["#1 {LIST#1: present i 2, LIST#2: present i 3, LIST#entry=i: present i 1} complete"]
    );
    assert_eq!(rig.engine.resources(), 1, "only the list is at a server");
}

#[test]
fn x13_a_list_with_an_entry_that_is_wrong_is_rejected_and_the_last_good_one_stays() {
    let (mut rig, _) = open();
    receive(&mut rig, &list("1", vec![inline("i", "1")]));
    let outputs = rig.receive(1, &list("2", vec![inline("i", "1"), inline("j", "bad")]));
    assert!(
        outputs.iter().any(|outputs| outputs.contains("entries[1].inline_entry.resource.text: it is bad")),
        "{outputs:?}"
    );
    let outputs: Vec<_> = outputs.into_iter().filter(|outputs| outputs.starts_with('#')).collect();
    assert_eq!(outputs.len(), 1);
    assert!(
        outputs[0].contains("present i 1 (INVALID_ARGUMENT)")
            && outputs[0].ends_with("complete (INVALID_ARGUMENT)")
    );
}

#[test]
fn x13_one_entry_is_watched_by_its_name() {
    let mut rig = rig();
    rig.watch::<Full>(&format!("{LIST}#entry=i"));
    rig.watch::<Full>(&format!("{LIST}#entry=j"));
    assert_eq!(rig.connect(1)[1], format!("send FullCollection [{LIST}] / node"));
    rig.sent(1);
    let outputs = receive(&mut rig, &list("1", vec![inline("i", "1"), inline("k", "2")]));
    assert_eq!(outputs, ["#1 present i 1", "#2 absent NOT_FOUND"]);
    let outputs = receive(&mut rig, &list("2", vec![inline("i", "3"), inline("j", "4")]));
    assert_eq!(outputs, ["#1 present i 3", "#2 present i 4"]);
    assert_eq!(rig.watch_all::<Full>(LIST).1.len(), 1, "the list is known");
}

#[test]
fn x14_a_removed_list_entry_is_unsubscribed_and_nothing_else_changes() {
    let (mut rig, watch_id) = open();
    receive(&mut rig, &list("1", vec![locator("x"), locator("y"), inline("i", "1")]));
    members(&mut rig, "1", &[("x", "1"), ("y", "2")]);
    assert_eq!(rig.engine.resources(), 3);
    let outputs = receive(&mut rig, &list("2", vec![locator("y"), inline("i", "1"), inline("j", "2")]));
    assert_eq!(
        outputs,
        ["#1 {y: present 1 2, LIST#entry=i: present i 1, LIST#entry=j: present i 2} complete"]
    );
    assert_eq!(rig.engine.resources(), 2);
    assert_eq!(receive(&mut rig, &list("3", vec![])), ["#1 {} complete"]);
    assert_eq!(rig.engine.resources(), 1);
    rig.unwatch(watch_id);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn x14_a_list_that_does_not_exist_is_complete_and_empty_with_the_reason() {
    let (mut rig, _) = open();
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 {} complete (NOT_FOUND)"]);
    let outputs = receive(&mut rig, &list("1", vec![inline("i", "1")]));
    assert_eq!(outputs, ["#1 {LIST#entry=i: present i 1} complete"]);
}

#[test]
fn x14_an_unreachable_server_is_a_warning() {
    let (mut rig, _) = open();
    assert!(rig.disconnect(1, DisconnectKind::Closed).contains(&"#1 {} incomplete (UNAVAILABLE)".to_owned()));
}

#[test]
fn x12_names_of_lists_go_to_watch_all_and_of_other_types_nowhere() {
    let mut rig = rig();
    assert_eq!(rig.watch::<Full>(LIST).1, ["#1 absent INVALID_ARGUMENT"]);
    for name in
        ["xdstp://a/test.PartCollection/x", "xdstp://a/test.FullCollection/*", &format!("{LIST}#entry=i")]
    {
        let outputs = rig.watch_all::<Full>(name).1;
        assert!(outputs[0].ends_with("{} incomplete (INVALID_ARGUMENT)"), "{name}: {outputs:?}");
    }
    let outputs = rig.watch_all::<super::rig::Part>("xdstp://a/test.PartCollection/x").1;
    assert!(outputs[0].ends_with("{} incomplete (INVALID_ARGUMENT)"), "{outputs:?}");
    assert!(rig.watch::<Full>("xdstp://a/test.Full/x#entry=i").1[0].ends_with("absent INVALID_ARGUMENT"));
}

/// The outputs of a list with a glob, `xdstp://a/test.Full/g/*`, and other entries.
fn with_glob(others: &[CollectionEntry]) -> (Rig, WatchId) {
    let (mut rig, watch_id) = open();
    let entries = [locator("g/*")].iter().chain(others).cloned().collect();
    rig.receive(1, &list("1", entries));
    rig.sent(1);
    rig.sent(1);
    (rig, watch_id)
}

#[test]
fn x12_members_of_a_glob_in_a_list_are_members_of_the_list() {
    let (mut rig, watch_id) = open();
    rig.receive(1, &list("1", vec![locator("g/*"), locator("x"), inline("i", "1")]));
    assert_eq!(rig.sent(1), ["send Full [xdstp://a/test.Full/g/*,xdstp://a/test.Full/x] /"]);
    rig.sent(1);
    let outputs = members(&mut rig, "1", &[("g/a", "1"), ("g/b", "2")]);
    let inline = "LIST#entry=i: present i 1";
    assert_eq!(outputs, [format!("#1 {{g/a: present 1 1, g/b: present 1 2, {inline}}} incomplete")]);
    let outputs = members(&mut rig, "2", &[("g/a", "1"), ("g/b", "3"), ("x", "4")]);
    let expected = format!("#1 {{g/a: present 1 1, g/b: present 2 3, x: present 2 4, {inline}}} complete");
    assert_eq!(outputs.last(), Some(&expected));
    let outputs = members(&mut rig, "3", &[("g/c", "5"), ("x", "4")]);
    let expected = format!("#1 {{g/c: present 3 5, x: present 2 4, {inline}}} complete");
    assert_eq!(outputs.last(), Some(&expected));
    rig.unwatch(watch_id);
    for _ in 0..3 {
        rig.pass(Duration::from_millis(500));
        rig.sent(1);
    }
    assert_eq!((rig.engine.resources(), rig.engine.delivery.has_watches()), (0, false));
}

#[test]
fn x12_a_glob_that_is_empty_or_unreachable_is_known_and_a_warning_of_the_list() {
    let (mut rig, _) = with_glob(&[locator("x")]);
    members(&mut rig, "1", &[("x", "1")]);
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.last().unwrap().ends_with("x: present 1 1} complete (NOT_FOUND)"), "{outputs:?}");
    let outputs = members(&mut rig, "2", &[("g/a", "2"), ("x", "1")]);
    assert_eq!(outputs.last().unwrap(), "#1 {g/a: present 2 2, x: present 1 1} complete");
    let outputs = rig.disconnect(1, DisconnectKind::Closed);
    assert!(outputs.iter().all(|output| !output.contains("incomplete")), "{outputs:?}");
}

#[test]
fn x14_a_glob_leaves_a_list_with_its_members_but_those_that_are_listed() {
    let (mut rig, _) = with_glob(&[locator("g/a")]);
    let outputs = members(&mut rig, "1", &[("g/a", "1"), ("g/b", "2")]);
    let both = "#1 {g/a: present 1 1, g/b: present 1 2} complete";
    assert_eq!(outputs.last().unwrap(), both);
    // The list does not name it any more, and the glob has it.
    let outputs = receive(&mut rig, &list("2", vec![locator("g/*")]));
    assert!(outputs.iter().all(|output| output == both), "{outputs:?}");
    receive(&mut rig, &list("3", vec![locator("g/*"), locator("g/a")]));
    members(&mut rig, "2", &[("g/a", "1"), ("g/b", "2")]);
    let outputs = receive(&mut rig, &list("4", vec![locator("g/a")]));
    assert_eq!(outputs, ["#1 {g/a: present 1 1} complete"]);
    assert_eq!(rig.engine.resources(), 2, "the list and its member");
}

#[test]
fn x12_a_member_of_two_globs_leaves_with_the_second() {
    let unknown = |name: &str| format!("xdstp://{name}/test.Full/*#alt=xdstp://a/test.Full/g/*");
    let (b, c) = (unknown("b"), unknown("c"));
    let (mut rig, _) = open();
    rig.receive(1, &list_of_texts("1", &[&b, &c]));
    rig.sent(1);
    rig.sent(1);
    let outputs = members(&mut rig, "1", &[("g/a", "1")]);
    assert_eq!(outputs.last().unwrap(), "#1 {g/a: present 1 1} complete");
    assert!(receive(&mut rig, &list_of_texts("2", &[&b])).is_empty(), "nothing has changed");
    let outputs = members(&mut rig, "2", &[("g/a", "2")]);
    assert_eq!(outputs, ["#1 {g/a: present 2 2} complete"]);
    assert_eq!(receive(&mut rig, &list_of_texts("3", &[])), ["#1 {} complete"]);
}

#[test]
fn x12_members_of_many_globs_are_published_together() {
    let globs: Vec<_> = (0..200).map(|glob| format!("g{glob}/*")).collect();
    let (mut rig, _) = open();
    rig.receive(1, &list("1", globs.iter().map(|glob| locator(glob)).collect()));
    rig.sent(1);
    rig.sent(1);
    let names: Vec<_> = (0..200).map(|glob| format!("g{glob}/a")).collect();
    let all = |text: &'static str| names.iter().map(|name| (name.as_str(), text)).collect::<Vec<_>>();
    let outputs = members(&mut rig, "1", &all("1"));
    assert!(outputs.last().unwrap().ends_with("complete") && outputs.len() <= 2, "{}", outputs.len());
    let outputs = members(&mut rig, "2", &all("2"));
    assert_eq!(outputs.last().unwrap().matches("present 2 2").count(), 200);
}
