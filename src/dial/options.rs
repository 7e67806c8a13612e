//! Options of TCP sockets.

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::TcpStream;

/// The options of a TCP socket, beside `TCP_NODELAY`, which each has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SocketOptions {
    /// How long the system keeps a connection whose peer acknowledges nothing that was sent (`TCP_USER_TIMEOUT`, A18), where the
    /// system has such an option; `None` is the system's default.
    pub(crate) user_timeout: Option<Duration>,
    /// How long a connection is idle before the system probes the peer (`SO_KEEPALIVE`): for connections without pings of HTTP/2;
    /// `None` is never.
    pub(crate) keepalive: Option<Duration>,
}

impl SocketOptions {
    /// Connects to an address.
    pub(super) async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address).await?;
        // Requests are small frames, which Nagle's algorithm would hold back until the peer acknowledges earlier ones.
        socket.set_nodelay(true)?;
        self.set(&socket)?;
        Ok(socket)
    }

    fn set(self, socket: &TcpStream) -> io::Result<()> {
        if let Some(timeout) = self.user_timeout {
            set_user_timeout(socket, timeout)?;
        }
        if let Some(idle) = self.keepalive {
            // Systems count in seconds, and refuse 0 and more than they can count.
            let idle = idle.clamp(Duration::from_secs(1), LONGEST_KEEPALIVE);
            let keepalive = socket2::TcpKeepalive::new().with_time(idle);
            socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
        }
        Ok(())
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin"))]
fn set_user_timeout(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_user_timeout(Some(timeout.min(LONGEST_USER_TIMEOUT)))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin")))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// The system takes the time as a signed number of milliseconds, and refuses a longer one with `EINVAL`.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin"))]
const LONGEST_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// Linux refuses a longer idle time with `EINVAL`.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(32_767);
