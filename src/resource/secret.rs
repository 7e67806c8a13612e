//! Certificates, keys and other secrets.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use prost::Message;
use serde::{Serialize, Serializer};

use super::{
    Context, Invalid, Resource, parts,
    tls::{ProviderInstance, SanMatcher},
};
use crate::base::type_url;
use crate::pb::envoy::{
    config::core::v3::{self as core, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{self as tls, certificate_validation_context as validation},
};

/// A secret from a management server.
///
/// Confidential data is [`Sensitive`]: excluded from `Debug` and JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Secret {
    /// The name, not empty.
    pub name: Arc<str>,
    /// The content.
    #[serde(flatten)]
    pub kind: SecretKind,
}

/// The content of a [`Secret`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretKind {
    /// A certificate and its private key.
    TlsCertificate(TlsCertificate),
    /// The conditions for accepting a peer's certificate.
    ValidationContext(Box<ValidationContext>),
    /// Keys for TLS session tickets, at least one; the first one encrypts new tickets.
    SessionTicketKeys(Box<[Sensitive]>),
    /// A secret of any other kind, such as a password.
    GenericSecret(Sensitive),
    /// Several generic secrets by name, at least one.
    GenericSecrets(BTreeMap<Box<str>, Sensitive>),
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TlsCertificate {
    /// The certificate and the key.
    #[serde(flatten)]
    pub identity: Identity,
    /// The password of the key or of the archive, if it has one.
    pub password: Option<Sensitive>,
    /// An OCSP response in DER to staple to the certificate.
    pub ocsp_staple: Option<DataSource>,
    /// Signed certificate timestamps to send with the certificate.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub signed_certificate_timestamps: Box<[DataSource]>,
}

/// The encoding of a [`TlsCertificate`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Identity {
    /// Two PEM texts.
    #[non_exhaustive]
    Pem {
        /// The certificate and its chain, in PEM.
        certificate_chain: DataSource,
        /// The private key, in PEM.
        private_key: Sensitive,
    },
    /// A PKCS #12 archive.
    #[non_exhaustive]
    Pkcs12 {
        /// The archive of certificate, key and chain, in DER.
        pkcs12: Sensitive,
    },
}

/// The conditions for accepting a peer's certificate; all must hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ValidationContext {
    /// The trusted CA certificates, in PEM.
    pub trusted_ca: Option<DataSource>,
    /// The certificate provider instance of the CA certificates, in place of `trusted_ca`.
    pub provider: Option<ProviderInstance>,
    /// Whether the operating system's CA certificates are trusted, if there is no `provider`.
    pub system_roots: bool,
    /// Certificate revocation lists, in PEM.
    pub crl: Option<DataSource>,
    /// Whether only the peer's own certificate is checked for revocation, and not its chain.
    pub only_verify_leaf_cert_crl: bool,
    /// The maximum number of certificates between the peer's and a trusted one; `None` defers to the TLS library.
    pub max_verify_depth: Option<u32>,
    /// Hashes of accepted public keys (Base64 of SHA-256); empty accepts all.
    pub verify_certificate_spki: Box<[Box<str>]>,
    /// Hashes of accepted certificates (hexadecimal SHA-256); empty accepts all.
    pub verify_certificate_hash: Box<[Box<str>]>,
    /// Matchers of the names in the certificate, one of which must match; empty accepts all.
    pub san_matchers: Box<[SanMatcher]>,
    /// Whether a signed certificate timestamp is required.
    pub require_signed_certificate_timestamp: bool,
    /// Whether expired certificates are accepted.
    pub allow_expired_certificate: bool,
    /// Whether untrusted certificates are accepted.
    pub accept_untrusted: bool,
}

/// A source of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DataSource {
    /// A file with this path, not empty.
    Filename(Box<str>),
    /// Inline data. In JSON as text; bytes that are not UTF-8 are replaced there.
    #[serde(serialize_with = "text")]
    Inline(Bytes),
    /// An environment variable with this name, not empty.
    EnvironmentVariable(Box<str>),
}

