//! The security of connections to a management server.

use std::path::PathBuf;

use super::{message::Message, secret_file};
use crate::config::{ChannelCredentials, TlsConfig};

/// Reads a cluster's transport socket. `None` if it is invalid.
pub(super) fn credentials(cluster: &Message<'_>) -> Option<ChannelCredentials> {
    cluster.refuse(&["transport_socket_matches"]);
    // The form of version 2.
    if let Some(context) = cluster.message("tls_context") {
        return upstream(&context).map(ChannelCredentials::Tls);
    }
    let Some(socket) = cluster.message("transport_socket") else {
        return Some(ChannelCredentials::Insecure);
    };
    let name = socket.text("name").unwrap_or_default();
    let Some(config) = socket.message("typed_config") else {
        socket.end();
        // Plain text, which needs no configuration.
        if name == "envoy.transport_sockets.raw_buffer" {
            return Some(ChannelCredentials::Insecure);
        }
        socket.fail("typed_config", "missing");
        return None;
    };
    socket.end();
    let type_url = config.required_text("@type")?;
    match type_url.rsplit('/').next().unwrap_or_default() {
        "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        | "envoy.api.v2.auth.UpstreamTlsContext" => upstream(&config).map(ChannelCredentials::Tls),
        "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
        | "envoy.config.transport_socket.raw_buffer.v2.RawBuffer" => Some(ChannelCredentials::Insecure),
        other => {
            config
                .fail("@type", format!("{other} is not supported; known are UpstreamTlsContext, RawBuffer"));
            None
        }
    }
}

/// Reads the TLS settings of a cluster.
fn upstream(context: &Message<'_>) -> Option<TlsConfig> {
    context.heed(&["@type"]);
    let server_name = context.text("sni").map(str::to_owned);
    context.refuse(&["allow_renegotiation", "auto_host_sni"]);
    let tls = match context.message("common_tls_context") {
        Some(common) => common_context(&common, server_name),
        None => {
            context.warn_whole(SYSTEM_ROOTS);
            Some(TlsConfig { server_name, ..TlsConfig::default() })
        }
    };
    context.end();
    tls
}

/// Reads the TLS settings that clients and servers have in common.
fn common_context(common: &Message<'_>, server_name: Option<String>) -> Option<TlsConfig> {
    common.refuse(UNSUPPORTED_SOURCES);
    if let Some(params) = common.message("tls_params") {
        // Limits that permit TLS 1.2 and 1.3, which the client offers; any other would change what is accepted.
        let version = [("TLS_AUTO", 0, ()), ("TLSv1_0", 1, ()), ("TLSv1_1", 2, ()), ("TLSv1_2", 3, ())];
        params.choice("tls_minimum_protocol_version", &version);
        params.choice("tls_maximum_protocol_version", &[("TLS_AUTO", 0, ()), ("TLSv1_3", 4, ())]);
        params.refuse(&["cipher_suites", "ecdh_curves", "signature_algorithms", "compliance_policies"]);
        params.end();
    }
    let protocols = common.texts("alpn_protocols");
    if !protocols.is_empty() && !protocols.iter().any(|(_, protocol)| *protocol == "h2") {
        common.warn("alpn_protocols", "not used: h2 is offered");
    }
    let identity = common_identity(common);
    let validation = common_validation(common, server_name.as_deref());
    common.end();
    let Validation { roots, name } = validation?;
    let mut tls = TlsConfig { server_name: server_name.or(name), ..TlsConfig::default() };
    tls.ca_certificate_file = roots;
    if let Some((chain, key)) = identity? {
        tls = tls.with_identity(chain, key);
    }
    Some(tls)
}

