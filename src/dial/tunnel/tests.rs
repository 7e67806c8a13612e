//! Scripted proxies.

use std::{net::Ipv4Addr, time::Duration};

use tokio::net::TcpListener;

use super::*;

const ENDPOINT: &str = "10.0.0.7:8080";

/// What comes of a tunnel through a proxy that reads the request, sends this in parts, and closes the connection or not; and what
/// the client reads from the tunnel then.
async fn tunnel(parts: &[&[u8]], closes: bool) -> Result<Vec<u8>, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let client = async {
        let mut io = TcpStream::connect(proxy).await.unwrap();
        open(&mut io, ENDPOINT.parse().unwrap()).await?;
        let mut rest = Vec::new();
        io.read_to_end(&mut rest).await.unwrap();
        Ok(rest)
    };
    let proxy = async {
        let mut io = listener.accept().await.unwrap().0;
        io.set_nodelay(true).unwrap();
        let expected = format!("CONNECT {ENDPOINT} HTTP/1.1\r\nHost: {ENDPOINT}\r\n\r\n");
        let mut request = vec![0; expected.len()];
        io.read_exact(&mut request).await.unwrap();
        assert_eq!(String::from_utf8(request).unwrap(), expected);
        for part in parts {
            // The client may have given up.
            if io.write_all(part).await.is_err() {
                break;
            }
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        if !closes {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = client => result,
        result = async { proxy.await; std::future::pending().await } => result,
    }
}

/// The same for a proxy that refuses the tunnel, or whose answer is none.
async fn error(answer: &[u8]) -> String {
    let whole = tunnel(&[answer], true).await.unwrap_err();
    let trickled: Vec<_> = answer.chunks(1).collect();
    assert_eq!(tunnel(&trickled, true).await.unwrap_err(), whole, "however it is split");
    whole
}

#[tokio::test]
async fn ch7_25_what_follows_the_head_belongs_to_the_tunnel() {
    let answer = b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n\0\0\0\x04\r\n\r\nrest";
    for size in 1..=answer.len() {
        let parts: Vec<_> = answer.chunks(size).collect();
        let rest = tunnel(&parts, true).await.unwrap();
        assert_eq!(rest, b"\0\0\0\x04\r\n\r\nrest", "in parts of {size} bytes");
    }
}

#[tokio::test]
async fn ch7_25_any_status_2xx_of_either_version_opens_the_tunnel() {
    for answer in [
        &b"HTTP/1.0 200\r\n\r\nrest"[..],
        b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nrest",
        b"HTTP/1.1 200 OK\n\nrest",
        b"HTTP/1.1 200 OK\nA: b\n\r\nrest",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 299 \r\n\r\nrest",
    ] {
        assert_eq!(tunnel(&[answer], true).await.unwrap(), b"rest", "{}", answer.escape_ascii());
    }
}

#[tokio::test]
async fn ch7_25_another_status_is_the_reason_of_the_failure() {
    let refused = "proxy: it refuses the tunnel with the HTTP status";
    for (answer, reason) in [
        ("HTTP/1.1 407 Proxy Authentication Required", " 407 Proxy Authentication Required"),
        ("HTTP/1.1 502", " 502"),
        ("HTTP/1.1 301 Moved\r\nLocation: /", " 301 Moved"),
        ("HTTP/1.1 403 a\x07b\u{e9}", " 403 ab\u{e9}"),
    ] {
        assert_eq!(error(format!("{answer}\r\n\r\nbody").as_bytes()).await, format!("{refused}{reason}"));
    }
    let long = format!("HTTP/1.1 500 {}\r\n\r\n", "x".repeat(1_000));
    assert_eq!(
        error(long.as_bytes()).await.len(),
        refused.len() + " 500 ".len() + 100 - "HTTP/1.1 500 ".len()
    );
}

#[tokio::test]
async fn ch7_25_an_answer_that_is_none_of_http_fails_the_attempt() {
    for answer in [&b"\x15\x03\x01\0\x02\x02\x28"[..], b"SSH-2.0-OpenSSH", b"HTTP/2.0 200\r\n\r\n", b"HELO"] {
        assert_eq!(
            error(answer).await,
            "proxy: its response is none of HTTP/1.1",
            "{}",
            answer.escape_ascii()
        );
    }
    for line in ["HTTP/1.1", "HTTP/1.1 2000 OK", "HTTP/1.1 +20 OK", "HTTP/1.1 OK", "HTTP/1.7 200 OK"] {
        let expected = format!("proxy: its response begins with {line:?}, which is no status of HTTP/1.1");
        assert_eq!(error(format!("{line}\r\n\r\n").as_bytes()).await, expected);
    }
    let closed = "proxy: it closed the connection before its response ended";
    for answer in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        assert_eq!(error(answer.as_bytes()).await, closed);
    }
}

#[tokio::test]
async fn ch7_26_the_head_has_8_kib_at_most() {
    let head = |size: usize| {
        let (start, end) = ("HTTP/1.1 200 OK\r\nA: ", "\r\n\r\n");
        format!("{start}{}{end}", "a".repeat(size - start.len() - end.len()))
    };
    assert_eq!(tunnel(&[head(8 << 10).as_bytes(), b"rest"], true).await.unwrap(), b"rest");
    let too_long = "proxy: the head of its response has more than 8192 bytes";
    assert_eq!(tunnel(&[head((8 << 10) + 1).as_bytes()], false).await.unwrap_err(), too_long);
    let whole = format!("HTTP/1.1 100 Continue\r\nA: {}\r\n\r\n", "a".repeat((8 << 10) - 30));
    assert_eq!(whole.len(), 8 << 10);
    assert_eq!(tunnel(&[whole.as_bytes()], false).await.unwrap_err(), too_long, "it is not the last one");
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
    assert_eq!(tunnel(&[endless.as_bytes()], false).await.unwrap_err(), too_long, "all heads together");
}

#[tokio::test(start_paused = true)]
async fn ch7_26_a_proxy_that_is_silent_ends_nothing_by_itself() {
    let silent = tunnel(&[b"HTTP/1.1 200 OK\r\n"], false);
    assert!(
        tokio::time::timeout(Duration::from_secs(60), silent).await.is_err(),
        "the attempt has a timeout"
    );
}
