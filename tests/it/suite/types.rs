//! The resource types that are not part of a resolution, watched on a real connection: additions, changes, rejections
//! and removals.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use serde::Serialize;
use serde_json::{Value, json};
use xdskit::{
    Observed, Resource, ResourceSelector, WatchError,
    control_plane::AnyResource,
    error::Code,
    pb::{
        envoy::{
            config::{
                core::v3::{DataSource, data_source::Specifier},
                route::v3::{
                    self as route,
                    scoped_route_configuration::{Key, key::Fragment, key::fragment},
                },
            },
            extensions::transport_sockets::tls::v3 as tls,
            service::runtime::v3 as runtime,
        },
        google::protobuf as google,
    },
    resource::{Runtime, ScopedRouteConfiguration, Secret, VirtualHost},
    testing::TestControlPlane,
};

use crate::common::soon;

/// Versions of one resource: two good ones with their JSON, and an invalid one with the reason.
struct Versions {
    good: [(AnyResource, Value); 2],
    bad: (AnyResource, &'static str),
}

fn json_of<T: Resource + Serialize>(seen: &Observed<T>) -> Option<Value> {
    seen.resource().map(|resource| serde_json::to_value(&**resource).unwrap())
}

/// Watches a resource by its name and by the wildcard while it is added, changed, rejected and removed.
async fn follow<T: Resource + Serialize>(transport: Transport, versions: Versions) {
    let Versions { good: [(first, first_json), (second, second_json)], bad: (bad, reason) } = versions;
    let server = TestControlPlane::start().await;
    server.set(first.clone());
    let client = transport.builder_of(&server).build().unwrap();
    let mut watch = client.watch::<T>(first.name());
    let mut all = client.watch_all::<T>(ResourceSelector::All);
    let seen = soon(watch.next()).await.unwrap();
    assert_eq!(json_of(&seen).as_ref(), Some(&first_json));
    let members = soon(all.wait_for(|members| members.is_complete())).await.unwrap();
    let named: Vec<_> = members.iter().map(|(name, seen)| (name.to_owned(), json_of(seen))).collect();
    assert_eq!(named, [(first.name().into(), Some(first_json))]);

    server.set(second);
    let seen = soon(watch.next()).await.unwrap();
    assert_eq!(json_of(&seen).as_ref(), Some(&second_json));

    server.set(bad);
    let seen = soon(watch.next()).await.unwrap();
    assert_eq!(json_of(&seen).as_ref(), Some(&second_json), "the last good one stays");
    let error = seen.error().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.to_string().contains(reason), "{error}");

    server.remove(T::TYPE_URL, first.name());
    if transport.api_type().is_delta() {
        let seen = soon(watch.wait_for(|seen| seen.is_absent())).await.unwrap();
        assert!(seen.error().is_some_and(WatchError::is_not_found), "{seen:?}");
    }
    server.set(first);
    soon(watch.wait_for(|seen| seen.error().is_none() && seen.resource().is_some())).await.unwrap();
}

#[apply(every_transport)]
async fn secrets_are_watched(transport: Transport) {
    let generic = |text: &str| {
        let secret = Some(inline(text));
        secret_of(tls::secret::Type::GenericSecret(tls::GenericSecret { secret, ..Default::default() }))
    };
    let file = DataSource { specifier: Some(Specifier::Filename("/key".into())), ..Default::default() };
    let file = tls::GenericSecret { secret: Some(file), ..Default::default() };
    follow::<Secret>(
        transport,
        Versions {
            good: [
                (generic("one"), json!({"name": "s", "generic_secret": {"inline": "[hidden]"}})),
                (
                    secret_of(tls::secret::Type::GenericSecret(file)),
                    json!({"name": "s", "generic_secret": {"filename": "/key"}}),
                ),
            ],
            bad: (
                secret_of(tls::secret::Type::TlsCertificate(tls::TlsCertificate::default())),
                "tls_certificate.certificate_chain: must be set",
            ),
        },
    )
    .await;
}

#[apply(every_transport)]
async fn runtimes_are_watched(transport: Transport) {
    let layer = |limit: f64| {
        let kind = Some(google::value::Kind::NumberValue(limit));
        let fields = [("shop.limit".to_owned(), google::Value { kind })].into();
        let layer = Some(google::Struct { fields });
        (
            AnyResource::from(runtime::Runtime { name: "rt".into(), layer }),
            json!({"name": "rt", "layer": {"shop.limit": limit as u64}}),
        )
    };
    let unnamed = runtime::Runtime::default();
    // In a wrapper, since the message has no name.
    let unnamed = AnyResource::from(unnamed).with_name("rt");
    follow::<Runtime>(
        transport,
        Versions { good: [layer(1.0), layer(2.0)], bad: (unnamed, "name: must not be empty") },
    )
    .await;
}

