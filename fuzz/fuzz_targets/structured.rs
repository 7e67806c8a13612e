//! Valid resources of every type with parts that were changed: what no byte-wise change would get through to.
//!
//! The first byte of an input is the type, the second what the context knows; the others are the message.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use xdskit::resource::{
    Cluster, ClusterLoadAssignment, Listener, RouteConfiguration, Runtime, ScopedRouteConfiguration, Secret,
    VirtualHost,
};
use xdskit_fuzz::{
    check, check_read,
    tree::{Random, Tree},
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    if let Some(check) = CHECKS.get(usize::from(first)) {
        check(rest);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed).unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});

/// Changes the message; `None` if it is none, or has become too long.
fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> Option<usize> {
    let (head, message) = data.get(..size)?.split_at_checked(HEAD)?;
    let head = head.to_vec();
    let mut tree = Tree::read(message)?;
    let before = tree.clone();
    let mut random = Random::new(seed);
    for _ in 0..=seed % 4 {
        tree.mutate(Some(&before), &mut random);
    }
    let written = [head, tree.write()].concat();
    let fits = written.len() <= max_size.min(data.len());
    fits.then(|| data[..written.len()].copy_from_slice(&written)).map(|()| written.len())
}

/// Bytes before the message.
const HEAD: usize = 2;

/// Types are appended, so that the corpus keeps its meaning.
const CHECKS: &[fn(&[u8])] = &[
    check_read::<Cluster>,
    check_read::<ClusterLoadAssignment>,
    check::<Secret>,
    check::<Runtime>,
    check::<Listener>,
    check::<RouteConfiguration>,
    check::<VirtualHost>,
    check::<ScopedRouteConfiguration>,
];
