//! The code of the command-line tool `xdskit` and its examples. This is not a stable API.
//!
//! What is done with the library `xdskit` is in the examples, which are also subcommands of the tool; `status` and `relay` have more of
//! it here. The rest is the command line, and the output for people and for scripts.

#![allow(clippy::disallowed_methods, reason = "the tool has a runtime and a clock")]
#![allow(missing_debug_implementations, reason = "its types are for the tool and its examples alone")]

pub mod args;
pub mod call;
mod check;
mod codec;
mod filter;
pub mod json;
pub mod kind;
mod paint;
pub mod program;
mod proxy_tree;
pub mod relay;
mod status;
mod tool;
mod tree;
mod usage;
pub mod walk;
pub mod watch;
mod wrap;

pub use self::tool::{Subcommands, main};
