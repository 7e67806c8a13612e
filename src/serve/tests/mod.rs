//! The rules of a server, one test each.

mod connections;
mod names;
mod requests;
mod states;
