//! The certificates of calls over TLS: `certificates FOLDER` writes `ca.pem`, and the chain `cert.pem` with `key.pem`, which servers
//! and clients show alike. The names in it are `backend.test` and `127.0.0.1`.

use std::{error::Error, fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: certificates FOLDER")?;
    let folder = Path::new(&folder);
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca.self_signed(&ca_key)?;
    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(vec!["backend.test".to_owned(), "127.0.0.1".to_owned()])?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = leaf.signed_by(&key, &Issuer::new(ca, ca_key))?;
    fs::write(folder.join("ca.pem"), ca_certificate.pem())?;
    fs::write(folder.join("cert.pem"), certificate.pem())?;
    fs::write(folder.join("key.pem"), key.serialize_pem())?;
    Ok(())
}
