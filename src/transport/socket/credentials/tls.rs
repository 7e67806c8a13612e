//! TLS to management servers, by material that is reloaded from its files.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_rustls::rustls::crypto::CryptoProvider;
use tonic::codegen::StdError;

use super::Secured;
use crate::{
    config::{Server, TlsConfig},
    dial::{Alpn, Socket},
    escape::Escaped,
    tls::{ClientTls, Crypto, Generation, HTTP2, HandshakeError, Revocation, RevocationLists, refusal},
};

/// The TLS of a client's connections to management servers. It outlives the connections: the last good material stays in use when
/// files become unusable, and sessions are resumed.
#[derive(Clone, Default)]
pub(super) struct TlsCache {
    known: Arc<Mutex<HashMap<Key, Arc<ClientTls>>>>,
    /// Lists that no certificate of a server may be in; `None` checks no revocation.
    revocation: Option<Revoked>,
    /// The cryptography that the application has set; `None` is that of the process or of the build.
    crypto: Option<Arc<CryptoProvider>>,
}

/// Revocation lists, read once for all servers.
#[derive(Clone)]
struct Revoked {
    setting: RevocationLists,
    lists: Arc<Revocation>,
}

/// What makes the TLS of two connections the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    /// The URI of the server: sessions are offered to no other one.
    server: Box<str>,
    config: TlsConfig,
    alpn: Alpn,
}

/// TLS with the material of one connection.
pub(super) struct Tls {
    /// The settings, with the sessions of earlier connections.
    client: Arc<ClientTls>,
    /// The material that was read for this connection.
    generation: Arc<Generation>,
}

impl TlsCache {
    /// Sets the lists by which certificates of servers are checked (A69). No I/O.
    pub(super) fn revoke_by(&mut self, setting: RevocationLists) {
        let lists = Revocation::new(setting.clone());
        // Clones of these credentials keep what they know.
        self.known = Arc::default();
        self.revocation = Some(Revoked { setting, lists });
    }

    /// Sets the cryptography.
    pub(super) fn set_crypto(&mut self, provider: Arc<CryptoProvider>) {
        self.known = Arc::default();
        self.crypto = Some(provider);
    }

    /// Chooses the cryptography of TLS to a server without earlier connections.
    pub(super) fn crypto(&self) -> Crypto {
        Crypto::choose(self.crypto.as_ref())
    }

    /// Reads the files of a configuration, or the system's root certificates. Files that have become unusable leave the last good
    /// material in use.
    ///
    /// # Errors
    /// A text with the field, the file and the reason: the material has never been usable. Or there is no cryptography.
    pub(super) async fn load(&self, server: &Server, config: TlsConfig, alpn: Alpn) -> Result<Tls, String> {
        if config.certificate_file.is_some() != config.private_key_file.is_some() {
            return Err("certificate_file and private_key_file come together".to_owned());
        }
        let client = self.client(Key { server: server.uri.as_str().into(), config, alpn })?;
        let generation = client.prepare().await.map_err(|missing| missing.reason().to_owned())?;
        Ok(Tls { client, generation })
    }

    /// Returns the TLS of a key, made if it is not known.
    fn client(&self, key: Key) -> Result<Arc<ClientTls>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        // TLS without cryptography is not kept: the process may have a default later.
        let crypto = self.crypto();
        crypto.provider().map_err(|missing| missing.to_string())?;
        // An application may have another configuration for each connection. Those in a handshake are in use.
        if known.len() >= MOST_KNOWN {
            known.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let Key { server, config, alpn } = &key;
        let client = ClientTls::of_server(config, &Escaped(server).to_string(), *alpn, crypto);
        let lists = self.revocation.as_ref().map(|revoked| revoked.lists.clone());
        let client = Arc::new(client.with_revocation(lists));
        known.insert(key, client.clone());
        Ok(client)
    }
}

/// What is kept configures nothing, except for the lists and the cryptography. The latter is compared by identity, as rustls has
/// no other comparison.
impl PartialEq for TlsCache {
    fn eq(&self, other: &Self) -> bool {
        let setting = |cache: &Self| cache.revocation.as_ref().map(|revoked| revoked.setting.clone());
        let crypto = |cache: &Self| cache.crypto.as_ref().map(Arc::as_ptr);
        setting(self) == setting(other) && crypto(self) == crypto(other)
    }
}

impl fmt::Debug for TlsCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCache").finish_non_exhaustive()
    }
}

impl Tls {
    /// Makes the handshake with a host of this name or address.
    pub(super) async fn secure(&self, io: Socket, host: &str) -> Result<Secured, StdError> {
        let handshake = self.client.handshake(&self.generation, host, io).await;
        let io = handshake.map_err(|error| match error {
            HandshakeError::Failed(e) => match refusal(&e) {
                Some(refused) => StdError::from(refused.to_string()),
                None => e.into(),
            },
            HandshakeError::Unusable(reason) => reason.into(),
        })?;
        let selected_http2 = io.get_ref().1.alpn_protocol() == Some(HTTP2);
        Ok(Secured { io: io.into(), selected_http2 })
    }
}

/// How many configurations are kept, of which bootstraps have a few.
const MOST_KNOWN: usize = 64;

#[cfg(test)]
mod tests;
