use std::collections::BTreeSet;

use prost::Message;

use super::*;
use crate::pb::{
    envoy::{
        extensions::transport_sockets::tls::v3::{
            CertificateValidationContext, certificate_validation_context::SystemRootCerts,
            common_tls_context::CombinedCertificateValidationContext,
        },
        r#type::matcher::v3::{self as pb_matcher, string_matcher::MatchPattern},
    },
    google::protobuf::{Any, BoolValue},
};

fn socket(name: &str, message: &impl Message) -> core::TransportSocket {
    let value = message.encode_to_vec().into();
    let any = Any { type_url: format!("type.googleapis.com/{name}"), value };
    core::TransportSocket { name: TLS_SOCKET.into(), config_type: Some(ConfigType::TypedConfig(any)) }
}

fn providers() -> BTreeSet<String> {
    ["id", "ca"].map(str::to_owned).into()
}

fn upstream_message(message: tls::UpstreamTlsContext) -> Result<UpstreamTls, String> {
    let names = providers();
    let cx = Context::new().with_certificate_providers(&names);
    UpstreamTls::parse(&socket(UPSTREAM, &message), &cx).map_err(|e| e.to_string())
}

fn upstream(common: CommonTlsContext) -> Result<UpstreamTls, String> {
    upstream_message(tls::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() })
}

fn downstream_message(message: tls::DownstreamTlsContext) -> Result<DownstreamTls, String> {
    let names = providers();
    let cx = Context::new().with_certificate_providers(&names);
    DownstreamTls::parse(&socket(DOWNSTREAM, &message), &cx).map_err(|e| e.to_string())
}

fn downstream(common: CommonTlsContext) -> Result<DownstreamTls, String> {
    downstream_message(tls::DownstreamTlsContext { common_tls_context: Some(common), ..Default::default() })
}

fn plugin(name: &str) -> Option<tls::CertificateProviderPluginInstance> {
    Some(tls::CertificateProviderPluginInstance {
        instance_name: name.into(),
        certificate_name: "root".into(),
    })
}

fn older(name: &str) -> CertificateProviderInstance {
    CertificateProviderInstance { instance_name: name.into(), certificate_name: String::new() }
}

fn instance(name: &str, certificate: &str) -> ProviderInstance {
    ProviderInstance { instance_name: name.into(), certificate_name: certificate.into() }
}

fn validation(context: CertificateValidationContext) -> Option<ValidationContextType> {
    Some(ValidationContextType::ValidationContext(context))
}

/// A valid validation context, the basis of variations.
fn roots() -> CertificateValidationContext {
    CertificateValidationContext { ca_certificate_provider_instance: plugin("ca"), ..Default::default() }
}

fn common() -> CommonTlsContext {
    CommonTlsContext {
        tls_certificate_provider_instance: plugin("id"),
        validation_context_type: validation(roots()),
        ..Default::default()
    }
}

fn exact(text: &str) -> pb_matcher::StringMatcher {
    pb_matcher::StringMatcher { match_pattern: Some(MatchPattern::Exact(text.into())), ignore_case: false }
}

const AT: &str = "typed_config.common_tls_context";

fn validated(validation_context_type: Option<ValidationContextType>) -> CommonTlsContext {
    CommonTlsContext { validation_context_type, ..common() }
}

#[test]
fn c20_accepts_the_tls_context_of_clients() {
    let parsed = upstream(common()).unwrap();
    assert_eq!(parsed.identity, Some(instance("id", "root")));
    assert_eq!(parsed.roots, Roots::Provider(instance("ca", "root")));
    assert!(parsed.san_matchers.is_empty() && parsed.sni.is_none());
}

#[test]
fn c20_rejects_other_contexts() {
    let message = tls::UpstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    let e = UpstreamTls::parse(&socket(DOWNSTREAM, &message), &Context::new()).unwrap_err();
    assert_eq!(e.path(), "typed_config");
    assert!(e.reason().contains(DOWNSTREAM) && e.reason().contains(UPSTREAM), "{e}");
    let e = UpstreamTls::parse(&core::TransportSocket::default(), &Context::new()).unwrap_err();
    assert_eq!(e.to_string(), "typed_config: must be set");
    let broken = Any { type_url: UPSTREAM.into(), value: b"\xff"[..].into() };
    let broken =
        core::TransportSocket { name: String::new(), config_type: Some(ConfigType::TypedConfig(broken)) };
    assert_eq!(UpstreamTls::parse(&broken, &Context::new()).unwrap_err().path(), "typed_config.value");
    let e = upstream_message(tls::UpstreamTlsContext::default()).unwrap_err();
    assert_eq!(e, format!("{AT}: must be set"));
}

