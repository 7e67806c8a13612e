//! Calls beside others on the same connection that nobody reads, or that end by the hundred.

use futures_util::StreamExt;
use tokio::{sync::Mutex, task::JoinHandle};
use tonic::Code;

use super::*;

with_each_backend! {
    unread_streams_leave_other_calls_alone,
    cancelled_calls_leave_other_calls_alone,
}

with_node_backend! {
    unread_streams_leave_other_calls_alone,
    cancelled_calls_leave_other_calls_alone,
}

/// The streams that nobody reads: each fills its window, and all of them many times what a connection has by default.
const UNREAD: usize = 40;
/// The messages of each, and their size.
const MESSAGES: usize = 64;
const SIZE: usize = 64 << 10;
/// The tasks whose calls are cancelled, and the calls of each.
const CANCELLING: usize = 300;
const CANCELLED: usize = 40;
/// The response time of these calls, and their deadline, in milliseconds.
const DEADLINE: u64 = 20;

/// Held by one crowd of calls that are cancelled. Channels of a process count the requests to a cluster of one name together (CH4.7), and
/// the crowds of several languages are more than its limit of 1,024.
static ONE_CROWD: Mutex<()> = Mutex::const_new(());

async fn unread_streams_leave_other_calls_alone(language: Language) {
    let (mesh, mut backend) = Mesh::with_one(language).await;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        let request = Request::new(format!("{MESSAGES} {SIZE}").into());
        let mut grpc = grpc(&mesh.channel);
        let expand = grpc.server_streaming(request, PathAndQuery::from_static(EXPAND), Raw);
        unread.push(within("the headers", expand).await.expect("the stream begins").into_inner());
    }
    for _ in 0..500 {
        mesh.unary(ECHO, Request::new("hello".into())).await.expect("it succeeds");
    }
    // A part of them is read after all, and the rest is dropped with its messages.
    for stream in unread.drain(..UNREAD / 4) {
        let sizes = stream.map(|message| message.expect("it is complete").len());
        assert_eq!(within("the stream", sizes.collect::<Vec<_>>()).await, [SIZE; MESSAGES]);
    }
    drop(unread);
    for _ in 0..500 {
        mesh.unary(ECHO, Request::new("hello".into())).await.expect("it succeeds");
    }
    assert_eq!(backend.count("Echo").await, 1_000, "none was tried twice");
}

/// Whether a server ends the connection of a client that resets so many streams: nghttp2 permits a thousand at once, and 33 a second.
fn limits_resets(language: Language) -> bool {
    language == Language::Node
}

async fn cancelled_calls_leave_other_calls_alone(language: Language) {
    let _alone = ONE_CROWD.lock().await;
    let (mesh, mut backend) = Mesh::with_one(language).await;
    let (chat_request, mut chat_response) = chat(&mesh.channel).await.expect("the stream begins");
    backend.calls("began", "Chat", 1).await;
    let tasks: Vec<_> =
        (0..CANCELLING).map(|_| tokio::spawn(cancelled_calls(mesh.channel.clone()))).collect();
    let (mut calls, mut lost) = (0, Vec::new());
    while !tasks.iter().all(JoinHandle::is_finished) {
        calls += 1;
        match mesh.unary(ECHO, Request::new("hello".into())).await {
            Ok(_) => {}
            // C-core's server cancels calls itself when too many of them wait for a slow application.
            Err(status) if language == Language::Python && status.code() == Code::Cancelled => {}
            Err(status) => lost.push(status),
        }
        if !limits_resets(language) {
            // The stream has the connection of the calls that are cancelled, and ends with it.
            chat_request.send("hello".into()).expect("the stream is open");
            let answer = within("an answer", chat_response.next()).await.expect("the stream is open");
            assert_eq!(answer.expect("the connection stays"), "hello");
        }
    }
    let mut ends = [0; 3];
    for task in tasks {
        let of_task = task.await.expect("no other failure");
        ends.iter_mut().zip(of_task).for_each(|(all, count)| *all += count);
    }
    let [_, exceeded, unavailable] = ends;
    assert!(exceeded > CANCELLING, "{ends:?}");
    if !limits_resets(language) {
        assert!(lost.is_empty() && unavailable == 0, "{ends:?}, {lost:?}");
    }
    assert!(lost.iter().all(|status| status.code() == Code::Unavailable), "{lost:?}");
    assert!(lost.len() * 2 < calls, "{} of {calls} calls are lost: {lost:?}", lost.len());
    let (mut succeeded, mut cancelled) = (0, 0);
    while succeeded < 100 {
        match mesh.unary(ECHO, Request::new("hello".into())).await {
            Ok(_) => succeeded += 1,
            // C-core's server goes on with that until it has caught up.
            Err(status) if language == Language::Python && status.code() == Code::Cancelled => cancelled += 1,
            Err(status) => panic!("it does not succeed: {status:?}"),
        }
        assert!(cancelled <= 100, "the server does not catch up: {succeeded} calls succeeded");
    }
}

/// Calls whose deadlines pass about when they are answered: how many succeeded, exceeded their deadlines, and lost their connections.
async fn cancelled_calls(channel: Channel) -> [usize; 3] {
    let mut ends = [0; 3];
    for _ in 0..CANCELLED {
        let mut request = Request::new(DEADLINE.to_string().into());
        request.set_timeout(Duration::from_millis(DEADLINE));
        let place = match unary(&channel, HOLD, request).await.map_err(|status| status.code()) {
            Ok(_) => 0,
            // The deadline may pass at the server first: C-core then resets the stream, or ends the call with this status.
            Err(Code::DeadlineExceeded | Code::Cancelled) => 1,
            Err(Code::Unavailable) => 2,
            Err(code) => panic!("{code:?}"),
        };
        ends[place] += 1;
    }
    ends
}
