//! Files with the resources of a control plane, for clients without a server.
//!
//! ```text
//!   control plane ──change──▶ bridge ──one file a type──▶ client
//! ```

use std::{collections::BTreeMap, fs, marker::PhantomData, path::PathBuf};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tempfile::TempDir;
use tonic::codegen::Service;
use xdskit::{
    Client, Resource, ResourceSelector,
    client::ClientBuilder,
    config::{Bootstrap, Node, PathSource},
    control_plane::ControlPlane,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource as Wrapper},
        google::protobuf::Any,
    },
    resource::{
        Cluster, ClusterLoadAssignment, Context, Invalid, Listener, RouteConfiguration, Runtime,
        ScopedRouteConfiguration, Secret, VirtualHost,
    },
};

use super::Serves;
use crate::transport::Transport;

/// A builder of a client that reads files, which follow the resources of a server's control plane while the runtime
/// lives.
pub(crate) fn builder_of(server: &impl Serves) -> ClientBuilder {
    let mut bridge = Bridge::new(server.control_plane().clone());
    let bootstrap = Bootstrap::builder()
        .node(Node::new("test-node"))
        .source_for::<Listener>(bridge.file::<Listener>("json"))
        .source_for::<RouteConfiguration>(bridge.file::<RouteConfiguration>("yaml"))
        .source_for::<Cluster>(bridge.file::<Cluster>("json"))
        .source_for::<ClusterLoadAssignment>(bridge.file::<ClusterLoadAssignment>("pb"))
        .source_for::<Secret>(bridge.file::<Secret>("json"))
        .source_for::<Runtime>(bridge.file::<Runtime>("yaml"))
        .source_for::<ScopedRouteConfiguration>(bridge.file::<ScopedRouteConfiguration>("json"))
        // The type has no service over REST, the bridge's source of JSON.
        .source_for::<VirtualHost>(bridge.file::<VirtualHost>("pb"))
        .build()
        .unwrap();
    bridge.write();
    let changes = changes(server);
    tokio::spawn(bridge.follow(changes));
    Client::builder(bootstrap)
}

/// Writes the resources of a control plane to files.
struct Bridge {
    control_plane: ControlPlane,
    dir: TempDir,
    files: BTreeMap<&'static str, PathBuf>,
    /// The last content of each type.
    written: BTreeMap<&'static str, Vec<u8>>,
}

impl Bridge {
    fn new(control_plane: ControlPlane) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { control_plane, dir, files: BTreeMap::new(), written: BTreeMap::new() }
    }

    /// The file of a type, in a format.
    fn file<T: Resource>(&mut self, extension: &str) -> PathSource {
        let path = self.dir.path().join(format!("{}.{extension}", self.files.len()));
        self.files.insert(T::TYPE_URL, path.clone());
        PathSource::new(path)
    }

    async fn follow(mut self, mut changes: stream::BoxStream<'static, ()>) {
        while changes.next().await.is_some() {
            self.write();
        }
    }

    /// Replaces changed files, each as a whole.
    fn write(&mut self) {
        for (type_url, path) in &self.files {
            let content = match path.extension().and_then(|extension| extension.to_str()) {
                Some("pb") => self.binary(type_url),
                // JSON is YAML, and a comment is not JSON.
                Some("yaml") => [&b"# resources\n"[..], &self.json(type_url)].concat(),
                Some(_) | None => self.json(type_url),
            };
            if self.written.get(type_url) != Some(&content) {
                let new = path.with_extension("new");
                fs::write(&new, &content).unwrap();
                fs::rename(new, path).unwrap();
                self.written.insert(type_url, content);
            }
        }
    }

    /// Returns the response to a poll for all resources.
    fn json(&self, type_url: &str) -> Vec<u8> {
        let path = REST.iter().find(|(of, _)| type_url.ends_with(of)).expect("it has a path").1;
        let features = r#"["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"]"#;
        let question = format!(r#"{{"resource_names": ["*"], "node": {{"client_features": {features}}}}}"#);
        let question = Full::new(Bytes::from(question));
        let request = Request::post(format!("/v3/discovery:{path}")).body(question).unwrap();
        let answer = self.control_plane.service().call(request).now_or_never().expect("nothing is held");
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{type_url}");
        answer.into_body().collect().now_or_never().expect("it is there").unwrap().to_bytes().to_vec()
    }

    fn binary(&self, type_url: &str) -> Vec<u8> {
        let store = self.control_plane.store();
        let of_type = store.get(type_url);
        let resources = of_type.iter().map(|(name, stored)| {
            let resource = Any { type_url: type_url.into(), value: stored.bytes().clone() };
            let version = store.version_of(stored);
            let wrapper =
                Wrapper { name: name.into(), version, resource: Some(resource), ..Wrapper::default() };
            Any { type_url: WRAPPER.into(), value: wrapper.encode_to_vec().into() }
        });
        let response = DiscoveryResponse {
            version_info: store.version(of_type.version()),
            type_url: type_url.into(),
            resources: resources.collect(),
            ..DiscoveryResponse::default()
        };
        response.encode_to_vec()
    }
}

/// Yields an item for each change, as a client of the server sees it.
fn changes(server: &impl Serves) -> stream::BoxStream<'static, ()> {
    let client = Transport::Delta.builder_of(server).build().unwrap();
    let all = [
        of::<Listener>(&client),
        of::<RouteConfiguration>(&client),
        of::<Cluster>(&client),
        of::<ClusterLoadAssignment>(&client),
        of::<Secret>(&client),
        of::<Runtime>(&client),
        of::<ScopedRouteConfiguration>(&client),
        of::<VirtualHost>(&client),
    ];
    stream::select_all(all).boxed()
}

fn of<T: Resource>(client: &Client) -> stream::BoxStream<'static, ()> {
    client.watch_all::<Anything<T>>(ResourceSelector::All).map(drop).boxed()
}

/// A resource type that accepts all bytes.
#[derive(Debug)]
struct Anything<T>(PhantomData<fn() -> T>);

impl<T: Resource> Resource for Anything<T> {
    const TYPE_URL: &'static str = T::TYPE_URL;

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self(PhantomData))
    }
}

/// The last parts of types, and of their paths.
const REST: [(&str, &str); 6] = [
    (".Listener", "listeners"),
    (".RouteConfiguration", "routes"),
    (".Cluster", "clusters"),
    (".Secret", "secrets"),
    (".Runtime", "runtime"),
    (".ScopedRouteConfiguration", "scoped-routes"),
];

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
