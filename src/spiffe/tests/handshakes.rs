//! A server whose certificate, and the roots of its clients, are those of an agent.

use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use super::*;
use crate::{
    base::Custom,
    config::{Bootstrap, CertificateProvider, Server},
    resource::{DownstreamTls, Registry, tls::ProviderInstance},
    tls::{
        Providers, fixture,
        server::{AcceptError, AcceptFailure, ServerTls, ServerTlsSettings},
    },
};

#[tokio::test]
async fn sv13_5_sw3_a_server_has_its_identity_and_the_roots_of_its_clients_of_an_agent() {
    let mut agent = Agent::start().await;
    let provider = CertificateProvider::Custom(Custom::new(config(&agent)));
    let bootstrap = Bootstrap::builder().server(Server::new("localhost:1").insecure());
    let bootstrap = bootstrap.certificate_provider("mesh", provider).build().unwrap();
    let registry = Registry::new().with_certificate_plugin::<WorkloadApi>();
    let providers = Providers::new(&bootstrap, &registry, fixture::crypto());
    let instance = || ProviderInstance { instance_name: "mesh".into(), certificate_name: "".into() };
    let tls =
        DownstreamTls { identity: instance(), roots: Some(instance()), require_client_certificate: true };
    let server = ServerTls::of_chain(&providers, &tls, ServerTlsSettings::default());
    server.start();
    let (ca, next) = (Ca::new(), Ca::new());
    let issued = ca.issue([uri(SHOP), dns("a.example")]);
    let of = |bundle: &Ca| response([svid(SHOP, &issued, bundle, "")]);
    let mut stream = agent.stream().await;
    stream.send(&of(&ca)).await;
    let mut client = ca.issue([uri("spiffe://a.org/client")]).client(&ca, []);
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = TlsConnector::from(Arc::new(client));
    let handshake = async || -> Result<String, AcceptError> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let connect = client.connect(ServerName::try_from("a.example").unwrap(), near);
        let (accepted, _connected) = tokio::join!(server.accept(far, deadline), connect);
        let mut accepted = accepted?;
        accepted.stream.write_all(b"x").await.unwrap();
        Ok(accepted.peer.unwrap().spiffe_id().unwrap().to_owned())
    };
    assert_eq!(handshake().await.unwrap(), "spiffe://a.org/client");
    // The domain has another authority from now on.
    stream.send(&of(&next)).await;
    let refused = async {
        loop {
            if let Err(refused) = handshake().await {
                return refused;
            }
        }
    };
    let refused = soon(refused).await;
    assert_eq!(refused.failure(), AcceptFailure::ClientCertificate, "{refused}");
    // Without the agent, what it has sent last stays.
    drop(agent.stop().await);
    assert_eq!(handshake().await.unwrap_err().failure(), AcceptFailure::ClientCertificate);
}
