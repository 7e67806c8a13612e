use super::*;

mod debug;

fn about() -> Subject {
    let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    Subject { type_url, name: "shop".into(), node: "n1".into() }
}

#[test]
fn contains_type_name_field_and_node() {
    let e = WatchError::rejected(about(), Invalid::field("lb_policy", "unsupported"));
    assert_eq!(e.to_string(), "Cluster \"shop\": lb_policy: unsupported [node id: n1]");
    assert_eq!((e.field(), e.reason(), e.is_rejected()), (Some("lb_policy"), "unsupported", true));
    let e = WatchError::new(Code::Unavailable, Blame::Network, about(), "connection refused");
    assert_eq!(
        format!("{e:?}"),
        "WatchError(UNAVAILABLE: Cluster \"shop\": connection refused [node id: n1])"
    );
    assert!(e.is_transient() && !e.is_not_found());
}

#[test]
fn the_middle_of_what_leads_to_an_error_is_left_out() {
    assert_eq!(shortened("shop", 4), "shop");
    assert_eq!(shortened("aaaaabbbbb", 9), "aa … bb");
    assert_eq!(shortened("ééééé", 9), "é … é", "it is cut between characters");
    let mut error = WatchError::new(Code::NotFound, Blame::Peer, about(), "the cause");
    for _ in 0..100 {
        error = error.via(about(), &"é".repeat(5_000));
        assert!(error.reason().len() <= LONGEST_PATH + 2 + LONGEST_REASON);
        assert!(error.reason().ends_with(": the cause"));
    }
}

#[test]
fn codes_have_their_numbers_on_the_wire() {
    for (number, code) in ALL.iter().enumerate() {
        assert_eq!(Code::from_i32(number as i32), *code);
    }
    assert_eq!(Code::from_i32(99), Code::Unknown);
}
