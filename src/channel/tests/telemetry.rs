//! What an observer is told of calls, attempts and connections.

mod notes;

use std::sync::Arc;

use h2::Reason;
use tokio::sync::Notify;

pub(super) use self::notes::Notes;
use super::{
    filters::{of, script, start_with, with_filter},
    *,
};
use crate::{
    channel::CustomLabel, pb::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType,
    resource::http_filter::FilterBody,
};

pub(super) async fn observed(name: &str, peers: &[&Peer]) -> (Mesh, Arc<Notes>) {
    let notes = Arc::<Notes>::default();
    let observer = Arc::new(notes.clone());
    (Mesh::with(name, peers, |builder| builder.observer(observer)).await, notes)
}

/// A message with its prefix.
fn message(size: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(u32::try_from(size).unwrap().to_be_bytes());
    message.resize(5 + size, 7);
    message
}

/// Sets the clock forward.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const SECOND: Duration = Duration::from_secs(1);
const PLACE: &str = r#"{region="eu", zone="a", sub_zone=""}"#;

#[tokio::test]
async fn ch9_10_a_call_and_its_attempt_are_recorded_when_they_end() {
    let mut peer = Peer::start().await;
    let (mesh, notes) = observed("ch9_10", &[&peer]).await;
    let call = mesh.call("/a", Given::of([message(10)]));
    let received = peer.request().await;
    assert_eq!(notes.take(), ["/a started"]);
    received.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(notes.take(), [format!("/a attempt OK 10/0 \"ch9_10\" {PLACE}"), "/a call OK".to_owned()]);
    let call = mesh.get("/headers-alone");
    peer.request().await.fail(Code::NotFound, &[]);
    soon(call).await.unwrap().unwrap_err();
    let attempt = format!("/headers-alone attempt NOT_FOUND 0/0 \"ch9_10\" {PLACE}");
    let expected = ["/headers-alone started".to_owned(), attempt, "/headers-alone call NOT_FOUND".to_owned()];
    assert_eq!(notes.take(), expected);
}

#[tokio::test]
async fn ch9_12_an_attempt_begins_after_a_wait_for_routes() {
    let mut peer = Peer::start().await;
    let mut mesh = Mesh::start("ch9_12_routes", &[&peer]).await;
    let notes = Arc::<Notes>::default();
    let late = mesh.client.channel("xds:///late").observer(Arc::new(notes.clone()));
    mesh.channel = late.build().unwrap();
    let call = mesh.get("/a");
    mesh.waits(1).await;
    pass(SECOND).await;
    mesh.server.set(listener("late").rds("routes"));
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let [attempt, all] = notes.durations();
    assert!(attempt + SECOND <= all, "{attempt:?} of {all:?}");
}

