//! What the picks of an attempt have in common.

use crate::{
    balance::{
        hash::RequestHash, observer::PickLabels, override_host::HostOverride, ring_picker::ConnectRequest,
    },
    resolve::RouteQuery,
};

/// What an attempt remembers over its picks.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    /// The shares of dropped requests are drawn once (CH4.2).
    pub(super) has_drawn_drops: bool,
    /// That of the call.
    pub(super) hash: RequestHash,
    /// The endpoint whose connection the last pick requests, whatever its result is.
    pub(super) connect: Option<ConnectRequest>,
    /// If the call has a session.
    pub(crate) session: Option<Box<HostOverride>>,
    /// If the attempt is to have labels.
    pub(crate) labels: Option<PickLabels>,
}

impl Draws {
    /// For the first attempt of a call.
    pub(crate) fn new(hash: RequestHash) -> Self {
        Self { hash, ..Self::default() }
    }

    /// With labels to be filled, if there are any.
    pub(crate) fn with_labels(self, labels: Option<PickLabels>) -> Self {
        Self { labels, ..self }
    }

    /// For the next attempt of the call.
    pub(crate) fn for_next_attempt(self) -> Self {
        let session = self.session.map(|it| Box::new(it.for_next_attempt()));
        let labels = self.labels.map(|_| PickLabels::default());
        Self { session, labels, ..Self::new(self.hash) }
    }

    /// Has the hash be that of a request that may change from now on. Without hash policies it is random anyway.
    pub(crate) fn fix_hash(&mut self, request: &RouteQuery<'_>, random: &mut fastrand::Rng) {
        if self.hash.has_policies() {
            self.hash.get(request, random);
        }
    }

    /// The endpoint whose connection the last pick requested.
    pub(crate) fn take_connect_request(&mut self) -> Option<ConnectRequest> {
        self.connect.take()
    }

    pub(in crate::balance) fn hash(&mut self, request: &RouteQuery<'_>, random: &mut fastrand::Rng) -> u64 {
        self.hash.get(request, random)
    }
}
