//! Filters whose configuration is a resource of its own (ECDS).

use super::{super::faults::abort, script::fault, *};
use crate::{
    control_plane::AnyResource,
    pb::envoy::{
        config::{
            core::v3::{
                AggregatedConfigSource, ConfigSource, ExtensionConfigSource, TypedExtensionConfig,
                config_source::ConfigSourceSpecifier,
            },
            listener::v3::ApiListener,
        },
        extensions::filters::network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, http_filter::ConfigType,
        },
    },
    resource::{ExtensionConfig, Resource},
};
use prost::Message;

/// The listener has a fault filter `late` that is discovered, with a default that does nothing.
fn with_discovered(mesh: &Mesh) {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource {});
    let source = ExtensionConfigSource {
        config_source: Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() }),
        default_config: Some(fault(&HttpFault::default())),
        apply_default_config_without_warming: true,
        type_urls: vec![fault(&HttpFault::default()).type_url],
    };
    let config_type = Some(ConfigType::ConfigDiscovery(source));
    let late = HttpFilter { name: "late".into(), config_type, ..HttpFilter::default() };
    mesh.server.set(listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        manager.http_filters.insert(0, late);
        let api = crate::pb::google::protobuf::Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    }));
}

#[tokio::test]
async fn ch5_1_ex2_ex4_a_filter_whose_configuration_is_discovered_takes_effect() {
    let mut peer = Peer::start().await;
    let mesh = start("ch5_1_discovered", &[&peer]).await;
    with_discovered(&mesh);
    let call = mesh.get("/default");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let aborts = TypedExtensionConfig {
        name: "late".into(),
        typed_config: Some(fault(&abort(ErrorType::GrpcStatus(8)))),
    };
    mesh.server.set(AnyResource::encode(ExtensionConfig::TYPE_URL, "late", &aborts));
    // Calls reach the endpoint until the channel has the configuration.
    let code = loop {
        let mut call = mesh.get("/aborted");
        tokio::select! {
            ended = &mut call => break ended.unwrap().unwrap_err().code(),
            received = peer.request() => received.respond(),
        }
        soon(call).await.unwrap().unwrap();
    };
    assert_eq!(code, Code::ResourceExhausted);
}
