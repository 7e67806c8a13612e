use super::*;

fn parse(kind: Option<tls::secret::Type>) -> Result<Secret, String> {
    let message = tls::Secret { name: "s".into(), r#type: kind };
    Secret::parse(&message.encode_to_vec().into(), &Context::new()).map_err(|e| e.to_string())
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
        ..Default::default()
    }
}

fn archive() -> tls::TlsCertificate {
    tls::TlsCertificate { pkcs12: inline("PRIVATE"), password: inline("PASSWORD"), ..Default::default() }
}

fn several() -> tls::GenericSecret {
    let secrets =
        [("b", "PRIVATE"), ("a", "PASSWORD")].map(|(name, text)| (name.to_owned(), inline(text).unwrap()));
    tls::GenericSecret { secrets: secrets.into(), ..Default::default() }
}

fn generic(secret: Option<core::DataSource>) -> tls::GenericSecret {
    tls::GenericSecret { secret, ..Default::default() }
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
            + r#""private_key":{"inline":"[hidden]"},"password":{"inline":"[hidden]"},"ocsp_staple":null}}"#
    );
    let SecretKind::TlsCertificate(held) = &parsed.kind else { panic!("another kind") };
    let Identity::Pem { private_key, .. } = &held.identity else { panic!("another form") };
    assert_eq!(private_key.expose(), &DataSource::Inline(Bytes::from_static(b"PRIVATE")));

    let generic = tls::GenericSecret {
        secret: source(Specifier::InlineString("PRIVATE".into())),
        ..Default::default()
    };
    let tickets = tls::TlsSessionTicketKeys { keys: vec![inline("PRIVATE").unwrap()] };
    for kind in [
        tls::secret::Type::TlsCertificate(certificate()),
        tls::secret::Type::TlsCertificate(archive()),
        tls::secret::Type::GenericSecret(generic),
        tls::secret::Type::GenericSecret(several()),
        tls::secret::Type::SessionTicketKeys(tickets),
    ] {
        let parsed = parse(Some(kind)).unwrap();
        for shown in [json(&parsed), format!("{parsed:?}"), format!("{parsed:#?}")] {
            assert!(!shown.contains("PRIVATE") && !shown.contains("PASSWORD"), "{shown}");
            // Nor the numeric values of its bytes.
            assert!(!shown.contains("80, 82, 73") && shown.contains("[hidden]"), "{shown}");
        }
    }
}

#[test]
fn where_to_find_a_key_is_shown() {
    let secret = source(Specifier::Filename("/etc/key.pem".into()));
    let parsed = parse(Some(tls::secret::Type::GenericSecret(generic(secret)))).unwrap();
    assert_eq!(json(&parsed), r#"{"name":"s","generic_secret":{"filename":"/etc/key.pem"}}"#);
    let secret = source(Specifier::EnvironmentVariable("KEY".into()));
    let parsed = parse(Some(tls::secret::Type::GenericSecret(generic(secret)))).unwrap();
    assert_eq!(json(&parsed), r#"{"name":"s","generic_secret":{"environment_variable":"KEY"}}"#);
}

#[test]
fn a_secret_holds_what_its_kind_needs() {
    use tls::secret::Type::{GenericSecret, SessionTicketKeys, TlsCertificate, ValidationContext};
    let generic = |secret| Some(GenericSecret(generic(secret)));
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
        only_verify_leaf_cert_crl: true,
        max_verify_depth: Some(crate::pb::google::protobuf::UInt32Value { value: 2 }),
        ..Default::default()
    };
    let parsed = parse(Some(tls::secret::Type::ValidationContext(from))).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap()["validation_context"],
        serde_json::json!({
            "trusted_ca": {"inline": "CA"}, "provider": null, "system_roots": true,
            "crl": {"filename": "/crl"}, "only_verify_leaf_cert_crl": true, "max_verify_depth": 2, "verify_certificate_spki": ["cd"], "verify_certificate_hash": ["ab"],
            "san_matchers": [], "require_signed_certificate_timestamp": false,
            "allow_expired_certificate": true, "accept_untrusted": true,
        })
    );
}