/// Confidential data: inline data is hidden in `Debug` and JSON, the location of other data is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(DataSource);

impl Resource for Secret {
    const TYPE_URL: &'static str = type_url::SECRET;
    const SENSITIVE: bool = true;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let tls::Secret { name, r#type: kind } = Message::decode(bytes.clone())?;
        if name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let kind = kind.ok_or(Invalid::new("holds no kind of secret that is supported"))?;
        Ok(Self { name: name.into(), kind: SecretKind::parse(kind, cx)? })
    }
}

impl SecretKind {
    /// Parses a secret of any kind.
    fn parse(from: tls::secret::Type, cx: &Context<'_>) -> Result<Self, Invalid> {
        match from {
            tls::secret::Type::TlsCertificate(from) => {
                TlsCertificate::parse(from).map(Self::TlsCertificate).map_err(|e| e.at("tls_certificate"))
            }
            tls::secret::Type::ValidationContext(from) => ValidationContext::parse(from, cx)
                .map(|context| Self::ValidationContext(Box::new(context)))
                .map_err(|e| e.at("validation_context")),
            tls::secret::Type::SessionTicketKeys(from) => {
                match parts::each("keys", from.keys, |key| Sensitive::parse(Some(key))) {
                    Ok(keys) if keys.is_empty() => Err(Invalid::field("keys", "must not be empty")),
                    keys => keys.map(Self::SessionTicketKeys),
                }
                .map_err(|e| e.at("session_ticket_keys"))
            }
            tls::secret::Type::GenericSecret(from) => Self::generic(from).map_err(|e| e.at("generic_secret")),
        }
    }

    /// Parses a secret of one or several values.
    fn generic(from: tls::GenericSecret) -> Result<Self, Invalid> {
        if from.secrets.is_empty() {
            return Sensitive::parse(from.secret).map(Self::GenericSecret).map_err(|e| e.at("secret"));
        }
        if from.secret.is_some() {
            return Err(Invalid::field("secrets", "excludes secret, which is set too"));
        }
        let secrets = from.secrets.into_iter().map(|(name, secret)| {
            let secret = Sensitive::parse(Some(secret)).map_err(|e| e.at_key("secrets", &name))?;
            Ok((name.into(), secret))
        });
        secrets.collect::<Result<_, _>>().map(Self::GenericSecrets)
    }
}

impl TlsCertificate {
    /// Parses a certificate with its key.
    fn parse(from: tls::TlsCertificate) -> Result<Self, Invalid> {
        if from.private_key_provider.is_some() {
            return Err(Invalid::field("private_key_provider", "is not supported; use private_key"));
        }
        let password = from.password.map(|password| Sensitive::parse(Some(password))).transpose();
        let timestamps =
            parts::each("signed_certificate_timestamp", from.signed_certificate_timestamp, |timestamp| {
                DataSource::parse(Some(timestamp))
            })?;
        Ok(Self {
            password: password.map_err(|e| e.at("password"))?,
            ocsp_staple: optional(from.ocsp_staple, "ocsp_staple")?,
            signed_certificate_timestamps: timestamps,
            identity: Identity::parse(from.certificate_chain, from.private_key, from.pkcs12)?,
        })
    }
}

impl Identity {
    /// Parses the certificate and the key: each by itself, or both in one file.
    fn parse(
        chain: Option<core::DataSource>,
        key: Option<core::DataSource>,
        pkcs12: Option<core::DataSource>,
    ) -> Result<Self, Invalid> {
        if let Some(pkcs12) = pkcs12 {
            if chain.is_some() || key.is_some() {
                return Err(Invalid::field("pkcs12", "excludes certificate_chain and private_key"));
            }
            let pkcs12 = Sensitive::parse(Some(pkcs12)).map_err(|e| e.at("pkcs12"))?;
            return Ok(Self::Pkcs12 { pkcs12 });
        }
        Ok(Self::Pem {
            certificate_chain: DataSource::parse(chain).map_err(|e| e.at("certificate_chain"))?,
            private_key: Sensitive::parse(key).map_err(|e| e.at("private_key"))?,
        })
    }
}

