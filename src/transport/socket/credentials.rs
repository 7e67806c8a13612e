//! The credentials of a connection, loaded when it is made (A27, A97).

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{error::Error, path::Path, sync::OnceLock, time::SystemTime};

use http::{HeaderMap, header::AUTHORIZATION};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::crypto::CryptoProvider;
use tonic::codegen::StdError;

use super::with_causes;
#[cfg(feature = "tls")]
use crate::tls::{Crypto, RevocationLists};
use crate::{
    config::{CallCredentials, ChannelCredentials, CustomCredentials, Server},
    dial::{Alpn, MaybeTlsStream, Socket},
    file_reads::FileReads,
    transport::{
        Disconnect, DisconnectKind,
        credentials::{
            ConnectionCredentials, ConnectionSecurity, CredentialsContext, CredentialsRegistry, Handshake,
        },
        metadata::MetadataSources,
    },
};

#[cfg_attr(not(feature = "tls"), path = "credentials/no_tls.rs")]
mod tls;
mod token;

/// The loaded credentials of one connection.
pub(in crate::transport) struct Credentials {
    /// The security of the connection.
    channel: Channel,
    /// Headers of the calls on the connection.
    pub(in crate::transport) headers: HeaderMap,
}

/// The loaded credentials of one call.
pub(in crate::transport) struct CallHeaders {
    pub(in crate::transport) headers: HeaderMap,
    /// Whether the connection of the call is secured, which decides about the scheme.
    #[cfg_attr(
        not(feature = "rest"),
        allow(dead_code, reason = "streams have the scheme of their connection")
    )]
    pub(in crate::transport) is_secure: bool,
}

/// Where the credentials of a client's connections come from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::transport) struct CredentialSources {
    /// The implementations of the application.
    pub(in crate::transport) registry: CredentialsRegistry,
    /// The metadata of the application.
    pub(in crate::transport) metadata: MetadataSources,
    /// The certificates, keys and sessions of earlier connections.
    tls: tls::TlsCache,
}

/// The loader of the credentials of a server.
#[derive(Clone, Copy)]
pub(in crate::transport) struct Loader<'a> {
    /// The server of the connection or of the call.
    server: &'a Server,
    /// The sources of its credentials.
    sources: &'a CredentialSources,
}

/// A connection with the required security.
pub(in crate::transport) struct Secured {
    pub(in crate::transport) io: MaybeTlsStream,
    /// Whether TLS has negotiated HTTP/2.
    #[cfg_attr(not(feature = "rest"), allow(dead_code, reason = "gRPC is HTTP/2 in any case"))]
    pub(in crate::transport) selected_http2: bool,
}

/// The security of a connection, with its files read.
enum Channel {
    /// Plain text.
    Insecure,
    /// TLS, with the material of its files.
    Tls(tls::Tls),
    /// A handshake of the application.
    Handshake(Box<dyn Handshake>),
}

impl CredentialSources {
    /// Sets the lists by which no certificate of a server may be revoked.
    #[cfg(feature = "tls")]
    pub(in crate::transport) fn revoke_by(&mut self, lists: RevocationLists) {
        self.tls.revoke_by(lists);
    }

    /// Sets the cryptography of TLS.
    #[cfg(feature = "tls")]
    pub(in crate::transport) fn set_crypto(&mut self, provider: Arc<CryptoProvider>) {
        self.tls.set_crypto(provider);
    }

    /// Chooses the cryptography of TLS to a server without earlier connections.
    #[cfg(feature = "tls")]
    pub(in crate::transport) fn crypto(&self) -> Crypto {
        self.tls.crypto()
    }

    /// Returns the loader of a server.
    pub(in crate::transport) fn of<'a>(&'a self, server: &'a Server) -> Loader<'a> {
        Loader { server, sources: self }
    }
}

