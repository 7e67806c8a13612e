use serde::Serialize;

// CH1.3
/// The connectivity of an endpoint, a priority or a cluster. In JSON it is a name such as `TRANSIENT_FAILURE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Connectivity {
    /// No connection, and none is attempted until one is requested.
    Idle,
    /// A connection is being established.
    Connecting,
    /// Calls can be sent.
    Ready,
    /// No connection could be established; fail-fast calls fail.
    TransientFailure,
}
