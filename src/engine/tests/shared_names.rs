//! Names that are requested from one server on behalf of several authorities, and sends under a wildcard too.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Rig, any, response, stream_to};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    protocol::DisconnectKind,
};

const NAME: &str = "xdstp://a/test.Full/x";

fn server(port: u16) -> crate::config::ServerBuilder {
    Server::new(format!("127.0.0.1:{port}")).insecure()
}

/// Number 7.
#[test]
fn a_wildcard_has_a_member_that_is_watched_by_the_name_of_an_authority_with_the_same_server() {
    let authority = AuthorityBuilder::default().server(server(1));
    let bootstrap = Bootstrap::builder().server(server(1)).authority("a", authority).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.open::<Full>(&[NAME]);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>("*");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("m", "x"), any::<Full>(NAME, "x")]));
    assert_eq!(outputs.last().unwrap(), &format!("#2 {{m: present 1 x, {NAME}: present 1 x}} complete"));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("m", "x")]));
    assert_eq!(outputs.last().unwrap(), "#2 {m: present 1 x} complete");
}

/// Number 11.
#[test]
fn a_name_that_the_fallback_sent_under_the_wildcard_of_others_is_there_at_once() {
    let authority = AuthorityBuilder::default().server(server(2)).server(server(1));
    let bootstrap = Bootstrap::builder().server(server(1)).authority("a", authority).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>(NAME, "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>(NAME);
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    assert!(outputs.contains(&"#2 present 1 x".to_owned()), "{outputs:?}");
    assert!(!outputs.iter().any(|output| output.starts_with("send")), "the wildcard has it: {outputs:?}");
    let changed = response::<Full>("2", vec![any::<Full>(NAME, "y"), any::<Full>("m", "z")]);
    let outputs = rig.receive_from(stream_to(0, 1), changed.encode_to_vec());
    assert!(outputs.contains(&"#2 present 2 y".to_owned()), "{outputs:?}");
    assert!(outputs.contains(&format!("#1 {{m: present 2 z, {NAME}: present 2 y}} complete")), "{outputs:?}");
}

/// The same for a name that is watched when the first server has failed already: its failure is none of the resource.
#[test]
fn a_name_that_the_fallback_has_sent_already_comes_without_the_failure_of_the_first_server() {
    let other = "xdstp://a/test.Full/y";
    let authority = AuthorityBuilder::default().server(server(2)).server(server(1));
    let bootstrap = Bootstrap::builder().server(server(1)).authority("a", authority).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>(NAME, "x")]));
    rig.sent(1);
    rig.watch::<Full>(other);
    let first = stream_to(1, 1);
    rig.connect_to(first);
    rig.sent_to(first);
    rig.receive_from(first, response::<Full>("1", vec![any::<Full>(other, "y")]).encode_to_vec());
    let kind = DisconnectKind::TooLarge { limit: 1 };
    let outputs = rig.disconnect_from(first, kind);
    assert!(outputs.iter().any(|outputs| outputs.contains("(RESOURCE_EXHAUSTED)")), "{outputs:?}");
    let (_, outputs) = rig.watch::<Full>(NAME);
    assert!(outputs.contains(&"#3 present 1 x".to_owned()), "{outputs:?}");
    assert!(
        !outputs.iter().any(|outputs| outputs.starts_with("#3") && outputs.contains("RESOURCE_EXHAUSTED")),
        "{outputs:?}"
    );
}
