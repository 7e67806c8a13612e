//! Bytes of a server as a `ScopedRouteConfiguration`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::ScopedRouteConfiguration;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<ScopedRouteConfiguration>(input));
