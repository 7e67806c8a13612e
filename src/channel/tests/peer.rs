//! A server whose frames the test writes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    server::{Builder, Connection, SendResponse},
};
use http::{HeaderMap, Request, Response};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        watch,
    },
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tonic::Code;

use super::soon;
use crate::transport::credentials::Io;

/// Accepts connections and hands over their requests.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    requests: UnboundedReceiver<Received>,
    connections: UnboundedReceiver<UnboundedSender<End>>,
    is_open: watch::Sender<bool>,
    refuses: Arc<AtomicBool>,
}

/// A request, and where its response goes.
pub(super) struct Received {
    pub(super) request: Request<RecvStream>,
    /// The number of its connection, from 0 on.
    pub(super) connection: usize,
    respond: SendResponse<Bytes>,
}

/// How a connection ends.
pub(super) enum End {
    /// GOAWAY without an error, above the last stream that was accepted.
    Graceful,
    /// GOAWAY with a reason, and the end.
    Abrupt(Reason),
    /// The end alone.
    Crash,
}

impl Peer {
    pub(super) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(settings: impl Fn(&mut Builder) + Send + 'static) -> Self {
        Self::start_as(settings, None).await
    }

    /// With TLS.
    pub(super) async fn secured(config: ServerConfig) -> Self {
        Self::start_as(|_| {}, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_as(settings: impl Fn(&mut Builder) + Send + 'static, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ((send, requests), (opened, connections)) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (is_open, mut opens) = watch::channel(true);
        let refuses = Arc::<AtomicBool>::default();
        let refuse = refuses.clone();
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok((socket, _)) = listener.accept().await {
                if refuse.load(Ordering::SeqCst) {
                    continue;
                }
                if opens.wait_for(|is_open| *is_open).await.is_err() {
                    return;
                }
                let mut builder = Builder::new();
                settings(&mut builder);
                let (end, ends) = mpsc::unbounded_channel();
                let Some(socket) = secure(socket, tls.as_ref()).await else { continue };
                if let Ok(connection) = builder.handshake(socket).await {
                    let _ = opened.send(end);
                    tokio::spawn(serve(connection, (number, send.clone()), ends));
                    number += 1;
                }
            }
        });
        Self { address, requests, connections, is_open, refuses }
    }

    /// The next request, however long it takes; `None` if the listener has ended.
    pub(super) async fn next_request(&mut self) -> Option<Received> {
        self.requests.recv().await
    }

    pub(super) async fn request(&mut self) -> Received {
        soon(self.requests.recv()).await.unwrap()
    }

    /// The next connection, to end it.
    pub(super) async fn connection(&mut self) -> UnboundedSender<End> {
        soon(self.connections.recv()).await.unwrap()
    }

    /// Whether there is no request that the test has not seen.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }

    pub(super) fn has_no_further_connection(&mut self) -> bool {
        self.connections.try_recv().is_err()
    }

    /// Whether further connections are closed as soon as they are accepted.
    pub(super) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Whether further connections get SETTINGS.
    pub(super) fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

impl Received {
    pub(super) fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// The next data of the request; empty at its end.
    pub(super) async fn data(&mut self) -> Bytes {
        let body = self.request.body_mut();
        match soon(body.data()).await {
            Some(data) => {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                data
            }
            None => Bytes::new(),
        }
    }

    /// All data of the request.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let data = self.data().await;
            if data.is_empty() {
                return all;
            }
            all.extend_from_slice(&data);
        }
    }

    pub(super) fn respond(mut self) {
        self.end();
    }

    /// Sends a response, of which nothing is left to send.
    pub(super) fn end(&mut self) {
        let mut stream = self.respond.send_response(grpc_response(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    }

    /// Ends the call with headers alone: a status, and further headers.
    pub(super) fn fail(mut self, code: Code, more: &[(&'static str, &str)]) {
        let mut response = grpc_response();
        let headers = response.headers_mut();
        headers.insert("grpc-status", (code as i32).into());
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        self.respond.send_response(response, true).unwrap();
    }

    /// Answers as a server that does not speak gRPC.
    pub(super) fn answer(mut self, status: u16) {
        self.respond.send_response(Response::builder().status(status).body(()).unwrap(), true).unwrap();
    }

    /// The same, as an intermediary that answers with the content type of gRPC alone.
    pub(super) fn answer_as_grpc(mut self, status: u16) {
        let mut response = grpc_response();
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        self.respond.send_response(response, true).unwrap();
    }

    /// Ends the response with trailers that have no status.
    pub(super) fn end_without_status(mut self) {
        let mut stream = self.begin_response();
        stream.send_trailers(HeaderMap::from_iter([(http::header::DATE, "today".parse().unwrap())])).unwrap();
    }

    /// The value of a header of the request.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.request.headers().get(name).map(|value| value.to_str().unwrap())
    }

    /// Begins the response. Dropping the stream resets it.
    pub(super) fn begin_response(&mut self) -> h2::SendStream<Bytes> {
        self.respond.send_response(grpc_response(), false).unwrap()
    }

    /// The same with further headers.
    pub(super) fn begin_response_with(&mut self, headers: HeaderMap) -> h2::SendStream<Bytes> {
        let mut response = grpc_response();
        response.headers_mut().extend(headers);
        self.respond.send_response(response, false).unwrap()
    }

    pub(super) fn reset(mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Waits until the client has reset the stream.
    pub(super) async fn cancelled(mut self) -> Reason {
        soon(std::future::poll_fn(|cx| self.respond.poll_reset(cx))).await.unwrap()
    }
}

fn grpc_response() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

/// A socket with TLS, or without; `None` if the client refuses it.
async fn secure(socket: TcpStream, tls: Option<&TlsAcceptor>) -> Option<Box<dyn Io>> {
    match tls {
        None => Some(Box::new(socket)),
        Some(tls) => Some(Box::new(tls.accept(socket).await.ok()?)),
    }
}

async fn serve(
    mut connection: Connection<Box<dyn Io>, Bytes>,
    (number, requests): (usize, UnboundedSender<Received>),
    mut ends: UnboundedReceiver<End>,
) {
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let _ = requests.send(Received { request, connection: number, respond });
                }
                Some(Err(_)) => {}
                None => return,
            },
            Some(end) = ends.recv() => match end {
                End::Graceful => connection.graceful_shutdown(),
                End::Abrupt(reason) => connection.abrupt_shutdown(reason),
                End::Crash => return,
            }
        }
    }
}
