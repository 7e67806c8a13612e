//! The host of a cluster whose endpoints are the addresses of a host.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{
    pb::envoy::config::endpoint::v3::{self as endpoint, lb_endpoint::HostIdentifier},
    resource::{Invalid, parts},
};

/// A host to look up, and a port; in JSON and as text, `host:port`, with brackets around an IPv6 address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct HostPort {
    /// A DNS name or an IP address, not empty.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Rule C3: one locality with one endpoint, whose host is looked up.
    pub(super) fn parse(from: &endpoint::ClusterLoadAssignment) -> Result<Self, Invalid> {
        let [locality] = &from.endpoints[..] else {
            let reason = format!("must be exactly one locality, are {}", from.endpoints.len());
            return Err(Invalid::field("endpoints", reason));
        };
        let [host] = &locality.lb_endpoints[..] else {
            let reason = format!("must be exactly one endpoint, are {}", locality.lb_endpoints.len());
            return Err(Invalid::field("lb_endpoints", reason).at_index("endpoints", 0));
        };
        Self::of_endpoint(host).map_err(|e| e.at_index("lb_endpoints", 0).at_index("endpoints", 0))
    }

    /// Reads the host of an endpoint.
    fn of_endpoint(from: &endpoint::LbEndpoint) -> Result<Self, Invalid> {
        let Some(HostIdentifier::Endpoint(host)) = &from.host_identifier else {
            return Err(Invalid::field("endpoint", "must be set"));
        };
        let socket =
            parts::socket_address(host.address.as_ref()).map_err(|e| e.at("address").at("endpoint"))?;
        let at = |e: Invalid| e.at("socket_address").at("address").at("endpoint");
        if !socket.resolver_name.is_empty() {
            return Err(at(Invalid::field("resolver_name", "is not supported; names are looked up in DNS")));
        }
        if socket.address.is_empty() {
            return Err(at(Invalid::field("address", "must not be empty")));
        }
        Ok(Self { host: socket.address.as_str().into(), port: parts::port(socket).map_err(at)? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
