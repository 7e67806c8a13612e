//! TLS from a channel to endpoints: settings and material of one generation, and the handshake (CH7.2 to CH7.18).

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, HandshakeKind,
        client::{ClientConnection, Resumption},
        pki_types::{CertificateDer, ServerName, UnixTime},
        sign::SingleCertAndKey,
    },
};

use super::{
    Providers, files,
    material::{Identity, Material, Need},
    names::CertificateNames,
    revocation::{Lists, Revocation},
    unreadable::{TOO_LARGE, Unreadable},
    verifier::{NameRule, TrustRoots, Verifier, refusal},
    watching::Watching,
};
use crate::{
    config::TlsConfig,
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
    /// Lists that no certificate of a server may be in; `None` checks no revocation.
    revocation: Option<Arc<Revocation>>,
    /// Keeps the revocation lists up to date, from the first handshake on.
    watching: OnceLock<Arc<Watching>>,
    /// The last material with its sessions; `None` before the first handshake.
    generation: Mutex<Option<Arc<Generation>>>,
}

/// The certificate with which a server has proved its identity.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The certificate in DER.
    certificate: Arc<[u8]>,
    /// The SPIFFE id, if the certificate has one.
    spiffe_id: Option<Arc<str>>,
    /// The SPIFFE id, or else the first name, shortened for display.
    name: Option<Arc<str>>,
}

/// The source of material and of the rules of verification.
enum Security {
    /// TLS that the resource of a cluster configures.
    Cluster(Cluster),
    /// The fallback of the application.
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
    /// Whether a map of trust bundles verifies the server.
    has_spiffe_map: bool,
    /// The name that the certificate must have.
    host: Box<str>,
    /// Whether the configuration sets `host`, and not the authority of the channel.
    is_explicit: bool,
}

/// Settings with the material of one time, and its sessions.
struct Generation {
    roots: Arc<TrustRoots>,
    identity: Option<Arc<Identity>>,
    lists: Option<Arc<Lists>>,
    verifier: Arc<Verifier>,
    /// The settings of rustls, which own the sessions.
    connector: TlsConnector,
}

/// The material of a handshake.
struct Loaded {
    roots: Arc<TrustRoots>,
    /// The source of the roots, for errors.
    origin: Box<str>,
    identity: Option<Arc<Identity>>,
    lists: Option<Arc<Lists>>,
}

impl ClientTls {
    /// TLS as a cluster configures it (A29). No I/O. `hostname` is the endpoint's (CH7.12).
    pub(crate) fn of_cluster(
        providers: Arc<Providers>,
        tls: Arc<UpstreamTls>,
        hostname: Option<&str>,
    ) -> Self {
        let server_name = tls.server_name(hostname).map(Into::into);
        Self::new(Security::Cluster(Cluster { providers, tls, server_name, watching: OnceLock::new() }))
    }

    /// The fallback: TLS that verifies the host name, the channel's authority (CH7.3). No I/O. A map of trust bundles
    /// takes the place of the host name, unless the configuration names one.
    pub(crate) fn of_config(config: &TlsConfig, authority: &str) -> Self {
        let host = config.server_name.as_deref().unwrap_or_else(|| without_port(authority));
        Self::new(Security::Config(Config {
            material: Arc::new(Material::of_config(config)),
            has_identity: config.certificate_file.is_some() || config.private_key_file.is_some(),
            has_spiffe_map: config.spiffe_trust_bundle_map_file.is_some(),
            host: host.into(),
            is_explicit: config.server_name.is_some(),
        }))
    }

    /// Creates TLS without revocation lists.
    fn new(security: Security) -> Self {
        Self { security, revocation: None, watching: OnceLock::new(), generation: Mutex::default() }
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

    /// Loads material if need be, and makes the handshake with ALPN `h2` (CH3.4, CH7.2, CH7.14, CH7.15). The error is
    /// the text for a status: what, which provider, which names (CH7.18).
    pub(crate) async fn connect<IO: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        io: IO,
    ) -> Result<(TlsStream<IO>, PeerIdentity), String> {
        let mut loaded = self.security.load().await?;
        loaded.lists = self.lists().await;
        let generation = self.generation(loaded)?;
        let name = self.security.sent_name()?;
        let connected = generation.connector.connect(name, io).await;
        let stream = connected.map_err(|e| match explained(&e, generation.identity.as_deref()) {
            Some(reason) => format!("TLS handshake failed: {reason}"),
            None => format!("TLS handshake failed: {e}"),
        })?;
        let identity = generation.check(stream.get_ref().1, UnixTime::now())?;
        Ok((stream, identity))
    }

