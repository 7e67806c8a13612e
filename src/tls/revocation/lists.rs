//! All lists of a setting, and the check of a chain by them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime},
};
use webpki::{Cert, EndEntityCert, KeyUsage, VerifiedPath};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode, Encode, Tag, asn1::AnyRef},
    ext::pkix::{self, CrlDistributionPoints, crl::dp::DistributionPoint, name::DistributionPointName},
};

use super::list::List;

/// The lists as of one time (CH7.17).
pub(crate) struct Lists {
    /// The files that the lists are from, for errors.
    origin: Arc<str>,
    /// Whether certificates of undetermined status are accepted.
    fails_open: bool,
    /// The lists by the name of their issuer.
    by_issuer: ByIssuer,
    /// The reasons why files cannot be read, for errors.
    failures: Vec<Arc<str>>,
}

/// Lists with their files, by the name of the issuer in DER.
type ByIssuer = BTreeMap<Box<[u8]>, Vec<(PathBuf, Arc<List>)>>;

/// The role of a peer, for which its certificate is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// The certificates that a peer has sent, and the roots that one of them must be signed by.
pub(crate) struct Chain<'a> {
    pub(crate) leaf: &'a CertificateDer<'a>,
    pub(crate) intermediates: &'a [CertificateDer<'a>],
    pub(crate) roots: &'a RootCertStore,
    pub(crate) role: Role,
}

/// A certificate of a chain, with its issuer.
struct Link<'a> {
    certificate: &'a Cert<'a>,
    is_leaf: bool,
    issuer_key: SubjectPublicKeyInfoDer<'a>,
    /// `None` is a root, which may sign lists.
    issuer: Option<&'a Cert<'a>>,
}

/// The reason why a chain is not known to be unrevoked.
enum Doubt {
    /// A list has a certificate of the chain.
    Revoked(String),
    /// No list is decisive about a certificate of the chain.
    Undetermined(String),
}

impl Lists {
    /// Arranges lists by their issuers.
    pub(super) fn new(
        origin: Arc<str>,
        fails_open: bool,
        lists: impl IntoIterator<Item = (PathBuf, Arc<List>)>,
        failures: Vec<Arc<str>>,
    ) -> Self {
        let mut by_issuer = ByIssuer::new();
        for (path, list) in lists {
            by_issuer.entry(list.issuer().into()).or_default().push((path, list));
        }
        Self { origin, fails_open, by_issuer, failures }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_issuer.is_empty()
    }

    /// Checks that there is a chain to a root without a revoked certificate. It is to be verified apart from that.
    ///
    /// # Errors
    /// A text with the certificate and the list.
    pub(crate) fn verify(
        &self,
        chain: &Chain<'_>,
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), String> {
        let doubt = RefCell::new(None);
        let check = |path: &VerifiedPath<'_>| {
            self.check(path, Duration::from_secs(now.as_secs()), algorithms).map_err(|why| {
                doubt.borrow_mut().get_or_insert(why);
                webpki::Error::CertRevoked
            })
        };
        let Chain { leaf, intermediates, roots, role } = *chain;
        let leaf = EndEntityCert::try_from(leaf).map_err(|e| format!("{e:?}"))?;
        let usage = match role {
            Role::Server => KeyUsage::server_auth(),
            Role::Client => KeyUsage::client_auth(),
        };
        // webpki tries other paths to a root when a check refuses one, so the first reason is kept for the error.
        let verified =
            leaf.verify_for_usage(algorithms, &roots.roots, intermediates, now, usage, None, Some(&check));
        let Err(error) = verified else { return Ok(()) };
        Err(doubt.take().unwrap_or_else(|| format!("its chain cannot be checked for revocation: {error:?}")))
    }

    /// Checks one path from the leaf to a root.
    fn check(
        &self,
        path: &VerifiedPath<'_>,
        now: Duration,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), String> {
        let mut undetermined = None;
        // All links are looked at: a revoked one is refused even with `fail_open`, and even if another one is undetermined.
        for link in links(path) {
            match self.check_link(&link, now, algorithms) {
                Ok(()) => {}
                Err(Doubt::Revoked(why)) => return Err(why),
                Err(Doubt::Undetermined(why)) => {
                    undetermined.get_or_insert(why);
                }
            }
        }
        match undetermined {
            Some(reason) if self.fails_open => {
                tracing::debug!(reason, "certificate of undetermined revocation status accepted");
                Ok(())
            }
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Checks one certificate by the lists of its issuer.
    fn check_link(
        &self,
        link: &Link<'_>,
        now: Duration,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), Doubt> {
        let candidates = self.by_issuer.get(link.certificate.issuer()).map_or(&[][..], Vec::as_slice);
        let mut determined = false;
        let mut whys = Vec::new();
        for (path, list) in candidates {
            let path = path.display();
            // The signature first: a list of anybody else must not refuse a certificate, either.
            if !list.is_signed_by(&link.issuer_key, algorithms) {
                whys.push(format!("{path} is not signed by the key of the issuer"));
            } else if !link.issuer_signs_lists() {
                whys.push(format!("the certificate of the issuer is not for signing lists, such as {path}"));
            } else if list.names(link.certificate.serial()) {
                // Even if it has expired, or is about others: what its issuer has revoked once stays so.
                return Err(Doubt::Revoked(format!("{link} is revoked by {path}: replace the certificate")));
            } else if let Some(ago) = list.expired(now) {
                whys.push(format!("{path} has expired {} s ago", ago.as_secs()));
            } else if !link.is_in_scope_of(list) {
                whys.push(format!("{path} is about other certificates"));
            } else {
                determined = true;
            }
        }
        if determined { Ok(()) } else { Err(Doubt::Undetermined(self.undetermined(link, &whys))) }
    }

    /// Explains why the status of a certificate is undetermined.
    fn undetermined(&self, link: &Link<'_>, whys: &[String]) -> String {
        let origin = &self.origin;
        let mut text = format!("the revocation of {link} is not determined by {origin}: ");
        match whys {
            [] => text.push_str("there is no list of its issuer"),
            whys => text.push_str(&whys[..whys.len().min(MAX_SHOWN)].join("; ")),
        }
        for failure in self.failures.iter().take(MAX_SHOWN) {
            let _ = write!(text, "; unusable: {failure}");
        }
        text.push_str(" (to accept such certificates, use `RevocationLists::fail_open`)");
        text
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.by_issuer.values().flatten().map(|(path, _)| &**path).collect::<Vec<&Path>>();
        f.debug_struct("Lists").field("files", &files).field("fails_open", &self.fails_open).finish()
    }
}

impl Link<'_> {
    /// Whether the issuer's certificate is for that, if it says what it is for.
    fn issuer_signs_lists(&self) -> bool {
        let Some(issuer) = self.issuer else { return true };
        let usage = parsed(issuer).map(|parsed| parsed.tbs_certificate().get_extension::<pkix::KeyUsage>());
        match usage {
            Some(Ok(Some((_, usage)))) => usage.crl_sign(),
            Some(Ok(None)) => true,
            Some(Err(_)) | None => false,
        }
    }

    /// Whether the certificate would be in a list if it was revoked.
    fn is_in_scope_of(&self, list: &List) -> bool {
        let Some(scope) = list.scope() else { return true };
        if scope.only_contains_attribute_certs
            || (scope.only_contains_ca_certs && self.is_leaf)
            || (scope.only_contains_user_certs && !self.is_leaf)
        {
            return false;
        }
        let Some(point) = &scope.distribution_point else { return true };
        let points = parsed(self.certificate)
            .and_then(|parsed| parsed.tbs_certificate().get_extension::<CrlDistributionPoints>().ok());
        match points {
            Some(Some((_, points))) => points.0.iter().any(|other| is_same(point, other)),
            // The certificate names no list, so that it may be in any.
            Some(None) => true,
            None => false,
        }
    }
}

