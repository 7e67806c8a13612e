//! Management servers.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

mod builder;

pub use self::builder::ServerBuilder;
pub(crate) use self::builder::{check_connection, check_polling};

use super::{
    Metadata, bounded,
    credentials::{CallCredentials, ChannelCredentials},
    uri::{Security, ServerUri},
};

/// Management servers by the names under which configuration sources refer to them.
pub(crate) type NamedServers = BTreeMap<String, Arc<Server>>;

/// A management server.
///
/// Equality and hash define its identity: authorities with equal servers share one stream. The identity consists of all
/// properties of a stream: the URI, the credentials with their configuration, the metadata, the known features and the variant
/// of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Server {
    /// The URI.
    pub uri: ServerUri,
    /// The channel credentials.
    pub channel_credentials: ChannelCredentials,
    /// The call credentials, in the order of the bootstrap.
    pub call_credentials: Vec<CallCredentials>,
    /// The metadata of each call, such as a token, beside that of the client (`ClientBuilder::initial_metadata`).
    pub initial_metadata: Metadata,
    /// The features.
    pub features: ServerFeatures,
    /// The variant of the protocol; `None` for the default of the client.
    pub api_type: Option<ApiType>,
    /// The settings of polling for [`ApiType::Rest`]; `None` for the default of the client.
    pub polling: Option<Polling>,
    /// The version of the transport protocol.
    pub transport_api_version: TransportApiVersion,
    /// The `:authority` of requests to it; `None` for its host and port.
    pub authority: Option<String>,
    /// The keepalive of its connections; `None` for the settings of the client.
    pub keep_alive: Option<KeepAlive>,
}

/// HTTP/2 pings on the connections to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeepAlive {
    /// The time between two pings, limited to 30 years. It is doubled when the server reports too many pings.
    pub interval: Duration,
    /// The timeout of the acknowledgement of a ping.
    /// Without the acknowledgement the connection is closed.
    pub timeout: Duration,
}

/// The settings of polling a server over REST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Polling {
    /// The minimum time from the end of a request to the next one. A random delay of at most the same time is added, to
    /// spread the requests of clients. Limited to 30 years.
    pub refresh_delay: Duration,
    /// The timeout of a response: 1 s by default.
    pub request_timeout: Duration,
}

/// A version of the transport protocol: of its methods and type URLs.
///
/// Resources are the same in both versions: a resource of version 2 is parsed as one of version 3, with which it is
/// compatible on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TransportApiVersion {
    /// `V3`, the current one.
    #[default]
    V3,
    /// `V2`, of older servers.
    V2,
}

/// The `server_features` of a bootstrap. Unknown features are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ServerFeatures {
    /// `ignore_resource_deletion` (A53): a Listener or Cluster that is missing from a response remains in use.
    pub ignore_resource_deletion: bool,
    /// `trusted_xds_server` (A81): fields that affect security are honoured.
    pub trusted_xds_server: bool,
    /// `fail_on_data_errors` (A88): a resource with a data error is dropped instead of kept.
    pub fail_on_data_errors: bool,
    /// `resource_timer_is_transient_error` (A88): a resource that is not received within 30 s is unreachable, instead of
    /// non-existent after 15 s.
    pub resource_timer_is_transient_error: bool,
}

/// A variant of the protocol, by the names of `envoy.config.core.v3.ApiConfigSource.ApiType`.
///
/// In a bootstrap it is the field `api_type` of a server, an extension of gRPC's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApiType {
    /// `REST`: polling over HTTP.
    Rest,
    /// `GRPC`: a stream for each type, state of the world.
    Grpc,
    /// `DELTA_GRPC`: a stream for each type, incremental.
    DeltaGrpc,
    /// `AGGREGATED_GRPC`: one stream for all types, state of the world.
    AggregatedGrpc,
    /// `AGGREGATED_DELTA_GRPC`: one stream for all types, incremental.
    AggregatedDeltaGrpc,
}

/// The credentials for a gRPC service that resources may refer to (A102).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AllowedGrpcService {
    /// The channel credentials.
    pub channel_credentials: ChannelCredentials,
    /// The call credentials.
    pub call_credentials: Vec<CallCredentials>,
}

