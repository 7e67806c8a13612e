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
