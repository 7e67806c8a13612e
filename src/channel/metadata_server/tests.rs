//! Fetches from a metadata server of the test.

use std::net::Ipv4Addr;

use base64::prelude::{BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc::{self, UnboundedReceiver},
};

use super::*;
use crate::error::Code;

/// Answers each request with bytes that the test gives, and hands over the requests.
pub(in crate::channel) struct Metadata {
    pub(in crate::channel) host: String,
    requests: UnboundedReceiver<String>,
}

/// What a metadata server does.
#[derive(Clone)]
pub(in crate::channel) enum Answer {
    /// A status, and a body.
    Respond(u16, String),
    /// The connection is closed without an answer.
    Close,
    /// Nothing, as long as the client waits.
    Silence,
}

impl Metadata {
    /// Answers in turn; the last answer is for all further requests.
    pub(in crate::channel) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: std::collections::VecDeque<_> = answers.into_iter().collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (seen, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let answer = answers.pop_front().unwrap();
                if answers.is_empty() {
                    answers.push_back(answer.clone());
                }
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        match socket.read_u8().await {
                            Ok(byte) => request.push(byte),
                            Err(_) => return,
                        }
                    }
                    let request = String::from_utf8(request).unwrap().to_lowercase();
                    // As the real one does.
                    let has_flavor = request.contains("\r\nmetadata-flavor: google\r\n");
                    let answer = if has_flavor { answer } else { Answer::Respond(403, String::new()) };
                    let _ = seen.send(request);
                    let (status, body) = match answer {
                        Answer::Respond(status, body) => (status, body),
                        Answer::Close => return,
                        Answer::Silence => {
                            let _ = socket.read_u8().await;
                            return;
                        }
                    };
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
                    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                    let _ = socket.read_u8().await;
                });
            }
        });
        Self { host, requests }
    }

    /// The next request.
    pub(in crate::channel) async fn request(&mut self) -> String {
        timeout(Duration::from_secs(20), self.requests.recv()).await.unwrap().unwrap()
    }

    /// Whether there is no request that the test has not seen.
    pub(in crate::channel) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

/// A token with these claims.
pub(in crate::channel) fn token(claims: &str) -> String {
    format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
}

async fn fetch(answer: Answer) -> Result<Token, (Code, String)> {
    let server = Metadata::start([answer]).await;
    let fetched = MetadataServer::new(Some(&server.host)).identity_token("a").await;
    fetched.map_err(|error| (error.code, error.message.replace(&server.host, "HOST")))
}

fn respond(status: u16, body: &str) -> Answer {
    Answer::Respond(status, body.to_owned())
}

#[tokio::test]
async fn ch5_15_the_request_is_that_of_the_metadata_server() {
    let mut server = Metadata::start([respond(200, &token(r#"{"exp":5.5}"#))]).await;
    let it = MetadataServer::new(Some(&server.host));
    let fetched = it.identity_token("https://shop/?a=b&c d").await.unwrap();
    assert_eq!(fetched, Token { text: token(r#"{"exp":5.5}"#).into(), expiry: Duration::from_millis(5_500) });
    let request = server.request().await;
    let path = "/computemetadata/v1/instance/service-accounts/default/identity\
                ?audience=https%3a%2f%2fshop%2f%3fa%3db%26c+d";
    assert!(request.starts_with(&format!("get {path} http/1.1\r\n")), "{request}");
    assert!(request.contains(&format!("\r\nhost: {}\r\n", server.host)), "{request}");
}

#[tokio::test]
async fn ch5_14_tokens_with_padding_and_line_ends_are_tokens() {
    let padded = format!("e30=.{}.c2ln", BASE64_URL_SAFE.encode(r#"{"exp":20}"#));
    assert!(padded.contains("==."), "{padded}");
    for text in [&*padded, &format!("{}\n", token(r#"{"exp":20}"#))] {
        let fetched = fetch(respond(200, text)).await.unwrap();
        assert_eq!((&*fetched.text, fetched.expiry.as_secs()), (text.trim(), 20));
    }
}

#[tokio::test]
async fn ch5_14_what_is_no_token_is_unauthenticated() {
    let expected = |reason: &str| {
        Err((Code::Unauthenticated, format!("identity token for a: metadata server HOST: {reason}")))
    };
    let signed = |claims: &str| token(claims);
    for text in ["", "<html>", "a.b", "a.b.c.d", "e30.%%.c", "e30.AAAA.c2ln", "e30.é.c", &signed("[")] {
        assert_eq!(fetch(respond(200, text)).await, expected(NOT_A_TOKEN), "{text:?}");
    }
    let split = token(r#"{"exp":20}"#).replace(".c2ln", ".c2\r\nln");
    assert_eq!(fetch(respond(200, &split)).await, expected(NOT_A_TOKEN));
    for claims in ["{}", r#"{"exp":"soon"}"#, "[]"] {
        let no_expiry = expected("the token has no expiry (`exp`)");
        assert_eq!(fetch(respond(200, &signed(claims))).await, no_expiry, "{claims}");
    }
    let no_time = expected("the expiry of the token is no time");
    assert_eq!(fetch(respond(200, &signed(r#"{"exp":-1}"#))).await, no_time);
}

#[tokio::test]
async fn ch5_14_failures_of_the_server_are_told_apart() {
    for (status, code) in [
        (404, Code::Unauthenticated),
        (500, Code::Unauthenticated),
        (302, Code::Unauthenticated),
        (503, Code::Unavailable),
        (429, Code::Unavailable),
    ] {
        let message = format!("identity token for a: HTTP status {status}");
        assert_eq!(fetch(respond(status, "no")).await, Err((code, message)));
    }
    let (code, message) = fetch(Answer::Close).await.unwrap_err();
    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(message.starts_with("identity token for a: metadata server HOST: "), "{message}");
    let long = "a".repeat(LONGEST + 1);
    assert_eq!(fetch(respond(200, &long)).await.unwrap_err().0, Code::Unavailable);
}

#[tokio::test]
async fn ch5_14_a_server_that_cannot_be_reached_is_unavailable() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    for host in [&*host, "not a host", ""] {
        let error = MetadataServer::new(Some(host)).identity_token("a").await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{host:?}");
    }
}

#[tokio::test]
async fn ch5_15_a_server_that_does_not_answer_is_unavailable_after_10_s() {
    let mut server = Metadata::start([Answer::Silence]).await;
    let it = MetadataServer::new(Some(&server.host));
    let fetch = tokio::spawn(async move { it.identity_token("a").await });
    server.request().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(9_990)).await;
    assert!(!fetch.is_finished());
    let error = fetch.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.ends_with("no response within 10s"), "{error:?}");
}

#[test]
fn ch5_15_the_usual_host_is_that_of_google_cloud() {
    // The environment of tests has none of its own.
    assert_eq!(&*MetadataServer::new(None).host, DEFAULT_HOST);
    assert_eq!(&*MetadataServer::new(Some("127.0.0.1:1")).host, "127.0.0.1:1");
}
