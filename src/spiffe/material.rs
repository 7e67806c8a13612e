//! What the responses of an agent mean, without I/O.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use prost::Message;

use crate::{
    pb,
    resource::tls::{CertificateIdentity, CertificateRoots},
    tls::{CertificateNames, SpiffeId},
};

/// The material of a response.
#[derive(Debug)]
pub(super) struct Material {
    /// The identity; `None` of a response with bundles alone.
    pub(super) identity: Option<Svid>,
    /// The bundles of all trust domains.
    pub(super) roots: CertificateRoots,
    /// The number of revocation lists, which are not used.
    pub(super) revocation_lists: usize,
}

/// An X.509-SVID: a certificate with a SPIFFE id, and its key.
#[derive(Debug)]
pub(super) struct Svid {
    /// The SPIFFE id.
    pub(super) id: String,
    /// The certificate with its key.
    pub(super) certificate: CertificateIdentity,
    /// The end of the validity, since 1970.
    pub(super) not_after: Duration,
}

/// The certificates of trust domains, in DER.
type Bundles = BTreeMap<String, Vec<Vec<u8>>>;

impl Material {
    /// Reads a response with identities, of which one is chosen by its hint.
    ///
    /// # Errors
    /// A text with what is wrong. Nothing of such a response is used.
    pub(super) fn of_identities(response: Bytes, hint: Option<&str>) -> Result<Self, String> {
        let response = pb::X509svidResponse::decode(response).map_err(malformed)?;
        let count = response.svids.len();
        let mut svids = response.svids.into_iter();
        // The first one is the default, and the first of those with the same hint is the one.
        let chosen = match hint {
            None => svids.next().ok_or("the agent has sent no identity")?,
            Some(hint) => svids.find(|svid| svid.hint == hint).ok_or_else(|| {
                format!("none of the {count} identities that the agent has sent has the hint {hint:?}")
            })?,
        };
        let shown: String = chosen.spiffe_id.chars().take(MAX_SHOWN).collect();
        let at = |why: String| format!("the identity {shown:?}: {why}");
        let id = SpiffeId::parse(&chosen.spiffe_id).map_err(|why| at(why.to_owned()))?;
        let chain = certificates(&chosen.x509_svid).map_err(at)?;
        let leaf = chain.first().ok_or_else(|| at("its chain is empty".to_owned()))?;
        let names = CertificateNames::of(leaf).map_err(at)?;
        let own = names.spiffe_id().map_err(at)?;
        if own != id {
            return Err(at(format!("its certificate is for {:?}", own.as_str())));
        }
        let mut bundles = bundles(response.federated_bundles)?;
        let bundle = certificates(&chosen.bundle).map_err(|why| at(format!("its bundle: {why}")))?;
        // The agent's own word for the domain counts, whatever the federated bundles are.
        bundles.insert(id.domain().to_owned(), bundle);
        let not_after = names.not_after();
        let certificate = CertificateIdentity::from_der(chain, chosen.x509_svid_key);
        Ok(Self {
            identity: Some(Svid { id: id.as_str().to_owned(), certificate, not_after }),
            roots: CertificateRoots::from_spiffe_bundles(bundles),
            revocation_lists: response.crl.len(),
        })
    }

    /// Reads a response with bundles alone.
    ///
    /// # Errors
    /// A text with what is wrong. Nothing of such a response is used.
    pub(super) fn of_bundles(response: Bytes) -> Result<Self, String> {
        let response = pb::X509BundlesResponse::decode(response).map_err(malformed)?;
        let bundles = bundles(response.bundles)?;
        if bundles.is_empty() {
            return Err("the agent has sent no bundle".to_owned());
        }
        Ok(Self {
            identity: None,
            roots: CertificateRoots::from_spiffe_bundles(bundles),
            revocation_lists: response.crl.len(),
        })
    }
}

/// Reads bundles, whose names are ids of trust domains, or the domains alone.
fn bundles(by_domain: BTreeMap<String, Bytes>) -> Result<Bundles, String> {
    let each = by_domain.into_iter().map(|(name, bundle)| {
        let domain = name.strip_prefix("spiffe://").unwrap_or(&name);
        let certificates = certificates(&bundle).map_err(|why| {
            let shown: String = domain.chars().take(MAX_SHOWN).collect();
            format!("the bundle of {shown:?}: {why}")
        })?;
        Ok((domain.to_owned(), certificates))
    });
    each.collect()
}

/// Splits certificates in DER that stand one after the other. Their contents are not looked at.
fn certificates(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = sequence_length(bytes).ok_or("the certificates are not in DER")?;
        let (one, rest) = bytes.split_at_checked(length).ok_or("a certificate is cut off")?;
        found.push(one.to_vec());
        bytes = rest;
    }
    Ok(found)
}

/// The length of the sequence at the beginning, with its header.
fn sequence_length(bytes: &[u8]) -> Option<usize> {
    let (&[0x30, first], rest) = bytes.split_first_chunk::<2>()? else { return None };
    if first < 0x80 {
        return Some(2 + usize::from(first));
    }
    let count = usize::from(first & 0x7f);
    // Lengths of more than four bytes are beyond every limit.
    let digits = rest.get(..count).filter(|digits| (1..=4).contains(&digits.len()))?;
    let length = digits.iter().fold(0_usize, |length, digit| length << 8 | usize::from(*digit));
    length.checked_add(2 + count)
}

/// The error of a response that is no message.
fn malformed(error: prost::DecodeError) -> String {
    format!("the agent has sent a malformed response: {error}")
}

/// How many characters of a name an error shows.
const MAX_SHOWN: usize = 256;
