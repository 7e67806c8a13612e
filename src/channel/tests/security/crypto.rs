//! The cryptography of channels.

use super::*;
use crate::tls::fixture;

#[tokio::test]
async fn tls_has_the_cryptography_of_the_channel_or_else_of_its_client() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server_with(&["a.example"], Some(&ca))).await;
    let mut mesh = secured("crypto", &peer, &ca, upstream(&["a.example"], true)).await;
    answered(&mesh, &mut peer).await;
    let xds = |it: ChannelBuilder| it.xds_credentials(FallbackCredentials::Plaintext);
    // Channels with other cryptography share no keys.
    mesh.channel = build(&mesh, |it| xds(it).crypto_provider(fixture::provider_without_keys()));
    fails(&mesh, "refused by the provider").await;
    let builder = Client::builder(mesh.client.bootstrap().clone());
    mesh.client = builder.crypto_provider(fixture::provider_without_keys()).build().unwrap();
    mesh.channel = build(&mesh, xds);
    fails(&mesh, "refused by the provider").await;
    mesh.channel = build(&mesh, |it| xds(it).crypto_provider(fixture::provider()));
    answered(&mesh, &mut peer).await;
}