impl ValidationContext {
    /// Parses how a peer is checked.
    fn parse(from: tls::CertificateValidationContext, cx: &Context<'_>) -> Result<Self, Invalid> {
        if from.custom_validator_config.is_some() {
            let reason = "is not supported, and to ignore it would be less secure";
            return Err(Invalid::field("custom_validator_config", reason));
        }
        let texts = |from: Vec<String>| from.into_iter().map(Into::into).collect();
        let provider = from.ca_certificate_provider_instance;
        let provider = provider.map(|provider| ProviderInstance::of_plugin(provider, cx)).transpose();
        Ok(Self {
            trusted_ca: optional(from.trusted_ca, "trusted_ca")?,
            provider: provider.map_err(|e| e.at("ca_certificate_provider_instance"))?,
            system_roots: from.system_root_certs.is_some(),
            crl: optional(from.crl, "crl")?,
            only_verify_leaf_cert_crl: from.only_verify_leaf_cert_crl,
            max_verify_depth: from.max_verify_depth.map(|depth| depth.value),
            verify_certificate_spki: texts(from.verify_certificate_spki),
            verify_certificate_hash: texts(from.verify_certificate_hash),
            san_matchers: SanMatcher::parse_all(
                from.match_subject_alt_names,
                from.match_typed_subject_alt_names,
            )?,
            require_signed_certificate_timestamp: from
                .require_signed_certificate_timestamp
                .is_some_and(|require| require.value),
            allow_expired_certificate: from.allow_expired_certificate,
            accept_untrusted: from.trust_chain_verification
                == validation::TrustChainVerification::AcceptUntrusted as i32,
        })
    }
}

impl DataSource {
    /// Parses where data are.
    fn parse(from: Option<core::DataSource>) -> Result<Self, Invalid> {
        let specifier = from.and_then(|from| from.specifier).ok_or(Invalid::new("must be set"))?;
        let name = |name: String, field| match name.is_empty() {
            true => Err(Invalid::field(field, "must not be empty")),
            false => Ok(name.into()),
        };
        Ok(match specifier {
            Specifier::Filename(path) => Self::Filename(name(path, "filename")?),
            Specifier::InlineBytes(bytes) => Self::Inline(bytes),
            Specifier::InlineString(text) => Self::Inline(text.into()),
            Specifier::EnvironmentVariable(variable) => {
                Self::EnvironmentVariable(name(variable, "environment_variable")?)
            }
        })
    }
}

impl Sensitive {
    /// Parses data that no log shows.
    fn parse(from: Option<core::DataSource>) -> Result<Self, Invalid> {
        DataSource::parse(from).map(Self)
    }

    /// Returns the data itself.
    pub fn expose(&self) -> &DataSource {
        &self.0
    }

    /// Returns the source with inline data hidden.
    fn shown(&self) -> DataSource {
        match &self.0 {
            DataSource::Inline(_) => DataSource::Inline(Bytes::from_static(b"[hidden]")),
            // The path of a file or the name of a variable is needed to find an error, and is no secret.
            elsewhere @ (DataSource::Filename(_) | DataSource::EnvironmentVariable(_)) => elsewhere.clone(),
        }
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sensitive").field(&self.shown()).finish()
    }
}

impl Serialize for Sensitive {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(to)
    }
}

/// Parses data that may be missing.
fn optional(from: Option<core::DataSource>, field: &str) -> Result<Option<DataSource>, Invalid> {
    from.map(|from| DataSource::parse(Some(from)).map_err(|e| e.at(field))).transpose()
}

/// Writes bytes as text.
fn text<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests;
