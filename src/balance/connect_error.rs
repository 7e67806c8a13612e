//! Why an attempt to connect failed, as far as later attempts depend on that.

use std::{fmt, io, sync::Arc};

/// The failure of an attempt to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectError {
    /// Names the address.
    pub(crate) text: Arc<str>,
    pub(crate) cause: ConnectFailure,
}

/// The cause of a failed attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The endpoint, or the network, has refused the attempt in some way.
    Refused,
    /// The endpoint did not answer while the attempt held its slot (CH11.8). The balancer finds that out by itself.
    Silent,
    /// The process or the system has no file descriptor left for a socket (EMFILE, ENFILE): no endpoint is at fault.
    NoDescriptor,
}

impl ConnectError {
    /// The failure of a socket, with a text that does not have the address yet.
    #[cfg_attr(not(feature = "channel"), allow(dead_code, reason = "channels have sockets"))]
    pub(crate) fn of_io(error: &io::Error) -> Self {
        let cause = match error.raw_os_error() {
            Some(code) if NO_DESCRIPTOR.contains(&code) => ConnectFailure::NoDescriptor,
            Some(_) | None => ConnectFailure::Refused,
        };
        Self { text: error.to_string().into(), cause }
    }

    /// Replaces the text of the failure.
    #[cfg_attr(not(feature = "channel"), allow(dead_code, reason = "channels have sockets"))]
    pub(crate) fn with_text(self, text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), ..self }
    }
}

impl From<&str> for ConnectError {
    fn from(text: &str) -> Self {
        Self { text: text.into(), cause: ConnectFailure::Refused }
    }
}

impl From<String> for ConnectError {
    fn from(text: String) -> Self {
        Self { text: text.into(), cause: ConnectFailure::Refused }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// EMFILE and ENFILE, which have these numbers on all Unix systems.
#[cfg(unix)]
const NO_DESCRIPTOR: [i32; 2] = [24, 23];
/// `WSAEMFILE`.
#[cfg(windows)]
const NO_DESCRIPTOR: [i32; 1] = [10_024];
/// No numbers are known here, so that each failure counts as that of the endpoint.
#[cfg(not(any(unix, windows)))]
const NO_DESCRIPTOR: [i32; 0] = [];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn ch11_8_the_lack_of_file_descriptors_is_known_by_the_number_of_the_error() {
        let cause = |code| ConnectError::of_io(&io::Error::from_raw_os_error(code)).cause;
        assert_eq!([cause(24), cause(23)], [ConnectFailure::NoDescriptor; 2]);
        assert_eq!([cause(111), cause(104)], [ConnectFailure::Refused; 2]);
        let other = ConnectError::of_io(&io::Error::new(io::ErrorKind::TimedOut, "late"));
        assert_eq!((other.cause, &*other.text), (ConnectFailure::Refused, "late"));
    }
}
