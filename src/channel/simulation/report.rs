//! What a run has found.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::network::lock;

/// The violations of a run, and how often things happened.
#[derive(Debug, Default)]
pub(super) struct Report {
    violations: Mutex<Vec<String>>,
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    small_parts: Arc<AtomicU64>,
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

    /// Counts the parts of one byte that requests have given.
    pub(super) fn small_parts(&self) -> &Arc<AtomicU64> {
        &self.small_parts
    }

    pub(super) fn small_parts_taken(&self) -> u64 {
        self.small_parts.load(Ordering::Relaxed)
    }
}
