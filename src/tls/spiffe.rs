//! SPIFFE: the ids in certificates, and the roots of each trust domain (A87, CH7.11).

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use tokio_rustls::rustls::{RootCertStore, pki_types::CertificateDer};

/// The id of a workload: `spiffe://domain/path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpiffeId<'a> {
    uri: &'a str,
    /// The trust domain, a part of `uri`.
    domain: &'a str,
}

/// The roots of trust domains, by the domain. It may be empty: then no certificate is accepted.
#[derive(Debug, Default)]
pub(crate) struct TrustBundleMap {
    /// Roots by trust domain.
    domains: BTreeMap<Box<str>, Arc<RootCertStore>>,
}

impl<'a> SpiffeId<'a> {
    /// Parses the id of a workload, which has a path, as the standard SPIFFE-ID demands: lower case and no port in the
    /// domain, no empty or relative segments, and nothing escaped.
    pub(crate) fn parse(uri: &'a str) -> Result<Self, &'static str> {
        if uri.len() > MAX_ID {
            return Err("longer than 2048 bytes");
        }
        let rest = uri.strip_prefix("spiffe://").ok_or("it does not begin with spiffe://")?;
        let (domain, path) = rest.split_once('/').ok_or("it has no path")?;
        check_domain(domain)?;
        for segment in path.split('/') {
            if segment.is_empty() || segment == "." || segment == ".." {
                return Err("a segment of the path is empty or relative");
            }
            if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
                return Err("the path has a character that is not allowed");
            }
        }
        Ok(Self { uri, domain })
    }

    /// Returns the whole URI.
    pub(crate) fn as_str(&self) -> &'a str {
        self.uri
    }

    /// Returns the trust domain.
    pub(crate) fn domain(&self) -> &'a str {
        self.domain
    }
}

impl TrustBundleMap {
    /// Parses the JSON of a map. A single key that is not usable makes the whole map unusable.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        let root: Value = serde_json::from_slice(json).map_err(|e| format!("not JSON: {e}"))?;
        let domains = root.get("trust_domains").ok_or("trust_domains: missing")?;
        let domains = domains.as_object().ok_or("trust_domains: expected an object")?;
        let each = domains.iter().map(|(domain, bundle)| {
            let at = |why: String| format!("trust_domains[{domain:?}]{why}");
            check_domain(domain).map_err(|why| at(format!(": {why}")))?;
            Ok((domain.as_str().into(), Arc::new(bundle_roots(bundle).map_err(at)?)))
        });
        Ok(Self { domains: each.collect::<Result<_, String>>()? })
    }

    /// Creates a map of the root certificates of domains, in DER. A single certificate that is not usable makes the whole map unusable.
    pub(crate) fn of_certificates(bundles: &BTreeMap<String, Vec<Vec<u8>>>) -> Result<Self, String> {
        let each = bundles.iter().map(|(domain, certificates)| {
            check_domain(domain).map_err(|why| format!("trust domain {domain:?}: {why}"))?;
            let mut roots = RootCertStore::empty();
            for (at, certificate) in certificates.iter().enumerate() {
                let added = roots.add(CertificateDer::from(certificate.clone()));
                added.map_err(|e| {
                    format!("trust domain {domain:?}, certificate {at}: it cannot be used: {e}")
                })?;
            }
            Ok((domain.as_str().into(), Arc::new(roots)))
        });
        Ok(Self { domains: each.collect::<Result<_, String>>()? })
    }

    /// The roots of a domain.
    pub(crate) fn roots(&self, domain: &str) -> Option<&Arc<RootCertStore>> {
        self.domains.get(domain)
    }

    /// The names of the domains.
    pub(crate) fn domains(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.keys().map(AsRef::as_ref)
    }
}

/// The roots in a bundle: a set of JSON web keys. The error begins with a path.
fn bundle_roots(bundle: &Value) -> Result<RootCertStore, String> {
    let bundle = bundle.as_object().ok_or(": expected an object")?;
    let mut roots = RootCertStore::empty();
    let keys = match bundle.get("keys") {
        None => return Ok(roots),
        Some(keys) => keys.as_array().ok_or(".keys: expected an array")?,
    };
    for (at, key) in keys.iter().enumerate() {
        let certificate =
            key.as_object().ok_or_else(|| ": expected an object".to_owned()).and_then(certificate);
        let added = certificate.and_then(|certificate| {
            roots.add(certificate).map_err(|e| format!(".x5c[0]: a certificate that cannot be used: {e}"))
        });
        added.map_err(|why| format!(".keys[{at}]{why}"))?;
    }
    Ok(roots)
}

/// The certificate of a key.
fn certificate(key: &Map<String, Value>) -> Result<CertificateDer<'static>, String> {
    if key.get("kty").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(".kty: missing".to_owned());
    }
    match key.get("use").and_then(Value::as_str) {
        Some("x509-svid") => {}
        Some(other) => return Err(format!(".use: {other:?} is not supported, only \"x509-svid\"")),
        None => return Err(".use: missing".to_owned()),
    }
    let chain = key.get("x5c").and_then(Value::as_array).ok_or(".x5c: missing")?;
    let [Value::String(one)] = chain.as_slice() else {
        return Err(".x5c: must be one certificate".to_owned());
    };
    let der = STANDARD.decode(one).map_err(|e| format!(".x5c[0]: not base64: {e}"))?;
    Ok(CertificateDer::from(der))
}

/// Checks the name of a trust domain by the standard SPIFFE-ID.
fn check_domain(domain: &str) -> Result<(), &'static str> {
    if domain.is_empty() || domain.len() > MAX_DOMAIN {
        return Err("the trust domain must have 1 to 255 characters");
    }
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    if domain.bytes().all(allowed) {
        Ok(())
    } else {
        Err("the trust domain has a character that is not allowed")
    }
}

/// The longest id and the longest domain of the standard, in bytes.
const MAX_ID: usize = 2048;
const MAX_DOMAIN: usize = 255;

#[cfg(test)]
mod tests;
