use std::{path::Path, time::SystemTime};

use tonic::{codegen::StdError, metadata::AsciiMetadataValue};

use super::dial::BoxedIo;
use crate::{
    config::{CallCredentials, ChannelCredentials, Server},
    transport::{Disconnect, DisconnectKind},
};

#[cfg(feature = "tls")]
mod tls;
mod token;

/// What a connection is secured with, loaded from files for this one connection.
pub(super) struct Credentials {
    channel: Channel,
    /// What goes with the call.
    pub(super) authorization: Vec<AsciiMetadataValue>,
}

enum Channel {
    Insecure,
    #[cfg(feature = "tls")]
    Tls(tls::Tls),
}

impl Credentials {
    /// Reads the files that a server's credentials name. What cannot be loaded is an error: there is no way to get less
    /// security than was asked for.
    pub(super) async fn load(server: &Server) -> Result<Self, Disconnect> {
        let (channel, call) = (server.channel_credentials.clone(), server.call_credentials.clone());
        let load = move || {
            Ok(Self { authorization: authorization(&channel, &call)?, channel: Channel::load(&channel)? })
        };
        let loaded: Result<Self, String> =
            tokio::task::spawn_blocking(load).await.unwrap_or_else(|e| Err(e.to_string()));
        loaded.map_err(|reason| Disconnect::new(DisconnectKind::Credentials, reason))
    }

    pub(super) fn is_secure(&self) -> bool {
        match &self.channel {
            Channel::Insecure => false,
            #[cfg(feature = "tls")]
            Channel::Tls(_) => true,
        }
    }

    /// Secures a connection to a host of this name or address.
    #[cfg_attr(not(feature = "tls"), allow(unused_variables, clippy::unused_async))]
    pub(super) async fn secure(&self, io: BoxedIo, host: &str) -> Result<BoxedIo, StdError> {
        match &self.channel {
            Channel::Insecure => Ok(io),
            #[cfg(feature = "tls")]
            Channel::Tls(tls) => tls.secure(io, host).await,
        }
    }
}

impl Channel {
    fn load(credentials: &ChannelCredentials) -> Result<Self, String> {
        match credentials {
            ChannelCredentials::Insecure => Ok(Self::Insecure),
            #[cfg(feature = "tls")]
            ChannelCredentials::Tls(config) => tls::Tls::load(config).map(Self::Tls),
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
