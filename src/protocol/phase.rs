/// The progress of a name's request on the current stream.
///
/// ```text
///        on_request_sent             on_answered
///  New ─────────────────▶ Requested ──────────────▶ Answered
///   ▲                        │  └──────▶ TimedOut ─────▲
///   └── on_stream_closed ────┘  on_deadline
///
///  Answered ◀──────▶ AbsenceUnconfirmed: missing from a response, which proves nothing yet; a timer decides
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Requested,
    Answered,
    TimedOut,
    AbsenceUnconfirmed,
}

/// The meaning of an absence from a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The resource does not exist.
    Confirmed,
    /// The response may have crossed the request, whose timer is running or starts when it is sent.
    Awaited,
    /// The response may have crossed the request: a timer is to be started.
    Unconfirmed,
}
