//! TLS to one server, an endpoint or a management server: where the settings and the material of its handshakes come from
//! (CH7.2 to CH7.18).

use std::{
    error::Error,
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{client::TlsStream, rustls::pki_types::ServerName};

use super::{
    Crypto, PeerIdentity, Providers,
    explain::{explained, is_closed, refusal_hint},
    generation::{Generation, HandshakeError, Loaded, NoMaterial, chain},
    material::{Freshness, Material},
    published::{Identity, Need},
    revocation::{Lists, Revocation},
    verifier::{NameRule, TrustRoots},
    watching::Watching,
};
use crate::{
    config::TlsConfig,
    dial::Alpn,
    resource::{
        UpstreamTls,
        tls::{Roots, without_port},
    },
};

/// TLS to one endpoint, of one security generation: settings, and the material that they name.
///
/// Sessions are resumed only within it, and only while the material is the same (CH7.16). One is to be made for each
/// endpoint and for each change of its settings, so that no session is of another endpoint.
pub(crate) struct ClientTls {
    /// Settings, and where the material comes from.
    security: Security,
    /// The protocols to negotiate.
    alpn: Alpn,
    /// The cryptography of handshakes and keys.
    crypto: Crypto,
    /// Lists that no certificate of a server may be in; `None` checks no revocation.
    revocation: Option<Arc<Revocation>>,
    /// Keeps the revocation lists up to date, from the first handshake on.
    watching: OnceLock<Arc<Watching>>,
    /// The last material with its sessions; `None` before the first handshake.
    generation: Mutex<Option<Arc<Generation>>>,
}

/// A connection to an endpoint after the handshake.
pub(crate) struct Connected<IO> {
    pub(crate) stream: TlsStream<IO>,
    pub(crate) peer: PeerIdentity,
    /// The certificate of the client in DER, which a server may have requested or not; `None` if none is configured.
    pub(crate) offered: Option<Arc<[u8]>>,
    /// The name of the cipher suite.
    pub(crate) cipher_suite: Option<&'static str>,
}

/// The source of material and of the rules of verification.
enum Security {
    /// TLS that the resource of a cluster configures.
    Cluster(Cluster),
    /// TLS by files: the fallback of a channel, or that of a management server.
    Config(Config),
}

/// TLS of a cluster, by certificate providers.
struct Cluster {
    /// The certificate providers of the bootstrap.
    providers: Arc<Providers>,
    /// The settings of the cluster.
    tls: Arc<UpstreamTls>,
    /// The server name to send (SNI); `None` sends none.
    server_name: Option<Box<str>>,
    /// Keeps the providers up to date, from the first handshake on.
    watching: OnceLock<Vec<Arc<Watching>>>,
}

/// TLS by the files of a configuration.
struct Config {
    /// The files of the configuration.
    material: Arc<Material>,
    /// Whether a client certificate is configured. One that cannot be read is an error, never a handshake without it.
    has_identity: bool,
    /// Whether the server must have the name that is sent; otherwise a map of trust bundles verifies it.
    verifies_host: bool,
    /// The name to send; `None` is the host that was dialed.
    host: Option<Box<str>>,
    /// How old the contents of the files may be.
    freshness: Freshness,
}

impl ClientTls {
    /// TLS as a cluster configures it (A29). No I/O. `hostname` is the endpoint's (CH7.12).
    pub(crate) fn of_cluster(
        providers: Arc<Providers>,
        tls: Arc<UpstreamTls>,
        hostname: Option<&str>,
    ) -> Self {
        let server_name = tls.server_name(hostname).map(Into::into);
        let crypto = providers.crypto().clone();
        Self::new(
            crypto,
            Security::Cluster(Cluster { providers, tls, server_name, watching: OnceLock::new() }),
        )
    }

    /// The fallback: TLS that verifies the host name, the channel's authority (CH7.3). No I/O. A map of trust bundles
    /// takes the place of the host name, unless the configuration names one.
    pub(crate) fn of_config(config: &TlsConfig, authority: &str, crypto: &Crypto) -> Self {
        let host = config.server_name.as_deref().unwrap_or_else(|| without_port(authority));
        let origin = "the TLS configuration of the channel".to_owned();
        let material = Material::of_config(config, origin, crypto);
        let freshness = Freshness::Interval;
        let config = Config { host: Some(host.into()), freshness, ..Config::new(config, material) };
        Self::new(crypto.clone(), Security::Config(config))
    }

    /// TLS to a management server, by the files of its configuration (A65). No I/O. The files are read for each handshake, so that
    /// its connections, which are few, have the latest ones; files that have become unusable leave the last good material in use.
    pub(crate) fn of_server(config: &TlsConfig, server: &str, alpn: Alpn, crypto: Crypto) -> Self {
        let material = Material::of_server(config, server, &crypto);
        Self { alpn, ..Self::new(crypto, Security::Config(Config::new(config, material))) }
    }

    /// Creates TLS for HTTP/2, without revocation lists.
    fn new(crypto: Crypto, security: Security) -> Self {
        Self {
            security,
            alpn: Alpn::Http2,
            crypto,
            revocation: None,
            watching: OnceLock::new(),
            generation: Mutex::default(),
        }
    }

    /// Sets the lists by which no certificate of a server may be revoked (CH7.17).
    pub(crate) fn with_revocation(self, revocation: Option<Arc<Revocation>>) -> Self {
        Self { revocation, ..self }
    }

    /// How often the material of its certificate providers was replaced by other material.
    pub(crate) fn rotations(&self) -> u64 {
        match &self.security {
            Security::Cluster(cluster) => cluster.rotations(),
            Security::Config(_) => 0,
        }
    }

    /// Loads the material of a handshake, if need be. None is an error, never a handshake without (CH7.2, CH7.14).
    pub(crate) async fn prepare(&self) -> Result<Arc<Generation>, NoMaterial> {
        let mut loaded = self.security.load().await?;
        loaded.lists = self.lists().await;
        Ok(self.generation(loaded)?)
    }

    /// Makes the handshake with a server that was dialed by this host.
    pub(crate) async fn handshake<IO: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        generation: &Generation,
        host: &str,
        io: IO,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let name = self.security.sent_name(host).map_err(HandshakeError::Unusable)?;
        generation.handshake(name, io).await
    }

    /// Loads material if need be, and makes the handshake with an endpoint (CH3.4, CH7.15). The error is the text for a status: what,
    /// which provider, which names (CH7.18).
    pub(crate) async fn connect<IO: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        io: IO,
    ) -> Result<Connected<IO>, String> {
        let generation = self.prepare().await.map_err(|missing| missing.to_string())?;
        let text = |error| match error {
            HandshakeError::Failed(e) => match explained(&e, generation.identity()) {
                Some(reason) => format!("TLS handshake failed: {reason}"),
                None => format!("TLS handshake failed: {e}"),
            },
            HandshakeError::Unusable(reason) => reason,
        };
        // Clusters and fallbacks have names of their own to send, whatever the address is.
        let stream = self.handshake(&generation, "", io).await.map_err(text)?;
        let (leaf, _) = chain(stream.get_ref().1).map_err(text)?;
        let peer = PeerIdentity::of(leaf)?;
        let offered = generation.identity().and_then(|identity| identity.key.cert.first());
        let cipher_suite =
            stream.get_ref().1.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        let offered = offered.map(|leaf| leaf.as_ref().into());
        Ok(Connected { stream, peer, offered, cipher_suite })
    }

    /// What an error of a connection means, if it is one of TLS. In TLS 1.3 a server refuses the client's certificate
    /// after the handshake, so that the first reading fails: with its alert, or as closed, since what the client has sent
    /// before may have the system of the server discard the alert.
    pub(crate) fn explain(&self, error: &(dyn Error + 'static), has_read: bool) -> Option<String> {
        let generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let identity = generation.as_ref().and_then(|generation| generation.identity());
        let mut causes =
            std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
        causes.find_map(|cause| match is_closed(cause) {
            true if has_read => None,
            true => Some(format!(
                "the server closed the connection after the handshake{}",
                refusal_hint(identity)
            )),
            false => explained(cause, identity),
        })
    }

    /// The lists of a handshake.
    async fn lists(&self) -> Option<Arc<Lists>> {
        let revocation = self.revocation.as_ref()?;
        // Held as long as this TLS, so that the lists are read again as long as there may be handshakes.
        self.watching.get_or_init(|| revocation.watch());
        Some(revocation.for_handshake().await)
    }

    /// The generation of the material. New material begins a new one, without sessions (CH7.7, CH7.16).
    fn generation(&self, loaded: Loaded) -> Result<Arc<Generation>, String> {
        let mut current = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.is_of(&loaded)) {
            return Ok(current.clone());
        }
        let crypto = self.crypto.provider().map_err(|missing| missing.to_string())?;
        let new = Arc::new(Generation::new(loaded, self.security.rule(), self.alpn, crypto)?);
        *current = Some(new.clone());
        Ok(new)
    }
}

