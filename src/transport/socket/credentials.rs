use std::{path::Path, time::SystemTime};

use tonic::{codegen::StdError, metadata::AsciiMetadataValue};

use super::BoxedIo;
use crate::{
    config::{CallCredentials, ChannelCredentials, Server},
    transport::{Disconnect, DisconnectKind},
};

#[cfg(feature = "tls")]
mod tls;
mod token;

/// What a connection is secured with, loaded from files for this one connection.
pub(in crate::transport) struct Credentials {
    channel: Channel,
    /// What goes with the call.
    pub(in crate::transport) authorization: Vec<AsciiMetadataValue>,
}

/// What is spoken on a connection, as far as TLS lets both sides agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum Alpn {
    /// HTTP/2 and nothing else.
    Http2,
    /// HTTP/2 or HTTP/1.1, as the server likes it.
    #[cfg(feature = "rest")]
    Http2OrHttp1,
}

/// A connection that is as secure as was asked for.
pub(in crate::transport) struct Secured {
    pub(in crate::transport) io: BoxedIo,
    /// By TLS both sides have agreed on HTTP/2.
    #[cfg_attr(not(feature = "rest"), allow(dead_code, reason = "gRPC is HTTP/2 in any case"))]
    pub(in crate::transport) selected_http2: bool,
}

enum Channel {
    Insecure,
    #[cfg(feature = "tls")]
    Tls(tls::Tls),
}

impl Credentials {
    /// Reads the files that a server's credentials name. What cannot be loaded is an error: there is no way to get less
    /// security than was asked for.
    pub(in crate::transport) async fn load(server: &Server, alpn: Alpn) -> Result<Self, Disconnect> {
        let (channel, call) = (server.channel_credentials.clone(), server.call_credentials.clone());
        let load = move || {
            Ok(Self {
                authorization: authorization(&channel, &call)?,
                channel: Channel::load(&channel, alpn)?,
            })
        };
        let loaded: Result<Self, String> =
            tokio::task::spawn_blocking(load).await.unwrap_or_else(|e| Err(e.to_string()));
        loaded.map_err(|reason| Disconnect::new(DisconnectKind::Credentials, reason))
    }

    /// What goes with a call by itself.
    #[cfg(feature = "rest")]
    pub(in crate::transport) async fn authorization_of(
        server: &Server,
    ) -> Result<Vec<AsciiMetadataValue>, Disconnect> {
        if server.call_credentials.is_empty() {
            return Ok(Vec::new());
        }
        let (channel, call) = (server.channel_credentials.clone(), server.call_credentials.clone());
        let read = tokio::task::spawn_blocking(move || authorization(&channel, &call)).await;
        read.unwrap_or_else(|e| Err(e.to_string()))
            .map_err(|reason| Disconnect::new(DisconnectKind::Credentials, reason))
    }

    pub(in crate::transport) fn is_secure(&self) -> bool {
        match &self.channel {
            Channel::Insecure => false,
            #[cfg(feature = "tls")]
            Channel::Tls(_) => true,
        }
    }

    /// Secures a connection to a host of this name or address.
    #[cfg_attr(not(feature = "tls"), allow(unused_variables, clippy::unused_async))]
    pub(in crate::transport) async fn secure(&self, io: BoxedIo, host: &str) -> Result<Secured, StdError> {
        match &self.channel {
            Channel::Insecure => Ok(Secured { io, selected_http2: false }),
            #[cfg(feature = "tls")]
            Channel::Tls(tls) => tls.secure(io, host).await,
        }
    }
}

impl Channel {
    #[cfg_attr(not(feature = "tls"), allow(unused_variables))]
    fn load(credentials: &ChannelCredentials, alpn: Alpn) -> Result<Self, String> {
        match credentials {
            ChannelCredentials::Insecure => Ok(Self::Insecure),
            #[cfg(feature = "tls")]
            ChannelCredentials::Tls(config) => tls::Tls::load(config, alpn).map(Self::Tls),
            #[cfg(not(feature = "tls"))]
            ChannelCredentials::Tls(_) => Err("this build of xdskit lacks the feature `tls`".to_owned()),
        }
    }
}

/// The metadata of call credentials. They are secrets, so they are for secured connections only (A97).
fn authorization(
    channel: &ChannelCredentials,
    credentials: &[CallCredentials],
) -> Result<Vec<AsciiMetadataValue>, String> {
    if !credentials.is_empty() && *channel == ChannelCredentials::Insecure {
        return Err(
            "call credentials are sent over secured connections only: use channel_creds `tls`".to_owned()
        );
    }
    credentials
        .iter()
        .map(|credentials| match credentials {
            CallCredentials::JwtTokenFile(path) => token::read(path, SystemTime::now())
                .map_err(|reason| in_file("jwt_token_file", path, &reason)),
        })
        .collect()
}

fn in_file(field: &str, path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{field} {}: {why}", path.display())
}
