//! TLS between clients and servers, and its failures.

use super::{
    super::security::{Pki, SERVER, upstream},
    *,
};

/// All calls fail with UNAVAILABLE and a text, and no backend gets one.
async fn fails(mesh: &Mesh, backend: &Backend, text: &str) {
    for _ in 0..10 {
        let status = mesh.call(ECHO, "hello").await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        assert!(status.message().contains(text), "{status} has no {text:?}");
    }
    assert_eq!(backend.calls(), 0);
    assert_ne!(mesh.channel.state(), ChannelState::Ready);
}

#[tokio::test]
async fn ch12_security_mtls_connects_with_both_certificates() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.mutual()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], true)), &[&one]).await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
}

#[tokio::test]
async fn ch12_security_tls_connects_with_the_certificate_of_the_server_alone() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.server()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], false)), &[&one]).await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
}

#[tokio::test]
async fn ch12_security_plaintext_fallback_is_used_where_nothing_is_configured() {
    let pki = Pki::new();
    let one = Backend::start("one").await;
    let mesh = pki.mesh(None, &[&one]).await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
}

#[tokio::test]
async fn ch12_security_mtls_error_fails_calls_without_a_client_certificate() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.mutual()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], false)), &[&one]).await;
    fails(&mesh, &one, "client certificate").await;
    mesh.server.set(cluster("cart").edit(|it| it.transport_socket = Some(upstream(&[SERVER], true))));
    mesh.until(|answer| answer.is_ok()).await;
}

#[tokio::test]
async fn ch12_security_server_authz_error_fails_calls_to_servers_of_another_name() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.server()).await;
    let mesh = pki.mesh(Some(upstream(&["wrong.example"], false)), &[&one]).await;
    fails(&mesh, &one, "wrong.example").await;
    fails(&mesh, &one, SERVER).await;
}

#[tokio::test]
async fn ch12_security_failures_are_never_plaintext() {
    let pki = Pki::new();
    let one = Backend::start("one").await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], false)), &[&one]).await;
    fails(&mesh, &one, "TLS handshake failed").await;
}
