//! An application whose other crates use rustls with its default features, as reqwest and hyper-rustls do. The
//! feature `tls` alone adds no second provider of cryptography, with which rustls would have no default and panic.

use std::{error::Error, fs};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs},
};
use xdskit::{
    Client,
    client::BuildError,
    config::{Bootstrap, Server, TlsConfig},
    control_plane::{ControlPlane, ServerTls},
    resource::Cluster,
    testing::resources::cluster,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(&certificate, issued.cert.pem())?;
    fs::write(&key, issued.signing_key.serialize_pem())?;

    // Without a provider, TLS is an error when it is configured, and plaintext is none.
    Client::builder(Bootstrap::builder().server(Server::new("localhost:1").insecure()).build()?).build()?;
    let secured = |port: u16| {
        let tls = TlsConfig::default().with_ca_certificate_file(&certificate);
        Bootstrap::builder().server(Server::new(format!("localhost:{port}")).tls(tls)).build()
    };
    match Client::builder(secured(1)?).build() {
        Err(error @ BuildError::NoCryptoProvider { .. }) => println!("{error}"),
        other => return Err(format!("not an error of cryptography: {other:?}").into()),
    }
    println!("{}", ServerTls::from_files(&certificate, &key, None).err().ok_or("TLS without a provider")?);

    // The provider of the application.
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("cart"));
    let provider = aws_lc_rs::default_provider;
    let tls = ServerTls::from_files_with_provider(provider(), &certificate, &key, None)?;
    let server = control_plane.serve_tls("127.0.0.1:0", tls).await?;
    let bootstrap = secured(server.addr().port())?;
    let client = Client::builder(bootstrap.clone()).crypto_provider(provider()).build()?;
    client.watch::<Cluster>("cart").ready().await?;
    println!("TLS by the provider of the application");

    // rustls makes the only provider of the program its default, and would panic with two.
    assert!(CryptoProvider::get_default().is_none(), "the crate has installed a provider");
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    ServerTls::from_files(&certificate, &key, None)?;
    let client = Client::builder(bootstrap).build()?;
    client.watch::<Cluster>("cart").ready().await?;
    println!("TLS by the default of the process");
    Ok(())
}
