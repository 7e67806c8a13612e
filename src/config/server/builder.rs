//! The builder of management servers.

use std::time::Duration;

use crate::config::{
    ApiType, CallCredentials, ChannelCredentials, ConfigError, CustomCredentials, KeepAlive, Metadata,
    Polling, Server, ServerFeatures, ServerUri, TlsConfig, TransportApiVersion, ValidationError,
    uri::Security,
};

/// A builder of a server; see [`Server::new`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is given to a bootstrap's, or `build`"]
pub struct ServerBuilder {
    /// Where to connect.
    uri: String,
    /// How the connection is secured.
    channel_credentials: Option<ChannelCredentials>,
    /// What each call carries in addition.
    call_credentials: Vec<CallCredentials>,
    /// Metadata of each call.
    initial_metadata: Metadata,
    /// How the server differs from the usual.
    features: ServerFeatures,
    /// The transport and the variant of the protocol.
    api_type: Option<ApiType>,
    /// How often resources are requested, by REST.
    polling: Option<Polling>,
    /// The version of the protocol.
    transport_api_version: TransportApiVersion,
    /// The name of the server in requests, if it is not that of the URI.
    authority: Option<String>,
    /// How a dead connection is detected.
    keep_alive: Option<KeepAlive>,
}

impl ServerBuilder {
    /// A builder with the defaults: v3 of the protocol, no features, and the credentials that the URI implies.
    pub(super) fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            channel_credentials: None,
            call_credentials: Vec::new(),
            initial_metadata: Metadata::default(),
            features: ServerFeatures::default(),
            api_type: None,
            polling: None,
            transport_api_version: TransportApiVersion::default(),
            authority: None,
            keep_alive: None,
        }
    }

    /// Connects in plain text.
    pub fn insecure(mut self) -> Self {
        self.channel_credentials = Some(ChannelCredentials::Insecure);
        self
    }

    /// Connects with TLS.
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.channel_credentials = Some(ChannelCredentials::Tls(config));
        self
    }

    /// Connects with credentials of a type that the application implements
    /// (`ClientBuilder::credentials`).
    pub fn custom_credentials(mut self, credentials: CustomCredentials) -> Self {
        self.channel_credentials = Some(ChannelCredentials::Custom(credentials));
        self
    }

    /// Adds credentials to each call.
    pub fn call_credentials(mut self, credentials: CallCredentials) -> Self {
        self.call_credentials.push(credentials);
        self
    }

    /// Sets the metadata of each call to this server: of each stream, of load reports too, and of each REST request. Unlike
    /// credentials, it is sent on connections in plain text, too.
    pub fn initial_metadata(mut self, metadata: Metadata) -> Self {
        self.initial_metadata = metadata;
        self
    }

    /// Enables features, by their names in a bootstrap's `server_features`; unknown ones are ignored.
    pub fn features<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.features = names.into_iter().collect();
        self
    }

    /// Sets the variant of the protocol for this server.
    pub fn api_type(mut self, api_type: ApiType) -> Self {
        self.api_type = Some(api_type);
        self
    }

    /// Sets the polling interval and timeout; required for [`ApiType::Rest`].
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = Some(polling);
        self
    }

    /// Sets the version of the transport protocol of this server: [`TransportApiVersion::V3`] by default.
    pub fn transport_api_version(mut self, version: TransportApiVersion) -> Self {
        self.transport_api_version = version;
        self
    }

    /// Sets the `:authority` of requests to this server: its host and port by default.
    pub fn authority(mut self, authority: impl Into<String>) -> Self {
        self.authority = Some(authority.into());
        self
    }

    /// Sets the keepalive of connections to this server, in place of the client's settings.
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = Some(keep_alive);
        self
    }

    /// Validates and builds the server alone.
    ///
    /// # Errors
    ///
    /// The URI is malformed or contradicts the credentials, or credentials are missing or incomplete.
    pub fn build(self) -> Result<Server, ConfigError> {
        let mut problems = Vec::new();
        match self.build_at("server", &mut problems) {
            Some(server) => Ok(server),
            None => Err(ConfigError::new(problems)),
        }
    }

    /// `None` if and only if an error was added.
    pub(in crate::config) fn build_at(
        self,
        path: &str,
        problems: &mut Vec<ValidationError>,
    ) -> Option<Server> {
        // The list may have problems of other servers already.
        let before = problems.len();
        let uri_path = format!("{path}.server_uri");
        let uri = match self.uri.parse::<ServerUri>() {
            Ok(uri) => Some(uri),
            Err(error) => {
                problems.push(ValidationError::new(&uri_path, error.to_string()));
                None
            }
        };
        let implied = || match uri.as_ref()?.security()? {
            Security::Plain => Some(ChannelCredentials::Insecure),
            Security::Tls => Some(ChannelCredentials::Tls(TlsConfig::default())),
        };
        let credentials = self.channel_credentials.or_else(implied);
        match &credentials {
            Some(ChannelCredentials::Tls(config)) => {
                let path = format!("{path}.channel_creds[0].config");
                problems.extend(config.check().err().map(|error| error.at(&path)));
            }
            Some(ChannelCredentials::Insecure | ChannelCredentials::Custom(_)) => {}
            // The error of the URI is enough: a valid one may imply credentials.
            None if uri.is_none() => {}
            None => problems.push(ValidationError::new(
                format!("{path}.channel_creds"),
                "missing: call `insecure()` or `tls(..)`, or use a URI that begins with http:// or https://",
            )),
        }
        let (uri, channel_credentials) = uri.zip(credentials)?;
        if let Err(reason) = Server::check_scheme(&uri, &channel_credentials) {
            problems.push(ValidationError::new(uri_path, reason));
        }
        if let Err((field, reason)) = check_polling(self.api_type, self.polling) {
            problems.push(ValidationError::new(format!("{path}.{field}"), reason));
        }
        let authority = self.authority.as_deref();
        if let Err((field, reason)) = check_connection(authority, self.keep_alive) {
            problems.push(ValidationError::new(format!("{path}.{field}"), reason));
        }
        (problems.len() == before).then_some(Server {
            uri,
            channel_credentials,
            call_credentials: self.call_credentials,
            initial_metadata: self.initial_metadata,
            features: self.features,
            api_type: self.api_type,
            polling: self.polling,
            transport_api_version: self.transport_api_version,
            authority: self.authority,
            keep_alive: self.keep_alive,
        })
    }
}

