//! The HTTP filters of a listener.

use std::sync::Arc;

use prost::Message;
use serde::Serialize;
use tonic::{Code, codegen::http};
use xdskit::{
    control_plane::type_url,
    pb::{
        envoy::{
            config::{core::v3::TypedExtensionConfig, listener::v3::ApiListener},
            extensions::{
                filters::{
                    http::{fault::v3::HttpFault, gcp_authn, stateful_session::v3::StatefulSession},
                    network::http_connection_manager::v3::{
                        HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                    },
                },
                http::stateful_session::cookie::v3::CookieBasedSessionState,
            },
            r#type::http::v3::Cookie,
        },
        google::protobuf::Any,
    },
    resource::{
        Context, Extension, Invalid, Payload, Registry,
        http_filter::{
            CallFilter, ClientFilter, FilterBody, FilterError, FilterFuture, HttpFilterExtension, Next, Sides,
        },
    },
    testing::resources::ListenerBuilder,
};

use super::*;
use crate::tracing::Log;

const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const AUTHN: &str = "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig";
const SESSION: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";

/// The listener with other filters, of which the last one is the router.
pub(super) fn shop(edit: impl FnOnce(&mut Vec<HttpFilter>)) -> ListenerBuilder {
    listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        edit(&mut manager.http_filters);
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    })
}

/// A filter that injects faults.
pub(super) fn fault(name: &str, fault: &HttpFault) -> HttpFilter {
    filter(name, FAULT, fault)
}

/// The configuration of such a filter, or its override.
pub(super) fn fault_config(fault: &HttpFault) -> Any {
    any(FAULT, fault)
}

fn any(type_name: &str, config: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: config.encode_to_vec().into() }
}

fn filter(name: &str, type_name: &str, config: &impl Message) -> HttpFilter {
    let config_type = Some(ConfigType::TypedConfig(any(type_name, config)));
    HttpFilter { name: name.to_owned(), config_type, ..HttpFilter::default() }
}

#[tokio::test]
async fn ch5_3_optional_filters_that_are_not_known_are_absent() {
    let (log, _guard) = Log::start("xdskit=warn");
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let unknown = HttpFilter { is_optional: true, ..filter("mine", "test.Unknown", &()) };
    mesh.server.set(shop(|filters| filters.insert(0, unknown)));
    mesh.call(ECHO, "hello").await.unwrap();
    let text = log.text();
    let part =
        "accepted without a part of it: http_filters[0]: filter type \"test.Unknown\" is not supported";
    assert!(text.lines().count() == 1 && text.contains(part), "{text}");
}

#[tokio::test]
async fn ch5_3_a_chain_without_a_router_at_its_end_is_rejected() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(shop(|filters| filters.clear()));
    let error = mesh.call(ECHO, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("Listener \"shop\": "), "{error:?}");
    mesh.server.set(listener("shop").rds("routes"));
    mesh.until(|seen| seen.is_ok()).await;
    // The last known good one stays in use.
    let last = fault("fault", &HttpFault::default());
    for filters in [vec![], vec![filter("mine", "test.Unknown", &())], vec![last]] {
        mesh.server.set(shop(|all| if filters.is_empty() { all.clear() } else { all.extend(filters) }));
        mesh.server.expect_nack(type_url::LISTENER).await.unwrap();
        assert_eq!(mesh.shares(10).await, BTreeMap::from([("one".to_owned(), 10)]));
    }
}

/// A filter that keeps sessions by a cookie.
pub(super) fn session(cookie: &str) -> HttpFilter {
    let cookie = Some(Cookie { name: cookie.to_owned(), ..Cookie::default() });
    let state = Some(any(COOKIE_STATE, &CookieBasedSessionState { cookie }));
    let state = TypedExtensionConfig { name: "cookie".to_owned(), typed_config: state };
    let config = StatefulSession { session_state: Some(state), ..StatefulSession::default() };
    filter("my-session", SESSION, &config)
}

fn authn() -> HttpFilter {
    filter("my-authn", AUTHN, &gcp_authn::v3::GcpAuthnFilterConfig::default())
}

#[tokio::test]
async fn ch5_1_a_filter_that_is_not_executed_is_a_warning_once() {
    let (log, _guard) = Log::start("xdskit=warn");
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = with_registry(&one, Registry::new().with_http_filter::<Mark>()).await;
    for (backend, name) in [(&one, "one"), (&two, "two")] {
        mesh.server.set(shop(|filters| filters.insert(0, mark(name))));
        // They come after the listener.
        mesh.server.set(cart(&[backend]));
        mesh.until(|seen| seen.unwrap() == name).await;
    }
    assert_eq!(log.text().matches("filter=mark").count(), 1, "{}", log.text());
}

