//! Dialing: how connections to management servers, endpoints, proxies and the metadata server are made.
//!
//! ```text
//!   ServerAddress ──▶ open ────────▶ Socket ──▶ TLS (`crate::tls`) ──▶ MaybeTlsStream
//!   address ─────────▶ open_tcp ──────▲  │
//!   proxy, address ──▶ open_tunnel ───┘  └────────── plaintext ───────▶
//! ```
//!
//! Names are resolved here, and addresses tried as in RFC 8305, with the same [options](SocketOptions) for all sockets. No other
//! module connects a socket. TLS has one kind of material, which is reloaded from its files: `crate::tls`.

mod happy_eyeballs;
mod keepalive;
mod options;
mod stream;
#[cfg(feature = "channel")]
mod tunnel;

use std::io;
#[cfg(feature = "channel")]
use std::net::SocketAddr;

pub use self::stream::Io;
pub(crate) use self::{
    keepalive::is_too_many_pings,
    options::SocketOptions,
    stream::{MaybeTlsStream, Socket},
};
use crate::config::ServerAddress;

/// The protocols that TLS negotiates (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "ALPN is a part of TLS"))]
pub(crate) enum Alpn {
    /// HTTP/2 alone.
    Http2,
    /// HTTP/2 or HTTP/1.1, by the server's choice.
    #[cfg(feature = "rest")]
    Http2OrHttp1,
}

/// Connects to one of the addresses of a server. Also returns the host that the server's certificate is to be for.
///
/// # Errors
/// The error of the look-up, or of the attempt that failed last. There is no time limit but that of the caller.
pub(crate) async fn open(server: &ServerAddress, options: SocketOptions) -> io::Result<(Socket, String)> {
    match server {
        ServerAddress::Host { host, port } => {
            let lookup = tokio::net::lookup_host((host.as_str(), *port)).await;
            let unknown = |e| io::Error::other(format!("the host {host} cannot be looked up: {e}"));
            let addresses = happy_eyeballs::interleave(lookup.map_err(unknown)?.collect());
            let (socket, _) = happy_eyeballs::connect(addresses, options).await?;
            // The certificate is for the configured name, whichever of its addresses accepts.
            Ok((Socket::Tcp(socket), host.clone()))
        }
        // The order of the addresses is the operator's.
        ServerAddress::Addresses(addresses) => {
            let (socket, address) = happy_eyeballs::connect(addresses.clone(), options).await?;
            // Without a name, the certificate has to be for the address itself.
            Ok((Socket::Tcp(socket), address.ip().to_string()))
        }
        #[cfg(unix)]
        ServerAddress::Unix(path) => {
            let socket = tokio::net::UnixStream::connect(path).await?;
            // The path of a socket is no name for a certificate. gRPC's authority for Unix sockets is `localhost`, too.
            Ok((Socket::Unix(socket), "localhost".to_owned()))
        }
        #[cfg(not(unix))]
        ServerAddress::Unix(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
        }
    }
}

/// Connects to an address.
///
/// # Errors
/// The error of the system, which may come late: callers limit the time.
#[cfg(feature = "channel")]
pub(crate) async fn open_tcp(address: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    Ok(Socket::Tcp(options.connect(address).await?))
}

/// Connects to an address by a tunnel through an HTTP proxy (CH7.25).
///
/// # Errors
/// The error of the connection to the proxy, or a text with the reason why there is no tunnel.
#[cfg(feature = "channel")]
pub(crate) async fn open_tunnel(
    proxy: SocketAddr,
    address: SocketAddr,
    options: SocketOptions,
) -> io::Result<Socket> {
    let mut socket = options.connect(proxy).await?;
    tunnel::open(&mut socket, address).await.map_err(io::Error::other)?;
    Ok(Socket::Tcp(socket))
}

#[cfg(all(test, feature = "channel"))]
mod tests;
