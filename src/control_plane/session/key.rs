//! The order of types in a session.

use super::super::type_url;

/// A type URL. Its order is the order of sending: types come before those that refer to them (B3.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TypeKey {
    /// The position in [`ORDER`]; types that are not there come last.
    rank: usize,
    /// The v3 type URL.
    pub(super) type_url: String,
}

impl TypeKey {
    /// Returns the key of a type.
    pub(super) fn of(type_url: &str) -> Self {
        let rank = ORDER.iter().position(|known| *known == type_url).unwrap_or(ORDER.len());
        Self { rank, type_url: type_url.to_owned() }
    }

    /// Whether responses of the type are complete, so that absence means deletion (B1.10).
    pub(super) fn full_state(&self) -> bool {
        [type_url::CLUSTER, type_url::LISTENER].contains(&self.type_url.as_str())
    }
}

/// Types in the order of sending, as in the protocol document for make-before-break updates.
const ORDER: [&str; 4] =
    [type_url::CLUSTER, type_url::ENDPOINTS, type_url::LISTENER, type_url::ROUTE_CONFIGURATION];
