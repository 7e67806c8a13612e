//! Errors that several resources have in common.

use std::fmt;

use super::{Escaped, WatchError, short_type};

/// The error of one resource, or of several: when a server is unreachable, all its resources have the same one.
///
/// Its [`Display`](fmt::Display) form is that of the [`WatchError`], with the number of further resources if there are any.
#[derive(Debug, Clone)]
pub struct MergedError<'a> {
    /// The error of the first resource.
    error: &'a WatchError,
    /// The number of affected resources.
    resources: usize,
}

impl<'a> MergedError<'a> {
    /// Merges errors in their order, such as the warnings of a [`Snapshot`](crate::Snapshot). Rejections are never merged, even if
    /// they are equal.
    pub fn of(errors: impl Iterator<Item = &'a WatchError>) -> Vec<Self> {
        let mut seen: Vec<&WatchError> = Vec::new();
        let mut merged: Vec<Self> = Vec::new();
        for error in errors {
            // Clusters may share their endpoints.
            if seen.contains(&error) {
                continue;
            }
            seen.push(error);
            match merged.iter_mut().find(|one| is_shared(one.error, error)) {
                Some(one) => one.resources += 1,
                None => merged.push(Self { error, resources: 1 }),
            }
        }
        merged
    }

    /// The error of the first resource.
    pub fn error(&self) -> &'a WatchError {
        self.error
    }

    /// The number of affected resources; at least 1.
    pub fn resources(&self) -> usize {
        self.resources
    }

    /// The resources: the first one, and the number of the others.
    pub(crate) fn subject(&self) -> String {
        let (kind, name) = (short_type(self.error.type_url()), self.error.name());
        match self.resources - 1 {
            0 => format!("{kind} {name:?}"),
            1 => format!("{kind} {name:?} and 1 more resource"),
            more => format!("{kind} {name:?} and {more} more resources"),
        }
    }

    /// What is the same for all of them.
    pub(crate) fn cause(&self) -> String {
        format!("{} [node id: {}]", Escaped(self.error.reason()), Escaped(self.error.node_id()))
    }
}

impl fmt::Display for MergedError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resources {
            1 => self.error.fmt(f),
            _ => write!(f, "{}: {}", self.subject(), self.cause()),
        }
    }
}

fn is_shared(one: &WatchError, other: &WatchError) -> bool {
    one.is_transient() && other.is_transient() && (one.code(), one.reason()) == (other.code(), other.reason())
}
