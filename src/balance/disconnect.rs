//! Why a connection was lost, as metrics name it (CH9.18, A94).

use std::io;

/// The first reason that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// The peer has sent GOAWAY with this code.
    GoAway(u32),
    /// The channel has sent GOAWAY with this code, since the peer has exceeded a limit, or broken a rule of HTTP/2.
    SentGoAway(u32),
    /// The channel uses the connection no more.
    Shutdown,
    /// The peer has reset the connection (ECONNRESET).
    Reset,
    /// The system ended the connection, or PINGs were not answered.
    TimedOut,
    /// The system has aborted the connection (ECONNABORTED).
    Aborted,
    /// Otherwise, such as its end without GOAWAY.
    Socket,
    /// The end was seen without a reason.
    Unknown,
}

impl Disconnect {
    /// Reason of a failed socket.
    pub(crate) fn of_io(kind: io::ErrorKind) -> Self {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of errors are not exhaustive")]
        match kind {
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::ConnectionAborted => Self::Aborted,
            _ => Self::Socket,
        }
    }

    /// Its name in A94.
    pub(crate) fn name(self) -> &'static str {
        match self {
            // A peer may send any of 2³² codes, which would be as many labels.
            Self::GoAway(code) => CODES.get(code as usize).copied().unwrap_or("GOAWAY UNKNOWN"),
            Self::SentGoAway(code) => SENT_CODES.get(code as usize).copied().unwrap_or("sent GOAWAY UNKNOWN"),
            Self::Shutdown => "subchannel shutdown",
            Self::Reset => "connection reset",
            Self::TimedOut => "connection timed out",
            Self::Aborted => "connection aborted",
            Self::Socket => "socket error",
            Self::Unknown => "unknown",
        }
    }
}

/// Names of GOAWAY frames with the codes of HTTP/2, by their numbers (RFC 9113, section 7).
macro_rules! codes {
    ($($code:literal)+) => {
        const CODES: [&str; 14] = [$(concat!("GOAWAY ", $code)),+];
        /// Names of the same frames if the channel sends them, which A94 has no names for.
        const SENT_CODES: [&str; 14] = [$(concat!("sent GOAWAY ", $code)),+];
    };
}

codes! {
    "NO_ERROR"
    "PROTOCOL_ERROR"
    "INTERNAL_ERROR"
    "FLOW_CONTROL_ERROR"
    "SETTINGS_TIMEOUT"
    "STREAM_CLOSED"
    "FRAME_SIZE_ERROR"
    "REFUSED_STREAM"
    "CANCEL"
    "COMPRESSION_ERROR"
    "CONNECT_ERROR"
    "ENHANCE_YOUR_CALM"
    "INADEQUATE_SECURITY"
    "HTTP_1_1_REQUIRED"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch9_18_reasons_of_disconnections_have_the_names_of_a94() {
        let names = [
            (Disconnect::GoAway(0), "GOAWAY NO_ERROR"),
            (Disconnect::GoAway(11), "GOAWAY ENHANCE_YOUR_CALM"),
            (Disconnect::GoAway(13), "GOAWAY HTTP_1_1_REQUIRED"),
            (Disconnect::GoAway(14), "GOAWAY UNKNOWN"),
            (Disconnect::GoAway(u32::MAX), "GOAWAY UNKNOWN"),
            (Disconnect::SentGoAway(11), "sent GOAWAY ENHANCE_YOUR_CALM"),
            (Disconnect::SentGoAway(14), "sent GOAWAY UNKNOWN"),
            (Disconnect::Shutdown, "subchannel shutdown"),
            (Disconnect::of_io(io::ErrorKind::ConnectionReset), "connection reset"),
            (Disconnect::of_io(io::ErrorKind::TimedOut), "connection timed out"),
            (Disconnect::of_io(io::ErrorKind::ConnectionAborted), "connection aborted"),
            (Disconnect::of_io(io::ErrorKind::BrokenPipe), "socket error"),
            (Disconnect::of_io(io::ErrorKind::UnexpectedEof), "socket error"),
            (Disconnect::Unknown, "unknown"),
        ];
        for (reason, name) in names {
            assert_eq!(reason.name(), name, "{reason:?}");
        }
    }
}
