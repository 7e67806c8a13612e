//! What is known of each resource: the last good one, and the news about it.

mod entry;
mod few;
mod places;
mod raw;
mod redirect;
mod setback;
mod table;

pub use self::setback::ResourceState;
pub(crate) use self::{
    entry::{Entry, News, Policy},
    few::Few,
    places::Places,
    raw::{Origin, Raw},
    redirect::Redirect,
    setback::{Setback, Update},
    table::Table,
};
