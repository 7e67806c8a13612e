//! The address of an agent (SPIFFE Workload Endpoint, section 4).

use std::{net::SocketAddr, path::PathBuf};

use crate::config::ServerAddress;

/// Parses `unix:///path`, `unix:/path` or `tcp://ip:port`.
pub(super) fn parse(endpoint: &str) -> Result<ServerAddress, &'static str> {
    if endpoint.contains(['?', '#']) {
        return Err("it has a query or a fragment");
    }
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return match path.starts_with('/') && path.len() > 1 {
            true => Ok(ServerAddress::Unix(PathBuf::from(path))),
            false => Err("the path of the socket must be absolute, as in unix:///path"),
        };
    }
    if let Some(address) = endpoint.strip_prefix("tcp://") {
        let address = address.parse::<SocketAddr>();
        let address =
            address.map_err(|_| "it must be an IP address and a port, as in tcp://127.0.0.1:8000")?;
        return Ok(ServerAddress::Addresses(vec![address]));
    }
    Err("it begins neither with unix: nor with tcp://")
}
