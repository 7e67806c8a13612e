/// The connectivity of a subchannel, an endpoint or a policy (CH1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Connectivity {
    /// No connection, and none is attempted until one is requested.
    Idle,
    /// A connection is being established.
    Connecting,
    /// Calls can be sent.
    Ready,
    /// No connection could be established; fail-fast calls fail.
    TransientFailure,
}