#[tokio::test]
async fn ch5_1_filters_that_are_executed_or_disabled_are_no_warning() {
    let (log, _guard) = Log::start("xdskit=warn");
    let one = Backend::start("one").await;
    let mesh = with_registry(&one, Registry::new().with_http_filter::<Mark>()).await;
    let fault = fault("fault", &HttpFault::default());
    let disabled = HttpFilter { disabled: true, ..mark("all") };
    let filters = [fault, session("a"), authn(), disabled];
    mesh.server.set(shop(|all| drop(all.splice(0..0, filters))));
    mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(log.text(), "");
}

/// A filter of the application: it refuses calls, or marks their responses with a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Mark(String);

const MARK: &str = "test.Mark";

impl Extension for Mark {
    const TYPE_NAME: &'static str = MARK;

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let text = String::from_utf8_lossy(&payload.message()?).into_owned();
        if text.is_empty() { Err(Invalid::new("must not be empty")) } else { Ok(Self(text)) }
    }
}

impl HttpFilterExtension for Mark {
    const SIDES: Sides = Sides::Client;
    type Override = Self;
}

impl ClientFilter for Mark {
    type State = ();

    fn state(&self, _: &str) {}

    fn call_filter(&self, setting: Option<&Self>, _: &Arc<()>) -> Box<dyn CallFilter> {
        Box::new(setting.unwrap_or(self).clone())
    }
}

impl CallFilter for Mark {
    fn call<'a>(&'a self, request: http::Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
        Box::pin(async move {
            if self.0 == "refuse" {
                return Err(FilterError::new(xdskit::error::Code::PermissionDenied, "refused"));
            }
            let mut response = next.run(request).await;
            response.headers_mut().insert("x-mark", self.0.parse().unwrap());
            Ok(response)
        })
    }
}

fn mark(text: &'static str) -> HttpFilter {
    let config = Any { type_url: format!("type.googleapis.com/{MARK}"), value: text.as_bytes().into() };
    let config_type = Some(ConfigType::TypedConfig(config));
    HttpFilter { name: "mark".into(), config_type, ..HttpFilter::default() }
}

fn marked(response: &Response<Bytes>) -> String {
    response.metadata().get("x-mark").unwrap().to_str().unwrap().to_owned()
}

/// A mesh with a client that has these extensions.
async fn with_registry(backend: &Backend, registry: Registry) -> Mesh {
    let Mesh { server, .. } = Mesh::start(&[backend]).await;
    Mesh::with(server, |client| client.extensions(registry))
}

#[tokio::test]
async fn ch5_5_filters_of_the_application_are_executed_with_their_overrides() {
    let one = Backend::start("one").await;
    let mesh = with_registry(&one, Registry::new().with_client_filter::<Mark>()).await;
    mesh.server.set(shop(|filters| filters.insert(0, mark("all"))));
    let response = mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(marked(&response), "all");
    assert_eq!(&response.get_ref()[..], b"hello");
    for (text, expected) in [("own", Ok("own".to_owned())), ("refuse", Err(Code::PermissionDenied))] {
        let Some(ConfigType::TypedConfig(own)) = mark(text).config_type else { panic!("typed") };
        let route = route::prefix("").cluster("cart").edit(|route| {
            route.typed_per_filter_config.insert("mark".into(), own);
        });
        mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
        soon(async {
            loop {
                let seen = mesh.call(ECHO, "hello").await;
                if seen.map(|it| marked(&it)).map_err(|status| status.code()) == expected {
                    break;
                }
            }
        })
        .await;
    }
    // A configuration that cannot be parsed is rejected, and the last known good one stays.
    mesh.server.set(shop(|filters| filters.insert(0, mark(""))));
    mesh.server.expect_nack(type_url::LISTENER).await.unwrap();
    assert_eq!(mesh.call(ECHO, "hello").await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn ch5_5_filters_that_are_added_to_be_parsed_alone_are_a_warning() {
    let (log, _guard) = Log::start("xdskit=warn");
    let one = Backend::start("one").await;
    let mesh = with_registry(&one, Registry::new().with_http_filter::<Mark>()).await;
    mesh.server.set(shop(|filters| filters.insert(0, mark("refuse"))));
    mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(log.text().matches("filter=mark").count(), 1, "{}", log.text());
}

#[tokio::test]
async fn ch5_13_a_call_that_needs_a_token_fails_without_tls() {
    const AUDIENCE: &str = "envoy.extensions.filters.http.gcp_authn.v3.Audience";
    let (log, _guard) = Log::start("xdskit=warn");
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(shop(|filters| filters.insert(0, filter("authn", AUTHN, &()))));
    mesh.call(ECHO, "hello").await.unwrap();
    mesh.server.set(cluster("cart").edit(|cluster| {
        let url = gcp_authn::v3::Audience { url: "https://shop".into() };
        let metadata = cluster.metadata.get_or_insert_default();
        metadata.typed_filter_metadata.insert("authn".into(), any(AUDIENCE, &url));
    }));
    mesh.until(|seen| seen.as_ref().is_err_and(|status| status.code() == Code::Unauthenticated)).await;
    assert_eq!(log.text(), "");
}
