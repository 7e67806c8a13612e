//! Tools for the tests of applications that use this crate.

pub mod resources;
