use bytes::Bytes;
use prost::Message as _;
use serde_json::json;

use super::*;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3 as cds,
            core::v3::{self as core, data_source::Specifier, transport_socket::ConfigType},
            listener::v3 as lds,
        },
        extensions::transport_sockets::tls::v3 as tls,
    },
    google::protobuf::Any,
    udpa::r#type::v1::TypedStruct as UdpaTypedStruct,
    xds::r#type::v3::TypedStruct,
};

const MARKER: &str = "-----BEGIN MARKER KEY-----";
const TLS: &str = "envoy.extensions.transport_sockets.tls.v3";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// A message by its fields, of any type.
fn fields(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, content) in fields {
        encode_key(*number, WireType::LengthDelimited, &mut bytes);
        encode_varint(content.len() as u64, &mut bytes);
        bytes.extend_from_slice(content);
    }
    bytes
}

fn any(name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: value.into() }
}

fn inline(text: &str) -> core::DataSource {
    core::DataSource { specifier: Some(Specifier::InlineString(text.to_owned())), ..Default::default() }
}

fn certificate() -> tls::TlsCertificate {
    let bytes = Some(Specifier::InlineBytes(MARKER.into()));
    tls::TlsCertificate {
        certificate_chain: Some(inline("CHAIN")),
        private_key: Some(inline(MARKER)),
        pkcs12: Some(core::DataSource { specifier: bytes, ..Default::default() }),
        password: Some(inline(MARKER)),
        ..Default::default()
    }
}

fn upstream_tls() -> Any {
    let common = tls::CommonTlsContext { tls_certificates: vec![certificate()], ..Default::default() };
    let context = tls::UpstreamTlsContext {
        common_tls_context: Some(common),
        sni: "shop.example".into(),
        ..Default::default()
    };
    any(&format!("{TLS}.UpstreamTlsContext"), context.encode_to_vec())
}

fn socket(any: Any) -> core::TransportSocket {
    core::TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(any)) }
}

