//! Connections over TCP or Unix sockets, with or without TLS: the common basis of all transports to servers.

mod credentials;
mod hint;

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::TcpStream;

pub(super) use self::{
    credentials::{Alpn, Loader, Secured},
    hint::{causes, explain, with_causes},
};
use super::credentials::Io;
use crate::config::ServerAddress;

/// A byte stream of any kind.
pub(super) type BoxedIo = Box<dyn Io>;

/// Connects to one of the addresses of a management server; also returns the name for the validation of its
/// certificate.
pub(super) async fn open(address: &ServerAddress) -> io::Result<(BoxedIo, String)> {
    match address {
        ServerAddress::Host { host, port } => {
            let lookup = tokio::net::lookup_host((host.as_str(), *port)).await;
            let unknown = |e| io::Error::other(format!("the host {host} cannot be looked up: {e}"));
            let addresses = lookup.map_err(unknown)?.collect();
            let (io, _) = open_first(addresses).await?;
            Ok((io, host.clone()))
        }
        ServerAddress::Addresses(addresses) => {
            let (io, address) = open_first(addresses.clone()).await?;
            Ok((io, address.ip().to_string()))
        }
        #[cfg(unix)]
        ServerAddress::Unix(path) => {
            let io = tokio::net::UnixStream::connect(path).await?;
            Ok((Box::new(io), "localhost".to_owned()))
        }
        #[cfg(not(unix))]
        ServerAddress::Unix(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
        }
    }
}

/// Tries addresses in order. If an attempt takes long, the next one starts before it has failed (as in RFC 8305), so
/// that an address that drops packets costs little.
async fn open_first(addresses: Vec<SocketAddr>) -> io::Result<(BoxedIo, SocketAddr)> {
    let mut attempts = tokio::task::JoinSet::new();
    let mut addresses = addresses.into_iter();
    let mut failure = None;
    loop {
        let next = addresses.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.spawn(async move { (address, TcpStream::connect(address).await) });
        }
        tokio::select! {
            biased;
            done = attempts.join_next() => match done {
                Some(Ok((address, Ok(io)))) => {
                    io.set_nodelay(true)?;
                    return Ok((Box::new(io), address));
                }
                Some(Ok((_, Err(e)))) => failure = Some(e),
                Some(Err(e)) => failure = Some(io::Error::other(e)),
                None => return Err(failure.unwrap_or_else(|| io::Error::other("the name has no address"))),
            },
            // The attempts before go on: the first one that succeeds wins, and the others are dropped with the set.
            () = tokio::time::sleep(HEAD_START), if !is_last => {}
        }
    }
}

/// The time before the next address is tried in addition.
const HEAD_START: Duration = Duration::from_millis(250);
