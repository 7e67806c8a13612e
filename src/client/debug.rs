//! The client in the logs and errors of applications.

use std::fmt;

use super::Client;
use crate::error::shortened;

/// A short list of texts, and the number of the others.
struct Listed(Vec<String>);

/// The names by which the client is known, its management servers, and the targets that it resolves; of many, the first ones.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registry, bootstrap) = (&self.registry, self.bootstrap());
        f.debug_struct("Client")
            .field("scope", &shortened(&registry.identity().scope, LONGEST_TEXT))
            .field("node", &shortened(&bootstrap.node().id, LONGEST_TEXT))
            .field("servers", &Listed(bootstrap.servers().map(|server| server.uri.to_string()).collect()))
            .field("targets", &Listed(registry.target_names()))
            .field("has_ended", &registry.has_ended())
            .finish()
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(texts) = self;
        let mut list = f.debug_list();
        list.entries(texts.iter().take(MAX_LISTED).map(|text| shortened(text, LONGEST_TEXT)));
        match texts.len().saturating_sub(MAX_LISTED) {
            0 => list.finish(),
            more => list.entry(&format_args!("{more} more")).finish(),
        }
    }
}

/// The number of servers, and of targets, that are named.
const MAX_LISTED: usize = 8;

/// The largest part of a text, in bytes; the middle of a longer one is left out.
const LONGEST_TEXT: usize = 200;

#[cfg(test)]
mod tests {
    use crate::{
        Client,
        config::{Bootstrap, Node, Server},
    };

    #[tokio::test]
    async fn a_client_is_shown_by_its_names_servers_and_targets() {
        let bootstrap =
            Bootstrap::builder().node(Node::new("n1")).server(Server::new("127.0.0.1:1").insecure());
        let client = Client::builder(bootstrap.build().unwrap()).scope("shop").build().unwrap();
        let _targets = ["xds:///b", "xds:///a"].map(|target| client.resolve(target));
        assert_eq!(
            format!("{client:?}"),
            r#"Client { scope: "shop", node: "n1", servers: ["127.0.0.1:1"], targets: ["xds:///a", "xds:///b"], has_ended: false }"#
        );
        client.shutdown().await;
        assert!(format!("{client:?}").ends_with("has_ended: true }"));
    }

    #[tokio::test]
    async fn the_text_of_a_client_is_bounded() {
        let long = "n".repeat(1 << 16);
        let bootstrap =
            Bootstrap::builder().node(Node::new(&*long)).server(Server::new("127.0.0.1:1").insecure());
        let client = Client::builder(bootstrap.build().unwrap()).build().unwrap();
        let targets: Vec<_> =
            (0..1000).map(|number| client.resolve(format!("xds:///{number:04}{long}"))).collect();
        let shown = format!("{client:?}");
        assert!(shown.len() < 4096 && shown.contains("xds:///0007") && shown.contains("992 more"), "{shown}");
        drop(targets);
    }
}
