//! What is known of each resource: the last good one, and the news about it.

mod entry;
mod table;

pub(crate) use self::{
    entry::{Entry, Policy},
    table::Table,
};