/// Shows what is configured, never what is in the files.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ClientTls");
        match &self.security {
            Security::Cluster(cluster) => {
                f.field("tls", &cluster.tls).field("server_name", &cluster.server_name)
            }
            Security::Config(config) => f.field("host", &config.host),
        };
        f.finish_non_exhaustive()
    }
}

impl Security {
    /// The material for a handshake. None is an error, never a handshake without (CH7.2, CH7.14).
    async fn load(&self) -> Result<Loaded, NoMaterial> {
        match self {
            Self::Cluster(cluster) => cluster.load().await,
            Self::Config(config) => config.load().await,
        }
    }

    /// Returns the rule for the names of the server's certificate.
    fn rule(&self) -> NameRule {
        match self {
            Self::Cluster(cluster) => {
                NameRule::Cluster { tls: cluster.tls.clone(), sent: cluster.server_name.clone() }
            }
            Self::Config(config) if config.verifies_host => NameRule::Host,
            Self::Config(_) => NameRule::Any,
        }
    }

    /// Returns the server name of the handshake (CH7.12). An address is never sent, so it stands for none.
    fn sent_name(&self, dialed: &str) -> Result<ServerName<'static>, String> {
        match self {
            Self::Cluster(cluster) => match cluster.server_name.as_deref() {
                Some(name) => server_name(name),
                // rustls demands a name, and sends none for an address (RFC 6066, section 3).
                None => Ok(ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into())),
            },
            Self::Config(config) => server_name(config.host.as_deref().unwrap_or(dialed)),
        }
    }
}