#[apply(every_transport)]
async fn scoped_route_configurations_are_watched(transport: Transport) {
    let scope = |fragments: &[&str], routes: &str| {
        let fragment = |text: &&str| Fragment { r#type: Some(fragment::Type::StringKey((*text).into())) };
        AnyResource::from(route::ScopedRouteConfiguration {
            name: "scope".into(),
            route_configuration_name: routes.into(),
            key: Some(Key { fragments: fragments.iter().map(fragment).collect() }),
            ..Default::default()
        })
    };
    let expected = |routes: &str| json!({"name": "scope", "key": ["vip", "eu"], "route_config_name": routes, "on_demand": false});
    follow::<ScopedRouteConfiguration>(
        transport,
        Versions {
            good: [
                (scope(&["vip", "eu"], "old"), expected("old")),
                (scope(&["vip", "eu"], "new"), expected("new")),
            ],
            bad: (scope(&[], "new"), "key.fragments: must not be empty"),
        },
    )
    .await;
}

#[apply(every_transport)]
async fn virtual_hosts_are_watched(transport: Transport) {
    if !transport.has_virtual_hosts().await {
        return;
    }
    let host = |domains: &[&str]| {
        AnyResource::from(route::VirtualHost {
            name: "routes/shop".into(),
            domains: domains.iter().map(|&domain| domain.into()).collect(),
            ..Default::default()
        })
    };
    let good = |domain: &str| {
        let value = serde_json::to_value(parse_host(&host(&[domain]))).unwrap();
        assert_eq!(value["domains"], json!([domain]));
        (host(&[domain]), value)
    };
    follow::<VirtualHost>(
        transport,
        Versions { good: [good("shop"), good("*.shop")], bad: (host(&[]), "domains: must not be empty") },
    )
    .await;
}

fn parse_host(from: &AnyResource) -> VirtualHost {
    VirtualHost::parse(from.bytes(), &xdskit::resource::Context::new()).unwrap()
}

fn inline(text: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineString(text.into())), ..Default::default() }
}

fn secret_of(kind: tls::secret::Type) -> AnyResource {
    AnyResource::from(tls::Secret { name: "s".into(), r#type: Some(kind) })
}

#[apply(every_transport)]
async fn no_private_key_is_shown_anywhere(transport: Transport) {
    let key = || Some(inline("PRIVATE"));
    let kinds = [
        tls::secret::Type::TlsCertificate(tls::TlsCertificate {
            certificate_chain: Some(inline("PUBLIC")),
            private_key: key(),
            password: key(),
            ..Default::default()
        }),
        tls::secret::Type::TlsCertificate(tls::TlsCertificate { pkcs12: key(), ..Default::default() }),
        tls::secret::Type::SessionTicketKeys(tls::TlsSessionTicketKeys { keys: key().into_iter().collect() }),
        tls::secret::Type::GenericSecret(tls::GenericSecret { secret: key(), ..Default::default() }),
        // Rejected since there is no certificate.
        tls::secret::Type::TlsCertificate(tls::TlsCertificate { private_key: key(), ..Default::default() }),
    ];
    for kind in kinds {
        let server = TestControlPlane::start().await;
        let resource = secret_of(kind);
        server.set(resource.clone());
        let client = transport.builder_of(&server).build().unwrap();
        let mut watch = client.watch::<Secret>("s");
        let seen = soon(watch.next()).await.unwrap();
        assert!(seen.resource().is_some() || seen.error().is_some_and(|e| e.code() == Code::InvalidArgument));
        let status = client.status().await;
        assert!(status.resources.iter().any(|shown| &*shown.name == "s" && shown.bytes.is_none()));
        let json = serde_json::to_string(&json_of(&seen)).unwrap();
        let rest = [format!("{seen:?}"), format!("{status:?}"), status.to_string(), format!("{resource:?}")];
        for shown in rest.iter().chain([&json]) {
            assert!(!shown.contains("PRIVATE") && !shown.contains("80, 82, 73"), "{shown}");
        }
    }
}
