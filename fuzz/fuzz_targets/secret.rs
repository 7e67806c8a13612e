//! Bytes of a server as a `Secret`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::Secret;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<Secret>(input));
