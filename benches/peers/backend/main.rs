//! Echo servers for the calls: `backend COUNT [CERTIFICATES]` prints their addresses and serves until its standard input ends; with a
//! folder that `certificates` wrote over TLS, to clients with a certificate.

#[path = "../../calls/echo.rs"]
#[allow(dead_code, reason = "this is no client")]
mod echo;

use std::{error::Error, io, net::Ipv4Addr, path::Path, sync::Arc, thread};

use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().ok_or("usage: backend COUNT [CERTIFICATES]")?.parse()?;
    let tls = args.next().map(|folder| acceptor(Path::new(&folder))).transpose()?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(format!("{:?}", listener.local_addr()?.to_string()));
        tokio::spawn(echo::serve(listener, tls.clone()));
    }
    println!(r#"{{"event":"listening","addresses":[{}]}}"#, addresses.join(","));
    thread::spawn(|| {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        std::process::exit(0);
    });
    std::future::pending().await
}

fn acceptor(folder: &Path) -> Result<TlsAcceptor, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem"))?)?;
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem"))?];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem"))?;
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
    let mut config =
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