#[tokio::test]
async fn ch9_12_an_attempt_begins_after_the_filters() {
    let mut peer = Peer::start().await;
    let name = "ch9_12_filters";
    let notes = Arc::<Notes>::default();
    let observer = Arc::new(notes.clone());
    let mesh = start_with(name, &[&peer], |builder| builder.observer(observer)).await;
    let (entered, is_over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let of_filter = (entered.clone(), is_over.clone());
    script(name, move |_, request, next| {
        let (entered, is_over) = of_filter.clone();
        Box::pin(async move {
            entered.notify_one();
            is_over.notified().await;
            Ok(next.run(request).await)
        })
    });
    with_filter(&mesh, of(name));
    // The first call waits for the routes, too.
    for time in [Duration::ZERO, SECOND] {
        notes.durations.lock().unwrap().clear();
        let call = mesh.get("/a");
        soon(entered.notified()).await;
        pass(time).await;
        is_over.notify_one();
        peer.request().await.respond();
        soon(call).await.unwrap().unwrap();
    }
    let [attempt, all] = notes.durations();
    assert!(attempt + SECOND <= all, "{attempt:?} of {all:?}");
}

#[tokio::test]
async fn ch9_12_sizes_are_those_of_messages_also_of_streams_and_repeated_requests() {
    let mut peer = Peer::start().await;
    let (mesh, notes) = observed("ch9_12_sizes", &[&peer]).await;
    let (send, body) = Given::live();
    let call = mesh.call("/a", body);
    send.send(message(100).into()).unwrap();
    let mut first = peer.request().await;
    assert_eq!(first.data().await.len(), 105);
    first.reset(Reason::REFUSED_STREAM);
    let mut second = peer.request().await;
    assert_eq!(second.data().await.len(), 105);
    let mut response = second.begin_response();
    response.send_data(message(30).into(), false).unwrap();
    // The request goes on beside the response, and a message is cut.
    let last = message(1_000);
    for part in [&last[..3], &last[3..500], &last[500..]] {
        send.send(part.to_vec().into()).unwrap();
    }
    drop(send);
    assert_eq!(second.rest().await.len(), 1_005);
    for part in message(50).chunks(7) {
        response.send_data(part.to_vec().into(), false).unwrap();
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    response.send_trailers(trailers).unwrap();
    soon(call).await.unwrap().unwrap();
    let labels = format!("\"ch9_12_sizes\" {PLACE}");
    let expected = [
        "/a started".to_owned(),
        format!("/a attempt UNAVAILABLE 100/0 {labels}"),
        "/a started".to_owned(),
        format!("/a attempt OK 1100/80 {labels}"),
        "/a call OK 0+1 retries, delay false".to_owned(),
    ];
    assert_eq!(notes.take(), expected);
}

#[tokio::test]
async fn ch9_12_calls_end_with_what_the_application_sees() {
    let mut peer = Peer::start().await;
    let (mesh, notes) = observed("ch9_12_ends", &[&peer]).await;
    let labels = format!("\"ch9_12_ends\" {PLACE}");
    let call = mesh.get("/dropped");
    let received = peer.request().await;
    call.abort();
    received.cancelled().await;
    until("it is recorded", || notes.calls.lock().unwrap().len() == 3).await;
    let ended = |path: &str, code: &str| {
        [
            format!("{path} started"),
            format!("{path} attempt {code} 0/0 {labels}"),
            format!("{path} call {code}"),
        ]
    };
    assert_eq!(notes.take(), ended("/dropped", "CANCELLED"));
    let call = mesh.with_timeout("/late", "50m");
    let received = peer.request().await;
    soon(call).await.unwrap().unwrap_err();
    drop(received);
    assert_eq!(notes.take(), ended("/late", "DEADLINE_EXCEEDED"));
    // The response has begun: its body ends the call.
    let call = mesh.get("/reset");
    drop(peer.request().await.begin_response());
    soon(call).await.unwrap().unwrap_err();
    assert_eq!(notes.take(), ended("/reset", "CANCELLED"));
    let response = tokio::spawn(mesh.begin("/unread", Given::default()));
    let mut received = peer.request().await;
    let _stream = received.begin_response();
    drop(soon(response).await.unwrap());
    assert_eq!(notes.take(), ended("/unread", "CANCELLED"));
    let response = tokio::spawn(mesh.begin("/no-status", Given::default()));
    peer.request().await.begin_response().send_trailers(http::HeaderMap::new()).unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    while std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
    assert_eq!(notes.take(), ended("/no-status", "UNKNOWN"));
}

#[tokio::test]
async fn ch9_12_ch9_14_an_attempt_without_a_stream_has_no_size_and_no_locality() {
    let peer = Peer::start().await;
    let name = "ch9_14_none";
    let (mesh, notes) = observed(name, &[&peer]).await;
    mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    let dropping = assignment(name, &[&peer]).drop_percent("all", 100);
    mesh.server.set(dropping);
    let dropped = || async {
        let status = soon(mesh.with_timeout("/dropped", "100m")).await.unwrap();
        status.is_err_and(|it| it.message().contains("overload"))
    };
    while !dropped().await {
        notes.take();
    }
    let expected =
        ["/dropped started", "/dropped attempt UNAVAILABLE 0/0 \"ch9_14_none\"", "/dropped call UNAVAILABLE"];
    assert_eq!(notes.take(), expected);
}

#[tokio::test]
async fn ch2_22_an_attempt_goes_on_with_another_connection_if_its_own_is_gone() {
    let mut peer = Peer::start().await;
    let (mesh, notes) = observed("ch2_22_metrics", &[&peer]).await;
    let first = mesh.get("/first");
    peer.request().await.respond();
    soon(first).await.unwrap().unwrap();
    notes.take();
    notes.delays();
    let published = &mesh.channel.shared.calls.published;
    let old = published.load().clone();
    peer.open(false);
    peer.connection().await.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
    until("the loss is published", || published.load().number() > old.number()).await;
    let gone = published.replace(old);
    let call = mesh.get("/second");
    mesh.waits(1).await;
    published.replace(gone);
    peer.open(true);
    // The queue was looked at before the generation was replaced, so a later one has to come.
    mesh.channel.connect();
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let [(delay, _), ..] = &*notes.delays() else { panic!("it has waited") };
    assert_eq!(delay, "/second Attempt subchannel_state_mismatch", "A121");
    let notes = notes.take();
    assert_eq!(notes.iter().filter(|line| line.ends_with("started")).count(), 1, "{notes:?}");
    assert_eq!(notes[2], "/second call OK", "and no transparent retry");
}

#[tokio::test]
async fn ch9_14_a_call_that_waited_for_its_endpoint_in_vain_names_the_cluster() {
    let peer = Peer::start().await;
    peer.open(false);
    let (mesh, notes) = observed("ch9_14_waits", &[&peer]).await;
    let status = soon(mesh.with_timeout("/a", "100m")).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let expected =
        ["/a started", "/a attempt DEADLINE_EXCEEDED 0/0 \"ch9_14_waits\"", "/a call DEADLINE_EXCEEDED"];
    assert_eq!(notes.take(), expected);
}

#[tokio::test]
async fn ch9_14_the_cluster_is_that_of_the_last_pick_of_a_call_that_waits() {
    let (failing, silent) = (Peer::start().await, Peer::start().await);
    failing.refuse(true);
    silent.open(false);
    let (mesh, notes) = observed("ch9_14_all", &[]).await;
    mesh.server.set(cluster("ch9_14_all").aggregate(["ch9_14_one", "ch9_14_two"]));
    for (name, peer) in [("ch9_14_one", &failing), ("ch9_14_two", &silent)] {
        mesh.server.set(cluster(name));
        mesh.server.set(assignment(name, &[peer]));
    }
    let status = soon(mesh.with_timeout("/a", "500m")).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(notes.take()[1], "/a attempt DEADLINE_EXCEEDED 0/0 \"ch9_14_two\"");
}

#[tokio::test]
async fn ch9_15_a_call_that_a_filter_answers_has_no_attempt() {
    let mut peer = Peer::start().await;
    let name = "ch9_15";
    // Faults are counted for the whole process.
    let _serial = faults::SERIAL.lock().await;
    let notes = Arc::<Notes>::default();
    let observer = Arc::new(notes.clone());
    let mesh = start_with(name, &[&peer], |builder| builder.observer(observer)).await;
    let first = mesh.get("/first");
    peer.request().await.respond();
    soon(first).await.unwrap().unwrap();
    notes.take();
    with_filter(&mesh, faults::any(&faults::abort(ErrorType::GrpcStatus(7))));
    while soon(mesh.with_timeout("/a", "100m")).await.unwrap().unwrap_err().code() != Code::PermissionDenied {
        notes.take();
    }
    assert_eq!(notes.take(), ["/a call PERMISSION_DENIED"]);
    script(name, |_, request, next| {
        Box::pin(async move {
            if request.uri().path() == "/changed" {
                let mut response = next.run(request).await;
                response.headers_mut().insert("grpc-status", "9".parse().unwrap());
                return Ok(response.map(|_| FilterBody::empty()));
            }
            let headers = Response::builder().header("grpc-status", "5");
            Ok(headers.body(FilterBody::empty()).unwrap())
        })
    });
    with_filter(&mesh, of(name));
    while soon(mesh.get("/b")).await.unwrap().unwrap_err().code() != Code::NotFound {
        notes.take();
    }
    assert_eq!(notes.take(), ["/b call NOT_FOUND"]);
    let call = mesh.get("/changed");
    // Calls before the first filter were sent.
    let mut received = peer.request().await;
    while received.path() != "/changed" {
        received = peer.request().await;
    }
    received.respond();
    soon(call).await.unwrap().unwrap_err();
    let notes = notes.take();
    assert_eq!(notes.last().unwrap(), "/changed call FAILED_PRECONDITION", "{notes:?}");
    let [_, attempt, _] = notes.as_slice() else { panic!("{notes:?}") };
    assert!(attempt.starts_with("/changed attempt CANCELLED"), "the filter let go of it: {attempt}");
}

#[tokio::test]
async fn ch9_19_retries_and_the_time_between_attempts_are_those_of_the_policy() {
    let mut peer = Peer::start().await;
    let name = "ch9_19";
    let (mesh, notes) = observed(name, &[&peer]).await;
    let route = retries::with_policy(route::prefix("").cluster(name), retries::policy("unavailable", 2));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = mesh.get("/a");
    peer.request().await.reset(Reason::REFUSED_STREAM);
    peer.request().await.fail(Code::Unavailable, &[]);
    peer.request().await.fail(Code::Unavailable, &[]);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let all = notes.take();
    let started = all.iter().filter(|line| line.ends_with("started")).count();
    assert_eq!((started, all.len()), (4, 9), "{all:?}");
    assert_eq!(all[8], "/a call OK 2+1 retries, delay true");
}

#[tokio::test]
async fn ch9_19_the_label_of_the_application_comes_with_the_request() {
    let mut peer = Peer::start().await;
    let (mesh, notes) = observed("ch9_19_custom", &[&peer]).await;
    let mut request = Request::post("/a").body(Given::default()).unwrap();
    request.extensions_mut().insert(CustomLabel("checkout".into()));
    let mut channel = mesh.channel.clone();
    let call = tokio::spawn(async move { channel.call(request).await });
    peer.request().await.respond();
    drop(soon(call).await.unwrap());
    assert_eq!(notes.take()[0], "/a checkout started");
}

#[tokio::test]
async fn ch9_18_connections_are_counted_with_the_first_reason_of_their_loss() {
    let mut peer = Peer::start().await;
    let name = "ch9_18";
    let (mesh, notes) = observed(name, &[&peer]).await;
    let place = format!("{name:?} {PLACE}");
    mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    assert_eq!(notes.connections(), [format!("{place} Connected(None)")]);
    peer.refuse(true);
    peer.connection().await.send(End::Graceful).unwrap();
    until("attempts fail", || notes.connections.lock().unwrap().len() >= 2).await;
    let seen = notes.connections();
    let lost = format!("{place} Disconnected(None, \"GOAWAY NO_ERROR\")");
    assert_eq!(seen[..2], [lost, format!("{place} ConnectionFailed")]);
    peer.refuse(false);
    until("it is there again", || {
        notes.connections.lock().unwrap().iter().any(|it| it.contains("Connected"))
    })
    .await;
    notes.connections();
    soon(mesh.channel.shutdown(Duration::from_secs(10))).await;
    assert_eq!(notes.connections(), [format!("{place} Disconnected(None, \"subchannel shutdown\")")]);
}

#[tokio::test]
async fn ch9_18_an_attempt_that_the_channel_ends_is_no_failure() {
    let peer = Peer::start().await;
    peer.open(false);
    let (mesh, notes) = observed("ch9_18_cancel", &[&peer]).await;
    mesh.channel.connect();
    let call = mesh.get("/a");
    mesh.picks(1).await;
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    soon(call).await.unwrap().unwrap_err();
    assert!(notes.connections().is_empty());
}
