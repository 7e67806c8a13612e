//! Redirects, aliases and errors.

use prost::Message;

use super::*;
use crate::control_plane::type_url::VIRTUAL_HOST;
use crate::pb::xds::core::v3::{
    ContextParams, ResourceLocator,
    resource_locator::{ContextParamSpecifier, Directive, directive},
};

fn set(pair: &mut Pair, resource: AnyResource) {
    pair.store.update(|tx| {
        tx.set(resource);
    });
}

fn fail(pair: &mut Pair, type_url: &str, name: &str, code: i32) {
    pair.store.update(|tx| {
        tx.set_error(type_url, name, code, "because");
    });
}

#[test]
fn x20_a_redirect_holds_a_locator_in_place_of_the_resource() {
    let mut pair = Pair::default();
    let target = "xdstp://other/T/b/c?x=1#entry=e";
    set(&mut pair, AnyResource::redirect(EDS, "xdstp://auth/T/a", target).unwrap());
    pair.change(EDS, &["xdstp://auth/T/a"], &[]);
    let response = pair.poll().unwrap();
    let any = response.resources[0].resource.clone().unwrap();
    assert_eq!(any.type_url, "type.googleapis.com/xds.core.v3.ResourceLocator");
    let entry = Directive { directive: Some(directive::Directive::Entry("e".into())) };
    let params = ContextParams { params: [("x".into(), "1".into())].into() };
    let expected = ResourceLocator {
        id: "b/c".into(),
        authority: "other".into(),
        resource_type: "T".into(),
        context_param_specifier: Some(ContextParamSpecifier::ExactContext(params)),
        directives: vec![entry],
        ..ResourceLocator::default()
    };
    assert_eq!(ResourceLocator::decode(any.value), Ok(expected));
    AnyResource::redirect(EDS, "xdstp://auth/T/a", "opaque").unwrap_err();
    AnyResource::redirect(EDS, "xdstp://auth/T/a", "xdstp://auth/T/b#alt=opaque").unwrap_err();
    AnyResource::redirect(EDS, "xdstp://auth/T/a", "xdstp://auth").unwrap_err();
}

#[test]
fn b2_19_a_resource_is_known_by_its_aliases_too() {
    let mut pair = Pair::default();
    let aliased = |text: &'static str| AnyResource::new(EDS, "a", text).with_aliases(["x", "y"]);
    set(&mut pair, aliased("1"));
    pair.change(EDS, &["x", "z"], &[]);
    let response = pair.poll().unwrap();
    assert_eq!(text(&response), "ClusterLoadAssignment 1: a@1=1 -z");
    assert_eq!(response.resources[0].aliases, ["x", "y"]);
    pair.answer(EDS, None);
    set(&mut pair, aliased("2"));
    assert_eq!(pair.settle(), ["ClusterLoadAssignment 2: a@2=2"]);
    assert_eq!(pair.exchange(EDS, &["a", "y"], &[]), ["ClusterLoadAssignment 2: a@2=2"], "once");
    pair.change(EDS, &[], &["a", "y"]);
    pair.remove(EDS, "a");
    assert_eq!(pair.settle(), ["ClusterLoadAssignment 3: -a"]);
}

#[test]
fn b2_18_a_virtual_host_that_is_not_found_is_an_alias_without_a_resource() {
    let mut pair = Pair::default();
    let host = AnyResource::new(VIRTUAL_HOST, "routes/shop", "1").with_aliases(["routes/a.shop"]);
    pair.change(VIRTUAL_HOST, &["routes/a.shop", "routes/b.shop"], &[]);
    let response = pair.poll().unwrap();
    assert!(response.removed_resources.is_empty());
    let names = response.resources.iter().map(|resource| (resource.name.as_str(), &resource.aliases[..]));
    let unknown = ["routes/a.shop", "routes/b.shop"].map(|name| (name, [name.to_owned()]));
    assert!(names.eq(unknown.iter().map(|(name, aliases)| (*name, &aliases[..]))));
    assert!(response.resources.iter().all(|it| it.resource.is_none() && it.version.is_empty()));
    pair.answer(VIRTUAL_HOST, None);

    set(&mut pair, host);
    let response = pair.poll().unwrap();
    assert_eq!(text(&response), "VirtualHost 1: routes/shop@1=1");
    assert_eq!(response.resources[0].aliases, ["routes/a.shop"]);
    pair.answer(VIRTUAL_HOST, None);
    pair.remove(VIRTUAL_HOST, "routes/shop");
    assert_eq!(pair.settle(), ["VirtualHost 2: -routes/shop"], "what was known is removed by its name");
}

#[test]
fn b2_18_a_virtual_host_that_the_client_holds_and_is_gone_is_removed() {
    let mut pair = Pair::default();
    let held = [("routes/shop", "1")];
    assert_eq!(pair.reconnect(VIRTUAL_HOST, &["routes/shop"], &held), ["VirtualHost 0: -routes/shop"]);
}

#[test]
fn b2_15_an_error_is_sent_in_place_of_a_resource() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    fail(&mut pair, CDS, "b", 7);
    assert_eq!(pair.exchange(CDS, &["a", "b"], &[]), ["Cluster 2: a@1=a1 !b=7"]);
    fail(&mut pair, CDS, "b", 7);
    assert_eq!(pair.settle(), nothing(), "it is sent once");
    fail(&mut pair, CDS, "b", 14);
    assert_eq!(pair.settle(), ["Cluster 3: !b=14"]);
    fail(&mut pair, CDS, "a", 5);
    pair.set(&[(CDS, "b", "b1")]);
    assert_eq!(pair.settle(), ["Cluster 5: b@5=b1 !a=5"]);
    pair.remove(CDS, "a");
    assert_eq!(pair.settle(), ["Cluster 6: -a"]);
}

#[test]
fn b6_an_error_may_be_that_of_a_glob_or_a_member_but_not_of_the_wildcard() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    let (glob, member) = ("xdstp://auth/T/*", "xdstp://auth/T/m");
    fail(&mut pair, CDS, glob, 7);
    assert_eq!(pair.exchange(CDS, &[glob], &[]), [format!("Cluster 2: !{glob}=7")]);
    fail(&mut pair, CDS, member, 5);
    assert_eq!(pair.settle(), [format!("Cluster 3: !{member}=5")]);
    assert_eq!(pair.exchange(CDS, &["*"], &[glob]), [format!("Cluster 3: a@1=a1 -{glob}")]);
    fail(&mut pair, CDS, "a", 5);
    assert_eq!(pair.settle(), ["Cluster 4: -a"]);
}

#[test]
fn a_nack_is_reported_with_its_reason() {
    let mut pair = Pair::default();
    fail(&mut pair, CDS, "a", 7);
    pair.change(CDS, &["a"], &[]);
    let response = pair.poll().unwrap();
    assert_eq!(response.resource_errors[0].error_detail.as_ref().unwrap().message, "because");
}
