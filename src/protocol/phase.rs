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
    /// No request of the stream has the name.
    New,
    /// A request with the name was sent, and its does-not-exist timer runs, unless a good resource is held.
    Requested,
    /// The server has sent the resource, an error of it, or its removal.
    Answered,
    /// The does-not-exist time has passed without an answer.
    TimedOut,
    /// A response lacks the name, but may have crossed its request.
    AbsenceUnconfirmed,
}
