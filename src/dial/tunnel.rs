//! HTTP CONNECT: a tunnel through a proxy to an endpoint (A86).

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Opens a tunnel to an address through a proxy (CH7.25). The bytes behind the head of its response belong to the tunnel, and are
/// not read here.
///
/// # Errors
/// A text with the reason, such as the status of the proxy.
pub(super) async fn open(io: &mut TcpStream, address: SocketAddr) -> Result<(), String> {
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    io.write_all(request.as_bytes()).await.map_err(|error| format!("proxy: {error}"))?;
    let mut left = LONGEST_HEADS;
    loop {
        let head = read_head(io, left).await?;
        // One limit for all heads: informational responses may follow each other without end (CH7.26).
        left -= head.len();
        match status(&head)? {
            // What a proxy reports before its answer.
            (100..=199, _) if left > 0 => {}
            (100..=199, _) => return Err(too_long()),
            (200..=299, _) => return Ok(()),
            (code, reason) => {
                let reason = if reason.is_empty() { String::new() } else { format!(" {reason}") };
                return Err(format!("proxy: it refuses the tunnel with the HTTP status {code}{reason}"));
            }
        }
    }
}

/// The head of a response: all bytes up to its empty line, and none behind it.
async fn read_head(io: &mut TcpStream, longest: usize) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let mut ahead = [0; 512];
    loop {
        let room = ahead.len().min(longest - head.len());
        if room == 0 {
            return Err(too_long());
        }
        // Only what belongs to the head is taken out of the socket.
        let count = io.peek(&mut ahead[..room]).await.map_err(|error| format!("proxy: {error}"))?;
        if count == 0 {
            return Err("proxy: it closed the connection before its response ended".to_owned());
        }
        let before = head.len();
        head.extend_from_slice(&ahead[..count]);
        let end = end_of_head(&head, before);
        let taken = end.unwrap_or(head.len()) - before;
        head.truncate(before + taken);
        io.read_exact(&mut ahead[..taken]).await.map_err(|error| format!("proxy: {error}"))?;
        // Checked with the first bytes, since another protocol may never send an empty line.
        if !b"HTTP/1.".iter().zip(&head).all(|(one, other)| one == other) {
            return Err("proxy: its response is none of HTTP/1.1".to_owned());
        }
        if end.is_some() {
            return Ok(head);
        }
    }
}

fn too_long() -> String {
    format!("proxy: the head of its response has more than {LONGEST_HEADS} bytes")
}

/// Returns the end of a head, behind its empty line; the first `searched` bytes have none.
fn end_of_head(head: &[u8], searched: usize) -> Option<usize> {
    // The empty line may begin in the part that was searched before.
    let from = searched.saturating_sub(3);
    // Bare line feeds are permitted to recipients by RFC 9112, section 2.2.
    let ends = [&b"\r\n\r\n"[..], b"\n\n", b"\n\r\n"];
    let first = |end: &[u8]| {
        head[from..].windows(end.len()).position(|window| window == end).map(|at| from + at + end.len())
    };
    ends.into_iter().filter_map(first).min()
}

/// Parses the status line of a response.
fn status(head: &[u8]) -> Result<(u16, String), String> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // The text becomes that of errors, so it is short and without control characters.
    let line: String =
        String::from_utf8_lossy(line).chars().filter(|char| !char.is_control()).take(100).collect();
    let mut parts = line.splitn(3, ' ');
    let (version, code) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_http = matches!(version, "HTTP/1.1" | "HTTP/1.0");
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    let code = code.parse().ok().filter(|_| is_http && is_code);
    let code = code
        .ok_or_else(|| format!("proxy: its response begins with {line:?}, which is no status of HTTP/1.1"))?;
    Ok((code, parts.next().unwrap_or_default().trim().to_owned()))
}

/// The largest size of all heads of a proxy's responses together, in bytes (CH7.26).
const LONGEST_HEADS: usize = 8 << 10;

#[cfg(test)]
mod tests;
