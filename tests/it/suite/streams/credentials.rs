//! The credentials of streams, and the sharing of streams between servers.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::fs;

use xdskit::config::{AuthorityBuilder, Bootstrap, TlsConfig};

use crate::common::{
    tls::{Ca, Files},
    *,
};
use crate::suite::transport::credentials::{LATER, jwt, serve, with_server, with_token};

#[apply(streams)]
async fn a97_each_stream_has_the_token_of_its_time(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let tokens = [jwt("one", LATER), jwt("two", LATER)];
    fs::write(files.path("token"), &tokens[0]).unwrap();
    let server = serve(ca.server_config()).await;
    let client = with_server(transport, with_token(&server, &files, "token"));
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    fs::write(files.path("token"), &tokens[1]).unwrap();
    server.control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    server.control_plane.disconnect(tonic::Status::unavailable("enough"));
    soon(async {
        while server.tokens().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.control_plane.set(cluster("shop", "three"));
    soon(shop.wait_for(|seen| note(seen) == Some("three"))).await.unwrap();
    assert_eq!(server.tokens(), tokens.map(|token| Some(format!("Bearer {token}"))));
}

/// A47-6, A97: equal URI, channel credentials with their files, call credentials and features, or a stream of its
/// own.
#[apply(streams)]
async fn only_servers_that_are_equal_in_everything_share_a_stream(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    ca.write_root(&files.path("same-root.pem"));
    for name in ["one", "two"] {
        fs::write(files.path(name), jwt(name, LATER)).unwrap();
    }
    let server = serve(ca.server_config()).await;
    let same = || with_token(&server, &files, "one");
    let other_tls = TlsConfig::default().with_ca_certificate_file(files.path("same-root.pem"));
    let mut bootstrap = Bootstrap::builder().server(same());
    for (authority, server) in [
        ("same", same()),
        ("token", with_token(&server, &files, "two")),
        ("tls", same().tls(other_tls)),
        ("feature", same().features(["fail_on_data_errors"])),
        ("unknown-feature", same().features(["no_such_feature"])),
    ] {
        bootstrap = bootstrap.authority(authority, AuthorityBuilder::default().server(server));
    }
    let client = transport.builder_from(bootstrap.build().unwrap()).build().unwrap();
    let mut watches = vec![client.watch::<Cluster>("shop")];
    for authority in ["same", "token", "tls", "feature", "unknown-feature"] {
        let name = format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/shop");
        server.control_plane.set(cluster(&name, authority));
        let mut watch = client.watch::<Cluster>(&name);
        assert_eq!(soon(watch.ready()).await.unwrap().note, authority);
        watches.push(watch);
    }
    soon(watches[0].ready()).await.unwrap();
    assert_eq!(server.control_plane.streams(), 4, "same and unknown-feature share the first");
    let bearer = |name| Some(format!("Bearer {}", jwt(name, LATER)));
    assert_eq!(server.tokens(), [bearer("one"), bearer("two"), bearer("one"), bearer("one")]);
}
