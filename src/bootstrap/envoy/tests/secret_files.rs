//! Secrets by SDS from files, for TLS to management servers.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A directory with files of secrets.
struct Secrets(TempDir);

impl Secrets {
    fn new(files: &[(&str, Value)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, secret) in files {
            fs::write(directory.path().join(name), json!({ "resources": [secret] }).to_string()).unwrap();
        }
        Self(directory)
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).display().to_string()
    }

    /// The config of a secret in a file.
    fn config(&self, name: &str, file: &str) -> Value {
        json!({
            "name": name,
            "sds_config": { "path_config_source": { "path": self.path(file) }, "resource_api_version": "V3" },
        })
    }
}

fn secret(name: &str, kind: &str, content: Value) -> Value {
    let type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    json!({ "@type": type_url, "name": name, kind: content })
}

fn certificate() -> Value {
    secret(
        "own",
        "tls_certificate",
        json!({
            "certificate_chain": { "filename": "/certs/tls.crt" }, "private_key": { "filename": "/certs/tls.key" },
        }),
    )
}

fn roots(name: &str) -> Value {
    secret(
        "ca",
        "validation_context",
        json!({
            "trusted_ca": { "filename": "/certs/ca.crt" },
            "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": name } }],
        }),
    )
}

fn document(context: Value) -> Value {
    let config = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": context,
    });
    let socket = json!({ "name": "envoy.transport_sockets.tls", "typed_config": config });
    with(json!({ "static_resources": { "clusters": [cluster(json!({ "transport_socket": socket }))] } }))
}

fn tls_of(context: Value) -> TlsConfig {
    let bootstrap = read(&document(context));
    match &bootstrap.servers().next().unwrap().channel_credentials {
        ChannelCredentials::Tls(tls) => tls.clone(),
        other @ (ChannelCredentials::Insecure | ChannelCredentials::Custom(_)) => panic!("{other:?}"),
    }
}

fn problem(context: Value) -> String {
    let problems = problems(&document(context));
    let prefix = "static_resources.clusters[0].transport_socket.typed_config.common_tls_context.";
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].strip_prefix(prefix).unwrap().to_owned()
}

#[test]
fn certificates_and_roots_are_those_that_the_files_name() {
    let secrets = Secrets::new(&[("own.json", certificate()), ("ca.json", roots("contour"))]);
    let expected = TlsConfig::default()
        .with_identity("/certs/tls.crt", "/certs/tls.key")
        .with_ca_certificate_file("/certs/ca.crt")
        .with_server_name("contour");
    let own = json!([secrets.config("own", "own.json")]);
    let by_secret = json!({
        "tls_certificate_sds_secret_configs": own,
        "validation_context_sds_secret_config": secrets.config("ca", "ca.json"),
    });
    assert_eq!(tls_of(by_secret.clone()), expected);
    assert_eq!(warnings(&document(by_secret)), [""; 0]);
    let combined = json!({
        "tls_certificate_sds_secret_configs": own,
        "combined_validation_context": {
            "default_validation_context": {
                "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": "contour" } }],
            },
            "validation_context_sds_secret_config": secrets.config("ca", "ca.json"),
        },
    });
    assert_eq!(tls_of(combined), expected);
    let older = json!({ "name": "ca", "sds_config": { "path": secrets.path("ca.json") } });
    let tls = tls_of(json!({ "validation_context_sds_secret_config": older }));
    assert_eq!(tls, TlsConfig { certificate_file: None, private_key_file: None, ..expected });
}

#[test]
fn yaml_is_read_as_well() {
    let secrets = Secrets::new(&[]);
    let yaml = "resources:\n- name: ca\n  validation_context: { trusted_ca: { filename: /ca.pem } }\n";
    fs::write(secrets.path("ca.yaml"), yaml).unwrap();
    let context = json!({ "validation_context_sds_secret_config": secrets.config("ca", "ca.yaml") });
    if cfg!(feature = "json") {
        assert_eq!(tls_of(context), TlsConfig::default().with_ca_certificate_file("/ca.pem"));
    } else {
        assert!(problem(context).contains("lacks the feature `json`"));
    }
}

#[test]
fn secrets_that_cannot_be_used_are_errors_with_the_file() {
    let inline = secret(
        "own",
        "tls_certificate",
        json!({
            "certificate_chain": { "filename": "/tls.crt" }, "private_key": { "inline_string": "MARKER" },
        }),
    );
    let hash = secret(
        "ca",
        "validation_context",
        json!({
            "trusted_ca": { "filename": "/ca.crt" }, "verify_certificate_hash": ["x"],
        }),
    );
    let secrets = Secrets::new(&[
        ("own.json", certificate()),
        ("ca.json", roots("b")),
        ("inline.json", inline),
        ("hash.json", hash),
    ]);
    fs::write(secrets.path("torn.json"), "{\n\"MARKER").unwrap();
    fs::write(secrets.path("large.json"), " ".repeat((1 << 20) + 1)).unwrap();
    let ca = |name: &str, file: &str| json!({ "validation_context_sds_secret_config": secrets.config(name, file) });
    for (context, file, expected) in [
        (ca("ca", "missing.json"), "missing.json", "No such file or directory (os error 2)"),
        (ca("x", "ca.json"), "ca.json", "resources: there is no secret \"x\""),
        (ca("ca", "torn.json"), "torn.json", "not JSON at line 2 column 7"),
        (ca("ca", "large.json"), "large.json", "larger than 1048576 bytes"),
        (ca("ca", ""), "", "it is not a regular file"),
        (ca("own", "own.json"), "own.json", "resources[0].validation_context: missing"),
        (
            ca("ca", "hash.json"),
            "hash.json",
            "resources[0].validation_context.verify_certificate_hash: not supported",
        ),
    ] {
        let expected =
            format!("validation_context_sds_secret_config.sds_config: {}: {expected}", secrets.path(file));
        assert_eq!(problem(context), expected);
    }
    let expected = format!(
        "tls_certificate_sds_secret_configs[0].sds_config: {}: \
         resources[0].tls_certificate.private_key.inline_string: not supported: give a filename",
        secrets.path("inline.json")
    );
    let context = json!({
        "tls_certificate_sds_secret_configs": [secrets.config("own", "inline.json")],
        "validation_context": { "trusted_ca": { "filename": "/ca.crt" } },
    });
    assert_eq!(problem(context), expected);
}

#[test]
fn secrets_come_from_files_alone_and_from_one_place() {
    let secrets = Secrets::new(&[("own.json", certificate()), ("ca.json", roots("b"))]);
    let both = json!({
        "tls_certificate_sds_secret_configs": [secrets.config("own", "own.json")],
        "tls_certificates": [{}],
        "validation_context": { "trusted_ca": { "filename": "/ca.crt" } },
    });
    assert_eq!(problem(both), "tls_certificate_sds_secret_configs: is there beside tls_certificates");
    let from_server =
        json!({ "validation_context_sds_secret_config": { "name": "ca", "sds_config": { "ads": {} } } });
    assert_eq!(
        problem(from_server),
        "validation_context_sds_secret_config.sds_config: not supported: secrets come from a file, by path_config_source"
    );
    let two_names = json!({ "combined_validation_context": {
        "default_validation_context": {
            "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": "a" } }],
        },
        "validation_context_sds_secret_config": secrets.config("ca", "ca.json"),
    } });
    assert_eq!(
        problem(two_names),
        "combined_validation_context: more than one name of the server is not supported"
    );
}
