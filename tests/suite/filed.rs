//! The tests that apply to files: those of what resources say and what becomes of them. A file has nobody who could be away, be
//! asked for a name, say why there is none, or hear of a rejection.

mod resolve {
    mod content;
    mod mesh;
}
mod types;
mod virtual_hosts;
mod watch;

use crate::common::filed::builder_of;
