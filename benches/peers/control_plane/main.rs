//! The configuration of the calls: `control-plane BACKEND...` serves the targets `xds:///one`, whose cluster has the first backend,
//! and `xds:///all`, whose cluster has all of them, until its standard input ends. With `--tls` before the backends, the clusters have
//! TLS with the certificates of the provider instance `files` on both sides.

use std::{error::Error, io, thread};

use prost::Message;
use xdskit::{
    control_plane::ControlPlane,
    pb::{
        envoy::{
            config::core::v3::{TransportSocket, transport_socket::ConfigType},
            extensions::transport_sockets::tls::v3::{
                CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
                UpstreamTlsContext, common_tls_context::ValidationContextType,
            },
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        google::protobuf::Any,
    },
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut backends: Vec<_> = std::env::args().skip(1).collect();
    let tls =
        (backends.first().map(String::as_str) == Some("--tls")).then(|| backends.remove(0)).map(|_| tls());
    let control_plane = ControlPlane::new();
    control_plane.update(|tx| {
        for (name, count) in [("one", 1), ("all", backends.len())] {
            let routes = route_config(name).virtual_host(["*"], [route::prefix("").cluster(name)]);
            tx.set(listener(name).rds(name))
                .set(routes)
                .set(cluster(name).edit(|it| it.transport_socket = tls.clone()));
            tx.set(endpoints(name).locality("eu", "a", backends.iter().take(count).map(String::as_str)));
        }
    });
    let server = control_plane.serve("127.0.0.1:0").await?;
    println!(r#"{{"event":"listening","address":"{}"}}"#, server.addr());
    thread::spawn(|| {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        std::process::exit(0);
    });
    std::future::pending().await
}

fn tls() -> TransportSocket {
    let instance =
        || CertificateProviderPluginInstance { instance_name: "files".into(), ..Default::default() };
    let name = StringMatcher {
        match_pattern: Some(MatchPattern::Exact("backend.test".into())),
        ..StringMatcher::default()
    };
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance()),
        match_subject_alt_names: vec![name],
        ..CertificateValidationContext::default()
    };
    let common = CommonTlsContext {
        tls_certificate_provider_instance: Some(instance()),
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..CommonTlsContext::default()
    };
    let context = UpstreamTlsContext { common_tls_context: Some(common), ..UpstreamTlsContext::default() };
    TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(ConfigType::TypedConfig(Any {
            type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
                .into(),
            value: context.encode_to_vec().into(),
        })),
    }
}
