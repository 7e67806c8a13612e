//! Bytes of a server as a `VirtualHost`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::resource::VirtualHost;

fuzz_target!(|input: &[u8]| xdskit_fuzz::check::<VirtualHost>(input));
