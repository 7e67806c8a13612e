//! Rules S27 to S35.

use std::collections::BTreeSet;

use prost::Message;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::core::v3::{TransportSocket, transport_socket},
            extensions::transport_sockets::tls::v3::{
                self as tls, CertificateProviderPluginInstance, CertificateValidationContext,
                CommonTlsContext, DownstreamTlsContext, common_tls_context::ValidationContextType,
                downstream_tls_context::OcspStaplePolicy,
            },
        },
        google::protobuf::{Any, BoolValue},
    },
    resource::samples::{any, parse_in},
};

const TLS: &str = "envoy.transport_sockets.tls";
const DOWNSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

fn instance(name: &str) -> Option<CertificateProviderPluginInstance> {
    Some(CertificateProviderPluginInstance { instance_name: name.into(), ..Default::default() })
}

/// A server's own certificate, and no validation of client certificates.
fn common() -> CommonTlsContext {
    CommonTlsContext { tls_certificate_provider_instance: instance("mine"), ..Default::default() }
}

fn validating(context: CertificateValidationContext) -> CommonTlsContext {
    CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(context)),
        ..common()
    }
}

fn downstream(common: CommonTlsContext) -> DownstreamTlsContext {
    DownstreamTlsContext { common_tls_context: Some(common), ..Default::default() }
}

fn socket(name: &str, any: Option<Any>) -> pb::FilterChain {
    let config_type = any.map(transport_socket::ConfigType::TypedConfig);
    let transport_socket = Some(TransportSocket { name: name.into(), config_type });
    pb::FilterChain { transport_socket, ..chain("a", anywhere()) }
}

fn secured(context: &DownstreamTlsContext) -> pb::FilterChain {
    socket(TLS, Some(any(DOWNSTREAM, context.encode_to_vec())))
}

/// Parses a listener with this chain, with the providers `mine` and `theirs` in the bootstrap.
fn parse_chain(chain: pb::FilterChain) -> Result<DownstreamTls, String> {
    let providers = BTreeSet::from(["mine".to_owned(), "theirs".to_owned()]);
    let context = Context::new().with_certificate_providers(&providers);
    let parsed: Listener = parse_in(&socket_listener(vec![chain]), &context).map_err(|e| e.to_string())?;
    match parsed.kind {
        crate::resource::listener::ListenerKind::Socket(socket) => {
            Ok(socket.filter_chains[0].tls.clone().expect("the chain has TLS"))
        }
        crate::resource::listener::ListenerKind::Api(_) => panic!("not a socket's"),
    }
}

fn accepted(context: &DownstreamTlsContext) -> DownstreamTls {
    parse_chain(secured(context)).unwrap()
}

/// Returns the reason of the error, behind the path of the message.
fn reason_of(context: &DownstreamTlsContext) -> String {
    let error = parse_chain(secured(context)).unwrap_err();
    let below = error.strip_prefix("filter_chains[0].transport_socket.typed_config.").expect(&error);
    below.to_owned()
}

#[test]
fn s27_accepts_the_transport_socket_of_tls() {
    let parsed = parse_chain(socket(TLS, Some(any(DOWNSTREAM, downstream(common()).encode_to_vec()))));
    assert_eq!(&*parsed.unwrap().identity.instance_name, "mine");
}

#[test]
fn s27_rejects_a_transport_socket_of_another_name() {
    let error = parse_chain(socket("tls", Some(any(DOWNSTREAM, downstream(common()).encode_to_vec()))));
    let expected = format!("filter_chains[0].transport_socket.name: must be {TLS:?}, is \"tls\"");
    assert_eq!(error, Err(expected));
}

#[test]
fn s28_s29_s30_s31_s33_accepts_a_certificate_of_the_server() {
    let context = DownstreamTlsContext {
        require_sni: Some(BoolValue { value: false }),
        ocsp_staple_policy: OcspStaplePolicy::LenientStapling as i32,
        ..downstream(common())
    };
    let parsed = accepted(&context);
    assert_eq!(&*parsed.identity.instance_name, "mine");
    assert_eq!((parsed.roots, parsed.require_client_certificate), (None, false));
}

#[test]
fn s28_rejects_what_is_no_downstream_tls_context() {
    let at = "filter_chains[0].transport_socket.typed_config";
    assert_eq!(parse_chain(socket(TLS, None)), Err(format!("{at}: must be set")));
    let other = any("x.Alts", "");
    assert_eq!(
        parse_chain(socket(TLS, Some(other))),
        Err(format!("{at}: \"x.Alts\" is not supported, only {DOWNSTREAM}"))
    );
    let error = parse_chain(socket(TLS, Some(any(DOWNSTREAM, &[0xff][..])))).unwrap_err();
    assert!(error.starts_with(&format!("{at}.value: not a valid message")), "{error}");
}

