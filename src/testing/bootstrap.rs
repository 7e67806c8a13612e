use std::net::SocketAddr;

/// Returns a bootstrap in gRPC's format for a server at an address, without TLS.
pub(super) fn bootstrap_json(addr: SocketAddr) -> String {
    format!(
        r#"{{"xds_servers":[{{"server_uri":"{addr}","channel_creds":[{{"type":"insecure"}}],"server_features":["xds_v3"]}}],"node":{{"id":"test"}}}}"#
    )
}
