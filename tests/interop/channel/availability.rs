//! Backends that stop, restart and crash, and a control plane that moves the calls.

use futures_util::StreamExt;
use tonic::Code;

use super::*;

with_each_backend! {
    a_graceful_stop_under_load_fails_no_call,
    a_restart_on_the_same_port_needs_no_restart_of_the_client,
    a_killed_backend_fails_calls_in_flight_alone,
    a_canary_takes_over_under_load_without_a_failed_call,
    endpoints_are_replaced_under_load_without_a_failed_call,
    the_second_priority_takes_over_and_gives_back,
}

async fn a_graceful_stop_under_load_fails_no_call(language: Language) {
    let mut one = Backend::start(language, "one").await;
    let two = Backend::start(language, "two").await;
    let mut mesh = Mesh::start(language, &[&one, &two]).await;
    let warm_up = mesh.load();
    warm_up.until_only(&["one", "two"]).await;
    assert_eq!(warm_up.stop().await, []);
    // In turns: two of these go to each backend.
    let mut chats = Vec::new();
    for _ in 0..4 {
        chats.push(chat(&mesh.channel).await.expect("the stream begins"));
    }
    one.calls("began", "Chat", 2).await;
    let load = mesh.load();
    load.until_only(&["one", "two"]).await;
    if language == Language::Python {
        // C-core fails calls that arrive between the stop and the GOAWAY with CANCELLED (grpc/grpc#41785), so that its backends
        // have to be drained by the control plane first.
        mesh.peer.command(&format!("drain {}", one.address())).await;
        load.until_only(&["two"]).await;
    }
    one.stop().await;
    load.until_only(&["two"]).await;
    for (send, mut answers) in chats {
        send.send("hello".into()).expect("a running call ends as it began");
        assert_eq!(within("a message", answers.next()).await.expect("it is open").expect("it runs"), "hello");
        drop(send);
        assert!(within("the end", answers.next()).await.is_none());
    }
    one.stopped().await;
    let _one = one.restart().await;
    if language != Language::Python {
        load.until_only(&["one", "two"]).await;
    }
    assert_eq!(load.stop().await, []);
}

async fn a_restart_on_the_same_port_needs_no_restart_of_the_client(language: Language) {
    let mut one = Backend::start(language, "one").await;
    let mesh = Mesh::start(language, &[&one]).await;
    let call = async || mesh.unary(ECHO, Request::new("hello".into())).await;
    for _ in 0..2 {
        call().await.expect("it succeeds");
        let killed = one.kill().await;
        mesh.becomes(ChannelState::TransientFailure).await;
        assert_eq!(call().await.expect_err("it is down").code(), Code::Unavailable);
        one = killed.start().await;
        mesh.becomes(ChannelState::Ready).await;
    }
    call().await.expect("it succeeds");
    // The counts are those of the new process.
    assert_eq!(one.count("Echo").await, 1);
}

async fn a_killed_backend_fails_calls_in_flight_alone(language: Language) {
    let mut one = Backend::start(language, "one").await;
    let mut two = Backend::start(language, "two").await;
    let mesh = Mesh::start(language, &[&one, &two]).await;
    let warm_up = mesh.load();
    warm_up.until_only(&["one", "two"]).await;
    assert_eq!(warm_up.stop().await, []);
    let mut chats = Vec::new();
    for _ in 0..10 {
        chats.push(chat(&mesh.channel).await.expect("the stream begins"));
    }
    one.calls("began", "Chat", 5).await;
    two.calls("began", "Chat", 5).await;
    let load = mesh.load();
    load.until_only(&["one", "two"]).await;
    let killed = one.kill().await;
    load.until_only(&["two"]).await;
    let failed = load.failed();
    // A task has one call in flight at a time.
    assert!(failed.len() <= TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable), "{failed:?}");
    let mut lost = Vec::new();
    for (send, answers) in &mut chats {
        let _ = send.send("hello".into()); // a lost stream does not take it
        match within("a message", answers.next()).await.expect("there is a message, or an error") {
            Ok(message) => assert_eq!(message, "hello"),
            Err(status) => lost.push(status.code()),
        }
    }
    assert_eq!(lost, [Code::Unavailable; 5]);
    let _one = killed.start().await;
    load.until_only(&["one", "two"]).await;
    assert_eq!(load.stop().await, failed, "its return fails no call");
}

async fn a_canary_takes_over_under_load_without_a_failed_call(language: Language) {
    let stable = Backend::start(language, "stable").await;
    let canary = Backend::start(language, "canary").await;
    let mut mesh = Mesh::of(language, "shop", &[]).await;
    mesh.peer.command("canary shop 0").await;
    mesh.peer.command(&endpoints("shop-stable", &[&stable])).await;
    mesh.peer.command(&endpoints("shop-canary", &[&canary])).await;
    let load = mesh.load();
    load.until_only(&["stable"]).await;
    for percent in [10, 50, 90] {
        mesh.peer.command(&format!("canary shop {percent}")).await;
        load.until_only(&["canary", "stable"]).await;
    }
    mesh.peer.command("canary shop 100").await;
    load.until_only(&["canary"]).await;
    assert_eq!(load.stop().await, []);
}

async fn endpoints_are_replaced_under_load_without_a_failed_call(language: Language) {
    let one = Backend::start(language, "one").await;
    let mut two = Backend::start(language, "two").await;
    let mut mesh = Mesh::start(language, &[&one]).await;
    let load = mesh.load();
    load.until_only(&["one"]).await;
    mesh.peer.command(&endpoints("payments", &[&one, &two])).await;
    load.until_only(&["one", "two"]).await;
    mesh.peer.command(&format!("drain {}", one.address())).await;
    load.until_only(&["two"]).await;
    mesh.peer.command(&endpoints("payments", &[&two])).await;
    load.until_only(&["two"]).await;
    mesh.peer.command("rename payments paid").await;
    load.until_only(&["two"]).await;
    assert_eq!(load.stop().await, []);
    assert!(two.count("Echo").await >= 300);
}

async fn the_second_priority_takes_over_and_gives_back(language: Language) {
    let one = Backend::start(language, "one").await;
    let mut two = Backend::start(language, "two").await;
    let mut mesh = Mesh::start(language, &[&one]).await;
    mesh.peer.command(&format!("endpoints payments {} / {}", one.address(), two.address())).await;
    let load = mesh.load();
    load.until_only(&["one"]).await;
    assert_eq!(two.count("Echo").await, 0);
    let killed = one.kill().await;
    load.until_only(&["two"]).await;
    let failed = load.failed();
    assert!(failed.len() <= TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable), "{failed:?}");
    let _one = killed.start().await;
    load.until_only(&["one"]).await;
    assert_eq!(load.stop().await, failed, "its return fails no call");
}
