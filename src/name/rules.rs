//! The rules for the text of names, by their origin.

use super::params::Reserved;

/// The origin of a name, which determines the rules for it.
///
/// Alternatives follow the rules of the name around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// An application or a configuration: no `xds.*` parameters, entry names as in the specification.
    Written,
    /// A response of a server: all that can be decoded.
    Received,
}

impl Rules {
    /// What these rules say about reserved keys.
    pub(super) fn reserved(self) -> Reserved {
        match self {
            Self::Written => Reserved::Rejected,
            Self::Received => Reserved::Accepted,
        }
    }
}

/// The scheme of a URL that a locator can have and that is not supported (X24). Such a URL would pass for a name of the older
/// form otherwise, and never be answered.
pub(super) fn unsupported_scheme(text: &str) -> Option<&'static str> {
    ["http://", "file://"].into_iter().find(|scheme| text.starts_with(scheme))
}
