//! The version of HTTP of a connection, by the first bytes that a client sends.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::acceptor::Io;

/// The version of HTTP of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// A connection whose first bytes were read before.
pub(super) struct Rewound {
    /// What was read and is not yet taken.
    first: Vec<u8>,
    taken: usize,
    io: Box<dyn Io>,
}

/// Reads until the version is known: the whole preface of HTTP/2, or a byte that is none of it.
///
/// # Errors
/// The connection ends before.
pub(super) async fn version(mut io: Box<dyn Io>) -> io::Result<(Version, Rewound)> {
    let mut first = Vec::with_capacity(PREFACE.len());
    while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
        let mut buffer = [0; PREFACE.len()];
        // No more than the preface, so that the rest is read once.
        let left = PREFACE.len() - first.len();
        match io.read(&mut buffer[..left]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => first.extend_from_slice(&buffer[..count]),
        }
    }
    let version = if first == PREFACE { Version::Http2 } else { Version::Http1 };
    Ok((version, Rewound { first, taken: 0, io }))
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.taken < this.first.len() {
            let rest = &this.first[this.taken..];
            let count = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..count]);
            this.taken += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// What each client of HTTP/2 sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_version_is_known_by_the_first_bytes_and_nothing_is_lost() {
        for (chunks, expected) in [
            (vec![&PREFACE[..], b"rest"], Some(Version::Http2)),
            (vec![&PREFACE[..3], &PREFACE[3..20], &PREFACE[20..]], Some(Version::Http2)),
            (vec![&b"GET / HTTP/1.1\r\n"[..]], Some(Version::Http1)),
            (vec![&b"PRI * HTTP/1.1\r\n"[..]], Some(Version::Http1)),
            (vec![&b"P"[..]], None),
            (vec![], None),
        ] {
            let (mut client, server) = tokio::io::duplex(256);
            let sent = chunks.concat();
            let send = async {
                for chunk in &chunks {
                    client.write_all(chunk).await.unwrap();
                }
                client.shutdown().await.unwrap();
            };
            let ((), read) = tokio::join!(send, version(Box::new(server)));
            assert_eq!(read.as_ref().ok().map(|(version, _)| *version), expected);
            if let Ok((_, mut io)) = read {
                let mut all = Vec::new();
                io.read_to_end(&mut all).await.unwrap();
                assert_eq!(all, sent);
            }
        }
    }
}
