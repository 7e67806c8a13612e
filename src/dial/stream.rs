//! Connected sockets, with or without TLS.

#[cfg(feature = "channel")]
use std::net::SocketAddr;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

/// A byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connected socket.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// A pipe of a simulated network.
    #[cfg(test)]
    Memory(Box<dyn Io>),
}

/// The stream of bytes to a peer.
pub(crate) enum MaybeTlsStream {
    Plaintext(Socket),
    /// Boxed, since it is much larger than a socket.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<Socket>>),
    /// Secured by a handshake of the application.
    Custom(Box<dyn Io>),
}

impl Socket {
    fn io(&self) -> &dyn Io {
        match self {
            Self::Tcp(socket) => socket,
            #[cfg(unix)]
            Self::Unix(socket) => socket,
            #[cfg(test)]
            Self::Memory(pipe) => pipe,
        }
    }

    fn io_mut(&mut self) -> Pin<&mut dyn Io> {
        match self {
            Self::Tcp(socket) => Pin::new(socket),
            #[cfg(unix)]
            Self::Unix(socket) => Pin::new(socket),
            #[cfg(test)]
            Self::Memory(pipe) => Pin::new(pipe),
        }
    }

    /// The address of this side, if the socket is one of TCP.
    #[cfg(feature = "channel")]
    fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok(),
            #[cfg(unix)]
            Self::Unix(_) => None,
            #[cfg(test)]
            Self::Memory(_) => None,
        }
    }

    /// Returns the socket, if it is one of TCP.
    #[cfg(test)]
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            #[cfg(unix)]
            Self::Unix(_) => None,
            Self::Memory(_) => None,
        }
    }
}

impl MaybeTlsStream {
    fn io(&self) -> &dyn Io {
        match self {
            Self::Plaintext(socket) => socket.io(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream,
            Self::Custom(stream) => stream,
        }
    }

    fn io_mut(&mut self) -> Pin<&mut dyn Io> {
        match self {
            Self::Plaintext(socket) => socket.io_mut(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream),
            Self::Custom(stream) => Pin::new(stream),
        }
    }

    /// The address of this side, if it is known.
    #[cfg(feature = "channel")]
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Plaintext(socket) => socket.local_address(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.get_ref().0.local_address(),
            Self::Custom(_) => None,
        }
    }

    /// Returns the socket below TLS, if it is known.
    #[cfg(test)]
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Plaintext(socket) => Some(socket),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Some(stream.get_ref().0),
            Self::Custom(_) => None,
        }
    }
}

#[cfg(feature = "tls")]
impl From<TlsStream<Socket>> for MaybeTlsStream {
    fn from(stream: TlsStream<Socket>) -> Self {
        Self::Tls(Box::new(stream))
    }
}

/// Passes reads and writes on to the stream that a type contains.
macro_rules! forward_io {
    ($type:ty) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.io_mut().poll_read(cx, buf)
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.io_mut().poll_write(cx, buf)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.io_mut().poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.io_mut().poll_shutdown(cx)
            }

            // Passed on as well, since the default writes one buffer at a time.
            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.io_mut().poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.io().is_write_vectored()
            }
        }
    };
}

forward_io!(Socket);
forward_io!(MaybeTlsStream);
