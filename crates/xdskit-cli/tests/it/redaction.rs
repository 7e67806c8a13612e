//! Credentials in resources are in no output of the tool, and in none of its logs.

use prost::Message;
use xdskit::{
    pb::{
        envoy::{
            config::{
                core::v3::{
                    DataSource, TransportSocket, data_source::Specifier, transport_socket::ConfigType,
                },
                listener::v3::FilterChain,
            },
            extensions::transport_sockets::tls::v3 as tls,
        },
        google::protobuf::Any,
    },
    testing::resources::{cluster, listener},
};

use super::{Server, process::Process, walk::serve};
use crate::common::resources::with_inline_key;

#[tokio::test]
async fn credentials_are_in_no_output_and_in_no_log() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    server.control_plane.update(|tx| {
        tx.set(with_inline_key(MARKER));
        tx.set(cluster("bad").edit(|cluster| cluster.transport_socket = Some(socket())));
        let chain = FilterChain { transport_socket: Some(socket()), ..Default::default() };
        tx.set(listener("inbound").edit(|listener| listener.filter_chains.push(chain)));
        let secret = tls::secret::Type::TlsCertificate(certificate());
        tx.set(tls::Secret { name: "key".into(), r#type: Some(secret) });
    });
    let bootstrap = server.bootstrap().display().to_string();
    let targets = ["cluster=*", "listener=*", "secret=key"];
    let mut outputs = String::new();
    let forms = [&[] as &[&str], &["--json"], &["--observe"], &["--raw"], &["--raw", "--json"]];
    for form in forms {
        outputs += &output(&["watch"], &bootstrap, form, &targets).await;
    }
    for form in &forms[..2] {
        outputs += &output(&["walk"], &bootstrap, form, &["xds:///shop", "xds:///inbound"]).await;
    }
    assert!(outputs.contains("[redacted]"), "{outputs}");
    assert!(outputs.contains("stream opened") && outputs.contains("request sent"), "not logged: {outputs}");
    for marker in [MARKER, MARKER_BASE64] {
        assert!(!outputs.contains(marker), "{outputs}");
    }
}

/// The standard output and the log at the most verbose level.
async fn output(command: &[&str], bootstrap: &str, form: &[&str], targets: &[&str]) -> String {
    let options = ["--once", "--resource-timeout=1", "--bootstrap", bootstrap];
    let args = [command, &options, form, targets].concat();
    let mut tool = Process::tool(args, &[("RUST_LOG", "trace")]);
    let text = tool.text().await;
    text + &tool.complaints().await
}

fn certificate() -> tls::TlsCertificate {
    let source = |specifier| Some(DataSource { specifier: Some(specifier), ..Default::default() });
    tls::TlsCertificate {
        certificate_chain: source(Specifier::Filename("/chain.pem".into())),
        private_key: source(Specifier::InlineString(MARKER.into())),
        password: source(Specifier::InlineBytes(MARKER.into())),
        ..Default::default()
    }
}

fn socket() -> TransportSocket {
    let common = tls::CommonTlsContext { tls_certificates: vec![certificate()], ..Default::default() };
    let context = tls::DownstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let context = Any {
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext".into(),
        value: context.encode_to_vec().into(),
    };
    TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(context)) }
}

const MARKER: &str = "MARKER-KEY-12";
/// The base64 of its bytes.
const MARKER_BASE64: &str = "TUFSS0VSLUtFWS0x";
