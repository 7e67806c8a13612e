//! A management server that gets all of its resources from another one: each name once, whatever the number of
//! clients.

mod args;
mod figures;
mod forward;
mod mirror;
mod raw;
mod security;
mod source;
mod tokens;

pub use self::{
    args::{LimitArgs, RelayArgs, SecurityArgs},
    figures::{Complaint, Figures},
    forward::Relay,
    mirror::Mirror,
    security::Security,
    tokens::Tokens,
};