#[test]
fn s29_rejects_a_required_server_name() {
    let require_sni = Some(BoolValue { value: true });
    let error = reason_of(&DownstreamTlsContext { require_sni, ..downstream(common()) });
    assert_eq!(error, "require_sni: is not supported, and to ignore it would be less secure");
}

#[test]
fn s30_rejects_strict_stapling() {
    for policy in [1, 2, 9] {
        let error = reason_of(&DownstreamTlsContext { ocsp_staple_policy: policy, ..downstream(common()) });
        assert_eq!(error, "ocsp_staple_policy: only LENIENT_STAPLING is supported");
    }
}

#[test]
fn s31_rejects_tls_without_a_common_context() {
    assert_eq!(reason_of(&DownstreamTlsContext::default()), "common_tls_context: must be set");
}

#[test]
fn s32_s34_accepts_certificates_of_clients_that_are_checked() {
    let theirs = CertificateValidationContext {
        ca_certificate_provider_instance: instance("theirs"),
        ..Default::default()
    };
    for required in [false, true] {
        let context = DownstreamTlsContext {
            require_client_certificate: Some(BoolValue { value: required }),
            ..downstream(validating(theirs.clone()))
        };
        let parsed = accepted(&context);
        assert_eq!(parsed.roots.map(|roots| roots.instance_name.into()), Some("theirs".to_owned()));
        assert_eq!(parsed.require_client_certificate, required);
    }
}

#[test]
fn s32_rejects_what_the_common_rules_reject_for_servers() {
    let names = CertificateValidationContext {
        ca_certificate_provider_instance: instance("theirs"),
        match_subject_alt_names: vec![crate::pb::envoy::r#type::matcher::v3::StringMatcher {
            match_pattern: Some(crate::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern::Exact(
                "a".into(),
            )),
            ignore_case: false,
        }],
        ..Default::default()
    };
    let system = CertificateValidationContext {
        system_root_certs: Some(tls::certificate_validation_context::SystemRootCerts {}),
        ..Default::default()
    };
    for (common, expected) in [
        (
            CommonTlsContext { tls_params: Some(tls::TlsParameters::default()), ..common() },
            "tls_params: is not supported, and to ignore it would be less secure",
        ),
        (validating(names), "validation_context.match_subject_alt_names: is not supported for listeners"),
        (validating(system), "validation_context.ca_certificate_provider_instance: must be set"),
    ] {
        assert_eq!(reason_of(&downstream(common)), format!("common_tls_context.{expected}"));
    }
}

#[test]
fn s33_rejects_tls_without_a_certificate_of_the_server() {
    let error = reason_of(&downstream(CommonTlsContext::default()));
    assert_eq!(error, "common_tls_context.tls_certificate_provider_instance: must be set");
}

#[test]
fn s34_rejects_required_certificates_that_nothing_can_check() {
    let require_client_certificate = Some(BoolValue { value: true });
    let error = reason_of(&DownstreamTlsContext { require_client_certificate, ..downstream(common()) });
    assert_eq!(error, "require_client_certificate: needs a validation_context to check the certificates");
}

#[test]
fn s35_accepts_providers_of_the_bootstrap() {
    let theirs = CommonTlsContext { tls_certificate_provider_instance: instance("theirs"), ..common() };
    assert_eq!(&*accepted(&downstream(theirs)).identity.instance_name, "theirs");
}

#[test]
fn s35_rejects_providers_that_the_bootstrap_does_not_have() {
    let unknown = "the bootstrap has no usable certificate provider \"x\"";
    let identity = CommonTlsContext { tls_certificate_provider_instance: instance("x"), ..common() };
    assert_eq!(
        reason_of(&downstream(identity.clone())),
        format!("common_tls_context.tls_certificate_provider_instance.instance_name: {unknown}")
    );
    let roots = CertificateValidationContext {
        ca_certificate_provider_instance: instance("x"),
        ..Default::default()
    };
    assert_eq!(
        reason_of(&downstream(validating(roots))),
        format!(
            "common_tls_context.validation_context.ca_certificate_provider_instance.instance_name: {unknown}"
        )
    );
    // The default chain is checked as the others are.
    let default_filter_chain = Some(secured(&downstream(identity)));
    let message = pb::Listener { default_filter_chain, ..socket_listener(vec![chain("a", anywhere())]) };
    let error = rejection::<Listener>(&message);
    assert!(error.starts_with("default_filter_chain.transport_socket.typed_config."), "{error}");
}