    /// What an error of a connection means, if it is one of TLS. In TLS 1.3 a server refuses the client's certificate
    /// after the handshake, so that the first reading fails: with its alert, or as closed, since what the client has sent
    /// before may have the system of the server discard the alert.
    pub(crate) fn explain(&self, error: &(dyn Error + 'static), has_read: bool) -> Option<String> {
        let generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let identity = generation.as_ref().and_then(|generation| generation.identity.as_deref());
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
        self.watching.get_or_init(|| revocation.watch());
        Some(revocation.for_handshake().await)
    }

    /// The generation of the material. New material begins a new one, without sessions (CH7.7, CH7.16).
    fn generation(&self, loaded: Loaded) -> Result<Arc<Generation>, String> {
        let mut current = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        // Compared by pointers: files with the same content keep their material, and so do the sessions.
        if let Some(current) = current.as_ref().filter(|current| current.is_of(&loaded)) {
            return Ok(current.clone());
        }
        let new = Arc::new(Generation::new(loaded, self.security.rule()?)?);
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

impl PeerIdentity {
    /// The DER encoding of the server's certificate, the leaf of its chain.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The SPIFFE id of the certificate (`spiffe://domain/path`): its only URI, if that is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.spiffe_id.as_deref()
    }

    /// The SPIFFE id, or else the first name, for operators.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// Reads the names of a certificate.
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let names = CertificateNames::of(certificate)?;
        let spiffe_id: Option<Arc<str>> = names.spiffe_id().ok().map(|id| id.as_str().into());
        let first = || names.iter().next().map(|(_, name)| name);
        let name = spiffe_id.as_deref().or_else(first);
        let name = name.map(|name| name.chars().take(MAX_NAME_SHOWN).collect::<String>().into());
        Ok(Self { certificate: certificate.as_ref().into(), spiffe_id, name })
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}

impl Security {
    /// The material for a handshake. None is an error, never a handshake without (CH7.2, CH7.14).
    async fn load(&self) -> Result<Loaded, String> {
        match self {
            Self::Cluster(cluster) => cluster.load().await,
            Self::Config(config) => {
                let material = &config.material;
                let roots = roots_of(material, true).await?;
                let identity =
                    if config.has_identity { Some(identity_of(material, true).await?) } else { None };
                Ok(Loaded { roots, origin: material.origin().into(), identity, lists: None })
            }
        }
    }

    /// Returns the rule for the names of the server's certificate.
    fn rule(&self) -> Result<NameRule, String> {
        Ok(match self {
            Self::Cluster(cluster) => {
                NameRule::Cluster { tls: cluster.tls.clone(), sent: cluster.server_name.clone() }
            }
            Self::Config(config) if config.has_spiffe_map && !config.is_explicit => NameRule::Any,
            Self::Config(config) => NameRule::Host(server_name(&config.host)?),
        })
    }

    /// The server name of the handshake (CH7.12). An address is never sent, so it stands for none.
    fn sent_name(&self) -> Result<ServerName<'static>, String> {
        match self {
            Self::Cluster(cluster) => match cluster.server_name.as_deref() {
                Some(name) => server_name(name),
                None => Ok(ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into())),
            },
            Self::Config(config) => server_name(&config.host),
        }
    }
}

impl Cluster {
    /// Returns how often roots and identity of the cluster were replaced.
    fn rotations(&self) -> u64 {
        let of = |name: &str| {
            self.providers.instance(name).map(|instance| instance.material().published().rotations)
        };
        let roots = match &self.tls.roots {
            Roots::Provider(provider) => of(&provider.instance_name).ok(),
            Roots::System => None,
        };
        let identity = self.tls.identity.as_ref().and_then(|identity| of(&identity.instance_name).ok());
        roots.map_or(0, |rotations| rotations.roots) + identity.map_or(0, |rotations| rotations.identity)
    }

    /// Loads roots and identity of the cluster, and starts to keep them up to date.
    async fn load(&self) -> Result<Loaded, String> {
        let roots = match &self.tls.roots {
            Roots::Provider(provider) => Some(self.providers.instance(&provider.instance_name)?),
            Roots::System => None,
        };
        let identity = self.tls.identity.as_ref();
        let identity = identity.map(|one| self.providers.instance(&one.instance_name)).transpose()?;
        self.watching
            .get_or_init(|| roots.into_iter().chain(identity).map(|provider| provider.watch()).collect());
        let identity = match identity {
            Some(provider) => Some(identity_of(provider.material(), false).await?),
            None => None,
        };
        // The system's roots have no task: they are read when a handshake needs them and they are old.
        let material = roots.map_or(self.providers.system(), |provider| provider.material());
        let loaded = roots_of(material, roots.is_none()).await?;
        Ok(Loaded { roots: loaded, origin: material.origin().into(), identity, lists: None })
    }
}

