//! Numbers of messages and bytes, ends of streams, and the time that responses take: rules OB1 to OB4.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, delta_response, response};
use crate::{engine::Metric, error::Code, error::short_type, protocol::DisconnectKind};

#[test]
fn ob1_requests_are_counted_by_type_and_by_what_they_answer() {
    let mut rig = Rig::new();
    counted(&mut rig, "");
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad")]));
    rig.sent(1);
    let requests = counted(&mut rig, "requests");
    let counts: Vec<_> = requests.iter().map(|text| text.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(counts, ["Full subscription 1", "Full ack 1", "Full nack 1"]);
    // Their size is that of the messages: a NACK has its text.
    let bytes: Vec<u64> =
        requests.iter().map(|text| text.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(bytes[1] > 0 && bytes[2] > bytes[1], "{requests:?}");
    assert_eq!(counted(&mut rig, ""), [""; 0], "each number is read once");
}

#[test]
fn ob1_requests_of_the_incremental_variant_are_counted_in_the_same_way() {
    let mut rig = Rig::delta();
    rig.open::<Part>(&["a"]);
    rig.receive_raw(1, delta_response::<Part>("n1", &[("a", "1", Some("x"))], &[]));
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Part>("n2", &[("a", "2", Some("bad"))], &[]));
    rig.sent(1);
    let counts: Vec<_> = counted(&mut rig, "requests")
        .iter()
        .map(|text| text.rsplit_once(' ').unwrap().0.to_owned())
        .collect();
    assert_eq!(counts, ["Part subscription 1", "Part ack 1", "Part nack 1"]);
}

#[test]
fn ob2_responses_are_counted_and_types_that_a_server_makes_up_are_one() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let known = response::<Full>("1", vec![any::<Full>("a", "x")]);
    let size = prost::Message::encoded_len(&known);
    rig.receive(1, &known);
    rig.sent(1);
    let mut made_up = response::<Full>("1", vec![]);
    for number in 0..100 {
        made_up.type_url = format!("type.googleapis.com/made.up.{number}");
        rig.receive(1, &made_up);
    }
    rig.receive_raw(1, vec![0xff; 10]);
    let counts = counted(&mut rig, "responses");
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert!(counts[0].starts_with("other 101 "), "{counts:?}");
    assert_eq!(counts[1], format!("Full 1 {size}"));
}

#[test]
fn ob3_ends_of_streams_are_counted_by_their_reasons() {
    let mut rig = Rig::new();
    let (watch_id, _) = rig.watch::<Full>("a");
    let kinds = [
        DisconnectKind::Unreachable,
        DisconnectKind::Unreachable,
        DisconnectKind::Failed(Code::Unavailable),
        DisconnectKind::Closed,
        DisconnectKind::TooLarge { limit: 1 },
        DisconnectKind::TooManyPings,
        DisconnectKind::Credentials,
        DisconnectKind::Unusable,
    ];
    for (kind, attempt) in kinds.into_iter().zip(1..) {
        rig.disconnect(attempt, kind);
        rig.pass(Duration::from_secs(200));
    }
    // A stream without subscriptions is closed by the client.
    rig.connect(9);
    rig.sent(9);
    rig.unwatch(watch_id);
    rig.pass(Duration::from_secs(1));
    rig.sent(9);
    rig.pass(Duration::from_secs(60));
    let mut ends = counted(&mut rig, "ends");
    ends.sort();
    let expected = [
        "UNAVAILABLE 1",
        "cancelled_by_client 1",
        "closed_by_server 1",
        "credentials 1",
        "message_too_large 1",
        "too_many_pings 1",
        "unreachable 2",
        "unusable 1",
    ];
    assert_eq!(ends, expected);
}

#[test]
fn ob4_the_time_of_a_response_includes_the_wait_for_its_consumers_and_behind_others() {
    let mut rig = Rig::delta();
    counted(&mut rig, "");
    let (consumer, _) = rig.consume::<Part>("*");
    rig.connect(1);
    rig.sent(1);
    counted(&mut rig, "");
    rig.receive_raw(1, delta_response::<Part>("n1", &[("a", "1", Some("1"))], &[]));
    rig.pass(Duration::from_secs(2));
    // It waits behind the first one.
    rig.receive_raw(1, delta_response::<Part>("n2", &[("a", "2", Some("2"))], &[]));
    rig.pass(Duration::from_secs(1));
    assert_eq!(counted(&mut rig, "applied"), [""; 0], "nothing is decided");
    rig.accept(consumer, 1);
    assert_eq!(counted(&mut rig, "applied"), ["Part accepted after 3s"]);
    rig.sent(1);
    rig.accept(consumer, 2);
    rig.pass(Duration::from_secs(4));
    rig.answer(consumer, 3, &["a"]);
    assert_eq!(counted(&mut rig, "applied"), ["Part rejected after 5s"]);
}

#[test]
fn ob4_without_a_reader_no_response_is_noted() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    for version in 1..100 {
        rig.receive(1, &response::<Full>(&version.to_string(), vec![any::<Full>("a", "x")]));
        rig.sent(1);
    }
    assert_eq!(counted(&mut rig, "applied"), [""; 0]);
    rig.receive(1, &response::<Full>("100", vec![any::<Full>("a", "x")]));
    assert_eq!(counted(&mut rig, "applied"), ["Full accepted after 0ns"]);
}

/// What was counted since the last time, in words: of `requests`, `responses`, `ends`, `applied`, or anything.
fn counted(rig: &mut Rig, what: &str) -> Vec<String> {
    let now = rig.now;
    let describe = |metric| match metric {
        Metric::Requests { type_url, kind, messages, .. } => {
            let (kind, count, bytes) = (kind.as_str(), messages.count, messages.bytes);
            ("requests", format!("{} {kind} {count} {bytes}", short_type(type_url)))
        }
        Metric::Responses { type_url, messages, .. } => {
            let type_name = type_url.map_or("other", short_type);
            ("responses", format!("{type_name} {} {}", messages.count, messages.bytes))
        }
        Metric::StreamEnds { end, count, .. } => ("ends", format!("{} {count}", end.as_str())),
        Metric::Applied { type_url, arrived_at, is_accepted, .. } => {
            let outcome = if is_accepted { "accepted" } else { "rejected" };
            ("applied", format!("{} {outcome} after {:?}", short_type(type_url), now - arrived_at))
        }
        other @ (Metric::Resources { .. }
        | Metric::Updates { .. }
        | Metric::Connected { .. }
        | Metric::Failures { .. }) => ("else", format!("{other:?}")),
    };
    let all = std::iter::from_fn(|| rig.engine.poll_metric()).map(describe);
    all.filter(|(kind, _)| what.is_empty() || *kind == what).map(|(_, text)| text).collect()
}
