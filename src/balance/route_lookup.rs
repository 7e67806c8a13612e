//! The execution of route lookup (RLS): the targets of calls, by the responses of a lookup service, without I/O.
//!
//! [`Lookups`] has the state of one plugin. A call is [decided](Lookups::decide) by its [`LookupKey`]: by a cached response, by the
//! response that it waits for, or by the default target. Lookups come out of [`Lookups::poll_lookup`], and their results go in by
//! [`Lookups::handle_result`].

mod cache;
mod key;
mod limits;
mod lookups;
#[cfg(test)]
mod simulation;
mod throttle;

pub use self::limits::LookupLimits;
pub(crate) use self::{
    cache::Answer,
    key::LookupKey,
    lookups::{Decision, Lookup, LookupId, Lookups},
};
