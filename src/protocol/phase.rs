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
