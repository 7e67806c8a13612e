//! Bytes of a server as each type of resource: they are accepted or rejected, and nothing else happens.
//!
//! The first byte picks the type and what the context knows; the others are the message.

#![no_main]

use std::{collections::BTreeSet, fmt::Debug, sync::LazyLock};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use xdskit::resource::{
    Cluster, ClusterLoadAssignment, Context, Extension, Invalid, Listener, Payload, Registry, Resource,
    RouteConfiguration, Runtime, ScopedRouteConfiguration, Secret, VirtualHost,
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, message)) = input.split_first() else { return };
    let cx = Context::new().with_trusted_server(first & 0x80 != 0);
    let cx = match first & 0x40 {
        0 => cx.with_certificate_providers(&PROVIDERS).with_registry(&REGISTRY),
        _ => cx,
    };
    if let Some(check) = CHECKS.get(usize::from(first & 0x3f)) {
        check(Bytes::copy_from_slice(message), &cx);
    }
});

/// What holds for every type.
fn check<T: Resource + Debug + PartialEq + Serialize>(message: Bytes, cx: &Context<'_>) {
    let name = T::name(&message).map(|name| name.into_owned());
    match T::parse(message.clone(), cx) {
        Ok(parsed) => {
            let again = T::parse(message, cx).expect("parsing depends on the message alone");
            let json = serde_json::to_string(&parsed).expect("every resource has a JSON form");
            assert_eq!(json, serde_json::to_string(&again).expect("as before"));
            assert_eq!(format!("{parsed:?}"), format!("{again:?}"));
            // The reader of names is stricter than the decoder about groups, and agrees otherwise.
            if let Ok(name) = name {
                let value: serde_json::Value = serde_json::from_str(&json).expect("just written");
                let written = value.get("name").or(value.get("cluster_name"));
                assert_eq!(written.and_then(|name| name.as_str()), Some(&*name));
            }
        }
        Err(invalid) => assert!(!invalid.reason().is_empty(), "{invalid} says nothing"),
    }
}

type Check = fn(Bytes, &Context<'_>);

/// Types are appended, so that the corpus keeps its meaning.
const CHECKS: &[Check] = &[
    check::<Cluster>,
    check::<ClusterLoadAssignment>,
    check::<Secret>,
    check::<Runtime>,
    check::<Listener>,
    check::<RouteConfiguration>,
    check::<VirtualHost>,
    check::<ScopedRouteConfiguration>,
];

static PROVIDERS: LazyLock<BTreeSet<String>> = LazyLock::new(|| ["ca", "id"].map(str::to_owned).into());
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new().with_lb_policy::<Anything>());

/// A policy of an application that accepts whatever comes.
#[derive(Debug, PartialEq, Serialize)]
struct Anything;

impl Extension for Anything {
    const TYPE_NAME: &'static str = "my.Policy";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}
