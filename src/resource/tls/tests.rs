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
    core::TransportSocket { name: "any".into(), config_type: Some(ConfigType::TypedConfig(any)) }
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

/// What a client accepts, as the start of variations.
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

#[test]
fn c20_only_the_tls_context_of_the_side_is_accepted() {
    let parsed = upstream(common()).unwrap();
    assert_eq!(parsed.identity, Some(instance("id", "root")));
    assert_eq!(parsed.roots, Roots::Provider(instance("ca", "root")));
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
fn c22_instances_that_the_bootstrap_lacks_are_rejected() {
    let reason = "the bootstrap has no usable certificate provider \"no\"";
    let e = upstream(CommonTlsContext { tls_certificate_provider_instance: plugin("no"), ..common() });
    assert_eq!(e.unwrap_err(), format!("{AT}.tls_certificate_provider_instance.instance_name: {reason}"));
    let context =
        CertificateValidationContext { ca_certificate_provider_instance: plugin("no"), ..Default::default() };
    let e = upstream(CommonTlsContext { validation_context_type: validation(context), ..common() });
    let path = "validation_context.ca_certificate_provider_instance.instance_name";
    assert_eq!(e.unwrap_err(), format!("{AT}.{path}: {reason}"));
    let message = tls::UpstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    assert!(UpstreamTls::parse(&socket(UPSTREAM, &message), &Context::new()).is_err());
}

#[test]
fn c23_a_server_name_has_255_bytes_at_most() {
    let with = |length| {
        upstream_message(tls::UpstreamTlsContext {
            common_tls_context: Some(common()),
            sni: "a".repeat(length),
            auto_host_sni: true,
            ..Default::default()
        })
    };
    assert_eq!(with(0).unwrap().sni, None);
    assert_eq!(with(255).unwrap().sni.unwrap().len(), 255);
    assert_eq!(with(256).unwrap_err(), "typed_config.sni: must be at most 255 bytes, is 256");
}

#[test]
fn t1_t2_own_handshakes_are_rejected() {
    let params = CommonTlsContext { tls_params: Some(tls::TlsParameters::default()), ..common() };
    assert!(upstream(params).unwrap_err().starts_with(&format!("{AT}.tls_params: ")));
    let handshaker =
        CommonTlsContext { custom_handshaker: Some(core::TypedExtensionConfig::default()), ..common() };
    assert!(downstream(handshaker).unwrap_err().starts_with(&format!("{AT}.custom_handshaker: ")));
}

#[test]
fn t3_t4_certificates_in_the_message_need_a_provider_beside_them() {
    let inline = CommonTlsContext { tls_certificates: vec![tls::TlsCertificate::default()], ..common() };
    let sds = CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![tls::SdsSecretConfig::default()],
        ..common()
    };
    for (context, field) in [(inline, "tls_certificates"), (sds, "tls_certificate_sds_secret_configs")] {
        assert_eq!(upstream(context.clone()).unwrap().identity, Some(instance("id", "root")));
        let without = CommonTlsContext { tls_certificate_provider_instance: None, ..context };
        assert!(upstream(without).unwrap_err().starts_with(&format!("{AT}.{field}: ")));
    }
}

#[test]
fn t3_the_older_field_names_the_identity_too() {
    let context = CommonTlsContext {
        tls_certificate_provider_instance: None,
        tls_certificate_certificate_provider_instance: Some(older("id")),
        ..common()
    };
    assert_eq!(upstream(context).unwrap().identity, Some(instance("id", "")));
}

#[test]
fn t5_validation_by_a_secret_is_rejected() {
    let secret = ValidationContextType::ValidationContextSdsSecretConfig(tls::SdsSecretConfig::default());
    let e = upstream(CommonTlsContext { validation_context_type: Some(secret), ..common() });
    assert!(e.unwrap_err().starts_with(&format!("{AT}.validation_context_sds_secret_config: ")));
}

#[test]
fn t5_roots_come_from_each_form_of_validation() {
    let combined = |default, instance| {
        let combined = CombinedCertificateValidationContext {
            default_validation_context: default,
            validation_context_certificate_provider_instance: instance,
            validation_context_sds_secret_config: None,
        };
        Some(ValidationContextType::CombinedValidationContext(combined))
    };
    let direct = ValidationContextType::ValidationContextCertificateProviderInstance(older("ca"));
    for (form, certificate) in [
        (combined(Some(roots()), Some(older("id"))), "root"),
        (combined(Some(CertificateValidationContext::default()), Some(older("ca"))), ""),
        (combined(None, Some(older("ca"))), ""),
        (Some(direct), ""),
    ] {
        let parsed = upstream(CommonTlsContext { validation_context_type: form, ..common() }).unwrap();
        assert_eq!(parsed.roots, Roots::Provider(instance("ca", certificate)));
    }
    let e = upstream(CommonTlsContext { validation_context_type: combined(None, None), ..common() });
    assert!(e.unwrap_err().starts_with(&format!("{AT}: needs a validation_context")));
}

#[test]
fn t6_t16_a_client_needs_roots_and_a_server_an_identity() {
    let none = CommonTlsContext { validation_context_type: None, ..common() };
    assert!(upstream(none.clone()).unwrap_err().starts_with(&format!("{AT}: needs a validation_context")));
    assert_eq!(downstream(none).unwrap().roots, None);
    let anonymous = CommonTlsContext { tls_certificate_provider_instance: None, ..common() };
    assert_eq!(upstream(anonymous.clone()).unwrap().identity, None);
    let e = downstream(anonymous).unwrap_err();
    assert_eq!(e, format!("{AT}.tls_certificate_provider_instance: must be set"));
}

