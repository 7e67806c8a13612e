//! Bytes of a server as a `Listener`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::Listener;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<Listener>(input));
