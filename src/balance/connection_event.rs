//! What becomes of a connection, or of an attempt at one.

use std::sync::Arc;

use super::{connect_error::ConnectError, stream_queue::streams::Streams};

/// An event of a connection, of which the connector notifies what has it.
#[derive(Debug)]
pub(super) enum ConnectionEvent<H> {
    /// The attempt succeeded: requests can be sent.
    Connected(Arc<Streams<H>>),
    /// The attempt failed.
    Failed(ConnectError),
    /// The connection takes no more requests, or is closed.
    Lost,
    /// Attempts of calls wait for a further connection beside this one (CH4.10). Whether there is to be one is found out after each event.
    Full,
}
