//! Keepalive over HTTP/2.

/// Whether an error is the GOAWAY of a peer that was pinged more often than it permits (A8).
///
/// The code alone is no sign of it: servers send it for large headers and for many resets, too.
pub(crate) fn is_too_many_pings(error: &h2::Error) -> bool {
    error.is_go_away()
        && error.is_remote()
        && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
        // h2 has the debug data of a GOAWAY in its text alone.
        && error.to_string().contains("too_many_pings")
}
