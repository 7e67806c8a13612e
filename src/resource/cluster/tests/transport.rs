//! Connections to endpoints: those of the rules C19 to C23 that are not about TLS.

use super::*;

fn with(transport_socket: Option<core::TransportSocket>) -> Result<Cluster, String> {
    parse(cluster::Cluster { transport_socket, ..eds() })
}

#[test]
fn c19_accepts_a_cluster_without_transport_socket_matches() {
    assert!(with(socket(tls_context())).unwrap().tls.is_some());
}

#[test]
fn c19_rejects_transport_socket_matches() {
    let matches = vec![cluster::cluster::TransportSocketMatch::default()];
    let e = parse(cluster::Cluster { transport_socket_matches: matches, ..eds() }).unwrap_err();
    assert_eq!(e, "transport_socket_matches: is not supported; use transport_socket");
}

#[test]
fn c20_accepts_tls_and_the_absence_of_a_transport_socket() {
    assert_eq!(with(None).unwrap().tls, None);
    // The name is not checked for clusters (as in C-core).
    for name in ["envoy.transport_sockets.tls", "", "mine"] {
        let named = core::TransportSocket { name: name.into(), ..socket(tls_context()).unwrap() };
        let parsed = with(Some(named)).unwrap();
        let roots = parsed.tls.unwrap().roots;
        assert_eq!(serde_json::to_value(roots).unwrap()["provider"]["instance_name"], "ca");
        assert!(!parsed.http_connect);
    }
}

#[test]
fn c20_rejects_other_transport_sockets() {
    let tls = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let broken = google::Any { type_url: tls.into(), value: b"\xff"[..].into() };
    let empty = any(tls, &google::Any::default());
    for (bad, expected) in [
        (
            socket(any("a.RawBuffer", &google::Any::default())),
            "typed_config: \"a.RawBuffer\" is not supported",
        ),
        (Some(core::TransportSocket::default()), "typed_config: must be set"),
        (socket(broken), "typed_config.value: not a valid message"),
        (socket(empty), "typed_config.common_tls_context: must be set"),
    ] {
        let e = with(bad).unwrap_err();
        assert!(e.starts_with(&format!("transport_socket.{expected}")), "{e}");
    }
}

fn proxy(transport_socket: Option<core::TransportSocket>) -> Option<core::TransportSocket> {
    let message = http_11_proxy::Http11ProxyUpstreamTransport { transport_socket };
    socket(any(HTTP_11_PROXY, &message))
}

#[test]
fn c21_accepts_tls_and_plain_text_through_an_http_proxy() {
    let plain = with(proxy(None)).unwrap();
    assert!(plain.http_connect && plain.tls.is_none());
    let tls = with(proxy(socket(tls_context()))).unwrap();
    assert!(tls.http_connect && tls.tls == with(socket(tls_context())).unwrap().tls);
}

#[test]
fn c21_rejects_other_transport_sockets_through_an_http_proxy() {
    let at = "transport_socket.typed_config.transport_socket.typed_config";
    for (bad, expected) in [
        (socket(any("a.B", &google::Any::default())), "\"a.B\" is not supported"),
        (proxy(None), "\"envoy.extensions.transport_sockets.http_11_proxy"),
        (Some(core::TransportSocket::default()), "must be set"),
    ] {
        let e = with(proxy(bad)).unwrap_err();
        assert!(e.starts_with(&format!("{at}: {expected}")), "{e}");
    }
    let broken = google::Any { type_url: HTTP_11_PROXY.into(), value: b"\xff"[..].into() };
    assert!(with(socket(broken)).unwrap_err().starts_with("transport_socket.typed_config.value: "));
}
