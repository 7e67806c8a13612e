//! Listeners.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

pub use super::connection_manager::{HttpConnectionManager, RouteConfigRef, RouteSource};

use super::{
    Context, Invalid, Remarks, Resource, filter_chain::SocketListener, http_filter::Side, remarks, v2,
};
use crate::{base::type_url, pb::envoy::config::listener::v3 as pb};

/// The entry point of requests: the HTTP filters and routes of a client's target, or the filter chains of a server's
/// socket.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listener {
    /// The name.
    pub name: Arc<str>,
    /// The kind, client or server.
    #[serde(flatten)]
    pub kind: ListenerKind,
    /// What is not used of it.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

/// The kind of a [`Listener`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ListenerKind {
    /// A client's listener: the handling of its requests to a target.
    #[serde(rename = "api_listener")]
    Api(HttpConnectionManager),
    /// A server's listener: the handling of the connections to a socket.
    Socket(SocketListener),
}

impl Listener {
    /// Returns the handling of a client's requests; `None` for a server's listener.
    pub fn api(&self) -> Option<&HttpConnectionManager> {
        // L22: a watch accepts both kinds, since one type URL serves clients and servers.
        match &self.kind {
            ListenerKind::Api(manager) => Some(manager),
            ListenerKind::Socket(_) => None,
        }
    }
}

impl Resource for Listener {
    const TYPE_URL: &'static str = type_url::LISTENER;
    const COLLECTION_TYPE_URL: Option<&'static str> =
        Some("type.googleapis.com/envoy.config.listener.v3.ListenerCollection");
    const FULL_STATE: bool = true;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let mut message = pb::Listener::decode(bytes.clone())?;
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let name = std::mem::take(&mut message.name).into();
        v2::check_listener(bytes)?;
        let (kind, remarks) = remarks::collect(|| ListenerKind::parse(message, cx))?;
        Ok(Self { name, kind, remarks })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

impl ListenerKind {
    /// Parses what tells listeners of clients and servers apart.
    fn parse(message: pb::Listener, cx: &Context<'_>) -> Result<Self, Invalid> {
        match message.api_listener {
            Some(api) => {
                let any = api.api_listener.unwrap_or_default();
                let manager = HttpConnectionManager::parse(&any, Side::Client, cx);
                Ok(Self::Api(manager.map_err(|e| e.at("api_listener").at("api_listener"))?))
            }
            None if message.address.is_none() => Err(Invalid::new("neither api_listener nor address is set")),
            None => SocketListener::parse(message, cx).map(Self::Socket),
        }
    }
}

#[cfg(test)]
mod tests;
