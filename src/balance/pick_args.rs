//! What picks are made for, and what the picks of an attempt have in common.

use super::{
    connect_request::ConnectRequest, hash::RequestHash, observer::PickLabels,
    session_endpoints::picker::HostOverride,
};
use crate::resolve::RouteQuery;

/// What a pick is made for.
pub(crate) struct PickArgs<'a, 'b> {
    /// What the attempt remembers over its picks.
    pub(crate) attributes: &'a mut CallAttributes,
    pub(crate) random: &'a mut fastrand::Rng,
    /// The request, for policies that read it.
    pub(crate) request: &'a RouteQuery<'b>,
}

/// What an attempt remembers over its picks.
#[derive(Debug, Default)]
pub(crate) struct CallAttributes {
    /// The shares of dropped requests are drawn once (CH4.2).
    pub(super) has_drawn_drops: bool,
    /// Hash of the call.
    pub(super) hash: RequestHash,
    /// The endpoint whose connection the last pick requests, whatever its result is.
    pub(super) connect: Option<ConnectRequest>,
    /// The index of the endpoint whose connection the policy requests in this pick.
    requested: Option<u32>,
    /// Set if the call has a session.
    pub(crate) session: Option<Box<HostOverride>>,
    /// Set if the attempt is to have labels.
    pub(crate) labels: Option<PickLabels>,
}

impl CallAttributes {
    /// For the first attempt of a call.
    pub(crate) fn new(hash: RequestHash) -> Self {
        Self { hash, ..Self::default() }
    }

    /// Adds labels to be filled, if there are any.
    pub(crate) fn with_labels(self, labels: Option<PickLabels>) -> Self {
        Self { labels, ..self }
    }

    /// For the next attempt of the call.
    pub(crate) fn for_next_attempt(self) -> Self {
        let session = self.session.map(|session| Box::new(session.for_next_attempt()));
        // Labels are those of one attempt (CH9.14), and its drops are drawn anew (CH4.2); the hash stays (CH2.18).
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

    /// A policy requests the connection of the endpoint at an index of its list.
    pub(in crate::balance) fn request_connection(&mut self, index: usize) {
        // 32 bits keep the attributes small, and no list has more endpoints.
        self.requested = u32::try_from(index).ok();
    }

    /// What [`request_connection`](Self::request_connection) has requested.
    #[inline]
    pub(in crate::balance) fn take_requested(&mut self) -> Option<usize> {
        self.requested.take().map(|index| index as usize)
    }

    /// Whether no pick reads the request for the hash of the call any more.
    pub(in crate::balance) fn is_hash_known(&self) -> bool {
        self.hash.is_known()
    }

    /// The hash of the call, for policies that read it when they need it.
    pub(in crate::balance) fn request_hash(&mut self) -> &mut RequestHash {
        &mut self.hash
    }

    pub(in crate::balance) fn hash(&mut self, request: &RouteQuery<'_>, random: &mut fastrand::Rng) -> u64 {
        self.hash.get(request, random)
    }
}
