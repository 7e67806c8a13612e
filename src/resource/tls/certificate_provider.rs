//! Certificate providers of an application: plugins of the bootstrap's `certificate_providers` that are executed (A29).

use std::{collections::BTreeMap, error::Error, fmt, future::Future, pin::Pin, sync::Arc};

use crate::{
    escape::debug_as_message,
    resource::{Custom, Extension},
};

/// A certificate provider of an application, for channels and servers. It is added to a
/// [`Registry`](crate::resource::Registry::with_certificate_plugin), and instances of it are configured by the bootstrap's `certificate_providers`.
///
/// ```
/// use std::time::Duration;
///
/// use serde::Serialize;
/// use xdskit::resource::{Context, Extension, Invalid, Payload, Registry, tls::*};
///
/// /// Certificates of a vault, at an address.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct Vault {
///     address: String,
/// }
///
/// impl Extension for Vault {
///     const TYPE_NAME: &'static str = "vault"; // the `plugin_name`
///
///     fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         let Payload::Struct(config) = payload else { return Err(Invalid::new("must be JSON")) };
///         let address = config.get("address").and_then(|address| address.as_str());
///         Ok(Self { address: address.ok_or(Invalid::field("address", "missing"))?.to_owned() })
///     }
/// }
///
/// impl CertificateProviderPlugin for Vault {
///     fn run(&self, publisher: CertificatePublisher) -> ProviderRun {
///         let address = self.address.clone();
///         Box::pin(async move {
///             loop {
///                 let (chain, key, roots) = fetch(&address).await?; // an error is logged, and the provider is run again
///                 publisher.publish_identity(CertificateIdentity::from_pem(chain, key))?;
///                 publisher.publish_roots(CertificateRoots::from_pem(roots))?;
///                 tokio::time::sleep(Duration::from_secs(600)).await;
///             }
///         })
///     }
/// }
///
/// # async fn fetch(_: &str) -> std::io::Result<(String, String, String)> { Err(std::io::ErrorKind::Other.into()) }
/// let registry = Registry::new().with_certificate_plugin::<Vault>();
/// ```
pub trait CertificateProviderPlugin: Extension {
    /// Provides certificates for as long as the future runs: the latest that was published is in use.
    ///
    /// Instances of equal configuration are one. It is run once something needs it, such as the first connection of a cluster that
    /// names it, and dropped when nothing does; the last material is kept for the next run. Each run has a thread of its own, on
    /// which the future may block, and the runtime of its user, and there is one at a time.
    ///
    /// A future that completes with `Ok` has published its last. After an error or a panic, which is logged, there is another run,
    /// with a delay that grows from 1 s to 120 s; the last good material is kept meanwhile, and without any the error is the reason why
    /// handshakes fail.
    fn run(&self, publisher: CertificatePublisher) -> ProviderRun;
}

/// A run of a certificate provider. The error is reported with its sources.
pub type ProviderRun = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send>>;

/// The receiver of the material of a certificate provider. Clones are for the same instance.
///
/// Material is for new handshakes. Certificate and key are one value, and the roots another; each is replaced as a whole. Publishing
/// what is in use already changes nothing.
#[derive(Clone)]
pub struct CertificatePublisher(Arc<dyn MaterialSink>);

/// A certificate chain with its private key. The key is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateIdentity(pub(crate) IdentityEncoding);

/// The root certificates that verify peers: one set for all, or one for each SPIFFE trust domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRoots(pub(crate) RootsEncoding);

/// Published material that cannot be used, with the reason; what was in use before is kept.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct MaterialError {
    /// What is wrong with it.
    reason: Box<str>,
}

debug_as_message!(MaterialError);

/// The encodings of a certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum IdentityEncoding {
    /// Two texts.
    Pem {
        /// The chain, the leaf first.
        chain: Vec<u8>,
        /// The private key.
        key: Vec<u8>,
    },
    /// DER.
    Der {
        /// The certificates of the chain, the leaf first.
        chain: Vec<Vec<u8>>,
        /// The private key: PKCS#8, PKCS#1 or SEC1.
        key: Vec<u8>,
    },
}

/// The encodings of root certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RootsEncoding {
    /// A text.
    Pem(Vec<u8>),
    /// A certificate each.
    Der(Vec<Vec<u8>>),
    /// A SPIFFE trust bundle map as JSON (A87).
    SpiffeJson(Vec<u8>),
    /// The root certificates of each SPIFFE trust domain, in DER.
    Spiffe(BTreeMap<String, Vec<Vec<u8>>>),
}

/// What a publisher hands material to.
pub(crate) trait MaterialSink: Send + Sync {
    /// Handles another certificate with its key.
    fn handle_identity(&self, identity: CertificateIdentity) -> Result<(), MaterialError>;
    /// Handles other roots.
    fn handle_roots(&self, roots: CertificateRoots) -> Result<(), MaterialError>;
    /// Handles the reason why there is no newer material.
    fn handle_failure(&self, reason: &str);
}

