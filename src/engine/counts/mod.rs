//! Counters for metrics (A78, A88): each event costs the same whatever the cache holds, and the cache is never walked.
//!
//! Changes are coalesced until they are read. If they never are, what waits is bounded by the number of servers, types and
//! states, and is dropped with the server or group that it is about.

mod connections;
mod resources;
mod updates;

pub(super) use self::{
    connections::{ConnectionChange, ConnectionCounts},
    resources::{CacheState, ResourceCounts},
    updates::UpdateCounts,
};
