//! Resources with a special content.
#![allow(dead_code, reason = "each test program uses a part of it")]

use prost::Message;
use xdskit::{
    control_plane::{AnyResource, type_url},
    pb::{
        envoy::{
            config::{
                cluster::v3 as pb,
                core::v3::{
                    DataSource, TransportSocket, data_source::Specifier, transport_socket::ConfigType,
                },
            },
            extensions::transport_sockets::tls::v3 as sockets,
        },
        google::protobuf::Any,
    },
};

/// The cluster `shop`, with TLS by an inline private key.
pub(crate) fn with_inline_key(key: &str) -> AnyResource {
    let key = DataSource { specifier: Some(Specifier::InlineString(key.into())), ..Default::default() };
    let certificate = sockets::TlsCertificate { private_key: Some(key), ..Default::default() };
    let common = sockets::CommonTlsContext { tls_certificates: vec![certificate], ..Default::default() };
    let context = sockets::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let context = Any {
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext".into(),
        value: context.encode_to_vec().into(),
    };
    let socket = TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(context)) };
    let message = pb::Cluster { name: "shop".into(), transport_socket: Some(socket), ..Default::default() };
    AnyResource::encode(type_url::CLUSTER, "shop", &message)
}

/// A resource whose sources have no `resource_api_version`, so that servers of each version may send it: of the test's builders they
/// have V3.
pub(crate) fn of_any_version(resource: impl Into<AnyResource>) -> AnyResource {
    let resource = resource.into();
    let mut bytes = resource.bytes().to_vec();
    // Field 6 of a ConfigSource, a number.
    for at in 1..bytes.len() {
        if bytes[at - 1..=at] == [6 << 3, 2] {
            bytes[at] = 0;
        }
    }
    AnyResource::new(resource.type_url(), resource.name(), bytes)
}