/// Checks the polling settings: REST needs an interval (rule D12), and the durations are at least 1 ms. Returns the
/// invalid field and the reason.
pub(crate) fn check_polling(
    api_type: Option<ApiType>,
    polling: Option<Polling>,
) -> Result<(), (&'static str, &'static str)> {
    match polling {
        None if api_type == Some(ApiType::Rest) => Err(("refresh_delay", "missing: REST is polled")),
        Some(polling) if polling.refresh_delay < SHORTEST_DELAY => {
            Err(("refresh_delay", "must be at least 1 ms"))
        }
        Some(polling) if polling.request_timeout < SHORTEST_DELAY => {
            Err(("request_timeout", "must be at least 1 ms"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks the connection settings: the characters of the authority, and the durations of the keepalive, which are at
/// least 1 ms. Returns the invalid field and the reason.
pub(crate) fn check_connection(
    authority: Option<&str>,
    keep_alive: Option<KeepAlive>,
) -> Result<(), (&'static str, &'static str)> {
    // The characters of a host and a port in RFC 3986, without the `@` after a user.
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&c);
    if authority.is_some_and(|authority| authority.is_empty() || !authority.bytes().all(fits)) {
        return Err(("authority", "must be a host, and a port if there is one"));
    }
    match keep_alive {
        Some(keep_alive) if keep_alive.interval < SHORTEST_DELAY => {
            Err(("keep_alive.interval", "must be at least 1 ms"))
        }
        Some(keep_alive) if keep_alive.timeout < SHORTEST_DELAY => {
            Err(("keep_alive.timeout", "must be at least 1 ms"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The least delay between two requests.
/// Zero would poll or ping without a pause.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);
