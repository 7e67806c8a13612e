//! What a connection leads to, and how it is secured (CH7.20).
//!
//! All of this is compared by configuration, and not by certificates: a certificate that is rotated changes no identity. What a
//! rotation changes, if the channel is to connect again, is which connections are [outdated](Rotation) (CH7.7).

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    hash::{Hash, Hasher},
    net::SocketAddr,
    sync::Arc,
};

use crate::resource::tls::{Roots, UpstreamTls};

/// An address with the identity of the connections to it. A connection is kept as long as its destination is listed, and another
/// destination has connections of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    pub(crate) identity: Identity,
}

/// The proxy and the security of connections. Without either, which is the default, it takes no memory of its own.
#[derive(Clone, Default)]
pub(crate) struct Identity(Option<Arc<Parts>>);

/// The parts of an identity that is not the default one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Parts {
    /// Address of the HTTP proxy; `None` for direct connections.
    proxy: Option<SocketAddr>,
    security: Security,
}

/// How connections are secured.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Security {
    #[default]
    Plaintext,
    /// TLS as the channel has it for clusters without TLS of their own (CH7.2).
    #[cfg_attr(
        not(any(test, feature = "tls", feature = "fuzzing")),
        expect(dead_code, reason = "there is no TLS")
    )]
    Fallback,
    /// TLS as the cluster configures it, with the server name that the hostname of the endpoint gives (CH7.12).
    Cluster { tls: ClusterTls, hostname: Option<Arc<str>> },
}

/// The choice of the application for the security of connections (CH7.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndpointCredentials {
    /// There is no choice: clusters without TLS are called in plaintext, and clusters with TLS are not called.
    Unset,
    /// Plaintext, whatever clusters configure.
    Insecure,
    /// TLS as clusters configure it, and the fallback for clusters without TLS.
    Xds { fallback: Security },
}

/// The TLS of a cluster, which is compared by what it contains.
#[derive(Clone)]
pub(crate) struct ClusterTls {
    config: Arc<UpstreamTls>,
    /// The configuration as a text: equal texts are equal configurations.
    text: Arc<str>,
}

/// Certificates that were replaced by others: the instances of certificate providers, by what of theirs it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Providers with other root certificates, or another map of trust bundles.
    pub(crate) roots: BTreeSet<Box<str>>,
    /// Providers with another client certificate.
    pub(crate) identities: BTreeSet<Box<str>>,
}

impl Destination {
    pub(crate) fn new(address: SocketAddr, identity: Identity) -> Self {
        Self { address, identity }
    }
}

/// The address alone tells most of them apart.
impl Hash for Destination {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.address.hash(state);
    }
}

/// Direct and in plaintext.
impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { address, identity: Identity::default() }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity.proxy() {
            Some(proxy) => write!(f, "{} by the proxy {proxy}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

impl Identity {
    pub(crate) fn new(proxy: Option<SocketAddr>, security: Security) -> Self {
        let is_plain = proxy.is_none() && security == Security::Plaintext;
        Self((!is_plain).then(|| Arc::new(Parts { proxy, security })))
    }

    /// The HTTP proxy that connections lead through (CH7.25).
    pub(crate) fn proxy(&self) -> Option<SocketAddr> {
        self.0.as_ref()?.proxy
    }

    pub(crate) fn security(&self) -> &Security {
        self.0.as_ref().map_or(&Security::Plaintext, |parts| &parts.security)
    }

    /// Whether connections are made with certificates that were replaced.
    pub(super) fn is_of(&self, rotation: &Rotation) -> bool {
        match self.security() {
            // Rotations are those of certificate providers, which neither of these has.
            Security::Plaintext | Security::Fallback => false,
            Security::Cluster { tls, .. } => tls.is_of(rotation),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Plain"),
            Some(parts) => parts.fmt(f),
        }
    }
}

/// The endpoints of a cluster have one identity mostly, which is compared by its address.
impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => Ordering::Equal,
            (one, other) => one.cmp(other),
        }
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Identity {}

impl Security {
    /// The TLS of a cluster, without an endpoint yet.
    pub(crate) fn of_cluster(config: &UpstreamTls) -> Self {
        // Maps with keys that are no texts could fail, of which there are none.
        let text = serde_json::to_string(config).unwrap_or_else(|_| format!("{config:?}"));
        let tls = ClusterTls { config: Arc::new(config.clone()), text: text.into() };
        Self::Cluster { tls, hostname: None }
    }

    /// The security of connections to an endpoint. Its hostname matters only where it is the server name that is sent.
    pub(crate) fn for_hostname(&self, hostname: Option<&str>) -> Self {
        match self {
            Self::Cluster { tls, .. } if tls.config.auto_host_sni => {
                let unset = tls.config.server_name(None);
                // A hostname without an effect on the server name is left out, so that such endpoints share one identity.
                let name = tls.config.server_name(hostname).filter(|name| Some(*name) != unset);
                Self::Cluster { tls: tls.clone(), hostname: name.map(Into::into) }
            }
            Self::Plaintext | Self::Fallback | Self::Cluster { .. } => self.clone(),
        }
    }
}

impl ClusterTls {
    pub(crate) fn config(&self) -> &Arc<UpstreamTls> {
        &self.config
    }

    /// Whether handshakes use roots or a client certificate that were replaced.
    fn is_of(&self, rotation: &Rotation) -> bool {
        let roots = match &self.config.roots {
            Roots::Provider(provider) => rotation.roots.contains(&*provider.instance_name),
            Roots::System => false,
        };
        let identity = self.config.identity.as_ref();
        roots || identity.is_some_and(|instance| rotation.identities.contains(&*instance.instance_name))
    }
}

impl Ord for ClusterTls {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.text, &other.text) { Ordering::Equal } else { self.text.cmp(&other.text) }
    }
}

impl PartialOrd for ClusterTls {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ClusterTls {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ClusterTls {}

impl Hash for ClusterTls {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.text.hash(state);
    }
}

impl fmt::Debug for ClusterTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