/// Starts a run of a plugin by its configuration; `None` if the configuration is of another plugin.
pub(crate) type StartPlugin = fn(&Custom, CertificatePublisher) -> Option<ProviderRun>;

impl CertificatePublisher {
    /// Creates the publisher of an instance.
    pub(crate) fn new(sink: Arc<dyn MaterialSink>) -> Self {
        Self(sink)
    }

    /// Replaces the certificate and its key.
    ///
    /// # Errors
    /// The material is malformed, larger than 64 KiB, or the key is not that of the first certificate. What was in use before is kept.
    pub fn publish_identity(&self, identity: CertificateIdentity) -> Result<(), MaterialError> {
        self.0.handle_identity(identity)
    }

    /// Replaces the roots.
    ///
    /// # Errors
    /// The material is malformed, larger than 16 MiB, or there is no certificate in it; a trust bundle map may be empty, and trusts no
    /// peer then. What was in use before is kept.
    pub fn publish_roots(&self, roots: CertificateRoots) -> Result<(), MaterialError> {
        self.0.handle_roots(roots)
    }

    /// Reports why there is no newer material, such as that a server is unreachable. It is logged once until material is published
    /// (level `warn`). Material that is in use stays so; without any, it is the reason why handshakes fail.
    pub fn report_failure(&self, reason: impl fmt::Display) {
        self.0.handle_failure(&reason.to_string());
    }
}

impl fmt::Debug for CertificatePublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePublisher").finish_non_exhaustive()
    }
}

impl CertificateIdentity {
    /// A chain in PEM, the leaf first, and its key in PEM.
    pub fn from_pem(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self(IdentityEncoding::Pem { chain: chain.into(), key: key.into() })
    }

    /// The certificates of a chain in DER, the leaf first, and its key in DER: PKCS#8, PKCS#1 (RSA) or SEC1 (elliptic curves).
    pub fn from_der<C: Into<Vec<u8>>>(chain: impl IntoIterator<Item = C>, key: impl Into<Vec<u8>>) -> Self {
        let chain = chain.into_iter().map(Into::into).collect();
        Self(IdentityEncoding::Der { chain, key: key.into() })
    }

    /// The length of chain and key, in bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            IdentityEncoding::Pem { chain, key } => chain.len() + key.len(),
            IdentityEncoding::Der { chain, key } => total(chain) + key.len(),
        }
    }
}

/// The key is left out.
impl fmt::Debug for CertificateIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateIdentity").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl CertificateRoots {
    /// Root certificates in PEM.
    pub fn from_pem(certificates: impl Into<Vec<u8>>) -> Self {
        Self(RootsEncoding::Pem(certificates.into()))
    }

    /// Root certificates in DER.
    pub fn from_der<C: Into<Vec<u8>>>(certificates: impl IntoIterator<Item = C>) -> Self {
        Self(RootsEncoding::Der(certificates.into_iter().map(Into::into).collect()))
    }

    /// A SPIFFE trust bundle map in JSON, as in a file of the plugin `file_watcher` (gRFC
    /// [A87](https://github.com/grpc/proposal/blob/master/A87-mtls-spiffe-support.md)).
    pub fn from_spiffe_json(map: impl Into<Vec<u8>>) -> Self {
        Self(RootsEncoding::SpiffeJson(map.into()))
    }

    /// The root certificates of SPIFFE trust domains such as `example.org`, in DER: a peer is verified by those of the domain of its
    /// SPIFFE id, and by no others.
    pub fn from_spiffe_bundles(bundles: BTreeMap<String, Vec<Vec<u8>>>) -> Self {
        Self(RootsEncoding::Spiffe(bundles))
    }

    /// The length of the certificates, in bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            RootsEncoding::Pem(bytes) | RootsEncoding::SpiffeJson(bytes) => bytes.len(),
            RootsEncoding::Der(certificates) => total(certificates),
            RootsEncoding::Spiffe(bundles) => {
                bundles.iter().map(|(domain, bundle)| domain.len() + total(bundle)).sum()
            }
        }
    }
}

impl MaterialError {
    /// Creates an error with a reason.
    pub(crate) fn new(reason: impl Into<Box<str>>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Starts a run of a plugin by its configuration.
pub(in crate::resource) fn start<T: CertificateProviderPlugin>(
    config: &Custom,
    publisher: CertificatePublisher,
) -> Option<ProviderRun> {
    Some(config.get::<T>()?.run(publisher))
}

/// The length of all parts, in bytes. Each counts as one more, so that many empty parts are not for nothing.
fn total(parts: &[Vec<u8>]) -> usize {
    parts.iter().map(|part| part.len() + 1).sum()
}
