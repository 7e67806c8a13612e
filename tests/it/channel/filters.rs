//! The HTTP filters of a listener.

use prost::Message;
use tonic::Code;
use xdskit::{
    control_plane::type_url,
    pb::{
        envoy::{
            config::listener::v3::ApiListener,
            extensions::filters::{
                http::fault::v3::HttpFault,
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                },
            },
        },
        google::protobuf::{Any, UInt32Value},
    },
    testing::resources::ListenerBuilder,
};

use super::*;
use crate::tracing::Log;

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

fn filter(name: &str, type_name: &str, config: &impl Message) -> HttpFilter {
    let type_url = format!("type.googleapis.com/{type_name}");
    let config = Any { type_url, value: config.encode_to_vec().into() };
    let config_type = Some(ConfigType::TypedConfig(config));
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
    let last = filter("fault", "envoy.extensions.filters.http.fault.v3.HTTPFault", &HttpFault::default());
    for filters in [vec![], vec![filter("mine", "test.Unknown", &())], vec![last]] {
        mesh.server.set(shop(|all| if filters.is_empty() { all.clear() } else { all.extend(filters) }));
        mesh.server.expect_nack(type_url::LISTENER).await.unwrap();
        assert_eq!(mesh.shares(10).await, BTreeMap::from([("one".to_owned(), 10)]));
    }
}

#[tokio::test]
async fn a_filter_that_is_not_executed_is_a_warning_once() {
    let (log, _guard) = Log::start("xdskit=warn");
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    for (backend, maximum) in [(&one, 1), (&two, 2)] {
        let max_active_faults = Some(UInt32Value { value: maximum });
        let fault = HttpFault { max_active_faults, ..HttpFault::default() };
        let fault = filter("my-fault", "envoy.extensions.filters.http.fault.v3.HTTPFault", &fault);
        mesh.server.set(shop(|filters| filters.insert(0, fault)));
        // They come after the listener.
        mesh.server.set(cart(&[backend]));
        mesh.until(|seen| seen.unwrap() == if maximum == 1 { "one" } else { "two" }).await;
    }
    assert_eq!(log.text().matches("filter=my-fault").count(), 1, "{}", log.text());
}
