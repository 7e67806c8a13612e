//! The tests that apply to files: those about the contents of resources. Not those about unavailable servers,
//! subscriptions to names, reported errors, and NACKs, which files do not have.

mod resolve {
    mod content;
    mod mesh;
}
mod types;
mod virtual_hosts;
mod watch;

use crate::common::filed::builder_of;
