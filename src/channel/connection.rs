//! HTTP/2 connections to endpoints, on `h2`.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::client::{Builder, Connection as H2Connection, SendRequest};
use tokio::{net::TcpStream, sync::oneshot};

/// What requests are sent with.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) send: SendRequest<Bytes>,
}

/// An established connection, to be driven by [`drive`](Self::drive).
pub(super) struct Connection {
    h2: H2Connection<TcpStream>,
    send: SendRequest<Bytes>,
}

impl Connection {
    /// Connects. The connection is established when the SETTINGS of the peer are there (CH3.4): a listener that accepts and says
    /// nothing is not a success.
    ///
    /// # Errors
    /// A text with the address: the attempt failed, or took longer than the timeout.
    pub(super) async fn connect(address: SocketAddr, timeout: Duration) -> Result<Self, Arc<str>> {
        match tokio::time::timeout(timeout, Self::establish(address)).await {
            Ok(established) => established.map_err(|error| format!("{address}: {error}").into()),
            Err(_) => Err(format!("{address}: no HTTP/2 connection within {timeout:?}").into()),
        }
    }

    async fn establish(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME)
            .initial_max_send_streams(UNKNOWN);
        let handshake = builder.handshake::<_, Bytes>(stream).await;
        let (send, mut h2) = handshake.map_err(|error| format!("HTTP/2: {error}"))?;
        poll_fn(|cx| match Pin::new(&mut h2).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err("HTTP/2: closed before SETTINGS".to_owned())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(format!("HTTP/2: {error}"))),
            Poll::Pending if send.current_max_send_streams() != UNKNOWN => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok(Self { h2, send })
    }

    pub(super) fn handle(&self) -> Handle {
        Handle { send: self.send.clone() }
    }

    /// Executes the connection until it is closed. `on_lost` is called as soon as it takes no new streams: when GOAWAY is read,
    /// not at the next call (CH3.5). After `drain`, the connection ends with its last stream (CH3.9).
    pub(super) async fn drive(self, drain: oneshot::Receiver<()>, on_lost: impl FnOnce()) {
        let Self { mut h2, send } = self;
        let (mut send, mut on_lost) = (Some(send), Some(on_lost));
        let mut drain = pin!(drain);
        poll_fn(|cx| {
            let end = Pin::new(&mut h2).poll(cx);
            if (end.is_ready() || is_refusing(send.as_mut(), cx))
                && let Some(on_lost) = on_lost.take()
            {
                send = None;
                on_lost();
            }
            if send.is_some() && drain.as_mut().poll(cx).is_ready() {
                // The end of the last handle ends the connection when its streams have ended; this polls it once more.
                (send, on_lost) = (None, None);
                cx.waker().wake_by_ref();
            }
            end.map(|_| ())
        })
        .await;
    }
}

/// Whether the connection takes no new streams any more.
fn is_refusing(send: Option<&mut SendRequest<Bytes>>, cx: &mut Context<'_>) -> bool {
    send.is_some_and(|send| matches!(send.poll_ready(cx), Poll::Ready(Err(_))))
}

/// The limit of streams until the SETTINGS of the peer are there, which no peer can send (CH15.2).
const UNKNOWN: usize = usize::MAX - 1;
/// The bytes that a peer may send on a stream before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
/// The bytes that a peer may send on all streams of a connection before they are read.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The longest frame that a peer may send.
const MAX_FRAME: u32 = 64 << 10;

#[cfg(test)]
mod tests;
