//! Bytes of a server as a `Cluster`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::{pb::envoy::config::cluster::v3 as pb, resource::Cluster};

fuzz_target!(|input: &[u8]| xdskit_fuzz::check_read::<Cluster, pb::Cluster>(input));
