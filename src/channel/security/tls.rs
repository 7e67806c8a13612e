//! Security with TLS, in builds that have it.

use std::{
    collections::HashMap,
    fmt,
    future::pending,
    hash::{Hash, Hasher},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use http::uri::Authority;
use tokio_rustls::rustls::crypto::CryptoProvider;

use super::Peer;
use crate::{
    Client,
    balance::{
        identity::{ClusterTls, Destination, EndpointCredentials, Rotation, Security},
        status::TlsStatus,
    },
    channel::error::ChannelError,
    client::ClientBuilder,
    config::{Target, TlsConfig},
    dial::{MaybeTlsStream, Socket},
    tls::{
        ClientTls, Connected, Crypto, PeerIdentity, ProviderRotations, Providers, Revocation,
        RevocationLists, RotatedInstance,
    },
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

/// The settings of a channel for its connections.
#[derive(Debug, Clone, Default)]
pub(in crate::channel) struct SecuritySettings {
    /// Without them, there is no TLS.
    pub(in crate::channel) xds_credentials: Option<FallbackCredentials>,
    /// Revocation lists; `None` checks no revocation.
    pub(in crate::channel) revocation: Option<RevocationLists>,
    /// Whether connections are replaced when their certificates are (CH7.7).
    pub(in crate::channel) reconnect_on_rotation: bool,
    /// The cryptography of the application, and then that which was chosen; `None` is that of the client.
    pub(in crate::channel) crypto: Option<Arc<CryptoProvider>>,
}

/// The TLS of the channels of a client, by cryptography: it loads keys, so that channels with another one share nothing.
#[derive(Default)]
struct TlsByCrypto(Mutex<Vec<Arc<SharedTls>>>);

/// The TLS that the channels of a client with the same cryptography share.
struct SharedTls {
    /// The certificate providers of the bootstrap, with the cryptography.
    providers: Arc<Providers>,
    /// TLS with users, by what makes it equal.
    in_use: Mutex<HashMap<Key, Weak<ClientTls>>>,
    /// Revocation lists with users, by their settings.
    revocations: Mutex<HashMap<RevocationLists, Weak<Revocation>>>,
}

/// The security of a channel's connections.
pub(in crate::channel) struct ChannelSecurity {
    /// The TLS that is shared with other channels of the client.
    shared: Arc<SharedTls>,
    /// The configuration of the fallback, if that is TLS.
    fallback: Option<TlsConfig>,
    /// The authority of the channel, which the fallback verifies.
    authority: Authority,
    /// The revocation lists, kept in memory as long as the channel.
    revocation: Option<(RevocationLists, Arc<Revocation>)>,
    /// Whether connections are replaced when their certificates are.
    reconnects: bool,
    /// The TLS of each destination, with the sessions of earlier connections, which later ones resume (CH7.16).
    known: HashMap<Destination, Tls>,
}

/// TLS to an endpoint, of one security generation. It is equal to itself alone; channels of a client with equal configurations
/// for an endpoint share it.
#[derive(Clone)]
pub(in crate::channel) struct Tls {
    /// Settings, material and sessions.
    client: Arc<ClientTls>,
    /// Whether it is the fallback: the peer has proved to be the authority of the channel, and nothing else (CH7.3).
    is_fallback: bool,
    /// The number of rotations before the connection, if it is to be replaced at the next one: connections are shared until then
    /// (CH7.7).
    rotations: u64,
}

/// The rotations of certificates, if connections are to be replaced at them (CH7.7).
#[derive(Debug)]
pub(in crate::channel) struct RotationWatch(Option<ProviderRotations>);

/// The result of a handshake.
#[derive(Debug)]
pub(in crate::channel) struct Secured {
    /// The certificate of the peer.
    identity: PeerIdentity,
    /// The certificate that this side offers.
    offered: Option<Arc<[u8]>>,
    /// The name of the cipher suite.
    cipher_suite: Option<&'static str>,
    /// The generation of settings and material that the connection was made with, kept as long as the connection.
    tls: Tls,
}

/// The identity of TLS to an endpoint: address, configuration and revocation lists.
type Key = (SocketAddr, Source, Option<RevocationLists>);

/// The configuration of the security of a connection.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Source {
    /// The fallback of the channel, for its authority.
    Fallback(TlsConfig, Authority),
    /// The settings of a cluster, with the hostname of the endpoint.
    Cluster(ClusterTls, Option<Arc<str>>),
}

impl FallbackCredentials {
    /// Returns the credentials as the core uses them.
    pub(in crate::channel) fn credentials(&self) -> EndpointCredentials {
        let fallback = match self {
            Self::Plaintext => Security::Plaintext,
            Self::Tls(_) => Security::Fallback,
        };
        EndpointCredentials::Xds { fallback }
    }
}

impl From<TlsConfig> for FallbackCredentials {
    fn from(config: TlsConfig) -> Self {
        Self::Tls(config)
    }
}

impl SecuritySettings {
    /// Checks the settings without a client.
    ///
    /// # Errors
    /// Settings of TLS have no effect.
    pub(in crate::channel) fn check(&self, target: &Target) -> Result<(), ChannelError> {
        if self.revocation.is_some() && self.xds_credentials.is_none() {
            return Err(ChannelError::RevocationWithoutCredentials { target: target.to_string() });
        }
        Ok(())
    }

    /// Sets the cryptography of the client that a channel builds for itself.
    pub(in crate::channel) fn of_client(&self, builder: ClientBuilder) -> ClientBuilder {
        match &self.crypto {
            Some(provider) => builder.crypto_provider(provider.clone()),
            None => builder,
        }
    }

    /// Chooses the cryptography of the channel.
    ///
    /// # Errors
    /// There is none, and clusters may need it.
    pub(in crate::channel) fn choose_crypto(
        &mut self,
        client: &Client,
        target: &Target,
    ) -> Result<(), ChannelError> {
        if self.crypto.is_none() {
            self.crypto = client.crypto().provider().ok().cloned();
        }
        if self.crypto.is_none() && self.xds_credentials.is_some() {
            return Err(ChannelError::NoCryptoProvider { target: target.to_string() });
        }
        Ok(())
    }
}

impl SharedTls {
    /// Returns the TLS of the channels of a client with this cryptography.
    fn of(client: &Client, crypto: &Crypto) -> Arc<Self> {
        let by_crypto = client.extension(|_| TlsByCrypto::default());
        let mut known = by_crypto.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|shared| shared.providers.crypto() == crypto) {
            return known.clone();
        }
        // TLS without channels is kept for later ones, with its material, but not beside more and more of other cryptography.
        known.retain(|shared| Arc::strong_count(shared) > 1);
        let new = Arc::new(Self::new(client.certificate_providers(crypto)));
        known.push(new.clone());
        new
    }

    /// Creates TLS without I/O: providers read their files once a connection needs them.
    fn new(providers: Arc<Providers>) -> Self {
        Self { providers, in_use: Mutex::default(), revocations: Mutex::default() }
    }

    /// Returns the TLS of a key, made if no channel uses it.
    fn get(&self, key: Key, revocation: Option<Arc<Revocation>>) -> Arc<ClientTls> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = in_use.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        // CH11.12: keys without users go where the map would grow.
        in_use.retain(|_, known| known.strong_count() > 0);
        let new = match &key.1 {
            Source::Fallback(config, authority) => {
                ClientTls::of_config(config, authority.as_str(), self.providers.crypto())
            }
            Source::Cluster(tls, hostname) => {
                ClientTls::of_cluster(self.providers.clone(), tls.config().clone(), hostname.as_deref())
            }
        };
        let new = Arc::new(new.with_revocation(revocation));
        in_use.insert(key, Arc::downgrade(&new));
        new
    }

    /// Returns the lists of a setting, which are read once for all channels of the client.
    fn revocation(&self, lists: &RevocationLists) -> Arc<Revocation> {
        let mut revocations = self.revocations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = revocations.get(lists).and_then(Weak::upgrade) {
            return known;
        }
        revocations.retain(|_, known| known.strong_count() > 0);
        let new = Revocation::new(lists.clone());
        revocations.insert(lists.clone(), Arc::downgrade(&new));
        new
    }
}

