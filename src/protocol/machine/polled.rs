//! The outcome of the last exchange with a source without streams, and its texts for an operator.

use bytes::{Bytes, BytesMut};
use tracing::{debug, info, warn};

use crate::protocol::{request::put_text, source_key::SourceKey, stream_event::Disconnect};

/// The outcome of the last exchange. A change of it is logged as a warning; a repetition is not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum LastPoll {
    /// A response, or nothing new; also before the first exchange.
    #[default]
    Answered,
    /// The server reported that none of the requested resources exist (HTTP status 404).
    NotFound,
    /// The exchange has failed, for this reason.
    Failed(Disconnect),
}

impl LastPoll {
    /// The path of the last poll that returned nothing.
    pub(super) fn not_found_at<'a>(&self, source_key: &'a SourceKey) -> Option<&'a str> {
        match self {
            Self::NotFound => source_key.path(),
            Self::Answered | Self::Failed(_) => None,
        }
    }

    /// The server has none of the requested resources. `before` is the outcome of the poll before.
    pub(super) fn on_not_found(&mut self, source_key: &SourceKey, before: &Self) {
        if *before != Self::NotFound {
            let (type_url, path) = (source_key.capabilities().type_url, source_key.path());
            warn!(
                server = %source_key, type_url, path,
                "HTTP status 404: the server has none of the requested resources, or nothing is served at this path"
            );
        }
        *self = Self::NotFound;
    }

    /// A poll has an answer: one after a failure is worth a line.
    pub(super) fn on_answered(&mut self, source_key: &SourceKey) {
        if *self != Self::Answered {
            let (type_url, path) = (source_key.capabilities().type_url, source_key.path());
            info!(server = %source_key, type_url, path, "poll answered again");
        }
        *self = Self::Answered;
    }

    /// A poll has failed. Repetitions with the same reason are logged at a lower level.
    pub(super) fn on_failed(&mut self, source_key: &SourceKey, reason: &Disconnect) {
        let (type_url, path) = (source_key.capabilities().type_url, source_key.path());
        let failed = Self::Failed(reason.clone());
        if *self == failed {
            debug!(server = %source_key, type_url, path, reason = reason.message, "poll failed again");
        } else {
            warn!(server = %source_key, type_url, path, reason = reason.message, "poll failed");
        }
        *self = failed;
    }
}

/// A response of the one type of a source without resources: what HTTP status 404 means for its requests (MS6).
pub(super) fn empty_response(source_key: &SourceKey) -> Bytes {
    let mut response = BytesMut::new();
    put_text(TYPE_URL, source_key.capabilities().type_url.unwrap_or_default(), &mut response);
    response.freeze()
}

/// The field of a `DiscoveryResponse`.
const TYPE_URL: u32 = 4;
