//! An agent that does what a test has it do.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use bytes::{BufMut, Bytes, BytesMut};
use h2::{
    SendStream,
    server::{self, SendResponse},
};
use http::{HeaderMap, Response};
use prost::Message;
use tokio::{net::UnixListener, sync::mpsc, task::JoinHandle};

use super::soon;

/// An agent on a Unix socket.
pub(super) struct Agent {
    path: PathBuf,
    folder: tempfile::TempDir,
    streams: mpsc::UnboundedReceiver<AgentStream>,
    task: JoinHandle<()>,
}

/// A stream that a workload has requested.
pub(super) struct AgentStream {
    pub(super) path: String,
    /// The header by which workloads show that they mean it.
    pub(super) header: Option<String>,
    respond: SendResponse<Bytes>,
    /// `None` before the headers.
    body: Option<SendStream<Bytes>>,
}

impl Agent {
    pub(super) async fn start() -> Self {
        Self::start_at(tempfile::tempdir().unwrap()).await
    }

    pub(super) async fn start_at(folder: tempfile::TempDir) -> Self {
        let path = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, streams) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let sender = sender.clone();
                connections.spawn(async move {
                    let mut connection = server::handshake(socket).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let header = request.headers().get("workload.spiffe.io");
                        let header = header.map(|value| value.to_str().unwrap().to_owned());
                        let path = request.uri().path().to_owned();
                        drop(sender.send(AgentStream { path, header, respond, body: None }));
                    }
                });
            }
        });
        Self { path, folder, streams, task }
    }

    /// Closes all connections and the socket; returns its folder.
    pub(super) async fn stop(self) -> tempfile::TempDir {
        self.task.abort();
        let _ = self.task.await;
        std::fs::remove_file(&self.path).unwrap();
        self.folder
    }

    pub(super) fn endpoint(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    pub(super) async fn stream(&mut self) -> AgentStream {
        soon(self.streams.recv()).await.unwrap()
    }

    pub(super) fn has_no_further_stream(&self) -> bool {
        self.streams.is_empty()
    }
}

impl AgentStream {
    pub(super) fn headers(&mut self) -> &mut SendStream<Bytes> {
        let respond = &mut self.respond;
        self.body.get_or_insert_with(|| {
            let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            respond.send_response(response, false).unwrap()
        })
    }

    pub(super) async fn send(&mut self, message: &impl Message) {
        self.send_bytes(&message.encode_to_vec()).await;
    }

    /// Sends the bytes of a message.
    pub(super) async fn send_bytes(&mut self, bytes: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(bytes.len().try_into().unwrap());
        frame.put_slice(bytes);
        self.headers().send_data(frame.freeze(), false).unwrap();
    }

    /// Sends the beginning of a message of this length.
    pub(super) async fn send_length(&mut self, length: u32) {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(length);
        frame.put_slice(b"the beginning");
        self.headers().send_data(frame.freeze(), false).unwrap();
    }

    /// Ends the stream with a status.
    pub(super) async fn end(mut self, code: u32, message: &str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.into());
        trailers.insert("grpc-message", message.parse().unwrap());
        self.headers().send_trailers(trailers).unwrap();
    }
}
