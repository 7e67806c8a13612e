//! What is known of each resource: the last good one, and the news about it.

mod entry;
mod places;
mod redirect;
mod setback;
mod table;

pub use self::setback::ResourceState;
pub(crate) use self::{
    entry::{Entry, News, Policy, Raw},
    places::Places,
    redirect::Redirect,
    setback::{Setback, Update},
    table::Table,
};