#[test]
fn c22_s35_accepts_instances_of_the_bootstrap() {
    let other = CommonTlsContext { tls_certificate_provider_instance: plugin("ca"), ..common() };
    assert_eq!(upstream(other.clone()).unwrap().identity, Some(instance("ca", "root")));
    assert_eq!(downstream(other).unwrap().identity, instance("ca", "root"));
}

#[test]
fn c22_s35_rejects_instances_that_the_bootstrap_lacks() {
    let reason = "the bootstrap has no usable certificate provider \"no\"";
    let identity = CommonTlsContext { tls_certificate_provider_instance: plugin("no"), ..common() };
    let e = format!("{AT}.tls_certificate_provider_instance.instance_name: {reason}");
    assert_eq!(upstream(identity.clone()).unwrap_err(), e);
    assert_eq!(downstream(identity).unwrap_err(), e);
    let context =
        CertificateValidationContext { ca_certificate_provider_instance: plugin("no"), ..Default::default() };
    let roots = validated(validation(context));
    let path = "validation_context.ca_certificate_provider_instance.instance_name";
    assert_eq!(upstream(roots.clone()).unwrap_err(), format!("{AT}.{path}: {reason}"));
    assert_eq!(downstream(roots).unwrap_err(), format!("{AT}.{path}: {reason}"));
    let message = tls::UpstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    let e = UpstreamTls::parse(&socket(UPSTREAM, &message), &Context::new()).unwrap_err();
    assert_eq!(e.reason(), "the bootstrap has no usable certificate provider \"id\"");
}

fn with_sni(length: usize) -> Result<UpstreamTls, String> {
    upstream_message(tls::UpstreamTlsContext {
        common_tls_context: Some(common()),
        sni: "a".repeat(length),
        ..Default::default()
    })
}

#[test]
fn c23_a101_accepts_server_names_of_up_to_255_bytes() {
    assert_eq!(with_sni(0).unwrap().sni, None);
    assert_eq!(with_sni(255).unwrap().sni.unwrap().len(), 255);
}

#[test]
fn c23_a101_rejects_longer_server_names() {
    assert_eq!(with_sni(256).unwrap_err(), "typed_config.sni: must be at most 255 bytes, is 256");
}

const LESS_SECURE: &str = "is not supported, and to ignore it would be less secure";

#[test]
fn t1_t2_accepts_handshakes_without_settings_of_their_own() {
    assert_eq!(downstream(common()).unwrap().identity, instance("id", "root"));
    assert_eq!(upstream(common()).unwrap().identity, Some(instance("id", "root")));
}

#[test]
fn t1_t2_rejects_settings_of_the_handshake() {
    let params = CommonTlsContext { tls_params: Some(tls::TlsParameters::default()), ..common() };
    let handshaker =
        CommonTlsContext { custom_handshaker: Some(core::TypedExtensionConfig::default()), ..common() };
    for (context, field) in [(params, "tls_params"), (handshaker, "custom_handshaker")] {
        let e = format!("{AT}.{field}: {LESS_SECURE}");
        assert_eq!(upstream(context.clone()).unwrap_err(), e);
        assert_eq!(downstream(context).unwrap_err(), e);
    }
}

/// Contexts with certificates in the message, and with secrets for them.
fn other_certificates() -> [(CommonTlsContext, &'static str); 2] {
    let inline = CommonTlsContext { tls_certificates: vec![tls::TlsCertificate::default()], ..common() };
    let sds = CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![tls::SdsSecretConfig::default()],
        ..common()
    };
    [(inline, "tls_certificates"), (sds, "tls_certificate_sds_secret_configs")]
}

#[test]
fn t3_t4_accepts_other_certificates_beside_a_provider() {
    for (context, _) in other_certificates() {
        assert_eq!(upstream(context.clone()), upstream(common()));
        assert_eq!(downstream(context), downstream(common()));
    }
}

