//! The outcome of the last exchange with a source without streams, and its texts for an operator.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tracing::{debug, info, warn};

use super::Machine;
use crate::protocol::{
    envelope::Envelope,
    id::{StreamId, TypeId},
    request::put_text,
    stream_event::Disconnect,
};

/// The outcome of the last exchange. A change of it is logged as a warning; a repetition is not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum LastPoll {
    /// A response, or nothing new; also before the first exchange.
    #[default]
    Answered,
    /// None of the requested resources exist (HTTP status 404).
    NotFound,
    Failed(Disconnect),
}

impl Machine {
    /// The server has none of the requested resources: the same as a response of the type without resources (MS6).
    pub(super) fn on_not_found(&mut self, stream: StreamId, now: Instant) -> Option<(TypeId, Envelope)> {
        let before = std::mem::take(&mut self.last_poll);
        let opened = self.on_received(stream, self.empty_response(), now);
        if opened.is_some() {
            self.last_poll = LastPoll::NotFound;
            if before != LastPoll::NotFound {
                let (type_url, path) = (self.source_key.capabilities().type_url, self.source_key.path());
                warn!(
                    server = %self.source_key, type_url, path,
                    "HTTP status 404: the server has none of the requested resources, or nothing is served at this path"
                );
            }
        }
        opened
    }

    /// The path of the last poll that returned nothing.
    pub(crate) fn not_found_at(&self) -> Option<&str> {
        match self.last_poll {
            LastPoll::NotFound => self.source_key.path(),
            LastPoll::Answered | LastPoll::Failed(_) => None,
        }
    }

    /// A poll has an answer: one after a failure is worth a line.
    pub(super) fn note_poll_answered(&mut self) {
        if self.last_poll != LastPoll::Answered {
            let (type_url, path) = (self.source_key.capabilities().type_url, self.source_key.path());
            info!(server = %self.source_key, type_url, path, "poll answered again");
        }
        self.last_poll = LastPoll::Answered;
    }

    pub(super) fn note_poll_failed(&mut self, reason: &Disconnect) {
        let (type_url, path) = (self.source_key.capabilities().type_url, self.source_key.path());
        let failed = LastPoll::Failed(reason.clone());
        if self.last_poll == failed {
            debug!(server = %self.source_key, type_url, path, reason = reason.message, "poll failed again");
        } else {
            warn!(server = %self.source_key, type_url, path, reason = reason.message, "poll failed");
        }
        self.last_poll = failed;
    }

    fn empty_response(&self) -> Bytes {
        let mut response = BytesMut::new();
        put_text(TYPE_URL, self.source_key.capabilities().type_url.unwrap_or_default(), &mut response);
        response.freeze()
    }
}

/// The field of a `DiscoveryResponse`.
const TYPE_URL: u32 = 4;