/// The files of the client's certificate and its key, if it has one. `None` if they are invalid.
#[allow(clippy::option_option, reason = "an error is not the absence of a certificate")]
fn common_identity(common: &Message<'_>) -> Option<Option<(PathBuf, PathBuf)>> {
    let certificates = common.messages("tls_certificates");
    let secrets = common.messages("tls_certificate_sds_secret_configs");
    match (certificates.as_slice(), secrets.as_slice()) {
        ([], []) => Some(None),
        ([certificate], []) => identity(certificate).map(Some),
        ([], [secret]) => secret_file::read(secret, "tls_certificate", identity).map(Some),
        ([_, ..], [_, ..]) => {
            common.fail("tls_certificate_sds_secret_configs", "is there beside tls_certificates");
            None
        }
        ([_, _, ..], []) => {
            common.fail("tls_certificates", "more than one is not supported");
            None
        }
        ([], [_, _, ..]) => {
            common.fail("tls_certificate_sds_secret_configs", "more than one is not supported");
            None
        }
    }
}

/// How the server's certificate is validated.
#[derive(Debug, Default)]
struct Validation {
    /// The file of the CA certificates; `None` for those of the system.
    roots: Option<PathBuf>,
    /// The name in the certificate.
    name: Option<String>,
}

impl Validation {
    /// Merges two validation contexts as Envoy merges a `combined_validation_context`: roots of the second replace those of the
    /// first.
    fn and(self, other: Self, combined: &Message<'_>) -> Self {
        if self.name.is_some() && other.name.is_some() && self.name != other.name {
            combined.fail_whole(ONE_NAME);
        }
        Self { roots: other.roots.or(self.roots), name: self.name.or(other.name) }
    }
}

/// The validation of the server's certificate. `None` if it is invalid.
fn common_validation(common: &Message<'_>, server_name: Option<&str>) -> Option<Validation> {
    let of_secret = |secret: &Message<'_>| {
        secret_file::read(secret, "validation_context", |context| Some(validate(context, server_name, true)))
    };
    let given: Vec<_> = VALIDATIONS.into_iter().filter(|name| common.has(name)).collect();
    match *given.as_slice() {
        [] => {
            common.warn_whole(SYSTEM_ROOTS);
            Some(Validation::default())
        }
        ["validation_context"] => {
            common.message("validation_context").map(|context| validate(&context, server_name, true))
        }
        ["validation_context_sds_secret_config"] => {
            of_secret(&common.message("validation_context_sds_secret_config")?)
        }
        ["combined_validation_context"] => {
            let combined = common.message("combined_validation_context")?;
            combined.refuse(UNSUPPORTED_PROVIDERS);
            let context = combined.message("default_validation_context");
            let secret = combined.message("validation_context_sds_secret_config");
            combined.end();
            let first = context.map(|context| validate(&context, server_name, secret.is_none()));
            let second = secret.map(|secret| of_secret(&secret));
            match second {
                Some(second) => Some(first.unwrap_or_default().and(second?, &combined)),
                None => Some(first.unwrap_or_default()),
            }
        }
        [first, second, ..] => {
            common.fail(second, format!("is there beside {first}"));
            None
        }
        // Unreachable: each of `VALIDATIONS` has an arm above.
        [_] => None,
    }
}

/// The files of a certificate chain and of its private key.
fn identity(certificate: &Message<'_>) -> Option<(PathBuf, PathBuf)> {
    certificate.refuse(&["password", "private_key_provider", "pkcs12", "ocsp_staple"]);
    // The files are read for each connection anyway.
    certificate.heed(&["watched_directory"]);
    let files = (required_file(certificate, "certificate_chain"), required_file(certificate, "private_key"));
    certificate.end();
    files.0.zip(files.1)
}

