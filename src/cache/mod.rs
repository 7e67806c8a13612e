//! The state of each resource: the last known good one, and its ambient error.
//!
//! An [`Entry`] decides what each event means for one resource, and returns whether its watches see a change; it publishes
//! nothing and knows no server. The engine's store applies the events, and keeps its counters, expiries and redirects in step
//! with what they return.
//!
//! The bytes of held resources are kept for one purpose: a response is compared with them before anything in it is parsed, so
//! that a server that repeats 10,000 resources for one changed costs 10,000 comparisons and one parse.

mod ambient_error;
mod changed;
mod entry;
mod initial;
mod one_or_many;
mod policy;
mod raw;
mod redirect;
mod server_subscriptions;
mod table;

pub use self::ambient_error::ResourceState;
pub(crate) use self::{
    ambient_error::{AmbientError, Update},
    changed::Changed,
    entry::Entry,
    initial::InitialResource,
    one_or_many::OneOrMany,
    policy::Policy,
    raw::{Raw, ResponseBuffer},
    redirect::Redirect,
    server_subscriptions::ServerSubscriptions,
    table::Table,
};
