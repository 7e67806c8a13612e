//! Handshakes by the cryptography that was chosen.

use tokio_rustls::rustls::{
    CipherSuite,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
};

use super::*;

impl World {
    /// The world with this cryptography.
    fn with_crypto(crypto: Crypto) -> Self {
        let mut world = Self::new();
        let both = FileWatcherConfig {
            ca_certificate_file: Some(world.folder.path("ca.crt")),
            ..FileWatcherConfig::identity(world.folder.path("tls.crt"), world.folder.path("tls.key"))
        };
        let builder = Bootstrap::builder().server(Server::new("localhost:1").insecure());
        let builder = builder.certificate_provider("both", CertificateProvider::FileWatcher(both));
        world.providers = Providers::new(&builder.build().unwrap(), &Registry::new(), crypto);
        world
    }

    /// The world with a changed provider.
    fn with_provider(change: impl FnOnce(&mut CryptoProvider)) -> Self {
        let mut provider = CryptoProvider::clone(&fixture::provider());
        change(&mut provider);
        Self::with_crypto(Crypto::choose(Some(&Arc::new(provider))))
    }
}

#[tokio::test]
async fn handshakes_have_the_suites_of_the_provider() {
    for suite in [CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, CipherSuite::TLS13_AES_128_GCM_SHA256] {
        let world =
            World::with_provider(|provider| provider.cipher_suites.retain(|one| one.suite() == suite));
        let client = world.client(upstream("a.example"), None);
        let (near, far) = tokio::io::duplex(1 << 16);
        let accept = TlsAcceptor::from(Arc::new(world.server())).accept(far);
        let (connected, _accepted) = tokio::join!(client.connect(near), accept);
        let Connected { stream, .. } = connected.unwrap();
        assert_eq!(stream.get_ref().1.negotiated_cipher_suite().unwrap().suite(), suite);
    }
}

#[tokio::test]
async fn certificates_are_verified_by_the_algorithms_of_the_provider() {
    let world = World::with_provider(|provider| {
        let WebPkiSupportedAlgorithms { mapping, .. } = provider.signature_verification_algorithms;
        provider.signature_verification_algorithms = WebPkiSupportedAlgorithms { all: &[], mapping };
    });
    let error = error(&world.client(upstream("a.example"), None), world.server()).await;
    assert!(error.contains("is not trusted by certificate provider instance \"both\""), "{error}");
}

#[tokio::test]
async fn keys_are_loaded_by_the_provider() {
    let world = World::with_crypto(Crypto::choose(Some(&fixture::provider_without_keys())));
    let error = error(&world.client(mutual("a.example"), None), world.server()).await;
    assert!(
        error.contains("a key that cannot be used: unexpected error: refused by the provider"),
        "{error}"
    );
    // TLS without a key does not need one.
    handshake(&world.client(upstream("a.example"), None), &Arc::new(world.server())).await.unwrap();
}

#[tokio::test]
async fn without_cryptography_there_is_no_handshake() {
    let world = World::with_crypto(Crypto::missing());
    for tls in [upstream("a.example"), mutual("a.example")] {
        let error = error(&world.client(tls, None), world.server()).await;
        assert!(error.contains("TLS has no cryptography: enable the feature"), "{error}");
    }
}
