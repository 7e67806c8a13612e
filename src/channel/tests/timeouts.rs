//! The time limits of calls (A31).

use super::*;
use crate::{
    pb::{
        envoy::config::route::v3::{route::Action, route_action::MaxStreamDuration},
        google::protobuf::Duration as Proto,
    },
    testing::resources::RouteBuilder,
};

fn limited(route: RouteBuilder, header: Option<u32>, stream: Option<u32>) -> RouteBuilder {
    let proto = |seconds: u32| Proto { seconds: seconds.into(), nanos: 0 };
    route.edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.max_stream_duration = (header.is_some() || stream.is_some()).then(|| MaxStreamDuration {
            grpc_timeout_header_max: header.map(proto),
            max_stream_duration: stream.map(proto),
        });
    })
}

/// The time that a server is given, in seconds.
fn given(timeout: &str) -> f64 {
    let (number, unit) = timeout.split_at(timeout.len() - 1);
    let seconds = [("n", 1e-9), ("u", 1e-6), ("m", 1e-3), ("S", 1.0), ("M", 60.0), ("H", 3_600.0)];
    number.parse::<f64>().unwrap() * seconds.iter().find(|it| it.0 == unit).unwrap().1
}

#[tokio::test]
async fn ch2_13_servers_are_given_the_time_of_each_row_of_the_table_of_a31() {
    let mut peer = Peer::start().await;
    let name = "ch2_13_table";
    // Of the application, the timeout header, the stream; what follows from them, in seconds.
    let table = [
        (None, None, None, None),
        (None, None, Some(0), None),
        (None, None, Some(1_000), Some(1_000.0)),
        (None, Some(0), Some(1_000), None),
        (None, Some(2_000), Some(1_000), Some(2_000.0)),
        (Some("3000S"), None, None, Some(3_000.0)),
        (Some("3000S"), None, Some(1_000), Some(1_000.0)),
        (Some("3000S"), Some(0), Some(1_000), Some(3_000.0)),
        (Some("3000S"), Some(2_000), Some(1_000), Some(2_000.0)),
        (Some("3000S"), Some(4_000), Some(1_000), Some(3_000.0)),
    ];
    let mesh = Mesh::start(name, &[&peer]).await;
    let routes = table.iter().enumerate().map(|(row, (_, header, stream, _))| {
        limited(route::path(format!("/{row}")).cluster(name), *header, *stream)
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    for (row, (application, _, _, expected)) in table.iter().enumerate() {
        let path = format!("/{row}");
        let call = match application {
            Some(timeout) => mesh.with_timeout(&path, timeout),
            None => mesh.get(&path),
        };
        let attempt = peer.request().await;
        let sent = attempt.header("grpc-timeout").map(given);
        // A part of the time has passed, which is less than the steps of the table.
        let is_expected = match (sent, expected) {
            (Some(sent), Some(expected)) => sent <= *expected && sent > expected - 900.0,
            (None, None) => true,
            _ => false,
        };
        assert!(is_expected, "row {row}: {sent:?} instead of {expected:?}");
        attempt.respond();
        soon(call).await.unwrap().unwrap();
    }
}