fn cluster(any: Any) -> cds::Cluster {
    cds::Cluster { name: "shop".into(), transport_socket: Some(socket(any)), ..Default::default() }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The message without its credentials; it had the marker, and the result is as well-formed.
#[track_caller]
fn check(type_url: &str, message: &[u8]) -> Vec<u8> {
    assert!(contains(message, MARKER), "a test without a credential");
    let redacted = redacted(type_url, message).expect("it has a credential");
    assert!(!contains(&redacted, MARKER), "{}", String::from_utf8_lossy(&redacted));
    assert!(contains(&redacted, REDACTED));
    assert!(Fields::of(&redacted).all(|field| field.is_ok()));
    let again = super::redacted(type_url, &redacted);
    assert!(again.is_none_or(|again| again == redacted), "twice is as once");
    redacted
}

#[test]
fn keys_in_the_transport_socket_of_a_cluster_are_redacted_and_nothing_else() {
    let redacted = check(CLUSTER, &cluster(upstream_tls()).encode_to_vec());
    let cluster = cds::Cluster::decode(&redacted[..]).unwrap();
    assert_eq!(cluster.name, "shop");
    let Some(ConfigType::TypedConfig(any)) = cluster.transport_socket.unwrap().config_type else { panic!() };
    let context = tls::UpstreamTlsContext::decode(any.value).unwrap();
    assert_eq!(context.sni, "shop.example");
    let certificate = &context.common_tls_context.unwrap().tls_certificates[0];
    assert_eq!(certificate.certificate_chain, Some(inline("CHAIN")));
    assert_eq!(certificate.private_key, Some(inline(REDACTED)));
    assert_eq!(certificate.password, Some(inline(REDACTED)));
}

#[test]
fn keys_in_the_filter_chains_of_a_listener_are_redacted() {
    let common = tls::CommonTlsContext { tls_certificates: vec![certificate()], ..Default::default() };
    let context = tls::DownstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let downstream = any(&format!("{TLS}.DownstreamTlsContext"), context.encode_to_vec());
    let chain = lds::FilterChain { transport_socket: Some(socket(downstream)), ..Default::default() };
    let listener = lds::Listener { filter_chains: vec![chain.clone()], ..Default::default() };
    check(LISTENER, &listener.encode_to_vec());
    let default = lds::Listener { default_filter_chain: Some(chain), ..Default::default() };
    check(LISTENER, &default.encode_to_vec());
    // Fields that `proto/` does not define: DownstreamTlsContext.session_ticket_keys, and UDP listeners with QUIC.
    let tickets = fields(&[(4, &tls::TlsSessionTicketKeys { keys: vec![inline(MARKER)] }.encode_to_vec())]);
    let quic =
        any("envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport", fields(&[(1, &tickets)]));
    let chain = lds::FilterChain { transport_socket: Some(socket(quic)), ..Default::default() };
    check(LISTENER, &lds::Listener { filter_chains: vec![chain], ..Default::default() }.encode_to_vec());
}

#[test]
fn secrets_of_all_kinds_are_redacted() {
    use tls::secret::Type;
    let secrets = [("a".to_owned(), inline(MARKER)), ("b".to_owned(), inline(MARKER))];
    for secret in [
        Type::TlsCertificate(certificate()),
        Type::SessionTicketKeys(tls::TlsSessionTicketKeys { keys: vec![inline(MARKER), inline(MARKER)] }),
        Type::GenericSecret(tls::GenericSecret { secret: Some(inline(MARKER)), secrets: secrets.into() }),
    ] {
        let secret = tls::Secret { name: "s".into(), r#type: Some(secret) };
        check(&format!("type.googleapis.com/{TLS}.Secret"), &secret.encode_to_vec());
    }
    let provider =
        fields(&[(1, b"cryptomb"), (3, &any("a.B", fields(&[(1, MARKER.as_bytes())])).encode_to_vec())]);
    let certificate = fields(&[(6, &provider), (2, &inline(MARKER).encode_to_vec())]);
    check(&format!("type.googleapis.com/{TLS}.TlsCertificate"), &certificate);
}

#[test]
fn names_of_files_and_variables_stay() {
    let file =
        core::DataSource { specifier: Some(Specifier::Filename("/key.pem".into())), ..Default::default() };
    let variable = Specifier::EnvironmentVariable("KEY".into());
    let variable = core::DataSource { specifier: Some(variable), ..Default::default() };
    let certificate =
        tls::TlsCertificate { private_key: Some(file), password: Some(variable), ..Default::default() };
    let bytes = certificate.encode_to_vec();
    assert_eq!(redacted(&format!("x/{TLS}.TlsCertificate"), &bytes), None);
}

#[test]
fn credentials_are_found_in_messages_of_unknown_types() {
    // An extension of the application, with an Any in a message that nothing defines.
    let inner = fields(&[(1, b"name"), (99, &upstream_tls().encode_to_vec())]);
    let own = any("example.v1.Own", fields(&[(7, &inner)]));
    check(CLUSTER, &cluster(own.clone()).encode_to_vec());
    check("type.googleapis.com/example.v1.Resource", &fields(&[(3, &own.encode_to_vec())]));
    check("any type URL", &fields(&[(3, &own.encode_to_vec())]));
    // A transport socket around another one.
    let outer = fields(&[(1, &socket(upstream_tls()).encode_to_vec())]);
    let outer = any(
        "envoy.extensions.transport_sockets.upstream_proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        outer,
    );
    check(CLUSTER, &cluster(outer).encode_to_vec());
}

#[test]
fn credentials_beside_tls_are_redacted() {
    let text = MARKER.as_bytes();
    let header = |value: &[u8]| fields(&[(1, b"x-token"), (2, value)]);
    // Metadata of a gRPC service, and its credentials, in a source of endpoints.
    let google = fields(&[
        (1, b"target"),
        (2, &fields(&[(1, &fields(&[(2, &inline(MARKER).encode_to_vec())]))])),
        (3, &fields(&[(1, text)])),
    ]);
    let service = fields(&[(2, &google), (5, &header(text))]);
    let source = fields(&[(2, &fields(&[(4, &service)]))]);
    let redacted = check(CLUSTER, &fields(&[(3, &fields(&[(1, &source)]))]));
    assert!(contains(&redacted, "x-token") && contains(&redacted, "target"));
    for (name, message) in [
        (
            "envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
            fields(&[(1, &inline(MARKER).encode_to_vec())]),
        ),
        (
            "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth",
            fields(&[(1, &fields(&[(1, text), (2, b"me")]))]),
        ),
        (
            "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
            fields(&[(2, &fields(&[(1, &fields(&[(1, b"k"), (2, text)]))]))]),
        ),
        (
            "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions",
            fields(&[(1, &inline(MARKER).encode_to_vec())]),
        ),
        (
            "envoy.extensions.common.aws.v3.InlineCredentialProvider",
            fields(&[(1, b"id"), (2, text), (3, text)]),
        ),
        ("envoy.api.v2.auth.TlsCertificate", fields(&[(2, &inline(MARKER).encode_to_vec())])),
    ] {
        check("type.googleapis.com/example.Outer", &fields(&[(9, &any(name, message).encode_to_vec())]));
    }
}

#[test]
fn typed_structs_are_redacted_by_names() {
    let type_url = format!("type.googleapis.com/{TLS}.UpstreamTlsContext");
    let value: StructValue = struct_of(&json!({
        "sni": "shop.example",
        "common_tls_context": { "tlsCertificates": [
            { "private_key": { "inline_string": MARKER }, "certificate_chain": { "inline_string": "CHAIN" } },
            { "privateKey": { "filename": "/key.pem" }, "password": { "inlineBytes": MARKER } },
        ] },
    }));
    let Some(Content::StructValue(value)) = value.kind else { panic!() };
    let structs = [
        any(
            "xds.type.v3.TypedStruct",
            TypedStruct { type_url: type_url.clone(), value: Some(value.clone()) }.encode_to_vec(),
        ),
        any("udpa.type.v1.TypedStruct", UdpaTypedStruct { type_url, value: Some(value) }.encode_to_vec()),
    ];
    for typed_struct in structs {
        let redacted = check(CLUSTER, &cluster(typed_struct).encode_to_vec());
        assert!(["shop.example", "CHAIN", "/key.pem"].iter().all(|kept| contains(&redacted, kept)));
    }
}

fn struct_of(json: &serde_json::Value) -> StructValue {
    use crate::pb::google::protobuf::ListValue;
    let kind = match json {
        serde_json::Value::String(text) => Content::StringValue(text.clone()),
        serde_json::Value::Array(items) => {
            Content::ListValue(ListValue { values: items.iter().map(struct_of).collect() })
        }
        serde_json::Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), struct_of(value))).collect();
            Content::StructValue(Struct { fields })
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            panic!("{json}")
        }
    };
    StructValue { kind: Some(kind) }
}

