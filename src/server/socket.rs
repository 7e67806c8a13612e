//! Listening sockets.

use std::{io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::serve::AcceptError;

/// Binds a socket, which does not listen.
pub(super) fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Another socket may still have connections of the address. Windows lets two sockets share an address by it.
    #[cfg(not(windows))]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Has a bound socket listen.
pub(super) fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The kind of an error of `accept`.
pub(super) fn accept_error(error: &io::Error) -> AcceptError {
    // SV3.12: Linux reports errors of the connection, and of the network before it, by `accept`.
    let is_of_connection = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::PermissionDenied
    );
    match is_of_connection || is_shortage(error) {
        true => AcceptError::Transient,
        false => AcceptError::Fatal(error.to_string()),
    }
}

/// Whether the process or the system is short of descriptors or memory.
#[cfg(unix)]
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EPROTO];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

#[cfg(not(unix))]
fn is_shortage(error: &io::Error) -> bool {
    // WSAEMFILE, WSAENOBUFS
    error.raw_os_error().is_some_and(|code| [10_024, 10_055].contains(&code))
}

/// The connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn sv3_12_shortages_and_lost_connections_are_transient() {
        for code in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::ECONNABORTED,
            libc::EINTR,
            libc::EPROTO,
            libc::ENETDOWN,
        ] {
            assert_eq!(accept_error(&io::Error::from_raw_os_error(code)), AcceptError::Transient, "{code}");
        }
        for code in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
            assert!(matches!(accept_error(&io::Error::from_raw_os_error(code)), AcceptError::Fatal(_)));
        }
    }
}
