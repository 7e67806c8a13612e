//! Bytes of a server as a `Cluster`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::Cluster;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check_read::<Cluster>(input));
