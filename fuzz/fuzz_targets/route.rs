//! Bytes of a server as a `RouteConfiguration`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::RouteConfiguration;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<RouteConfiguration>(input));
