//! A management server to measure clients by: it serves any number of clusters, and as many assignments of endpoints, over
//! aggregated streams in both variants of the protocol.
//!
//! Everything is encoded before anybody asks for it, and requests are looked through without being taken apart, so that
//! the server is not what is measured. It takes commands on standard input, one a line:
//!
//! | command | what happens |
//! |---|---|
//! | `make N` | there are N clusters and N assignments, for the streams that begin from now on |
//! | `unchanged` | everything is sent again, as another version |
//! | `change clusters I`, `change endpoints I` | that resource becomes another one, and is sent |
//! | `stats` | each stream's requests, responses and their bytes are told |
//!
//! and tells on standard output what happens, as a JSON object a line: `listening`, `made`, `acked` (with when the response was
//! sent and when it was acknowledged, in nanoseconds since 1970), `rejected`, `stats`, `closed` (as `stats`). It ends with its input.

mod catalog;
mod log;
mod mesh;
mod session;
mod wire;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{Request, Response};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{
    catalog::Catalog,
    log::log,
    session::{Push, Session},
    wire::{Kind, Variant},
};

// One thread, so that what is pushed is not handed from one to another before it is on its way.
#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let server = Arc::new(Server::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    log!(r#""event":"listening","address":"{}""#, listener.local_addr()?);
    tokio::spawn(accept(server.clone(), listener));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if server.obey(&line).is_none() {
            log!(r#""event":"misunderstood","line":{line:?}"#);
        }
    }
    Ok(())
}

#[derive(Default)]
struct Server {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    catalog: Option<Arc<Mutex<Catalog>>>,
    streams: Vec<mpsc::UnboundedSender<Push>>,
    last: u64,
}

impl Server {
    fn obey(&self, line: &str) -> Option<()> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["make", count] => {
                let count = count.parse().ok()?;
                self.lock().catalog = Some(Arc::new(Mutex::new(Catalog::new(count))));
                log!(r#""event":"made","count":{count}"#);
            }
            ["unchanged"] => {
                self.catalog()?.lock().expect("nobody panics").touch();
                Kind::ALL.into_iter().for_each(|kind| self.push(Push::All(kind)));
            }
            ["change", kind, number] => {
                let (kind, number) = (Kind::of_name(kind)?, number.parse().ok()?);
                self.catalog()?.lock().expect("nobody panics").change(kind, number);
                self.push(Push::One(kind, number));
            }
            ["stats"] => self.push(Push::Stats),
            _ => return None,
        }
        Some(())
    }

    fn push(&self, push: Push) {
        self.lock().streams.retain(|stream| stream.send(push).is_ok());
    }

    fn catalog(&self) -> Option<Arc<Mutex<Catalog>>> {
        self.lock().catalog.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics")
    }
}

async fn accept(server: Arc<Server>, listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(serve(server.clone(), socket));
    }
}

async fn serve(server: Arc<Server>, socket: TcpStream) -> Result<(), h2::Error> {
    let _ = socket.set_nodelay(true);
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let mut connection = builder.handshake(socket).await?;
    while let Some((request, respond)) = connection.accept().await.transpose()? {
        tokio::spawn(stream(server.clone(), request, respond));
    }
    Ok(())
}

async fn stream(
    server: Arc<Server>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let variant = if request.uri().path().contains("/Delta") { Variant::Delta } else { Variant::Sotw };
    let headers = Response::builder().header("content-type", "application/grpc").body(());
    let sink = respond.send_response(headers.expect("they are valid"), false)?;
    let (push, mut pushes) = mpsc::unbounded_channel();
    let mut session = {
        let mut state = server.lock();
        let Some(catalog) = state.catalog.clone() else { return Ok(()) };
        state.streams.push(push);
        state.last += 1;
        Session::new(state.last, variant, catalog, sink)
    };
    let mut body = request.into_body();
    let mut is_answered = true;
    loop {
        tokio::select! {
            biased;
            read = read(&mut body, is_answered) => match read {
                Read::Bytes(bytes) => {
                    session.handle_bytes(&bytes);
                    is_answered = false;
                }
                Read::Nothing => {
                    session.answer();
                    is_answered = true;
                }
                Read::End => break,
            },
            Some(push) = pushes.recv() => session.handle_push(push),
        }
    }
    session.tell("closed");
    Ok(())
}

enum Read {
    Bytes(Bytes),
    Nothing,
    End,
}

/// Waits for bytes; if something is still to be answered it says at once that there are none.
async fn read(body: &mut RecvStream, is_answered: bool) -> Read {
    let chunk = poll_fn(|cx| match body.poll_data(cx) {
        Poll::Pending if !is_answered => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
        Poll::Ready(chunk) => Poll::Ready(Some(chunk)),
    });
    match chunk.await {
        None => Read::Nothing,
        Some(Some(Ok(bytes))) => {
            let _ = body.flow_control().release_capacity(bytes.len());
            Read::Bytes(bytes)
        }
        Some(Some(Err(_)) | None) => Read::End,
    }
}

/// So that clients can write as fast as they make what they write.
const WINDOW: u32 = 8 << 20;