impl ChannelSecurity {
    pub(in crate::channel) fn new(
        client: &Client,
        settings: SecuritySettings,
        authority: &Authority,
    ) -> Self {
        let fallback = match settings.xds_credentials {
            Some(FallbackCredentials::Tls(config)) => Some(config),
            Some(FallbackCredentials::Plaintext) | None => None,
        };
        let shared = SharedTls::of(client, &Crypto::choose(settings.crypto.as_ref()));
        let revocation = settings.revocation.map(|lists| {
            let revocation = shared.revocation(&lists);
            (lists, revocation)
        });
        let (authority, reconnects) = (authority.clone(), settings.reconnect_on_rotation);
        Self { shared, fallback, authority, revocation, reconnects, known: HashMap::new() }
    }

    /// Returns the peer of a connection to a destination.
    pub(in crate::channel) fn peer(&mut self, destination: &Destination) -> Peer {
        let Destination { address, identity } = destination;
        let mut tls = self.tls(destination);
        // CH7.7: after a rotation the peer is another one, so that a shared connection from before it is not leased again.
        if let Some(tls) = tls.as_mut().filter(|_| self.reconnects) {
            tls.rotations = tls.client.rotations();
        }
        Peer { address: *address, proxy: identity.proxy(), tls }
    }

    /// Subscribes to the rotations from now on.
    pub(in crate::channel) fn rotations(&self) -> RotationWatch {
        let providers = || self.shared.providers.clone();
        RotationWatch(self.reconnects.then(|| ProviderRotations::new(providers())))
    }