impl Loader<'_> {
    /// Loads the server's credentials. Any failure is an error: the security is never weaker than required.
    pub(in crate::transport) async fn load(self, alpn: Alpn) -> Result<Credentials, Disconnect> {
        let ConnectionCredentials { security, headers } = self.connection().await?;
        let is_plaintext = matches!(security, ConnectionSecurity::Plaintext);
        let headers = self.call_headers(is_plaintext, headers).await?;
        let channel = match security {
            ConnectionSecurity::Plaintext => Channel::Insecure,
            ConnectionSecurity::Tls(config) => {
                let tls = self.sources.tls.load(self.server, config, alpn).await;
                Channel::Tls(tls.map_err(unusable)?)
            }
            ConnectionSecurity::Handshake(handshake) => Channel::Handshake(handshake),
        };
        Ok(Credentials { channel, headers })
    }

    /// Loads the headers of one call alone.
    pub(in crate::transport) async fn headers(self) -> Result<CallHeaders, Disconnect> {
        // Most servers have neither call credentials nor a plugin: their calls read no file, and run no code of the application.
        let is_custom = matches!(self.server.channel_credentials, ChannelCredentials::Custom(_));
        if self.server.call_credentials.is_empty() && !is_custom {
            let is_secure = !matches!(self.server.channel_credentials, ChannelCredentials::Insecure);
            return Ok(CallHeaders { headers: HeaderMap::new(), is_secure });
        }
        let ConnectionCredentials { security, headers } = self.connection().await?;
        let is_plaintext = matches!(security, ConnectionSecurity::Plaintext);
        let headers = self.call_headers(is_plaintext, headers).await?;
        Ok(CallHeaders { headers, is_secure: !is_plaintext })
    }

    /// Loads the metadata of one call, and adds it to the headers of the credentials.
    pub(in crate::transport) async fn with_metadata(
        self,
        mut headers: HeaderMap,
    ) -> Result<HeaderMap, Disconnect> {
        let metadata = self.sources.metadata.headers(self.server).await;
        let metadata = metadata.map_err(|e| unusable(format!("initial_metadata: {}", with_causes(&*e))))?;
        for (name, value) in &metadata {
            headers.append(name, value.clone());
        }
        Ok(headers)
    }

    /// Loads the security of the connection, and its headers.
    async fn connection(self) -> Result<ConnectionCredentials, Disconnect> {
        match &self.server.channel_credentials {
            ChannelCredentials::Insecure => Ok(ConnectionCredentials::plaintext()),
            ChannelCredentials::Tls(config) => Ok(ConnectionCredentials::tls(config.clone())),
            ChannelCredentials::Custom(custom) => {
                let plugin = self.sources.registry.channel(custom.type_name());
                let plugin = plugin.ok_or_else(|| not_registered("channel", custom))?;
                plugin.load(self.context(custom)).await.map_err(|e| failed("channel", custom, &*e))
            }
        }
    }

    /// The headers of all credentials. They are secrets, so they are for secured connections only (A97).
    async fn call_headers(self, is_plaintext: bool, mut headers: HeaderMap) -> Result<HeaderMap, Disconnect> {
        let credentials = &self.server.call_credentials;
        if is_plaintext && (!credentials.is_empty() || !headers.is_empty()) {
            return Err(unusable(
                "call credentials are sent over secured connections only: use channel_creds `tls`",
            ));
        }
        for credentials in credentials {
            match credentials {
                CallCredentials::JwtTokenFile(path) => {
                    let file = path.clone();
                    let read = move || token::read(&file, SystemTime::now());
                    headers.append(AUTHORIZATION, in_background(token::FIELD, path, read).await?);
                }
                CallCredentials::Custom(custom) => {
                    let plugin = self.sources.registry.call(custom.type_name());
                    let plugin = plugin.ok_or_else(|| not_registered("call", custom))?;
                    let own = plugin.load(self.context(custom)).await;
                    let own = own.map_err(|e| failed("call", custom, &*e))?;
                    for (name, value) in &own {
                        headers.append(name, value.clone());
                    }
                }
            }
        }
        Ok(headers)
    }

    /// Returns the context for an implementation of the application.
    fn context<'a>(self, custom: &'a CustomCredentials) -> CredentialsContext<'a>
    where
        Self: 'a,
    {
        CredentialsContext { server: self.server, config: custom.config() }
    }
}

impl Credentials {
    /// Whether the connection is secured, which decides about the scheme.
    pub(in crate::transport) fn is_secure(&self) -> bool {
        match &self.channel {
            Channel::Insecure => false,
            Channel::Tls(_) => true,
            Channel::Handshake(_) => true,
        }
    }

    /// Secures a connection to a host of this name or address.
    pub(in crate::transport) async fn secure(&self, io: Socket, host: &str) -> Result<Secured, StdError> {
        match &self.channel {
            Channel::Insecure => Ok(Secured { io: MaybeTlsStream::Plaintext(io), selected_http2: false }),
            Channel::Tls(tls) => tls.secure(io, host).await,
            Channel::Handshake(own) => {
                let io = MaybeTlsStream::Custom(own.handshake(Box::new(io), host).await?);
                Ok(Secured { io, selected_http2: false })
            }
        }
    }
}

/// Reads a file on a thread for blocking operations, within a limit of time. `field` and `path` name it for errors.
async fn in_background<T: Send + 'static>(
    field: &str,
    path: &Path,
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Disconnect> {
    READS.get_or_init(FileReads::default).read(field, path, read).await.map_err(unusable)
}

/// The readings of tokens of all clients of the process, which bounds their threads.
static READS: OnceLock<FileReads> = OnceLock::new();

/// Returns the error of a type without an implementation.
fn not_registered(kind: &str, custom: &CustomCredentials) -> Disconnect {
    unusable(format!(
        "{kind} credentials `{}` have no implementation: give one to `ClientBuilder::credentials`",
        custom.type_name()
    ))
}

/// Returns the error of an implementation.
fn failed(kind: &str, custom: &CustomCredentials, error: &(dyn Error + 'static)) -> Disconnect {
    unusable(format!("{kind} credentials `{}`: {}", custom.type_name(), with_causes(error)))
}

/// Returns the failure of an attempt by its credentials.
fn unusable(reason: impl Into<String>) -> Disconnect {
    Disconnect::new(DisconnectKind::Credentials, reason)
}