#[test]
fn g5_g6_accepts_a_message_with_a_name() {
    let parsed = parse(Some(tls::secret::Type::GenericSecret(generic(inline("x"))))).unwrap();
    assert_eq!(&*parsed.name, "s");
}

#[test]
fn g5_rejects_bytes_that_are_no_message() {
    let e = Secret::parse(&Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
    assert!(e.path().is_empty() && e.reason().starts_with("not a valid message"), "{e}");
}

#[test]
fn g6_rejects_an_empty_name() {
    let e = Secret::parse(&tls::Secret::default().encode_to_vec().into(), &Context::new()).unwrap_err();
    assert_eq!(e.to_string(), "name: must not be empty");
}

#[test]
fn a_certificate_may_come_as_an_archive_and_with_proofs() {
    let from = tls::TlsCertificate {
        ocsp_staple: source(Specifier::Filename("/ocsp".into())),
        signed_certificate_timestamp: vec![inline("SCT").unwrap()],
        ..archive()
    };
    let parsed = parse(Some(tls::secret::Type::TlsCertificate(from))).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap(),
        serde_json::json!({"name": "s", "tls_certificate": {
            "pkcs12": {"inline": "[hidden]"}, "password": {"inline": "[hidden]"},
            "ocsp_staple": {"filename": "/ocsp"}, "signed_certificate_timestamps": [{"inline": "SCT"}],
        }})
    );
    let SecretKind::TlsCertificate(held) = parsed.kind else { panic!("another kind") };
    let Identity::Pkcs12 { pkcs12 } = held.identity else { panic!("another form") };
    assert_eq!(pkcs12.expose(), &DataSource::Inline(Bytes::from_static(b"PRIVATE")));
}

#[test]
fn certificates_that_come_in_two_ways_or_without_their_key_are_rejected() {
    let provider = Some(tls::PrivateKeyProvider { provider_name: "hsm".into() });
    let unset = core::DataSource::default();
    for (bad, expected) in [
        (
            tls::TlsCertificate { pkcs12: inline("P"), ..certificate() },
            "pkcs12: excludes certificate_chain and private_key",
        ),
        (
            tls::TlsCertificate { private_key_provider: provider, ..certificate() },
            "private_key_provider: is not supported; use private_key",
        ),
        (
            tls::TlsCertificate { ocsp_staple: Some(unset.clone()), ..certificate() },
            "ocsp_staple: must be set",
        ),
        (
            tls::TlsCertificate { signed_certificate_timestamp: vec![unset.clone()], ..certificate() },
            "signed_certificate_timestamp[0]: must be set",
        ),
        (tls::TlsCertificate { pkcs12: Some(unset), ..Default::default() }, "pkcs12: must be set"),
    ] {
        let e = parse(Some(tls::secret::Type::TlsCertificate(bad))).unwrap_err();
        assert_eq!(e, format!("tls_certificate.{expected}"));
    }
}

#[test]
fn generic_secrets_may_have_names() {
    let parsed = parse(Some(tls::secret::Type::GenericSecret(several()))).unwrap();
    let hidden = r#"{"a":{"inline":"[hidden]"},"b":{"inline":"[hidden]"}}"#;
    assert_eq!(json(&parsed), format!(r#"{{"name":"s","generic_secrets":{hidden}}}"#));
    let SecretKind::GenericSecrets(held) = parsed.kind else { panic!("another kind") };
    assert_eq!(held["b"].expose(), &DataSource::Inline(Bytes::from_static(b"PRIVATE")));
    let both = tls::GenericSecret { secret: inline("x"), ..several() };
    let e = parse(Some(tls::secret::Type::GenericSecret(both))).unwrap_err();
    assert_eq!(e, "generic_secret.secrets: excludes secret, which is set too");
    let unset = [("x".to_owned(), core::DataSource::default())].into();
    let unset = tls::GenericSecret { secrets: unset, ..Default::default() };
    let e = parse(Some(tls::secret::Type::GenericSecret(unset))).unwrap_err();
    assert_eq!(e, "generic_secret.secrets[\"x\"]: must be set");
}
