//! Where the bytes of what is held are: in the response that they came in, as long as most of that is held, and else by
//! themselves.

use bytes::Bytes;

use super::{
    Engine,
    pending_response::{LocatedResource, PendingResponse},
};
use crate::{cache::Raw, protocol::EntryId};

impl Engine {
    /// What an entry is told to be unchanged by. `parsed` is what was given to its parser, which may have kept some of it.
    pub(super) fn raw(
        &self,
        job: &mut PendingResponse,
        (id, located): (EntryId, &LocatedResource),
        parsed: Bytes,
    ) -> Raw {
        if !parsed.is_unique() {
            return parsed.into();
        }
        if job.origin.is_none() {
            let origin = self.table.begin_origin(job.envelope.message());
            job.origin = origin.map(|origin| (origin, Vec::new()));
        }
        let Some((origin, parts)) = &mut job.origin else { return job.envelope.bytes(located.value).into() };
        parts.push(id);
        origin.part(located.value)
    }

    /// Nothing more is taken from a response: what is held of it is copied if that is the lesser part of it, and so is what is held
    /// of others that it has replaced.
    pub(super) fn settle_origin(&mut self, job: &mut PendingResponse) {
        if let Some((origin, parts)) = job.origin.take() {
            self.table.keep_origin(origin, parts);
        }
        self.table.settle_origins();
    }
}