    /// Returns the TLS of a destination; `None` for plaintext.
    fn tls(&mut self, destination: &Destination) -> Option<Tls> {
        if let Some(known) = self.known.get(destination) {
            return Some(known.clone());
        }
        let (of, is_fallback) = match destination.identity.security() {
            Security::Plaintext => return None,
            // The core has no fallback without a configuration of it.
            Security::Fallback => (Source::Fallback(self.fallback.clone()?, self.authority.clone()), true),
            Security::Cluster { tls, hostname } => (Source::Cluster(tls.clone(), hostname.clone()), false),
        };
        let (lists, revocation) = self.revocation.clone().unzip();
        let client = self.shared.get((destination.address, of, lists), revocation);
        let tls = Tls { client, is_fallback, rotations: 0 };
        self.forget_unused();
        self.known.insert(destination.clone(), tls.clone());
        Some(tls)
    }

    /// Removes TLS that no connection has, when there is too much of it. Looked at when the number has doubled, so that many
    /// destinations cost as much each as few.
    fn forget_unused(&mut self) {
        if self.known.len() >= MOST_KNOWN && self.known.len().is_power_of_two() {
            // One reference is that of the map; others are those of connections and attempts.
            self.known.retain(|_, tls| Arc::strong_count(&tls.client) > 1);
        }
    }
}

impl RotationWatch {
    /// Waits for the next rotation; forever if connections are not to be replaced.
    ///
    /// # Cancel safety
    /// No rotation is lost.
    pub(in crate::channel) async fn next(&mut self) -> Rotation {
        let Some(rotations) = &mut self.0 else { return pending().await };
        let mut rotation = Rotation::default();
        for RotatedInstance { name, identity, roots } in rotations.next().await {
            if identity {
                rotation.identities.insert(name.clone());
            }
            if roots {
                rotation.roots.insert(name);
            }
        }
        rotation
    }
}

impl Tls {
    /// Makes the handshake. It ends with the attempt (CH7.23).
    ///
    /// # Errors
    /// A text with the reason.
    pub(in crate::channel) async fn connect(&self, io: Socket) -> Result<(MaybeTlsStream, Secured), String> {
        let Connected { stream, peer, offered, cipher_suite } = self.client.connect(io).await?;
        Ok((stream.into(), Secured { identity: peer, offered, cipher_suite, tls: self.clone() }))
    }

    /// Explains an error of a connection, if it is one of TLS: in TLS 1.3 a server refuses the certificate of a client after the
    /// handshake. `has_read` is whether the server has sent anything since.
    pub(in crate::channel) fn explained(&self, error: io::Error, has_read: bool) -> io::Error {
        match self.client.explain(&error, has_read) {
            Some(reason) => io::Error::new(error.kind(), reason),
            None => error,
        }
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client) && self.rotations == other.rotations
    }
}

impl Eq for Tls {}

impl Hash for Tls {
    fn hash<S: Hasher>(&self, state: &mut S) {
        (Arc::as_ptr(&self.client), self.rotations).hash(state);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("is_fallback", &self.is_fallback).finish_non_exhaustive()
    }
}

impl Secured {
    /// Returns the certificate of the peer.
    pub(in crate::channel) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// What the handshake has led to, for the status of the connection.
    pub(in crate::channel) fn status(&self) -> TlsStatus {
        TlsStatus {
            cipher_suite: self.cipher_suite,
            local_certificate: self.offered.clone(),
            peer_certificate: self.identity.shared_certificate().clone(),
        }
    }

    /// Returns the SPIFFE id, or else the first name.
    pub(in crate::channel) fn peer(&self) -> Option<Arc<str>> {
        self.identity.name().cloned()
    }

    /// Checks whether the peer may receive requests to an authority that is not the channel's (CH2.24). Clusters with TLS have
    /// rules of their own in place of this check.
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

/// Checks whether a certificate is for a host, by the rules of Web PKI.
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

/// How many unused destinations are kept, for their sessions.
const MOST_KNOWN: usize = 64;