/// The validation by a `CertificateValidationContext`. Settings for a stricter or a weaker validation than the supported one are
/// errors.
fn validate(validation: &Message<'_>, server_name: Option<&str>, needs_roots: bool) -> Validation {
    validation.refuse(UNSUPPORTED_CHECKS);
    validation.heed(&["watched_directory", "system_root_certs"]);
    validation.choice("trust_chain_verification", &[("VERIFY_TRUST_CHAIN", 0, ())]);
    for unverified in ["allow_expired_certificate"] {
        if validation.flag(unverified) {
            validation.fail(unverified, "not supported");
        }
    }
    let mut names = Vec::new();
    for alternative in validation.messages("match_typed_subject_alt_names") {
        let kind = alternative.choice("san_type", &[("DNS", 2, ()), ("IP_ADDRESS", 4, ())]);
        let exact = alternative.message("matcher").and_then(|matcher| matcher.text("exact"));
        names.push(name(&alternative, exact.filter(|_| kind.is_some()), server_name));
    }
    for alternative in validation.messages("match_subject_alt_names") {
        names.push(name(&alternative, alternative.text("exact"), server_name));
    }
    if names.len() > 1 {
        validation.fail_whole(ONE_NAME);
    }
    let roots = file(validation, "trusted_ca");
    if needs_roots && roots.is_none() && !validation.has("trusted_ca") && !validation.has("system_root_certs")
    {
        validation.warn_whole(SYSTEM_ROOTS);
    }
    validation.end();
    Validation { roots, name: names.pop().flatten() }
}

/// The validated name is always the server name, so it is the only name that can be configured. Without `sni` it is that.
fn name(alternative: &Message<'_>, exact: Option<&str>, server_name: Option<&str>) -> Option<String> {
    match exact {
        Some(exact) if server_name.is_none_or(|server_name| server_name == exact) => Some(exact.to_owned()),
        Some(_) | None => {
            alternative
                .fail_whole("not supported: the certificate must have the name that is in `sni`, exactly");
            None
        }
    }
}

/// Reads a path that must be there.
fn required_file(parent: &Message<'_>, name: &str) -> Option<PathBuf> {
    if !parent.has(name) {
        parent.fail(name, "missing");
    }
    file(parent, name)
}

/// The file of a `DataSource`.
pub(super) fn file(parent: &Message<'_>, name: &str) -> Option<PathBuf> {
    let source = parent.message(name)?;
    source.heed(&["watched_directory"]);
    for inline in ["inline_string", "inline_bytes", "environment_variable"] {
        if source.has(inline) {
            source.fail(inline, "not supported: give a filename");
            return None;
        }
    }
    let path = source.required_text("filename").map(PathBuf::from);
    source.end();
    path
}

/// The warning for a server whose certificates Envoy would not check.
const SYSTEM_ROOTS: &str = "no trusted_ca: the server's certificate is checked with the system's roots";
/// The error for several alternative names of a server.
const ONE_NAME: &str = "more than one name of the server is not supported";
/// The alternatives for the validation of the server.
const VALIDATIONS: [&str; 3] =
    ["validation_context", "validation_context_sds_secret_config", "combined_validation_context"];
/// Alternative sources of trusted certificates. Ignoring them would change which servers are trusted.
const UNSUPPORTED_PROVIDERS: &[&str] =
    &["validation_context_certificate_provider", "validation_context_certificate_provider_instance"];
/// Alternative sources of certificates and handshakes. Ignoring them would change the identity of the client, or which servers are trusted.
const UNSUPPORTED_SOURCES: &[&str] = &[
    "tls_certificate_certificate_provider",
    "tls_certificate_certificate_provider_instance",
    "tls_certificate_provider_instance",
    "custom_tls_certificate_selector",
    "validation_context_certificate_provider",
    "validation_context_certificate_provider_instance",
    "custom_handshaker",
];
/// Further checks of the server's certificate. Ignoring them would trust more servers than configured.
const UNSUPPORTED_CHECKS: &[&str] = &[
    "ca_certificate_provider_instance",
    "verify_certificate_spki",
    "verify_certificate_hash",
    "require_signed_certificate_timestamp",
    "crl",
    "custom_validator_config",
    "only_verify_leaf_cert_crl",
    "max_verify_depth",
];
