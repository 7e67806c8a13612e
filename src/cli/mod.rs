//! The code of the command-line tool `xdskit`. This is no stable API: its functions are for the tool and the examples.

#![allow(clippy::disallowed_methods, reason = "the tool has a runtime and a clock")]

mod args;
mod json;
mod paint;
mod program;
mod relay;
mod tree;
mod walk;
mod watch;

use std::process::ExitCode;

#[doc(hidden)]
pub use self::{
    paint::Paint,
    tree::{Artist, Trouble},
};

/// Runs the example `watch`: prints the resources that a management server sends.
pub fn watch() -> ExitCode {
    watch::main()
}

/// Runs the example `walk`: prints the trees that targets resolve to.
pub fn walk() -> ExitCode {
    walk::main()
}

/// Runs the example `relay`: serves many clients from one subscription.
pub fn relay() -> ExitCode {
    relay::main()
}
