//! REST: each message is one `POST`, with canonical JSON in both directions (rules D10, D11).
//!
//! ```text
//!   RestConnection ── messages ──▶ Poller ── POST ──▶ Pool ──▶ server
//!                                    │ request_sent, then one of received, unchanged, not_found, failed
//!                                    ▼
//!                                  ConnectionEvents
//! ```
//!
//! The types of one server share a pool of connections, over HTTP/1.1 or the protocol that TLS negotiates. A pool
//! with a broken connection is dropped as a whole, so that no other request uses a dead connection. Certificate files
//! are read for each connection (`crate::tls`), and tokens for each request.

mod exchange;
mod outgoing;
mod pool;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::mpsc, task::AbortHandle};

use self::{
    exchange::{Answer, Exchange},
    outgoing::Sent,
    pool::{Pool, Pools},
};
use super::{ConnectRequest, Connection, ConnectionEvents, GrpcTransport, Transport};

/// The transport for polling over HTTP, with or without TLS, over TCP or Unix sockets.
#[derive(Debug)]
pub(super) struct RestTransport {
    /// The largest response in bytes.
    max_message_size: usize,
    pools: Pools,
}

impl RestTransport {
    /// Creates a transport with the settings of that for streams.
    pub(super) fn new(grpc: &GrpcTransport) -> Self {
        Self { max_message_size: grpc.max_message_size(), pools: Pools::new(grpc.credentials().clone()) }
    }
}

impl Transport for RestTransport {
    fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        let (messages, requests) = mpsc::unbounded_channel();
        // Only a poll shows whether the server is reachable.
        events.connected();
        let poller = Poller {
            pool: self.pools.of(&target),
            timeout: target.polling.unwrap_or_default().request_timeout,
            target,
            events,
            max_message_size: self.max_message_size,
        };
        let task = tokio::spawn(poller.run(requests)).abort_handle();
        Box::new(RestConnection { messages, task })
    }
}

/// The driver's end of a connection.
#[derive(Debug)]
struct RestConnection {
    /// Requests for the task.
    messages: mpsc::UnboundedSender<Bytes>,
    task: AbortHandle,
}

impl Connection for RestConnection {
    fn send(&mut self, message: Bytes) {
        // The task runs as long as there is a sender.
        let _ = self.messages.send(message);
    }

    /// Each poll has one response, so there is nothing to read in between.
    fn read(&mut self) {}
}

impl Drop for RestConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that polls one type, one request after the other.
#[derive(Debug)]
struct Poller {
    pool: Arc<Pool>,
    target: ConnectRequest,
    events: ConnectionEvents,
    /// The timeout of a response.
    timeout: Duration,
    max_message_size: usize,
}

impl Poller {
    /// Polls for each request, one after the other. A request that arrives during a poll replaces it.
    async fn run(self, mut requests: mpsc::UnboundedReceiver<Bytes>) {
        let mut next = requests.recv().await;
        while let Some(request) = next {
            next = tokio::select! {
                // A poll that has ended is reported, although a newer request may be there.
                biased;
                () = self.poll(&request) => requests.recv().await,
                newer = requests.recv() => newer,
            };
        }
    }

    /// Makes one exchange, and reports its result.
    async fn poll(&self, request: &Bytes) {
        let sent = Sent::new(self.events.clone());
        // Whatever becomes of it when it is given up, it is reported as sent before that, or never.
        let _given_up = Forget(&sent);
        let exchange = Exchange {
            pool: &self.pool,
            path: &self.target.path,
            request,
            sent: &sent,
            max_message_size: self.max_message_size,
        };
        let answer = tokio::time::timeout(self.timeout, exchange.run()).await;
        match answer.unwrap_or_else(|_| Err(exchange.too_slow(self.timeout))) {
            Ok(answer) => {
                sent.report();
                match answer {
                    Answer::Response(response) => self.events.received(response),
                    Answer::Unchanged => self.events.unchanged(),
                    Answer::NotFound => self.events.not_found(),
                }
            }
            Err(failure) => {
                sent.forget();
                if failure.is_of_connection {
                    self.pool.renew();
                }
                self.events.failed(failure.reason);
            }
        }
    }
}

/// Ends the reports about a request when it is dropped.
struct Forget<'a>(&'a Sent);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests;
