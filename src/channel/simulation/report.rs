//! What a run has found.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

use super::network::lock;

/// The violations of a run, and how often things happened.
#[derive(Debug, Default)]
pub(super) struct Report {
    violations: Mutex<Vec<String>>,
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    uploads: Mutex<Vec<SmallParts>>,
}

/// A request of parts of one byte.
#[derive(Debug, Clone)]
pub(super) struct SmallParts {
    pub(super) number: u32,
    pub(super) parts: usize,
    /// The parts that anything refers to.
    pub(super) kept: Arc<AtomicUsize>,
}

/// A part of one byte, which is counted as long as anything refers to it.
pub(super) struct SmallPart(Arc<AtomicUsize>);

impl SmallPart {
    pub(super) fn bytes(kept: &Arc<AtomicUsize>) -> Bytes {
        kept.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Self(kept.clone()))
    }
}

impl AsRef<[u8]> for SmallPart {
    fn as_ref(&self) -> &[u8] {
        &[0]
    }
}

impl Drop for SmallPart {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Report {
    pub(super) fn violation(&self, violation: impl Into<String>) {
        lock(&self.violations).push(violation.into());
    }

    /// Reports a violation unless a condition holds.
    pub(super) fn check(&self, condition: bool, violation: impl FnOnce() -> String) {
        if !condition {
            self.violation(violation());
        }
    }

    pub(super) fn outcome(&self, name: &'static str) {
        *lock(&self.outcomes).entry(name).or_insert(0) += 1;
    }

    /// The first violation.
    pub(super) fn first(&self) -> Option<String> {
        lock(&self.violations).first().cloned()
    }

    pub(super) fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.outcomes).clone()
    }

    /// A request of small parts begins.
    pub(super) fn on_small_parts(&self, upload: SmallParts) {
        lock(&self.uploads).push(upload);
    }

    /// The requests of small parts.
    pub(super) fn small_parts(&self) -> Vec<SmallParts> {
        lock(&self.uploads).clone()
    }
}
