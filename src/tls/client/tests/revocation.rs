//! CH7.17 with handshakes.

use super::*;
use crate::tls::RevocationLists;

/// A server with the serial number 7, and lists of its authority.
struct Revoking {
    world: World,
    lists: Folder,
    server: Arc<ServerConfig>,
}

impl Revoking {
    fn new(change: impl FnOnce(&mut FileWatcherConfig)) -> Self {
        let world = World::with(change);
        let names = [dns("a.example"), uri("spiffe://servers/a")];
        let issued = world.servers.issue_with(names, |params| params.serial_number = Some(7.into()));
        let this = Self { world, lists: Folder::new(), server: Arc::new(issued.server(None)) };
        this.revoke(&[]);
        this
    }

    fn revoke(&self, serials: &[u64]) {
        self.lists.write("a.crl", self.world.servers.revoke(serials).der());
    }

    fn client(&self) -> ClientTls {
        self.revoking(self.world.client(upstream("a.example"), None))
    }

    /// The same with the lists.
    fn revoking(&self, client: ClientTls) -> ClientTls {
        let lists = RevocationLists::directory(self.lists.path(""));
        client.with_revocation(Some(Revocation::new(lists)))
    }
}

/// Until the files are read again.
async fn interval() {
    tokio::time::sleep(DEFAULT_REFRESH_INTERVAL + Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn ch7_16_ch7_17_lists_that_change_end_sessions_and_are_for_the_next_handshake() {
    let it = Revoking::new(|_| {});
    let client = it.client();
    let resumed = async || handshake(&client, &it.server).await.unwrap().1.resumed;
    assert!(!resumed().await && resumed().await);
    interval().await;
    assert!(resumed().await, "the lists are the same");
    it.revoke(&[8]);
    interval().await;
    assert!(!resumed().await && resumed().await);
    it.revoke(&[7]);
    assert!(resumed().await, "the interval is not over");
    interval().await;
    let refused = handshake(&client, &it.server).await.unwrap_err();
    let start = "TLS handshake failed: the server's certificate (DNS \"a.example\", URI \"spiffe://servers/a\"), \
                 trusted by certificate provider instance \"both\", is refused: certificate 07 of the issuer \"CN=an authority\" is revoked by ";
    assert!(refused.starts_with(start) && refused.contains("a.crl: "), "{refused}");
}

#[tokio::test]
async fn ch7_16_ch7_17_lists_that_have_expired_refuse_a_resumed_session() {
    let it = Revoking::new(|_| {});
    let client = it.client();
    // In 2042, when the certificates are valid.
    let late = UnixTime::since_unix_epoch(Duration::from_secs(72 * 365 * 86_400));
    for is_resumed in [false, true] {
        let checked = checked_at(late, &client, &it.server).await;
        assert_eq!(checked.is_err_and(|why| why.contains("a.crl has expired")), is_resumed);
    }
}

#[tokio::test]
async fn ch7_17_lists_are_for_bundles_of_spiffe_and_for_the_fallback_too() {
    let folder = Folder::new();
    let it = Revoking::new(|both| both.spiffe_trust_bundle_map_file = Some(folder.path("map.json")));
    let map = json!({ "trust_domains": { "servers": it.world.servers.bundle() } });
    folder.write("map.json", map.to_string());
    let config = TlsConfig::default().with_ca_certificate_file(it.world.folder.path("ca.crt"));
    let clients =
        || [it.client(), it.revoking(ClientTls::of_config(&config, "a.example", &fixture::crypto()))];
    for client in clients() {
        handshake(&client, &it.server).await.unwrap();
    }
    it.revoke(&[7]);
    for client in clients() {
        let refused = handshake(&client, &it.server).await.unwrap_err();
        assert!(refused.contains("is refused: certificate 07"), "{refused}");
    }
    it.lists.write("a.crl", Ca::named("other").revoke(&[]).der());
    for client in clients() {
        let refused = handshake(&client, &it.server).await.unwrap_err();
        assert!(refused.contains("is not determined by"), "{refused}");
    }
}

#[tokio::test]
async fn ch7_17_a_revoked_server_is_refused_before_its_names_are_compared() {
    let it = Revoking::new(|_| {});
    it.revoke(&[7]);
    let client = it.revoking(it.world.client(upstream("b.example"), None));
    let refused = handshake(&client, &it.server).await.unwrap_err();
    assert!(refused.contains("is revoked by"), "{refused}");
}
