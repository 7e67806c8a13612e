//! Counters for metrics (A78, A88): each event costs the same whatever the cache holds; nothing iterates over the cache.
//!
//! Changes are coalesced until they are read. If they never are, the backlog is bounded by the number of servers, types
//! and states, and is dropped with its server or group.

mod connections;
mod resources;
mod traffic;
mod updates;

pub(super) use self::{
    connections::{ConnectionChange, ConnectionCounts},
    resources::{CacheState, ResourceCounts},
    traffic::{AppliedResponse, TrafficChange, TrafficCounts},
    updates::{ReceivedCounts, UpdateCounts},
};
