use super::*;

fn parse(kind: Option<tls::secret::Type>) -> Result<Secret, String> {
    let message = tls::Secret { name: "s".into(), r#type: kind };
    Secret::parse(message.encode_to_vec().into(), &Context::new()).map_err(|e| e.to_string())
}

fn inline(text: &'static str) -> Option<core::DataSource> {
    source(Specifier::InlineBytes(Bytes::from_static(text.as_bytes())))
}

fn source(specifier: Specifier) -> Option<core::DataSource> {
    Some(core::DataSource { specifier: Some(specifier), watched_directory: None })
}

fn certificate() -> tls::TlsCertificate {
    tls::TlsCertificate {
        certificate_chain: inline("PUBLIC"),
        private_key: inline("PRIVATE"),
        password: inline("PASSWORD"),
    }
}

fn json(secret: &Secret) -> String {
    serde_json::to_string(secret).unwrap()
}

#[test]
fn keys_are_held_but_neither_printed_nor_written_as_json() {
    let parsed = parse(Some(tls::secret::Type::TlsCertificate(certificate()))).unwrap();
    assert_eq!(
        json(&parsed),
        r#"{"name":"s","tls_certificate":{"certificate_chain":{"inline":"PUBLIC"},"#.to_owned()
            + r#""private_key":{"inline":"[hidden]"},"password":{"inline":"[hidden]"}}}"#
    );
    let SecretKind::TlsCertificate(held) = &parsed.kind else { panic!("another kind") };
    assert_eq!(held.private_key.expose(), &DataSource::Inline(Bytes::from_static(b"PRIVATE")));

    let generic = tls::GenericSecret { secret: source(Specifier::InlineString("PRIVATE".into())) };
    let tickets = tls::TlsSessionTicketKeys { keys: vec![inline("PRIVATE").unwrap()] };
    for kind in [
        tls::secret::Type::TlsCertificate(certificate()),
        tls::secret::Type::GenericSecret(generic),
        tls::secret::Type::SessionTicketKeys(tickets),
    ] {
        let parsed = parse(Some(kind)).unwrap();
        for shown in [json(&parsed), format!("{parsed:?}"), format!("{parsed:#?}")] {
            assert!(!shown.contains("PRIVATE") && !shown.contains("PASSWORD"), "{shown}");
            // Nor as the numbers of its bytes.
            assert!(!shown.contains("80, 82, 73") && shown.contains("[hidden]"), "{shown}");
        }
    }
}

#[test]
fn where_to_find_a_key_is_shown() {
    let secret = source(Specifier::Filename("/etc/key.pem".into()));
    let parsed = parse(Some(tls::secret::Type::GenericSecret(tls::GenericSecret { secret }))).unwrap();
    assert_eq!(json(&parsed), r#"{"name":"s","generic_secret":{"filename":"/etc/key.pem"}}"#);
    let secret = source(Specifier::EnvironmentVariable("KEY".into()));
    let parsed = parse(Some(tls::secret::Type::GenericSecret(tls::GenericSecret { secret }))).unwrap();
    assert_eq!(json(&parsed), r#"{"name":"s","generic_secret":{"environment_variable":"KEY"}}"#);
}

#[test]
fn a_secret_holds_what_its_kind_needs() {
    use tls::secret::Type::{GenericSecret, SessionTicketKeys, TlsCertificate, ValidationContext};
    let generic = |secret| Some(GenericSecret(tls::GenericSecret { secret }));
    let no_key = tls::TlsCertificate { private_key: None, ..certificate() };
    let no_chain = tls::TlsCertificate { certificate_chain: None, ..certificate() };
    let validator = tls::CertificateValidationContext {
        custom_validator_config: Some(core::TypedExtensionConfig::default()),
        ..Default::default()
    };
    let unknown = tls::CertificateValidationContext {
        ca_certificate_provider_instance: Some(tls::CertificateProviderPluginInstance::default()),
        ..Default::default()
    };
    for (kind, expected) in [
        (None, "holds no kind of secret that is supported"),
        (generic(None), "generic_secret.secret: must be set"),
        (generic(Some(core::DataSource::default())), "generic_secret.secret: must be set"),
        (
            generic(source(Specifier::Filename(String::new()))),
            "generic_secret.secret.filename: must not be empty",
        ),
        (Some(TlsCertificate(no_key)), "tls_certificate.private_key: must be set"),
        (Some(TlsCertificate(no_chain)), "tls_certificate.certificate_chain: must be set"),
        (
            Some(SessionTicketKeys(tls::TlsSessionTicketKeys::default())),
            "session_ticket_keys.keys: must not be empty",
        ),
        (
            Some(ValidationContext(validator)),
            "validation_context.custom_validator_config: is not supported, and to ignore it would be less secure",
        ),
        (
            Some(ValidationContext(unknown)),
            "validation_context.ca_certificate_provider_instance.instance_name: \
             the bootstrap has no usable certificate provider \"\"",
        ),
    ] {
        assert_eq!(parse(kind).unwrap_err(), expected);
    }
}

#[test]
fn a_validation_context_keeps_every_condition() {
    let from = tls::CertificateValidationContext {
        trusted_ca: inline("CA"),
        verify_certificate_hash: vec!["ab".into()],
        verify_certificate_spki: vec!["cd".into()],
        crl: source(Specifier::Filename("/crl".into())),
        system_root_certs: Some(validation::SystemRootCerts {}),
        allow_expired_certificate: true,
        trust_chain_verification: 1,
        ..Default::default()
    };
    let parsed = parse(Some(tls::secret::Type::ValidationContext(from))).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap()["validation_context"],
        serde_json::json!({
            "trusted_ca": {"inline": "CA"}, "provider": null, "system_roots": true,
            "crl": {"filename": "/crl"}, "verify_certificate_spki": ["cd"], "verify_certificate_hash": ["ab"],
            "san_matchers": [], "require_signed_certificate_timestamp": false,
            "allow_expired_certificate": true, "accept_untrusted": true,
        })
    );
}

#[test]
fn g5_g6_bytes_and_names_must_be_there() {
    let unnamed = tls::Secret::default().encode_to_vec();
    let e = Secret::parse(unnamed.into(), &Context::new()).unwrap_err();
    assert_eq!(e.to_string(), "name: must not be empty");
    assert!(Secret::parse(Bytes::from_static(b"\xff"), &Context::new()).is_err());
}
