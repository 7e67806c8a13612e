//! Attempts to connect to several addresses of one server (RFC 8305).

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, task::JoinSet, time::sleep};

use super::SocketOptions;

/// Connects to the first address that accepts. Addresses are tried in order; if an attempt takes long, the next one begins before it
/// has failed, so that an address that drops packets costs little.
///
/// # Errors
/// The error of the attempt that failed last.
pub(super) async fn connect(
    addresses: Vec<SocketAddr>,
    options: SocketOptions,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut attempts = JoinSet::new();
    let mut addresses = addresses.into_iter();
    let mut failure = None;
    loop {
        let next = addresses.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.spawn(async move { (address, options.connect(address).await) });
        }
        tokio::select! {
            // First what has ended: an attempt that has succeeded makes another one needless.
            biased;
            done = attempts.join_next() => match done {
                Some(Ok((address, Ok(socket)))) => return Ok((socket, address)),
                // The next attempt begins at once, and not after the delay (RFC 8305, section 5).
                Some(Ok((_, Err(e)))) => failure = Some(e),
                // The attempt panicked: nobody cancels it.
                Some(Err(e)) => failure = Some(io::Error::other(e)),
                // No attempt is left, so all addresses were tried: each turn before has begun one.
                None => return Err(failure.unwrap_or_else(|| io::Error::other("the name has no address"))),
            },
            // The attempts before go on: the first one that succeeds wins, and the others are dropped with the set.
            () = sleep(ATTEMPT_DELAY), if !is_last => {}
        }
    }
}

/// Orders the addresses of a name such that the IP families take turns, beginning with that of the first address (RFC 8305,
/// section 4): a network in which one of the families does not work costs one delay, however many addresses of it there are.
pub(super) fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (mut same, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first);
    let mut ordered = Vec::with_capacity(same.len() + other.len());
    while !same.is_empty() || !other.is_empty() {
        ordered.extend(same.pop_front());
        ordered.extend(other.pop_front());
    }
    ordered
}

/// The time before the next address is tried in addition ("Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
