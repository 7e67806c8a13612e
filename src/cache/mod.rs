//! What is known of each resource: the last good one, and the news about it.

mod entry;
mod places;
mod table;

pub(crate) use self::{
    entry::{Entry, Policy},
    places::Places,
    table::Table,
};
