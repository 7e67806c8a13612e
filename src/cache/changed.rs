//! Whether watches see a change.

/// Whether there is a change to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Changed {
    /// Watches must be notified.
    Yes,
    /// Watches see no change.
    No,
}

impl Changed {
    /// Whether one of the two is a change.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

impl From<Changed> for bool {
    fn from(changed: Changed) -> Self {
        changed == Changed::Yes
    }
}
