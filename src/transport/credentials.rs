//! Credentials of an application: [`CredentialsRegistry`].

use std::{collections::BTreeMap, error::Error, fmt, pin::Pin, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use serde_json::Value;

use crate::config::{CredentialTypes, Server, TlsConfig};
pub use crate::dial::Io;
#[cfg(feature = "tls")]
pub use crate::tls::RevocationLists;

/// The types of credentials that an application implements, for bootstraps with other than the built-in ones (A27,
/// A97).
///
/// The bootstrap is read with its [`types`](Self::types), and the client is built with the registry itself.
///
/// ```no_run
/// use xdskit::{
///     Client,
///     config::{Bootstrap, TlsConfig},
///     transport::credentials::{
///         ChannelCredentialsPlugin, ConnectionCredentials, CredentialsContext, CredentialsRegistry, Loading,
///     },
/// };
///
/// /// TLS with the system's roots, and an access token with each call.
/// #[derive(Debug)]
/// struct GoogleDefault;
///
/// impl ChannelCredentialsPlugin for GoogleDefault {
///     fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
///         Box::pin(async {
///             let token = access_token().await?;
///             Ok(ConnectionCredentials::tls(TlsConfig::default()).with_bearer_token(&token)?)
///         })
///     }
/// }
///
/// async fn access_token() -> std::io::Result<String> {
///     // From the metadata server, or a crate such as `gcp_auth`, which caches it.
///     # Ok(String::new())
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let credentials = CredentialsRegistry::default().with_channel("google_default", GoogleDefault);
///     let bootstrap = Bootstrap::from_env_with(&credentials.types())?;
///     let client = Client::builder(bootstrap).credentials(credentials).build()?;
///     let shop = client.resolve("xds:///shop");
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct CredentialsRegistry {
    /// Channel credentials by type name.
    channel: BTreeMap<String, Arc<dyn ChannelCredentialsPlugin>>,
    /// Call credentials by type name.
    call: BTreeMap<String, Arc<dyn CallCredentialsPlugin>>,
}

/// A type of channel credentials: the security of connections to management servers.
pub trait ChannelCredentialsPlugin: fmt::Debug + Send + Sync + 'static {
    /// Loads the credentials of one connection. It is called for each connection attempt, and for each REST request,
    /// so the implementation should cache slow results. An error ends the attempt; the client reports it to the
    /// watches and retries with backoff.
    ///
    /// The future is dropped when the [`connect_timeout`](crate::client::ClientBuilder::connect_timeout) expires.
    fn load<'a>(&'a self, context: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials>;
}

/// A type of call credentials: headers of each call to a management server (A97).
///
/// They are sent over secured connections only.
pub trait CallCredentialsPlugin: fmt::Debug + Send + Sync + 'static {
    /// Loads the headers of one call: of each new stream, and of each REST request. An error ends the attempt; the
    /// client reports it to the watches and retries with backoff.
    fn load<'a>(&'a self, context: CredentialsContext<'a>) -> Loading<'a, HeaderMap>;
}

/// A handshake that secures a connection, in place of the library's TLS.
pub trait Handshake: fmt::Debug + Send + Sync + 'static {
    /// Performs the handshake on a connection to the host with this name or address, and returns the connection for
    /// HTTP/2, or HTTP/1.1 in REST.
    fn handshake<'a>(&'a self, io: Box<dyn Io>, host: &'a str) -> Loading<'a, Box<dyn Io>>;
}

/// The result of a plugin. The error is reported with its sources.
pub type Loading<'a, T> = Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// The context for loading credentials.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CredentialsContext<'a> {
    /// The management server.
    pub server: &'a Server,
    /// The value of `config` beside the type in the bootstrap; `null` if there is none.
    pub config: &'a Value,
}

/// The credentials of one connection.
#[derive(Debug)]
pub struct ConnectionCredentials {
    pub(super) security: ConnectionSecurity,
    /// Headers of the calls on the connection.
    pub(super) headers: HeaderMap,
}

/// The security of one connection, with files that are not read yet.
#[derive(Debug)]
pub(super) enum ConnectionSecurity {
    Plaintext,
    Tls(TlsConfig),
    Handshake(Box<dyn Handshake>),
}

impl CredentialsRegistry {
    /// Adds an implementation of a type of `channel_creds`, replacing a previous one. The built-in types `insecure`
    /// and `tls` cannot be replaced.
    #[must_use]
    pub fn with_channel(
        mut self,
        type_name: impl Into<String>,
        plugin: impl ChannelCredentialsPlugin,
    ) -> Self {
        self.channel.insert(type_name.into(), Arc::new(plugin));
        self
    }

    /// Adds an implementation of a type of `call_creds`, replacing a previous one. The built-in type `jwt_token_file`
    /// cannot be replaced.
    #[must_use]
    pub fn with_call(mut self, type_name: impl Into<String>, plugin: impl CallCredentialsPlugin) -> Self {
        self.call.insert(type_name.into(), Arc::new(plugin));
        self
    }

    /// The types, for reading a bootstrap ([`Bootstrap::from_env_with`](crate::config::Bootstrap::from_env_with)).
    pub fn types(&self) -> CredentialTypes {
        let types = self.channel.keys().fold(CredentialTypes::default(), CredentialTypes::with_channel);
        self.call.keys().fold(types, CredentialTypes::with_call)
    }

    /// Returns the implementation of a type of channel credentials.
    pub(super) fn channel(&self, type_name: &str) -> Option<&dyn ChannelCredentialsPlugin> {
        self.channel.get(type_name).map(|plugin| &**plugin)
    }

    /// Returns the implementation of a type of call credentials.
    pub(super) fn call(&self, type_name: &str) -> Option<&dyn CallCredentialsPlugin> {
        self.call.get(type_name).map(|plugin| &**plugin)
    }
}

/// Registries are equal if they have the same implementations: one and its clones.
impl PartialEq for CredentialsRegistry {
    fn eq(&self, other: &Self) -> bool {
        fn same<T: ?Sized>(one: &BTreeMap<String, Arc<T>>, other: &BTreeMap<String, Arc<T>>) -> bool {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| one.0 == other.0 && Arc::ptr_eq(one.1, other.1))
        }
        same(&self.channel, &other.channel) && same(&self.call, &other.call)
    }
}

impl ConnectionCredentials {
    /// A connection in plain text. It has no [headers](Self::with_header), and no call credentials.
    pub fn plaintext() -> Self {
        Self::new(ConnectionSecurity::Plaintext)
    }

    /// A connection with TLS. Its files are read at once.
    pub fn tls(config: TlsConfig) -> Self {
        Self::new(ConnectionSecurity::Tls(config))
    }

    /// A connection that is secured by a handshake of the application.
    pub fn handshake(handshake: impl Handshake) -> Self {
        Self::new(ConnectionSecurity::Handshake(Box::new(handshake)))
    }

    /// Adds a header to the calls on the connection.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Adds `authorization: Bearer <token>` to the calls on the connection.
    ///
    /// # Errors
    /// The token has characters that are invalid in a header.
    pub fn with_bearer_token(self, token: &str) -> Result<Self, http::header::InvalidHeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(self.with_header(AUTHORIZATION, value))
    }

    /// Creates credentials without headers.
    fn new(security: ConnectionSecurity) -> Self {
        Self { security, headers: HeaderMap::new() }
    }
}