impl Server {
    /// A builder of a server with this URI (see [`ServerUri`] for the forms). An `http://` or `https://` URI implies the
    /// channel credentials; others need [`insecure`](ServerBuilder::insecure) or [`tls`](ServerBuilder::tls).
    ///
    /// ```
    /// use xdskit::config::{ChannelCredentials, Server, TlsConfig};
    ///
    /// let plain = Server::new("http://127.0.0.1:18000").build()?;
    /// assert_eq!(plain.channel_credentials, ChannelCredentials::Insecure);
    ///
    /// let secured = Server::new("xds.example.com:443")
    ///     .tls(TlsConfig::default().with_ca_certificate_file("/etc/xds/ca.pem"))
    ///     .features(["trusted_xds_server"])
    ///     .build()?;
    /// assert!(secured.features.trusted_xds_server);
    /// # Ok::<(), xdskit::config::ConfigError>(())
    /// ```
    #[allow(
        clippy::new_ret_no_self,
        reason = "reads best where a bootstrap is built, and a URI can be wrong"
    )]
    pub fn new(uri: impl Into<String>) -> ServerBuilder {
        ServerBuilder::new(uri)
    }

    /// A server that a resource names, with the credentials of an allowed gRPC service.
    pub(crate) fn reached(uri: ServerUri, by: &AllowedGrpcService) -> Self {
        Self {
            uri,
            channel_credentials: by.channel_credentials.clone(),
            call_credentials: by.call_credentials.clone(),
            initial_metadata: Metadata::default(),
            // No features: `allowed_grpc_services` permits a server to receive credentials, and does not make it trusted.
            features: ServerFeatures::default(),
            api_type: None,
            polling: None,
            transport_api_version: TransportApiVersion::default(),
            authority: None,
            keep_alive: None,
        }
    }

    /// Whether a connection to it is one to another server: they differ in nothing but the variant of the protocol.
    pub(crate) fn has_connection_of(&self, other: &Self) -> bool {
        let Self { api_type, polling, .. } = other;
        // The usual case first, since it compares without a copy.
        (self.api_type, self.polling) == (*api_type, *polling) && *self == *other
            || *self == Self { api_type: self.api_type, polling: self.polling, ..other.clone() }
    }

    /// The `:authority` of requests to it.
    pub(crate) fn http_authority(&self) -> String {
        self.authority.clone().unwrap_or_else(|| self.uri.address().authority())
    }

    /// Rejects an `http://` URI with TLS, and `https://` without: such mistakes would be hard to notice.
    pub(crate) fn check_scheme(uri: &ServerUri, credentials: &ChannelCredentials) -> Result<(), String> {
        match (uri.security(), credentials) {
            (Some(Security::Tls), ChannelCredentials::Insecure) => {
                Err("an https URI contradicts channel credentials `insecure`".to_owned())
            }
            (Some(Security::Plain), ChannelCredentials::Tls(_)) => {
                Err("an http URI contradicts channel credentials `tls`".to_owned())
            }
            (Some(Security::Plain), ChannelCredentials::Custom(custom)) => {
                Err(format!("an http URI contradicts channel credentials `{}`", custom.type_name()))
            }
            (None, _)
            | (Some(Security::Plain), ChannelCredentials::Insecure)
            | (Some(Security::Tls), ChannelCredentials::Tls(_) | ChannelCredentials::Custom(_)) => Ok(()),
        }
    }
}

impl AllowedGrpcService {
    /// A service with these channel credentials and no call credentials.
    pub fn new(channel_credentials: ChannelCredentials) -> Self {
        Self { channel_credentials, call_credentials: Vec::new() }
    }
}

impl ServerFeatures {
    /// Enables the feature that a bootstrap calls `name`. Unknown names have no effect.
    pub(crate) fn insert(&mut self, name: &str) {
        match name {
            "ignore_resource_deletion" => self.ignore_resource_deletion = true,
            "trusted_xds_server" => self.trusted_xds_server = true,
            "fail_on_data_errors" => self.fail_on_data_errors = true,
            "resource_timer_is_transient_error" => self.resource_timer_is_transient_error = true,
            // A bootstrap may serve several clients, which know other features.
            _ => {}
        }
    }
}

/// The features of these names, as in a bootstrap; unknown ones are ignored.
impl<'a> FromIterator<&'a str> for ServerFeatures {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut features = Self::default();
        names.into_iter().for_each(|name| features.insert(name));
        features
    }
}

impl Polling {
    /// The settings with bounded durations, which can be added to any time.
    pub(crate) fn bounded(self) -> Self {
        Self { refresh_delay: bounded(self.refresh_delay), request_timeout: bounded(self.request_timeout) }
    }

    /// Polling with this time between two requests, and defaults otherwise.
    ///
    /// The time has to be at least 1 ms, which is checked when the server is built.
    pub fn every(refresh_delay: Duration) -> Self {
        Self { refresh_delay, request_timeout: Duration::from_secs(1) }
    }

    /// Sets the timeout of a response.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }
}

impl KeepAlive {
    /// Pings with this interval and timeout.
    ///
    /// Both have to be at least 1 ms, which is checked when the server is built.
    pub fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout }
    }
}

/// Every 30 s.
impl Default for Polling {
    fn default() -> Self {
        Self::every(Duration::from_secs(30))
    }
}

impl TransportApiVersion {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "V2",
            Self::V3 => "V3",
        }
    }
}

impl ApiType {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rest => "REST",
            Self::Grpc => "GRPC",
            Self::DeltaGrpc => "DELTA_GRPC",
            Self::AggregatedGrpc => "AGGREGATED_GRPC",
            Self::AggregatedDeltaGrpc => "AGGREGATED_DELTA_GRPC",
        }
    }

    /// Whether it is incremental.
    pub fn is_delta(self) -> bool {
        match self {
            Self::DeltaGrpc | Self::AggregatedDeltaGrpc => true,
            Self::Rest | Self::Grpc | Self::AggregatedGrpc => false,
        }
    }

    /// Whether all types share one stream.
    /// Otherwise each type has a stream, or polls, of its own.
    pub fn is_aggregated(self) -> bool {
        match self {
            Self::AggregatedGrpc | Self::AggregatedDeltaGrpc => true,
            Self::Rest | Self::Grpc | Self::DeltaGrpc => false,
        }
    }

    /// The type of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api_type| api_type.name() == name)
    }

    /// All API types, by which names are found.
    pub(crate) const ALL: [Self; 5] =
        [Self::Rest, Self::Grpc, Self::DeltaGrpc, Self::AggregatedGrpc, Self::AggregatedDeltaGrpc];
}

impl fmt::Display for ApiType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