#[test]
fn t3_t4_rejects_other_certificates_without_a_provider() {
    for (context, field) in other_certificates() {
        let without = CommonTlsContext { tls_certificate_provider_instance: None, ..context };
        let e = format!("{AT}.{field}: is not supported; use tls_certificate_provider_instance");
        assert_eq!(upstream(without.clone()).unwrap_err(), e);
        assert_eq!(downstream(without).unwrap_err(), e);
    }
}

#[test]
fn t3_accepts_the_identity_in_the_older_field() {
    let context = CommonTlsContext {
        tls_certificate_provider_instance: None,
        tls_certificate_certificate_provider_instance: Some(older("id")),
        ..common()
    };
    assert_eq!(upstream(context).unwrap().identity, Some(instance("id", "")));
}

#[test]
fn t5_rejects_validation_by_a_secret() {
    let secret = ValidationContextType::ValidationContextSdsSecretConfig(tls::SdsSecretConfig::default());
    let context = validated(Some(secret));
    let e = format!("{AT}.validation_context_sds_secret_config: {LESS_SECURE}");
    assert_eq!(upstream(context.clone()).unwrap_err(), e);
    assert_eq!(downstream(context).unwrap_err(), e);
}

fn combined(
    default_validation_context: Option<CertificateValidationContext>,
    older: Option<CertificateProviderInstance>,
) -> Option<ValidationContextType> {
    let combined = CombinedCertificateValidationContext {
        default_validation_context,
        validation_context_certificate_provider_instance: older,
        validation_context_sds_secret_config: None,
    };
    Some(ValidationContextType::CombinedValidationContext(combined))
}

#[test]
fn t5_accepts_roots_in_each_form_of_validation() {
    let direct = ValidationContextType::ValidationContextCertificateProviderInstance(older("ca"));
    for (form, certificate) in [
        (combined(Some(roots()), Some(older("id"))), "root"),
        (combined(Some(CertificateValidationContext::default()), Some(older("ca"))), ""),
        (combined(None, Some(older("ca"))), ""),
        (Some(direct), ""),
    ] {
        let parsed = upstream(validated(form.clone())).unwrap();
        assert_eq!(parsed.roots, Roots::Provider(instance("ca", certificate)));
        let parsed = downstream(validated(form)).unwrap();
        assert_eq!(parsed.roots, Some(instance("ca", certificate)));
    }
}

#[test]
fn t5_t12_rejects_a_combination_of_nothing() {
    let nothing = validated(combined(None, None));
    let e = upstream(nothing.clone()).unwrap_err();
    assert_eq!(e, format!("{AT}: {NO_ROOTS}"));
    let at = format!("{AT}.combined_validation_context.default_validation_context");
    let e = downstream(nothing).unwrap_err();
    assert_eq!(e, format!("{at}.ca_certificate_provider_instance: must be set"));
}

const NO_ROOTS: &str =
    "needs a validation_context with ca_certificate_provider_instance or system_root_certs";

#[test]
fn t6_t16_accepts_servers_without_roots_and_clients_without_an_identity() {
    assert_eq!(downstream(validated(None)).unwrap().roots, None);
    let anonymous = CommonTlsContext { tls_certificate_provider_instance: None, ..common() };
    assert_eq!(upstream(anonymous).unwrap().identity, None);
}

#[test]
fn t6_t16_rejects_clients_without_roots_and_servers_without_an_identity() {
    let e = upstream(validated(None)).unwrap_err();
    assert_eq!(e, format!("{AT}: {NO_ROOTS}"));
    let anonymous = CommonTlsContext { tls_certificate_provider_instance: None, ..common() };
    let e = downstream(anonymous).unwrap_err();
    assert_eq!(e, format!("{AT}.tls_certificate_provider_instance: must be set"));
}

#[test]
fn t7_t8_t9_t10_t11_accepts_validation_without_other_checks() {
    let mut context = roots();
    context.require_signed_certificate_timestamp = Some(BoolValue { value: false });
    let parsed = upstream(validated(validation(context.clone()))).unwrap();
    assert_eq!(parsed.roots, Roots::Provider(instance("ca", "root")));
    assert_eq!(downstream(validated(validation(context))), downstream(common()));
}

