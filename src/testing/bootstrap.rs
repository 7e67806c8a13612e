use std::net::SocketAddr;

/// Returns a bootstrap in gRPC's format for a server at an address, without TLS.
pub(super) fn bootstrap_json(addr: SocketAddr) -> String {
    format!(
        r#"{{"xds_servers":[{{"server_uri":"{addr}","channel_creds":[{{"type":"insecure"}}],"server_features":["xds_v3"]}}],"node":{{"id":"test"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bootstrap;

    #[test]
    fn the_bootstrap_leads_to_the_server() {
        let addr = "127.0.0.1:18000".parse().unwrap();
        let bootstrap = Bootstrap::from_json(&bootstrap_json(addr)).unwrap();
        assert_eq!(bootstrap.node().id, "test");
        assert_eq!(bootstrap.servers().next().unwrap().uri.as_str(), "127.0.0.1:18000");
    }
}
