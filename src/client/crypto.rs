//! The cryptography of a client's TLS.

use super::BuildError;
use crate::{
    config::{Bootstrap, ChannelCredentials},
    tls::Crypto,
    transport::GrpcTransport,
};

/// Chooses the cryptography of a client, and keeps it in the transport: a default that the process gets later is for later clients.
pub(super) fn choose(grpc: &mut GrpcTransport) -> Crypto {
    let crypto = grpc.crypto();
    if let Ok(provider) = crypto.provider() {
        *grpc = grpc.clone().with_crypto_provider(provider.clone());
    }
    crypto
}

/// Checks that there is cryptography if a server needs it.
pub(super) fn check(crypto: &Crypto, bootstrap: &Bootstrap) -> Result<(), BuildError> {
    if crypto.provider().is_ok() {
        return Ok(());
    }
    let has_tls = |credentials: &_| matches!(credentials, ChannelCredentials::Tls(_));
    match bootstrap.servers().find(|server| has_tls(&server.channel_credentials)) {
        Some(server) => Err(BuildError::NoCryptoProvider { server: server.uri.to_string() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Server;

    #[test]
    fn without_cryptography_tls_to_a_server_is_an_error_and_plaintext_is_not() {
        let bootstrap =
            |server: crate::config::ServerBuilder| Bootstrap::builder().server(server).build().unwrap();
        let plaintext = bootstrap(Server::new("xds.example:80").insecure());
        assert_eq!(check(&Crypto::missing(), &plaintext), Ok(()));
        let secured = bootstrap(Server::new("xds.example:443").tls(Default::default()));
        let error = check(&Crypto::missing(), &secured).unwrap_err().to_string();
        let start = "cannot connect to xDS server xds.example:443: TLS has no cryptography: enable the feature `tls-ring`";
        assert!(error.starts_with(start), "{error}");
        assert_eq!(check(&Crypto::choose(None), &secured), Ok(()));
    }
}