#[test]
fn t7_t8_t9_t10_t11_rejects_checks_that_cannot_be_done() {
    type Set = fn(&mut CertificateValidationContext);
    let table: [(&str, Set); 5] = [
        ("verify_certificate_spki", |c| c.verify_certificate_spki = vec!["x".into()]),
        ("verify_certificate_hash", |c| c.verify_certificate_hash = vec!["x".into()]),
        ("require_signed_certificate_timestamp", |c| {
            c.require_signed_certificate_timestamp = Some(BoolValue { value: true });
        }),
        ("crl", |c| c.crl = Some(core::DataSource::default())),
        ("custom_validator_config", |c| {
            c.custom_validator_config = Some(core::TypedExtensionConfig::default());
        }),
    ];
    for (field, set) in table {
        let mut context = roots();
        set(&mut context);
        let e = format!("{AT}.validation_context.{field}: {LESS_SECURE}");
        assert_eq!(upstream(validated(validation(context.clone()))).unwrap_err(), e);
        assert_eq!(downstream(validated(validation(context.clone()))).unwrap_err(), e);
        // Also if the older field provides the roots: the validation would be ignored there, too.
        let e = format!("{AT}.combined_validation_context.default_validation_context.{field}: {LESS_SECURE}");
        assert_eq!(upstream(validated(combined(Some(context), Some(older("ca"))))).unwrap_err(), e);
    }
}

fn system(plugin: Option<tls::CertificateProviderPluginInstance>) -> CommonTlsContext {
    validated(validation(CertificateValidationContext {
        system_root_certs: Some(SystemRootCerts {}),
        ca_certificate_provider_instance: plugin,
        ..Default::default()
    }))
}

#[test]
fn t12_a82_accepts_system_roots_of_clients() {
    assert_eq!(upstream(system(None)).unwrap().roots, Roots::System);
}

#[test]
fn t12_rejects_validation_without_roots() {
    let none = validated(validation(CertificateValidationContext::default()));
    assert_eq!(upstream(none.clone()).unwrap_err(), format!("{AT}: {NO_ROOTS}"));
    let e = downstream(none).unwrap_err();
    assert_eq!(e, format!("{AT}.validation_context.ca_certificate_provider_instance: must be set"));
}

#[test]
fn t13_rejects_system_roots_of_servers() {
    let e = downstream(system(None)).unwrap_err();
    assert_eq!(e, format!("{AT}.validation_context.ca_certificate_provider_instance: must be set"));
}

#[test]
fn t13_t14_accepts_a_provider_in_place_of_system_roots() {
    assert_eq!(upstream(system(plugin("ca"))).unwrap().roots, Roots::Provider(instance("ca", "root")));
    assert_eq!(downstream(system(plugin("ca"))).unwrap().roots, Some(instance("ca", "root")));
}

#[test]
fn t14_rejects_a_provider_that_is_not_there_though_system_roots_are() {
    let e = upstream(system(plugin("no"))).unwrap_err();
    let at = format!("{AT}.validation_context.ca_certificate_provider_instance.instance_name");
    assert_eq!(e, format!("{at}: the bootstrap has no usable certificate provider \"no\""));
}

#[test]
fn t17_a29_ignores_what_does_not_weaken_security() {
    let context = CertificateValidationContext {
        trusted_ca: Some(core::DataSource::default()),
        watched_directory: Some(core::WatchedDirectory::default()),
        allow_expired_certificate: true,
        trust_chain_verification: 1,
        ..roots()
    };
    let message = tls::UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            alpn_protocols: vec!["h2".into()],
            validation_context_type: validation(context),
            ..common()
        }),
        allow_renegotiation: true,
        max_session_keys: Some(crate::pb::google::protobuf::UInt32Value { value: 1 }),
        ..Default::default()
    };
    let (parsed, remarks) = remarks::collect(|| {
        let names = providers();
        let cx = Context::new().with_certificate_providers(&names);
        UpstreamTls::parse(&socket(UPSTREAM, &message), &cx)
    })
    .unwrap();
    assert_eq!(parsed, upstream(common()).unwrap());
    assert_eq!(
        remarks.not_executed(),
        [
            "CertificateValidationContext.allow_expired_certificate",
            "CertificateValidationContext.trust_chain_verification",
            "CommonTlsContext.alpn_protocols",
            "UpstreamTlsContext.allow_renegotiation",
            "UpstreamTlsContext.max_session_keys",
        ]
    );
}

mod names;
mod server;
