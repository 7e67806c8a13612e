//! Bytes of a server as a `ClusterLoadAssignment`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::ClusterLoadAssignment;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check_read::<ClusterLoadAssignment>(input));
