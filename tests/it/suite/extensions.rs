//! Extensions of an application, on a real connection.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use serde::Serialize;
use serde_json::json;
use xdskit::{
    client::{BuildError, ClientBuilder},
    config::{Bootstrap, CertificateProvider, Server},
    control_plane::AnyResource,
    error::Code,
    pb::{
        envoy::{
            config::{
                cluster::v3::{self as pb, cluster::ClusterDiscoveryType, cluster::DiscoveryType},
                core::v3::{
                    self as core, config_source::ConfigSourceSpecifier, transport_socket::ConfigType,
                },
            },
            extensions::transport_sockets::tls::v3::{
                self as tls, common_tls_context::ValidationContextType,
            },
        },
        google::protobuf::Any,
    },
    resource::{Cluster, Context, Extension, Invalid, Payload, Registry},
    testing::TestControlPlane,
};

use crate::common::soon;

/// A certificate provider plugin, and a type of metadata.
#[derive(Debug, PartialEq, Serialize)]
struct Vault {
    address: String,
}

impl Extension for Vault {
    const TYPE_NAME: &'static str = "example.Vault";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let address = match payload {
            Payload::Struct(config) => config.get("address").and_then(|it| it.as_str()).map(str::to_owned),
            Payload::Message(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        };
        Ok(Self { address: address.ok_or(Invalid::field("address", "missing"))? })
    }
}

/// A builder of a client of a server, whose bootstrap has an instance of the plugin.
fn with_vault(transport: Transport, server: &TestControlPlane, config: serde_json::Value) -> ClientBuilder {
    let provider = CertificateProvider::Unknown { plugin_name: "example.Vault".into(), config };
    let bootstrap = Bootstrap::builder().server(Server::new(server.uri()).insecure());
    transport.builder_from(bootstrap.certificate_provider("mesh-ca", provider).build().unwrap())
}

/// A cluster with CA certificates from the instance, and with metadata.
fn cluster(metadata: &'static [u8]) -> AnyResource {
    let ca = tls::CertificateProviderPluginInstance { instance_name: "mesh-ca".into(), ..Default::default() };
    let context = tls::CertificateValidationContext {
        ca_certificate_provider_instance: Some(ca),
        ..Default::default()
    };
    let common = tls::CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(context)),
        ..Default::default()
    };
    let context = tls::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let name = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let config = any(name, prost::Message::encode_to_vec(&context));
    let ads = ConfigSourceSpecifier::Ads(core::AggregatedConfigSource {});
    let ads = core::ConfigSource { config_source_specifier: Some(ads), ..Default::default() };
    AnyResource::from(pb::Cluster {
        name: "shop".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(pb::cluster::EdsClusterConfig {
            eds_config: Some(ads),
            ..Default::default()
        }),
        transport_socket: Some(core::TransportSocket {
            name: "envoy.transport_sockets.tls".into(),
            config_type: Some(ConfigType::TypedConfig(config)),
        }),
        metadata: Some(core::Metadata {
            typed_filter_metadata: [("vault".to_owned(), any("example.Vault", metadata.into()))].into(),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn any(name: &str, value: Vec<u8>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: value.into() }
}

#[apply(servers)]
async fn resources_may_name_an_instance_of_a_plugin_that_is_registered(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster(b"here"));
    let registry = Registry::new().with_certificate_provider::<Vault>();
    let config = json!({"address": "https://vault"});
    let client = with_vault(transport, &server, config.clone()).extensions(registry).build().unwrap();
    let shop = soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    let roots = serde_json::to_value(&shop.tls.as_ref().unwrap().roots).unwrap();
    assert_eq!(roots, json!({"provider": {"instance_name": "mesh-ca", "certificate_name": ""}}));
    let provider = &client.bootstrap().certificate_providers()["mesh-ca"];
    let CertificateProvider::Custom(vault) = provider else { panic!("{provider:?}") };
    assert_eq!(vault.get(), Some(&Vault { address: "https://vault".into() }));

    let client = with_vault(transport, &server, config).build().unwrap();
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let reason = "the bootstrap has no usable certificate provider \"mesh-ca\"";
    assert!(error.to_string().contains(reason), "{error}");
}

#[apply(servers)]
async fn a_plugin_that_cannot_use_its_configuration_is_an_error_of_the_build(transport: Transport) {
    let server = TestControlPlane::start().await;
    let registry = Registry::new().with_certificate_provider::<Vault>();
    let error = with_vault(transport, &server, json!({})).extensions(registry.clone()).build().unwrap_err();
    let reason = "certificate_providers[\"mesh-ca\"].config.address: missing";
    assert_eq!(error.to_string(), format!("bootstrap: {reason}"));
    assert!(matches!(error, BuildError::Bootstrap(_)));
    let error = with_vault(transport, &server, json!({})).extensions(registry).shared().unwrap_err();
    assert!(matches!(error, BuildError::Bootstrap(_)));
}

#[apply(servers)]
async fn metadata_of_a_type_that_is_registered_is_parsed_with_the_resource(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster(b"here"));
    let registry = Registry::new().with_certificate_provider::<Vault>().with_metadata::<Vault>();
    let config = json!({"address": "https://vault"});
    let client = with_vault(transport, &server, config).extensions(registry).build().unwrap();
    let mut watch = client.watch::<Cluster>("shop");
    let shop = soon(watch.ready()).await.unwrap();
    assert_eq!(shop.metadata.custom("vault"), Some(&Vault { address: "here".into() }));
    server.set(cluster(b"\xff"));
    let seen = soon(watch.wait_for(|seen| seen.error().is_some())).await.unwrap();
    let reason = "metadata.typed_filter_metadata[\"vault\"].address: missing";
    assert!(seen.error().unwrap().to_string().contains(reason), "{seen:?}");
    assert_eq!(seen.resource(), Some(&shop), "the last good one stays");
}