#[test]
fn t7_to_t11_checks_that_cannot_be_done_are_rejected() {
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
        let context = CommonTlsContext { validation_context_type: validation(context), ..common() };
        let start = format!("{AT}.validation_context.{field}: is not supported");
        assert!(upstream(context.clone()).unwrap_err().starts_with(&start));
        assert!(downstream(context).unwrap_err().starts_with(&start));
    }
    let mut context = roots();
    context.require_signed_certificate_timestamp = Some(BoolValue { value: false });
    assert!(upstream(CommonTlsContext { validation_context_type: validation(context), ..common() }).is_ok());
}

#[test]
fn t12_to_t14_system_roots_are_for_clients_without_a_provider() {
    let system = |plugin| {
        let context = CertificateValidationContext {
            system_root_certs: Some(SystemRootCerts {}),
            ca_certificate_provider_instance: plugin,
            ..Default::default()
        };
        CommonTlsContext { validation_context_type: validation(context), ..common() }
    };
    assert_eq!(upstream(system(None)).unwrap().roots, Roots::System);
    assert_eq!(upstream(system(plugin("ca"))).unwrap().roots, Roots::Provider(instance("ca", "root")));
    let e = downstream(system(None)).unwrap_err();
    assert_eq!(e, format!("{AT}.validation_context.ca_certificate_provider_instance: must be set"));
    assert!(downstream(system(plugin("ca"))).is_ok());
}

#[test]
fn t15_names_are_matched_on_the_client_only() {
    let with = |matchers: Vec<pb_matcher::StringMatcher>| {
        let context = CertificateValidationContext { match_subject_alt_names: matchers, ..roots() };
        CommonTlsContext { validation_context_type: validation(context), ..common() }
    };
    let parsed = upstream(with(vec![exact("a.b"), exact("c")])).unwrap();
    assert!(parsed.san_matchers.len() == 2 && parsed.san_matchers[0].matcher.matches("a.b"));
    let e = upstream(with(vec![exact("a"), pb_matcher::StringMatcher::default()])).unwrap_err();
    assert!(e.starts_with(&format!("{AT}.validation_context.match_subject_alt_names[1]: ")), "{e}");
    let e = downstream(with(vec![exact("a")])).unwrap_err();
    assert!(e.starts_with(&format!("{AT}.validation_context: ")), "{e}");
}

#[test]
fn t15_names_may_be_matched_by_their_type() {
    let typed = |san_type, matcher| tls::SubjectAltNameMatcher { san_type, matcher };
    let with = |typed: tls::SubjectAltNameMatcher, any: Vec<pb_matcher::StringMatcher>| {
        let context = CertificateValidationContext {
            match_typed_subject_alt_names: vec![typed],
            match_subject_alt_names: any,
            ..roots()
        };
        upstream(CommonTlsContext { validation_context_type: validation(context), ..common() })
    };
    let parsed = with(typed(3, Some(exact("spiffe://a/b"))), vec![]).unwrap();
    assert_eq!(parsed.san_matchers[0].san_type, Some(SanType::Uri));
    let at = format!("{AT}.validation_context.match_typed_subject_alt_names");
    for (matcher, path) in [
        (typed(0, Some(exact("a"))), "[0].san_type: SAN_TYPE_UNSPECIFIED is not supported"),
        (typed(5, Some(exact("a"))), "[0].san_type: OTHER_NAME is not supported"),
        (typed(9, Some(exact("a"))), "[0].san_type: 9 is no known type"),
        (typed(2, None), "[0].matcher: must be set"),
    ] {
        assert_eq!(with(matcher, vec![]).unwrap_err(), format!("{at}{path}"));
    }
    assert!(with(typed(2, Some(exact("a"))), vec![exact("b")]).unwrap_err().starts_with(&at));
}

#[test]
fn t17_what_does_not_weaken_security_is_ignored() {
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
    assert_eq!(upstream_message(message), upstream(common()));
}

#[test]
fn s28_s31_a_server_needs_its_own_context() {
    let message = tls::DownstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    assert!(downstream_message(message.clone()).is_ok());
    let e = DownstreamTls::parse(&socket(UPSTREAM, &message), &Context::new()).unwrap_err();
    assert_eq!(e.path(), "typed_config");
    let e = downstream_message(tls::DownstreamTlsContext::default()).unwrap_err();
    assert_eq!(e, format!("{AT}: must be set"));
}

#[test]
fn s29_s30_server_names_and_stapling_cannot_be_required() {
    let message = |require_sni, ocsp_staple_policy| {
        downstream_message(tls::DownstreamTlsContext {
            common_tls_context: Some(common()),
            require_sni: Some(BoolValue { value: require_sni }),
            ocsp_staple_policy,
            ..Default::default()
        })
    };
    assert!(message(false, 0).is_ok());
    assert!(message(true, 0).unwrap_err().starts_with("typed_config.require_sni: "));
    for policy in [1, 2, 3] {
        assert!(message(false, policy).unwrap_err().starts_with("typed_config.ocsp_staple_policy: "));
    }
}

#[test]
fn s34_a_client_certificate_can_be_required_only_if_it_can_be_checked() {
    let message = |validation_context_type| {
        downstream_message(tls::DownstreamTlsContext {
            common_tls_context: Some(CommonTlsContext { validation_context_type, ..common() }),
            require_client_certificate: Some(BoolValue { value: true }),
            ..Default::default()
        })
    };
    let parsed = message(validation(roots())).unwrap();
    assert!(parsed.require_client_certificate && parsed.roots == Some(instance("ca", "root")));
    assert!(message(None).unwrap_err().starts_with("typed_config.require_client_certificate: "));
}
