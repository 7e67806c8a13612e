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

/// A secret that a management server hands out.
///
/// What must stay secret is [`Sensitive`]: neither `Debug` nor JSON shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Secret {
    /// Its name, not empty.
    pub name: Arc<str>,
    /// What it holds.
    #[serde(flatten)]
    pub kind: SecretKind,
}

/// What a [`Secret`] holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretKind {
    /// A certificate and its key.
    TlsCertificate(TlsCertificate),
    /// How to check a peer's certificate.
    ValidationContext(Box<ValidationContext>),
    /// Keys for tickets of TLS sessions, at least one, the one to be used first in front.
    SessionTicketKeys(Box<[Sensitive]>),
    /// A secret of any other kind, such as a password.
    GenericSecret(Sensitive),
    /// Several of them by their names, at least one.
    GenericSecrets(BTreeMap<Box<str>, Sensitive>),
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TlsCertificate {
    /// The two themselves.
    #[serde(flatten)]
    pub identity: Identity,
    /// The password of the key or of the archive, where it has one.
    pub password: Option<Sensitive>,
    /// What the authority said of the certificate's validity (an OCSP response in DER), to be sent with it.
    pub ocsp_staple: Option<DataSource>,
    /// Proofs that the certificate was logged, to be sent with it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub signed_certificate_timestamps: Box<[DataSource]>,
}

/// How a [`TlsCertificate`] comes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Identity {
    /// As two texts.
    #[non_exhaustive]
    Pem {
        /// The certificate and those that signed it, in PEM.
        certificate_chain: DataSource,
        /// The key, in PEM.
        private_key: Sensitive,
    },
    /// As one archive.
    #[non_exhaustive]
    Pkcs12 {
        /// The archive of certificate, key and those that signed it, in DER.
        pkcs12: Sensitive,
    },
}

/// How to check a peer's certificate. Every condition must hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ValidationContext {
    /// Certificates that the peer's must be signed by, in PEM.
    pub trusted_ca: Option<DataSource>,
    /// The certificate provider instance that brings them instead.
    pub provider: Option<ProviderInstance>,
    /// Whether the operating system's certificates are trusted, where there is no `provider`.
    pub system_roots: bool,
    /// Certificates that were revoked, in PEM.
    pub crl: Option<DataSource>,
    /// Whether only the peer's own certificate is looked for among them, and not those that signed it.
    pub only_verify_leaf_cert_crl: bool,
    /// How many certificates there may be between the peer's and a trusted one; `None` leaves it to the TLS library.
    pub max_verify_depth: Option<u32>,
    /// Hashes of public keys of which the peer's must be one (Base64 of SHA-256); empty accepts every key.
    pub verify_certificate_spki: Box<[Box<str>]>,
    /// Hashes of certificates of which the peer's must be one (hexadecimal SHA-256); empty accepts every certificate.
    pub verify_certificate_hash: Box<[Box<str>]>,
    /// One of the names in the certificate must match one of these; empty accepts every name.
    pub san_matchers: Box<[SanMatcher]>,
    /// Whether there must be a proof that the certificate was logged.
    pub require_signed_certificate_timestamp: bool,
    /// Whether certificates that have expired are accepted.
    pub allow_expired_certificate: bool,
    /// Whether certificates that are not trusted are accepted.
    pub accept_untrusted: bool,
}

/// Where data comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DataSource {
    /// A file of this path, not empty.
    Filename(Box<str>),
    /// The message itself. In JSON as text; bytes that are no text are replaced there.
    #[serde(serialize_with = "text")]
    Inline(Bytes),
    /// An environment variable of this name, not empty.
    EnvironmentVariable(Box<str>),
}

/// Data that must not be shown: what is inline is hidden from `Debug` and JSON, where to find it is not.
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
    fn parse(from: Option<core::DataSource>) -> Result<Self, Invalid> {
        DataSource::parse(from).map(Self)
    }

    /// The data, for those who use it.
    pub fn expose(&self) -> &DataSource {
        &self.0
    }

    /// The same without anything that must not be shown.
    fn shown(&self) -> DataSource {
        match &self.0 {
            DataSource::Inline(_) => DataSource::Inline(Bytes::from_static(b"[hidden]")),
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

fn optional(from: Option<core::DataSource>, field: &str) -> Result<Option<DataSource>, Invalid> {
    from.map(|from| DataSource::parse(Some(from)).map_err(|e| e.at(field))).transpose()
}

fn text<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests;
