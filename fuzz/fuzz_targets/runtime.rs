//! Bytes of a server as a `Runtime`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::Runtime;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<Runtime>(input));
