//! One list of revoked certificates (RFC 5280, section 5).

use std::{sync::OnceLock, time::Duration};

use tokio_rustls::rustls::pki_types::{
    CertificateRevocationListDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    pem::{self, PemObject},
};
use webpki::{BorrowedCertRevocationList, CertRevocationList, RawPublicKeyEntity};
use x509_cert::{
    der::{
        Decode, Reader, SliceReader,
        asn1::{AnyRef, BitStringRef},
    },
    ext::pkix::crl::dp::IssuingDistributionPoint,
    time::Time,
};

/// A list, which counts only with the key of its issuer ([`Self::is_signed_by`]).
#[derive(Debug)]
pub(super) struct List {
    /// The name of the issuer: the content of its sequence.
    issuer: Box<[u8]>,
    /// The serial numbers of certificates, sorted.
    revoked: Box<[Box<[u8]>]>,
    /// The certificates that it is about; `None` is all of the issuer.
    scope: Option<IssuingDistributionPoint>,
    /// The end of its validity, since 1970.
    next_update: Duration,
    /// The signature, verified when the key of the issuer is known.
    signed: Signed,
}

/// The part of a list that its issuer has signed, with the signature.
#[derive(Debug)]
struct Signed {
    /// The signed bytes (`tbsCertList`).
    content: Box<[u8]>,
    /// The identifier of the signature algorithm.
    algorithm: Box<[u8]>,
    signature: Box<[u8]>,
    /// The first key that the signature was verified with: lists may be large, and are verified at each handshake.
    key: OnceLock<Box<[u8]>>,
}

/// Why there are no lists in a file.
#[derive(Debug)]
pub(super) enum NoLists {
    /// There is none, or it ends early: the rest may follow.
    Incomplete(String),
    Unusable(String),
}

impl List {
    /// The lists of a file: one in DER, or those of a PEM file.
    pub(super) fn in_file(bytes: &[u8]) -> Result<Vec<Self>, NoLists> {
        // A sequence in DER of 128 bytes or more, which no text begins with.
        if let [0x30, 0x80..=0xff, ..] = bytes {
            return Ok(vec![Self::parse(bytes).map_err(NoLists::Incomplete)?]);
        }
        let sections = CertificateRevocationListDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
        let sections =
            sections.map_err(|e: pem::Error| NoLists::Incomplete(format!("not a PEM file: {e}")))?;
        if sections.is_empty() {
            return Err(NoLists::Incomplete("no certificate revocation list (X509 CRL) in it".to_owned()));
        }
        sections.iter().map(|der| Self::parse(der)).collect::<Result<_, _>>().map_err(NoLists::Unusable)
    }

    /// Parses one list in DER.
    fn parse(der: &[u8]) -> Result<Self, String> {
        // It checks the form, refuses what would change the meaning, such as a delta, and demands the next update.
        let checked = BorrowedCertRevocationList::from_der(der).map_err(|e| unusable(&e))?;
        let revoked: Result<Vec<Box<[u8]>>, _> =
            checked.into_iter().map(|entry| entry.map(|entry| entry.serial_number.into())).collect();
        let mut revoked = revoked.map_err(|e| unusable(&e))?;
        // Sorted once for all handshakes, which search it for each certificate.
        revoked.sort_unstable();
        let checked = CertRevocationList::from(checked);
        let scope = checked.issuing_distribution_point().map(IssuingDistributionPoint::from_der);
        let (signed, next_update) = Signed::parse(der).map_err(|e| unusable(&e))?;
        Ok(Self {
            issuer: checked.issuer().into(),
            revoked: revoked.into(),
            scope: scope.transpose().map_err(|e| unusable(&e))?,
            next_update,
            signed,
        })
    }

    /// The name of the issuer, as the content of its sequence in DER.
    pub(super) fn issuer(&self) -> &[u8] {
        &self.issuer
    }

    /// Whether the list has the serial number of a certificate.
    pub(super) fn names(&self, serial: &[u8]) -> bool {
        self.revoked.binary_search_by(|one| (**one).cmp(serial)).is_ok()
    }

    /// The serial numbers of revoked certificates.
    #[cfg(feature = "fuzzing")]
    pub(super) fn revoked(&self) -> impl Iterator<Item = &[u8]> {
        self.revoked.iter().map(|serial| &**serial)
    }

    /// Returns the certificates that the list is about; `None` is all of the issuer.
    pub(super) fn scope(&self) -> Option<&IssuingDistributionPoint> {
        self.scope.as_ref()
    }

    /// How long ago the list has expired, if it has.
    pub(super) fn expired(&self, now: Duration) -> Option<Duration> {
        now.checked_sub(self.next_update)
    }

    /// Whether the list is of the owner of a key. It is a forgery otherwise, or of another authority of the same name.
    pub(super) fn is_signed_by(
        &self,
        key: &SubjectPublicKeyInfoDer<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        self.signed.is_by(key, algorithms)
    }
}

impl Signed {
    /// The parts of a list in DER, with its next update.
    fn parse(der: &[u8]) -> Result<(Self, Duration), x509_cert::der::Error> {
        let list = AnyRef::from_der(der)?;
        let mut parts = SliceReader::new(list.value())?;
        let content = parts.tlv_bytes()?;
        let algorithm = AnyRef::decode(&mut parts)?;
        let signature = BitStringRef::decode(&mut parts)?;
        let mut fields = SliceReader::new(AnyRef::from_der(content)?.value())?;
        // The version is optional in the format, and always here: `from_der` of webpki refuses lists without it.
        // Version, algorithm, and issuer.
        for _ in 0..3 {
            AnyRef::decode(&mut fields)?;
        }
        let _this_update = Time::decode(&mut fields)?;
        let next_update = Time::decode(&mut fields)?.to_unix_duration();
        let signed = Self {
            content: content.into(),
            algorithm: algorithm.value().into(),
            signature: signature.raw_bytes().into(),
            key: OnceLock::new(),
        };
        Ok((signed, next_update))
    }

    /// Whether the key is that of the signature.
    fn is_by(
        &self,
        key: &SubjectPublicKeyInfoDer<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        if self.key.get().is_some_and(|verified| **verified == **key) {
            return true;
        }
        let Ok(entity) = RawPublicKeyEntity::try_from(key) else { return false };
        let fits = |one: &&&dyn SignatureVerificationAlgorithm| {
            one.signature_alg_id().as_ref() == &*self.algorithm
                && entity.verify_signature(**one, &self.content, &self.signature).is_ok()
        };
        let is_by = algorithms.iter().any(|one| fits(&one));
        if is_by {
            // Another key may have been first, which is true, too.
            let _ = self.key.set((**key).into());
        }
        is_by
    }
}

fn unusable(why: &dyn std::fmt::Debug) -> String {
    format!("a certificate revocation list that cannot be used: {why:?}")
}
