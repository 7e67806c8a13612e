//! The HTTP filters of a listener.

use prost::Message;
use tonic::Code;
use xdskit::{
    control_plane::type_url,
    pb::{
        envoy::{
            config::{core::v3::TypedExtensionConfig, listener::v3::ApiListener},
            extensions::{
                filters::{
                    http::{
                        fault::v3::HttpFault, gcp_authn::v3::GcpAuthnFilterConfig,
                        stateful_session::v3::StatefulSession,
                    },
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
    assert_eq!(log.text(), "");
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

/// A filter that is not executed.
fn authn() -> HttpFilter {
    filter("my-authn", AUTHN, &GcpAuthnFilterConfig::default())
}

#[tokio::test]
async fn ch5_1_a_filter_that_is_not_executed_is_a_warning_once() {
    let (log, _guard) = Log::start("xdskit=warn");
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    for (backend, name) in [(&one, "one"), (&two, "two")] {
        mesh.server
            .set(shop(|filters| filters.insert(0, HttpFilter { is_optional: name == "one", ..authn() })));
        // They come after the listener.
        mesh.server.set(cart(&[backend]));
        mesh.until(|seen| seen.unwrap() == name).await;
    }
    assert_eq!(log.text().matches("filter=my-authn").count(), 1, "{}", log.text());
}

#[tokio::test]
async fn ch5_1_filters_that_are_executed_or_disabled_are_no_warning() {
    let (log, _guard) = Log::start("xdskit=warn");
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let fault = fault("fault", &HttpFault::default());
    let disabled = HttpFilter { disabled: true, ..authn() };
    mesh.server.set(shop(|filters| drop(filters.splice(0..0, [fault, session("a"), disabled]))));
    mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(log.text(), "");
}
