//! The JSON objects that `watch` and `walk` write for scripts.

use serde::Serialize;

use crate::WatchError;

/// The reason why a resource is absent, or may be stale.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl From<&WatchError> for Problem {
    fn from(error: &WatchError) -> Self {
        Self { code: error.code().as_str(), message: error.to_string() }
    }
}

/// An object on a line, including the line end.
pub(crate) fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect(TEXT_KEYS) + "\n"
}

pub(crate) const TEXT_KEYS: &str = "resources are structs, and maps by text";