#[test]
fn json_of_unknown_types_in_files_is_redacted() {
    let json = json!({ "wrapped": { "@type": upstream_tls().type_url, "common_tls_context": {
        "tls_certificates": [{ "private_key": { "inline_string": MARKER } }],
    } } });
    let own = any("example.v1.Own", [&[OPAQUE], json.to_string().as_bytes()].concat());
    check(CLUSTER, &cluster(own).encode_to_vec());
    let json = json!({ "users": { "inline_string": MARKER } });
    let users = any(
        "envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
        [&[OPAQUE], json.to_string().as_bytes()].concat(),
    );
    check(CLUSTER, &cluster(users).encode_to_vec());
}

#[test]
fn malformed_messages_with_credentials_are_redacted_as_a_whole() {
    let mut context = upstream_tls();
    context.value = context.value.slice(..context.value.len() - 4);
    let redacted = check(CLUSTER, &cluster(context).encode_to_vec());
    assert!(contains(&redacted, "shop"));
    // The end of the Any is missing.
    let any = upstream_tls().encode_to_vec();
    let socket = fields(&[(1, b"tls"), (3, &any[..any.len() - 4])]);
    check(CLUSTER, &fields(&[(1, b"shop"), (24, &socket)]));
    // The end of the resource is missing.
    let bytes = cluster(upstream_tls()).encode_to_vec();
    assert_eq!(super::redacted(CLUSTER, &bytes[..bytes.len() - 4]), Some(REDACTED.into()));
    assert_eq!(super::redacted("example/Own", &bytes[..bytes.len() - 4]), Some(REDACTED.into()));
}

#[test]
fn messages_that_are_nested_too_deep_are_redacted() {
    for depth in [1, 98, 99, 100, 101, 1_000] {
        let mut bytes = upstream_tls().encode_to_vec();
        for _ in 0..depth {
            bytes = fields(&[(15, &bytes)]);
        }
        check("type.googleapis.com/example.v1.Own", &bytes);
    }
}

#[test]
fn messages_without_credentials_are_not_copied() {
    let plain = any(&format!("{TLS}.UpstreamTlsContext"), tls::UpstreamTlsContext::default().encode_to_vec());
    for any in
        [plain, any("a.B", "text"), any("a.B", "a type.googleapis.com/envoy.config.cluster.v3.Cluster")]
    {
        assert_eq!(redacted(CLUSTER, &cluster(any).encode_to_vec()), None);
    }
    let types = fields(&[(1, CLUSTER.as_bytes()), (2, LISTENER.as_bytes()), (3, b"\xff\xff")]);
    assert_eq!(redacted("type.googleapis.com/example.v1.Own", &types), None);
    assert_eq!(redacted("type.googleapis.com/example.v1.Own", b""), None);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_redacted_without_a_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        for type_url in [CLUSTER, "t/envoy.extensions.transport_sockets.tls.v3.Secret", "a/b", "/xds.type.v3.TypedStruct"] {
            if let Some(redacted) = redacted(type_url, &bytes) {
                proptest::prop_assert!(contains(&redacted, REDACTED) || redacted.len() <= bytes.len());
            }
        }
    }
}