/// Names the certificate by its serial number and issuer.
impl fmt::Display for Link<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_leaf { "certificate " } else { "the authority's certificate " })?;
        for (at, byte) in self.certificate.serial().iter().take(MAX_SERIAL).enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" })?;
        }
        let issuer = parsed(self.certificate).map(|parsed| parsed.tbs_certificate().issuer().to_string());
        let issuer: String = issuer.unwrap_or_default().chars().take(MAX_NAME_SHOWN).collect();
        write!(f, " of the issuer {issuer:?}")
    }
}

/// The certificates below the root, the leaf first.
fn links<'a>(path: &'a VerifiedPath<'a>) -> impl Iterator<Item = Link<'a>> {
    let anchor = path.anchor();
    let certificates = std::iter::once(&**path.end_entity()).chain(path.intermediate_certificates());
    let issuers = path.intermediate_certificates().map(Some).chain([None]);
    certificates.zip(issuers).enumerate().map(move |(at, (certificate, issuer))| {
        let issuer_key = match issuer {
            Some(issuer) => issuer.subject_public_key_info(),
            None => SubjectPublicKeyInfoDer::from(sequence(&anchor.subject_public_key_info)),
        };
        Link { certificate, is_leaf: at == 0, issuer_key, issuer }
    })
}

/// A sequence in DER with a content.
fn sequence(content: &[u8]) -> Vec<u8> {
    // It has been one. What is empty is no key.
    AnyRef::new(Tag::Sequence, content).and_then(|sequence| sequence.to_der()).unwrap_or_default()
}

/// Parses a certificate for its extensions, which webpki does not show.
fn parsed(certificate: &Cert<'_>) -> Option<CertificateInner<Raw>> {
    CertificateInner::<Raw>::from_der(&certificate.der()).ok()
}

/// Whether a list is the one at a distribution point of a certificate.
fn is_same(own: &DistributionPointName, of_certificate: &DistributionPoint) -> bool {
    match (own, &of_certificate.distribution_point) {
        (DistributionPointName::FullName(own), Some(DistributionPointName::FullName(other))) => {
            own.iter().any(|name| other.contains(name))
        }
        (own, Some(other)) => own == other,
        (_, None) => false,
    }
}

/// How many files an error names.
const MAX_SHOWN: usize = 4;
/// How many bytes of a serial number an error shows: all that are permitted.
const MAX_SERIAL: usize = 20;
/// How many characters of the name of an issuer an error shows.
const MAX_NAME_SHOWN: usize = 200;
