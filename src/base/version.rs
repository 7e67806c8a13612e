use std::{fmt, sync::Arc};

/// The version of a resource, assigned by the server: opaque text, empty before the first one.
///
/// All resources of a state-of-the-world response share one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
// `None` stands for the empty text alone, so that resources without a version, as some servers send them, need no allocation,
// and equality has one case.
pub struct Version(Option<Arc<str>>);

impl Version {
    /// The version as text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there is no version yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl From<&str> for Version {
    fn from(text: &str) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
