//! Security with TLS, in builds that have it.

use std::{
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use http::uri::Authority;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Peer;
use crate::{
    Client,
    balance::identity::{ClusterTls, Destination, Security},
    config::{Bootstrap, TlsConfig},
    tls::{ClientTls, PeerIdentity, Providers},
};

/// What a channel with [xDS credentials](crate::channel::ChannelBuilder::xds_credentials) has for the clusters that configure no TLS.
/// It is never used in the place of TLS that a cluster configures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FallbackCredentials {
    /// No security.
    #[default]
    Plaintext,
    /// TLS, which verifies that the server's certificate is that of the channel's authority.
    Tls(TlsConfig),
}

/// What the channels of a client have in common.
pub(in crate::channel) struct SharedTls {
    providers: Arc<Providers>,
    in_use: Mutex<HashMap<Key, Weak<ClientTls>>>,
}

/// The security of a channel's connections.
pub(in crate::channel) struct ChannelSecurity {
    client: Client,
    /// Where the fallback is TLS.
    fallback: Option<TlsConfig>,
    authority: Authority,
    /// With the sessions of the connections before, which the next ones resume (CH7.16).
    known: HashMap<Security, Tls>,
}

/// TLS of one security generation. It is equal to itself alone, and equal configurations of a client have the same one.
#[derive(Clone)]
pub(in crate::channel) struct Tls {
    client: Arc<ClientTls>,
    /// The peer has proved that it is the channel's authority (CH7.3).
    is_fallback: bool,
}

/// What is known of the peer of a connection with TLS.
#[derive(Debug)]
pub(in crate::channel) struct Secured {
    identity: PeerIdentity,
    /// It is kept as long as the connection.
    tls: Tls,
}

/// What makes security the same.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Fallback(TlsConfig, Authority),
    Cluster(ClusterTls, Option<Arc<str>>),
}

impl FallbackCredentials {
    /// What the core has of it.
    pub(in crate::channel) fn security(&self) -> Security {
        match self {
            Self::Plaintext => Security::Plaintext,
            Self::Tls(_) => Security::Fallback,
        }
    }
}

impl From<TlsConfig> for FallbackCredentials {
    fn from(config: TlsConfig) -> Self {
        Self::Tls(config)
    }
}

impl SharedTls {
    /// It does no I/O.
    pub(in crate::channel) fn new(bootstrap: &Bootstrap) -> Self {
        Self { providers: Providers::new(bootstrap), in_use: Mutex::default() }
    }

    /// The security of a key, which is made unless a channel uses it.
    fn get(&self, key: Key) -> Arc<ClientTls> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = in_use.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        in_use.retain(|_, it| it.strong_count() > 0);
        let new = Arc::new(match &key {
            Key::Fallback(config, authority) => ClientTls::of_config(config, authority.as_str()),
            Key::Cluster(tls, hostname) => {
                ClientTls::of_cluster(self.providers.clone(), tls.config().clone(), hostname.as_deref())
            }
        });
        in_use.insert(key, Arc::downgrade(&new));
        new
    }
}

impl ChannelSecurity {
    pub(in crate::channel) fn new(
        client: &Client,
        fallback: Option<FallbackCredentials>,
        authority: &Authority,
    ) -> Self {
        let fallback = match fallback {
            Some(FallbackCredentials::Tls(config)) => Some(config),
            Some(FallbackCredentials::Plaintext) | None => None,
        };
        let (client, authority) = (client.clone(), authority.clone());
        Self { client, fallback, authority, known: HashMap::new() }
    }

    /// What a connection to a destination is made with.
    pub(in crate::channel) fn peer(&mut self, Destination { address, identity }: &Destination) -> Peer {
        Peer { address: *address, proxy: identity.proxy(), tls: self.tls(identity.security()) }
    }

    fn tls(&mut self, security: &Security) -> Option<Tls> {
        if let Some(known) = self.known.get(security) {
            return Some(known.clone());
        }
        let (key, is_fallback) = match security {
            Security::Plaintext => return None,
            // The core has no fallback without a configuration of it.
            Security::Fallback => (Key::Fallback(self.fallback.clone()?, self.authority.clone()), true),
            Security::Cluster { tls, hostname } => (Key::Cluster(tls.clone(), hostname.clone()), false),
        };
        let tls = Tls { client: self.client.connections().tls().get(key), is_fallback };
        self.forget_unused();
        self.known.insert(security.clone(), tls.clone());
        Some(tls)
    }

    /// Forgets the security that no connection has, when there is too much of it.
    fn forget_unused(&mut self) {
        if self.known.len() >= MOST_KNOWN && self.known.len().is_power_of_two() {
            self.known.retain(|_, it| Arc::strong_count(&it.client) > 1);
        }
    }
}

impl Tls {
    /// Makes the handshake. It ends with the attempt (CH7.23).
    ///
    /// # Errors
    /// A text with the reason.
    pub(in crate::channel) async fn connect(
        &self,
        io: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, Secured), String> {
        let (io, identity) = self.client.connect(io).await?;
        Ok((io, Secured { identity, tls: self.clone() }))
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }
}

impl Eq for Tls {}

impl Hash for Tls {
    fn hash<S: Hasher>(&self, state: &mut S) {
        Arc::as_ptr(&self.client).hash(state);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("is_fallback", &self.is_fallback).finish_non_exhaustive()
    }
}

impl Secured {
    pub(in crate::channel) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Whether the peer may have requests to an authority that is not the channel's (CH2.24). The rules of clusters take the place of
    /// this check.
    ///
    /// # Errors
    /// A text with the reason.
    pub(in crate::channel) fn permits(&self, authority: &Authority) -> Result<(), String> {
        if !self.tls.is_fallback {
            return Ok(());
        }
        is_for(self.identity.certificate(), authority.host())
            .map_err(|reason| format!("the peer has no certificate for the authority {authority}: {reason}"))
    }
}

/// Whether a certificate is that of a host, by the rules of Web PKI.
fn is_for(certificate: &[u8], host: &str) -> Result<(), String> {
    use tokio_rustls::rustls::{
        client::verify_server_name,
        pki_types::{CertificateDer, ServerName},
        server::ParsedCertificate,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let certificate = CertificateDer::from_slice(certificate);
    let certificate = ParsedCertificate::try_from(&certificate).map_err(|error| error.to_string())?;
    verify_server_name(&certificate, &name).map_err(|error| error.to_string())
}

impl fmt::Debug for SharedTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTls").finish_non_exhaustive()
    }
}

/// Security that no connection has any more is kept up to this number, for the sessions to resume.
const MOST_KNOWN: usize = 64;
