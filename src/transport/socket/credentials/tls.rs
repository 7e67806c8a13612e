//! TLS to management servers, by material that is reloaded from its files.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tonic::codegen::StdError;

use super::Secured;
use crate::{
    config::{Server, TlsConfig},
    dial::{Alpn, Socket},
    escape::Escaped,
    tls::{ClientTls, Generation, HTTP2, HandshakeError, Revocation, RevocationLists, refusal},
};

/// The TLS of a client's connections to management servers. It outlives the connections: the last good material stays in use when
/// files become unusable, and sessions are resumed.
#[derive(Clone, Default)]
pub(super) struct TlsCache {
    known: Arc<Mutex<HashMap<Key, Arc<ClientTls>>>>,
    /// Lists that no certificate of a server may be in; `None` checks no revocation.
    revocation: Option<Revoked>,
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
    /// Creates TLS that checks certificates of servers by lists (A69). No I/O.
    pub(super) fn revoking(setting: RevocationLists) -> Self {
        let lists = Revocation::new(setting.clone());
        Self { revocation: Some(Revoked { setting, lists }), ..Self::default() }
    }

    /// Reads the files of a configuration, or the system's root certificates. Files that have become unusable leave the last good
    /// material in use.
    ///
    /// # Errors
    /// A text with the field, the file and the reason: the material has never been usable.
    pub(super) async fn load(&self, server: &Server, config: TlsConfig, alpn: Alpn) -> Result<Tls, String> {
        if config.certificate_file.is_some() != config.private_key_file.is_some() {
            return Err("certificate_file and private_key_file come together".to_owned());
        }
        let client = self.client(Key { server: server.uri.as_str().into(), config, alpn });
        let generation = client.prepare().await.map_err(|missing| missing.reason().to_owned())?;
        Ok(Tls { client, generation })
    }

    /// Returns the TLS of a key, made if it is not known.
    fn client(&self, key: Key) -> Arc<ClientTls> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return client.clone();
        }
        // An application may have another configuration for each connection. Those in a handshake are in use.
        if known.len() >= MOST_KNOWN {
            known.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let Key { server, config, alpn } = &key;
        let client = ClientTls::of_server(config, &Escaped(server).to_string(), *alpn);
        let lists = self.revocation.as_ref().map(|revoked| revoked.lists.clone());
        let client = Arc::new(client.with_revocation(lists));
        known.insert(key, client.clone());
        client
    }
}

/// What is kept configures nothing, except for the lists.
impl PartialEq for TlsCache {
    fn eq(&self, other: &Self) -> bool {
        let setting = |cache: &Self| cache.revocation.as_ref().map(|revoked| revoked.setting.clone());
        setting(self) == setting(other)
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
