//! A server at the level of bytes.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::soon;

/// A listener whose connections are written by hand.
pub(in crate::channel) struct RawListener {
    listener: TcpListener,
    pub(in crate::channel) address: SocketAddr,
}

/// A connection of which the test reads and writes the frames.
pub(in crate::channel) struct Raw {
    io: TcpStream,
    unread: Vec<u8>,
}

/// A frame: its type, flags, stream and payload.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::channel) struct RawFrame {
    pub(in crate::channel) kind: u8,
    pub(in crate::channel) flags: u8,
    pub(in crate::channel) stream: u32,
    pub(in crate::channel) payload: Vec<u8>,
}

impl RawListener {
    pub(in crate::channel) async fn bind() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// All that a client sends on its next connection until it closes that.
    pub(in crate::channel) async fn received(&self) -> Vec<u8> {
        let mut io = soon(self.listener.accept()).await.unwrap().0;
        let mut all = Vec::new();
        soon(io.read_to_end(&mut all)).await.unwrap();
        all
    }

    /// Accepts a connection, sends SETTINGS, and reads those of the client with their acknowledgement.
    pub(in crate::channel) async fn accept(&self) -> Raw {
        self.accept_with(&[]).await
    }

    /// As before, with a number of streams that is permitted.
    pub(in crate::channel) async fn accept_permitting(&self, streams: u32) -> Raw {
        self.accept_with(&max_streams(streams)).await
    }

    /// As [`accept`](Self::accept), whenever the client connects.
    pub(in crate::channel) async fn accept_when_it_comes(&self) -> Raw {
        let io = self.listener.accept().await.unwrap().0;
        Self::exchange_settings(io, &[]).await
    }

    /// As [`accept`](Self::accept), with these parameters in its SETTINGS.
    pub(in crate::channel) async fn accept_with(&self, settings: &[u8]) -> Raw {
        let io = soon(self.listener.accept()).await.unwrap().0;
        Self::exchange_settings(io, settings).await
    }

    async fn exchange_settings(io: TcpStream, settings: &[u8]) -> Raw {
        io.set_nodelay(true).unwrap();
        let mut raw = Raw { io, unread: Vec::new() };
        let mut preface = [0; 24];
        soon(raw.io.read_exact(&mut preface)).await.unwrap();
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        raw.write(SETTINGS, 0, 0, settings).await;
        raw.write(SETTINGS, ACK, 0, &[]).await;
        loop {
            let frame = raw.frame().await;
            if (frame.kind, frame.flags) == (SETTINGS, ACK) {
                return raw;
            }
        }
    }
}

impl Raw {
    pub(in crate::channel) async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        soon(self.io.write_all(&frame)).await.unwrap();
    }

    /// Reads until the client closes the connection.
    pub(in crate::channel) async fn read_to_end(&mut self) {
        soon(self.io.read_to_end(&mut self.unread)).await.unwrap();
    }

    /// Writes frames as bytes.
    pub(in crate::channel) async fn write_bytes(&mut self, frames: &[u8]) {
        soon(self.io.write_all(frames)).await.unwrap();
    }

    /// Permits another number of streams, and waits until the client knows.
    pub(in crate::channel) async fn permit(&mut self, streams: u32) {
        self.write(SETTINGS, 0, 0, &max_streams(streams)).await;
        while self.frame_of(SETTINGS).await.flags != ACK {}
    }

    /// The stream of the next request.
    pub(in crate::channel) async fn request(&mut self) -> u32 {
        self.frame_of(HEADERS).await.stream
    }

    /// Begins a response.
    pub(in crate::channel) async fn begin_response(&mut self, stream: u32) {
        // HPACK: `:status: 200`, and a literal without index.
        let block = [&[0x88, 0, 12][..], b"content-type", &[16], b"application/grpc"].concat();
        self.write(HEADERS, END_HEADERS, stream, &block).await;
    }

    /// Ends a stream with the status OK.
    pub(in crate::channel) async fn respond(&mut self, stream: u32) {
        self.headers(stream, &[("grpc-status", "0")], true).await;
    }

    /// Sends the head of a response with the HTTP status 200, which may be its end.
    pub(in crate::channel) async fn headers(&mut self, stream: u32, headers: &[(&str, &str)], is_end: bool) {
        // HPACK: `:status: 200` by its index, the others as literals without one.
        let mut block = vec![0x88];
        for (name, value) in headers {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        let end = if is_end { END_STREAM } else { 0 };
        self.write(HEADERS, END_HEADERS | end, stream, &block).await;
    }

    /// The next frame.
    pub(in crate::channel) async fn frame(&mut self) -> RawFrame {
        loop {
            if let Some(frame) = self.take_frame() {
                return frame;
            }
            let read = soon(self.io.read_buf(&mut self.unread)).await.unwrap();
            assert!(read > 0, "the connection has ended");
        }
    }

    /// The next frame of this type. Others are passed over.
    pub(in crate::channel) async fn frame_of(&mut self, kind: u8) -> RawFrame {
        loop {
            let frame = self.frame().await;
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The types of the frames that one read gives.
    pub(in crate::channel) async fn read_once(&mut self) -> Vec<RawFrame> {
        assert!(self.unread.is_empty(), "a part of the last frame");
        self.unread.reserve(1 << 16);
        soon(self.io.read_buf(&mut self.unread)).await.unwrap();
        std::iter::from_fn(|| self.take_frame()).collect()
    }

    /// The next frame, if it has arrived.
    pub(in crate::channel) fn take_read_frame(&mut self) -> Option<RawFrame> {
        let mut more = [0; 1 << 16];
        while let Ok(read @ 1..) = self.io.try_read(&mut more) {
            self.unread.extend(&more[..read]);
        }
        self.take_frame()
    }

    /// Whether nothing was sent that the test has not read.
    pub(in crate::channel) fn is_quiet(&mut self) -> bool {
        self.unread.is_empty() && self.io.try_read(&mut [0]).is_err()
    }

    fn take_frame(&mut self) -> Option<RawFrame> {
        let head: [u8; 9] = self.unread.get(..9)?.try_into().unwrap();
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let payload = self.unread.get(9..9 + length)?.to_vec();
        self.unread.drain(..9 + length);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(RawFrame { kind: head[3], flags: head[4], stream, payload })
    }
}

/// The parameter SETTINGS_MAX_CONCURRENT_STREAMS.
fn max_streams(streams: u32) -> Vec<u8> {
    [&[0, 3][..], &streams.to_be_bytes()].concat()
}

pub(in crate::channel) const DATA: u8 = 0;
pub(in crate::channel) const HEADERS: u8 = 1;
pub(in crate::channel) const RST_STREAM: u8 = 3;
pub(in crate::channel) const SETTINGS: u8 = 4;
pub(in crate::channel) const PING: u8 = 6;
pub(in crate::channel) const GOAWAY: u8 = 7;
pub(in crate::channel) const WINDOW_UPDATE: u8 = 8;
pub(in crate::channel) const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
