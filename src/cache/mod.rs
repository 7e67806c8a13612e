//! The state of each resource: the last known good one, and its ambient error.

mod ambient_error;
mod entry;
mod one_or_many;
mod policy;
mod raw;
mod redirect;
mod server_subscriptions;
mod table;

pub use self::ambient_error::ResourceState;
pub(crate) use self::{
    ambient_error::{AmbientError, Update},
    entry::{Changed, Entry},
    one_or_many::OneOrMany,
    policy::Policy,
    raw::{Raw, ResponseBuffer},
    redirect::Redirect,
    server_subscriptions::ServerSubscriptions,
    table::Table,
};
