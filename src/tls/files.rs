//! Certificates and keys in PEM files: what they contain, or which file is unusable for which reason.

use std::path::Path;

use tokio_rustls::rustls::{
    Error, InconsistentKeys, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};

use crate::file_reads;
pub(crate) use crate::file_reads::in_file;

/// A file with its content.
pub(crate) struct Content<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: &'a [u8],
}

/// The reason why contents are unusable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The file and what is wrong with it, for errors and logs.
    pub(crate) reason: String,
    /// Whether it looks like half a rotation or half a file, so that the rest may follow at once (CH7.6).
    pub(crate) incomplete: bool,
}

/// The reason why a certificate and a key are no pair.
#[derive(Debug)]
pub(super) enum KeyPairError {
    /// The key cannot be used.
    Key(Error),
    /// The certificate cannot be used.
    Certificate(Error),
    /// The key is not that of the certificate.
    Mismatch,
}

/// Reads a regular file of a bounded size. `field` is its name in the configuration, for the error.
pub(crate) fn read(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    file_reads::read(field, path, MAX_FILE)
}

/// What a file means, or that its parser has panicked: that must not end the task which reads the file again.
pub(super) fn parsed<T>(parse: impl FnOnce() -> Result<T, Unusable>) -> Result<T, Unusable> {
    let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(parse));
    parsed.unwrap_or_else(|_| Err(Unusable::new("its content has the parser panic".to_owned())))
}

/// The client's identity. Certificate and key are two files, of which a rotation may have replaced only one (CH7.6).
pub(crate) fn identity(
    certificate: &Content<'_>,
    key: &Content<'_>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Unusable> {
    let chain = certificates("certificate_file", certificate)?;
    let private = PrivateKeyDer::from_pem_slice(key.bytes)
        .map_err(|e| pem_problem("private_key_file", key.path, &e, "private key"))?;
    key_pair(chain, private, provider).map_err(|e| match e {
        KeyPairError::Key(e) => {
            Unusable::new(in_file("private_key_file", key.path, &format!("a key that cannot be used: {e}")))
        }
        KeyPairError::Mismatch => {
            let other = format!("not for the key in private_key_file {}: replace both", key.path.display());
            Unusable::incomplete(in_file("certificate_file", certificate.path, &other))
        }
        KeyPairError::Certificate(e) => {
            Unusable::new(in_file("certificate_file", certificate.path, &unusable(&e)))
        }
    })
}

/// A chain with its key, which must be that of the first certificate.
pub(super) fn key_pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, KeyPairError> {
    let key = provider.key_provider.load_private_key(key).map_err(KeyPairError::Key)?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // A key that does not show its public half cannot be compared, and is left to the handshake.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
        Err(Error::InconsistentKeys(_)) => Err(KeyPairError::Mismatch),
        Err(e) => Err(KeyPairError::Certificate(e)),
    }
}

/// The roots of a file: every certificate must be usable, and there must be one (CH7.6).
pub(crate) fn roots(file: &Content<'_>) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_certificate_file", file)? {
        let unusable = |e| Unusable::new(in_file("ca_certificate_file", file.path, &unusable(&e)));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

/// The certificates that the operating system trusts (A82).
pub(crate) fn system_certificates() -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(format!("the system has no usable root certificates: {}", why.join("; ")));
    }
    // The order of files in a directory means nothing.
    found.certs.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    Ok(found.certs)
}

/// The usable ones of the system's certificates, of which there must be one.
pub(crate) fn system_roots(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Systems have certificates that rustls cannot use; unlike a configured file, they are not the operator's choice.
    match roots.add_parsable_certificates(certificates.iter().cloned()) {
        (0, unusable) => Err(format!("the system has no usable root certificates: {unusable} are unusable")),
        (_, _) => Ok(roots),
    }
}

/// Reads the certificates of a PEM file, of which there must be one.
pub(crate) fn certificates(
    field: &str,
    file: &Content<'_>,
) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file.bytes).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(pem_problem(field, file.path, &pem::Error::NoItemsFound, "certificate"))
        }
        Ok(found) => Ok(found),
        Err(e) => Err(pem_problem(field, file.path, &e, "certificate")),
    }
}

impl Unusable {
    /// Creates a reason that lasts until the file is changed.
    pub(crate) fn new(reason: String) -> Self {
        Self { reason, incomplete: false }
    }

    /// Creates a reason that may pass in a moment.
    pub(crate) fn incomplete(reason: String) -> Self {
        Self { reason, incomplete: true }
    }
}

/// The reason why a PEM file has no such item. A file that is being written ends anywhere, or is still empty.
fn pem_problem(field: &str, path: &Path, error: &pem::Error, expected: &str) -> Unusable {
    if let pem::Error::NoItemsFound = error {
        return Unusable::incomplete(in_file(field, path, &format!("no {expected} in it")));
    }
    Unusable::incomplete(in_file(field, path, &format!("not a PEM file: {error}")))
}

/// Explains an error of rustls about a certificate of the client, which rustls calls a "peer certificate" as well.
pub(super) fn unusable(error: &Error) -> String {
    if let Error::InvalidCertificate(why) = error {
        return format!("a certificate that cannot be used: {why:?}");
    }
    format!("a certificate that cannot be used: {error}")
}

/// The largest size of a file of certificates. All roots of Mozilla are 0.2 MiB.
pub(super) const MAX_FILE: u64 = 16 << 20;