impl Config {
    /// Creates the settings of a configuration, whose files are read for each handshake.
    fn new(config: &TlsConfig, material: Material) -> Self {
        let host = config.server_name.as_deref();
        Self {
            material: Arc::new(material),
            has_identity: config.certificate_file.is_some() || config.private_key_file.is_some(),
            // A certificate with a SPIFFE id is seldom for a host, so only one that is set is verified, too (A87).
            verifies_host: host.is_some() || config.spiffe_trust_bundle_map_file.is_none(),
            host: host.map(Into::into),
            freshness: Freshness::Handshake,
        }
    }

    /// Loads the material that is configured.
    async fn load(&self) -> Result<Loaded, NoMaterial> {
        let roots = roots_of(&self.material, self.freshness).await?;
        let identity = match self.has_identity {
            true => Some(identity_of(&self.material, self.freshness).await?),
            false => None,
        };
        Ok(Loaded { roots, origin: self.material.roots_origin().into(), identity, lists: None })
    }
}

impl Cluster {
    /// Returns how often roots and identity of the cluster were replaced.
    fn rotations(&self) -> u64 {
        let of = |name: &str| self.providers.instance(name).map(|instance| instance.rotations());
        let roots = match &self.tls.roots {
            Roots::Provider(provider) => of(&provider.instance_name).ok(),
            Roots::System => None,
        };
        let identity = self.tls.identity.as_ref().and_then(|identity| of(&identity.instance_name).ok());
        // Both only grow, so that a rotation of either changes the sum.
        roots.map_or(0, |rotations| rotations.roots) + identity.map_or(0, |rotations| rotations.identity)
    }

    /// Loads roots and identity of the cluster, and starts to keep them up to date.
    async fn load(&self) -> Result<Loaded, NoMaterial> {
        let roots = match &self.tls.roots {
            Roots::Provider(provider) => Some(self.providers.instance(&provider.instance_name)?),
            Roots::System => None,
        };
        let identity = self.tls.identity.as_ref();
        let identity = identity.map(|one| self.providers.instance(&one.instance_name)).transpose()?;
        self.watching
            .get_or_init(|| roots.into_iter().chain(identity).map(|provider| provider.watch()).collect());
        let identity = match identity {
            Some(provider) => Some(provider.identity("client").await?),
            None => None,
        };
        let (roots, origin) = match roots {
            Some(provider) => (provider.roots().await?, provider.origin()),
            // The system's roots have no task: they are read when a handshake needs them and they are old.
            None => {
                let system = self.providers.system();
                (roots_of(system, Freshness::Interval).await?, system.roots_origin())
            }
        };
        Ok(Loaded { roots, origin: origin.into(), identity, lists: None })
    }
}

/// Returns roots for a handshake.
async fn roots_of(material: &Arc<Material>, freshness: Freshness) -> Result<Arc<TrustRoots>, NoMaterial> {
    let published = material.for_handshake(Need::Roots, freshness).await;
    let missing = || format!("root certificates of {}", material.origin());
    published.roots.map_err(|reason| NoMaterial::new(missing(), reason))
}

/// Returns the client's identity for a handshake.
async fn identity_of(material: &Arc<Material>, freshness: Freshness) -> Result<Arc<Identity>, NoMaterial> {
    let published = material.for_handshake(Need::Identity, freshness).await;
    let missing = || format!("client certificate of {}", material.origin());
    published.identity.map_err(|reason| NoMaterial::new(missing(), reason))
}

/// Converts a name for SNI.
fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no server name that TLS can send"))
}

#[cfg(test)]
mod tests;
