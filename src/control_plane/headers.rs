//! The time of response headers.

/// The time at which a server sends the response headers.
///
/// Servers differ: some send them when the stream opens, some with their first message. A client must support both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Headers {
    /// When the stream opens.
    #[default]
    AtOnce,
    /// Headers are sent with the first response.
    WithFirstResponse,
    /// Never, until the stream ends. Responses are delayed with them.
    Never,
}
