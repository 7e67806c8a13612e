//! Calls of all kinds, and how they end.

use futures_util::{StreamExt, stream};
use tonic::Code;
use xdskit::channel::WaitForReady;

use super::{
    backend::{CHAT, FAIL, HOLD},
    *,
};

#[tokio::test]
async fn ch2_7_a_unary_call_reaches_an_endpoint_with_its_path_and_authority() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let response = mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!((backend_of(&response).as_str(), &response.get_ref()[..]), ("one", &b"hello"[..]));
    assert_eq!(response.metadata().get("x-authority").unwrap(), "shop");
    let unknown = mesh.call("/test.Echo/Unknown", "").await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unimplemented, "/test.Echo/Unknown"));
}

#[tokio::test]
async fn the_user_agent_of_the_application_precedes_that_of_the_library() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let own = format!("xdskit/{}", env!("CARGO_PKG_VERSION"));
    let agent = |response: Response<Bytes>| {
        response.metadata().get("x-user-agent").unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(agent(mesh.call(ECHO, "hello").await.unwrap()), own);
    let builder = mesh.client.channel("xds:///shop").user_agent("cart/2.1 (test)");
    let channel = builder.build().unwrap();
    let response = call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
    assert_eq!(agent(response), format!("cart/2.1 (test) {own}"));
    let mut request = Request::new(Bytes::new());
    request.metadata_mut().insert("user-agent", "another".parse().unwrap());
    assert_eq!(agent(call(&channel, ECHO, request).await.unwrap()), "another");
    let error = mesh.client.channel("xds:///shop").user_agent("a\nb").build().unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"the user agent "a\nb" of the channel to xds:///shop is no value of a header"#
    );
}

#[tokio::test]
async fn ch1_17_the_status_of_a_backend_is_passed_on_unchanged() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let error = mesh.call(FAIL, "the disk is gone").await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DataLoss, "the disk is gone"));
}

#[tokio::test]
async fn messages_of_4_mib_pass_in_both_directions() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let message = Bytes::from(vec![7; (4 << 20) - 5]);
    let response = call(&mesh.channel, ECHO, Request::new(message.clone())).await.unwrap();
    assert_eq!(response.into_inner(), message);
}

#[tokio::test]
async fn a_stream_of_messages_goes_both_ways_while_it_is_open() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let (send, messages) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let messages = stream::unfold(messages, async |mut it| Some((it.recv().await?, it)));
    let mut grpc = Grpc::new(mesh.channel.clone());
    let request = Request::new(messages);
    let streaming = grpc.streaming(request, PathAndQuery::from_static(CHAT), Raw);
    let mut answers = soon(streaming).await.unwrap().into_inner();
    for message in ["one", "two", "three"] {
        send.send(message.into()).unwrap();
        assert_eq!(soon(answers.next()).await.unwrap().unwrap(), message);
    }
    drop(send);
    assert!(soon(answers.next()).await.is_none());
    one.holds(0).await;
}

#[tokio::test]
async fn ch1_7_a_dropped_call_is_cancelled_at_the_backend() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    held.abort();
    one.holds(0).await;
    // A stream whose request and response are open.
    let mut grpc = Grpc::new(mesh.channel.clone());
    let request = Request::new(stream::pending::<Bytes>());
    let answers = soon(grpc.streaming(request, PathAndQuery::from_static(CHAT), Raw)).await.unwrap();
    one.holds(1).await;
    drop(answers);
    one.holds(0).await;
}

#[tokio::test]
async fn ch1_15_a_deadline_ends_calls_that_wait_and_calls_that_run() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let mut request = Request::new("hello".into());
    request.set_timeout(Duration::from_millis(50));
    let error = call(&mesh.channel, HOLD, request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
    one.holds(0).await;
    mesh.server.set(endpoints("cart"));
    mesh.until(|seen| seen.is_err()).await;
    let mut request = Request::new("hello".into());
    request.set_timeout(Duration::from_millis(50));
    request.extensions_mut().insert(WaitForReady(true));
    let error = call(&mesh.channel, ECHO, request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.message().contains("cluster cart has no usable endpoints"), "{error:?}");
}

#[tokio::test]
async fn ch2_13_the_time_limit_of_a_route_ends_a_call() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let limited = route::prefix("").cluster("cart").edit(|route| {
        use xdskit::pb::envoy::config::route::v3::{route, route_action::MaxStreamDuration};
        let Some(route::Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let limit = xdskit::pb::google::protobuf::Duration { seconds: 0, nanos: 50_000_000 };
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: Some(limit), ..MaxStreamDuration::default() });
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [limited]));
    let error = mesh.call(HOLD, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
    one.holds(0).await;
}

#[tokio::test]
async fn ch2_15_a_malformed_timeout_is_refused() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let mut request = Request::new("hello".into());
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let error = call(&mesh.channel, ECHO, request).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("grpc-timeout"), "{error:?}");
    assert_eq!(one.calls(), 0);
}

#[tokio::test]
async fn ch1_15_a_call_that_waits_for_ready_succeeds_when_the_mesh_is_there() {
    let one = Backend::start("one").await;
    let mesh = Mesh::of(TestControlPlane::start().await);
    let mut request = Request::new("hello".into());
    request.extensions_mut().insert(WaitForReady(true));
    let waiting = tokio::spawn({
        let channel = mesh.channel.clone();
        async move { call(&channel, ECHO, request).await }
    });
    mesh.server.expect_names(xdskit::control_plane::type_url::LISTENER, &["shop"]).await.unwrap();
    mesh.server.set(listener("shop").rds("routes"));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    mesh.server.set(cluster("cart"));
    mesh.server.set(cart(&[&one]));
    assert_eq!(backend_of(&soon(waiting).await.unwrap().unwrap()), "one");
}

#[tokio::test]
async fn ch1_12_calls_above_max_queued_fail_at_once() {
    let server = TestControlPlane::start().await;
    server.hold();
    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap()).build().unwrap();
    let channel = client.channel("xds:///shop").max_queued(1).build().unwrap();
    let waiting = tokio::spawn(call_owned(channel.clone(), ECHO));
    server.expect_names(xdskit::control_plane::type_url::LISTENER, &["shop"]).await.unwrap();
    let error = call(&channel, ECHO, Request::new("".into())).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
    waiting.abort();
    assert!(soon(waiting).await.unwrap_err().is_cancelled());
}

pub(super) async fn call_owned(channel: Channel, method: &'static str) -> Result<Response<Bytes>, Status> {
    call(&channel, method, Request::new("hello".into())).await
}