impl Generation {
    /// Prepares handshakes with some material.
    fn new(loaded: Loaded, rule: NameRule) -> Result<Self, String> {
        let Loaded { roots, origin, identity, lists } = loaded;
        let crypto = files::crypto();
        let verifier = Arc::new(Verifier {
            roots: roots.clone(),
            origin,
            rule,
            crypto: crypto.clone(),
            revocation: lists.clone(),
        });
        let builder = ClientConfig::builder_with_provider(crypto)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            // rustls verifies host names alone. Rules for SANs and SPIFFE need a verifier of our own.
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let mut config = match &identity {
            Some(identity) => {
                let key = SingleCertAndKey::from((*identity.key).clone());
                builder.with_client_cert_resolver(Arc::new(key))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(Self { roots, identity, lists, verifier, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Whether the generation has this material.
    fn is_of(&self, loaded: &Loaded) -> bool {
        Arc::ptr_eq(&self.roots, &loaded.roots)
            && is_same(self.identity.as_ref(), loaded.identity.as_ref())
            && is_same(self.lists.as_ref(), loaded.lists.as_ref())
    }

    /// Checks what the handshake has agreed on, and returns whose certificate it was. A resumed session skips the
    /// verification, so its certificates are verified here: they may have expired since (CH7.16).
    fn check(&self, connection: &ClientConnection, now: UnixTime) -> Result<PeerIdentity, String> {
        if connection.alpn_protocol() != Some(HTTP2) {
            return Err("ALPN: the server did not select `h2`, so it does not use HTTP/2".to_owned());
        }
        let chain = connection.peer_certificates().and_then(<[_]>::split_first);
        let (leaf, intermediates) = chain.ok_or("the server has no certificate")?;
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            let verified = self.verifier.verify(leaf, intermediates, now);
            verified.map_err(|refused| format!("TLS handshake failed: {refused}"))?;
        }
        PeerIdentity::of(leaf)
    }
}

/// Whether both are the same value, or both are none.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Returns roots for a handshake; the error names their source.
async fn roots_of(material: &Arc<Material>, on_demand: bool) -> Result<Arc<TrustRoots>, String> {
    let published = material.for_handshake(Need::Roots, on_demand).await;
    published.roots.map_err(|why| format!("no root certificates of {}: {why}", material.origin()))
}

/// Returns the client's identity for a handshake; the error names its source.
async fn identity_of(material: &Arc<Material>, on_demand: bool) -> Result<Arc<Identity>, String> {
    let published = material.for_handshake(Need::Identity, on_demand).await;
    published.identity.map_err(|why| format!("no client certificate of {}: {why}", material.origin()))
}

/// Converts a name for SNI.
fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no server name that TLS can send"))
}

/// Explains an error of rustls, possibly inside of one of I/O; `None` for other errors.
fn explained(error: &(dyn Error + 'static), identity: Option<&Identity>) -> Option<String> {
    let mut error = error;
    if let Some(io) = error.downcast_ref::<io::Error>() {
        if let Some(refused) = refusal(io) {
            return Some(refused.to_string());
        }
        if is_closed(io) {
            return Some("the server closed the connection; does it use TLS, and is it healthy?".to_owned());
        }
        error = io.get_ref()?;
    }
    let error = error.downcast_ref::<rustls::Error>()?;
    if let rustls::Error::InvalidMessage(e) = error {
        return Some(match Unreadable::of(e) {
            Unreadable::NotTls => {
                format!("the server does not use TLS, its bytes are no message of it: {e:?}")
            }
            Unreadable::TooLarge => format!("the server cannot be verified: {TOO_LARGE}"),
            Unreadable::Malformed => format!("the server sent a malformed message of TLS: {e:?}"),
        });
    }
    if let rustls::Error::AlertReceived(alert) = error {
        return Some(alert_text(*alert, identity));
    }
    Some(error.to_string())
}

/// Whether the other side has closed a connection, with no reason.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, Some(UnexpectedEof | ConnectionReset | BrokenPipe))
}

/// Explains an alert of the server.
fn alert_text(alert: rustls::AlertDescription, identity: Option<&Identity>) -> String {
    if alert == rustls::AlertDescription::NoApplicationProtocol {
        return "ALPN: the server does not use `h2`".to_owned();
    }
    let hint = refusal_hint(identity);
    format!("the server sent the TLS alert {alert:?}{hint}")
}

/// Returns the likely reason why a server refuses the client, to be appended to an error.
fn refusal_hint(identity: Option<&Identity>) -> String {
    match identity {
        None => ": does it require a client certificate (the cluster names no provider of one)?".to_owned(),
        Some(identity) => {
            let now = Duration::from_secs(UnixTime::now().as_secs());
            let file = identity.file.display();
            let expired = identity.expired(now);
            expired.map_or_else(
                || format!(": does it trust the certificate in {file}?"),
                |why| format!(": {why}"),
            )
        }
    }
}

/// The protocol of ALPN.
const HTTP2: &[u8] = b"h2";
/// How many characters of a name operators see.
const MAX_NAME_SHOWN: usize = 256;
/// The number of sessions of an endpoint that are kept: connections to it are few.
const SESSIONS: usize = 8;

#[cfg(test)]
mod tests;
