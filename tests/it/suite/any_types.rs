//! Resources of types that are known at run time alone.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    ResourceSelector,
    control_plane::{AnyResource, type_url},
    error::Code,
    resource::{Prost, Resource},
    testing::TestControlPlane,
};

use crate::common::soon;

#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    text: String,
}

impl prost::Name for Note {
    const NAME: &'static str = "Note";
    const PACKAGE: &'static str = "test.any";
}

const NOTE: &str = Prost::<Note>::TYPE_URL;

fn note(name: &str, text: &str) -> AnyResource {
    AnyResource::encode(NOTE, name, &Note { name: name.into(), text: text.into() })
}

#[apply(aggregated)]
async fn ap18_a_type_is_watched_by_its_url(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(note("a", "1"));
    let client = transport.builder_of(&server).build().unwrap();
    let mut watch = client.watch_any(NOTE, "a");
    let message = soon(watch.ready()).await.unwrap();
    assert_eq!((message.type_url(), message.decode::<Note>().unwrap().text.as_str()), (NOTE, "1"));
    server.set(note("b", "2"));
    let mut all = client.watch_all_any(NOTE, ResourceSelector::All);
    let members = soon(all.wait_for(|members| members.len() == 2)).await.unwrap();
    assert_eq!(members.len(), 2);
    server.expect_ack(NOTE).await.unwrap();
}

#[apply(aggregated)]
async fn ap18_a_url_has_one_rust_type_in_a_client(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(note("a", "1"));
    let client = transport.builder_of(&server).build().unwrap();
    let mut typed = client.watch::<Prost<Note>>("a");
    soon(typed.ready()).await.unwrap();
    for url in [NOTE, type_url::CLUSTER, "no-url", "type.googleapis.com/"] {
        let error = soon(client.watch_any(url, "a").ready()).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{url}: {error}");
    }
    assert_eq!(soon(typed.ready()).await.unwrap().text, "1", "the neighbour goes on");
}
