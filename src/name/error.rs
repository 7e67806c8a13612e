//! Errors of names.

use std::{borrow::Cow, fmt};

use crate::escape::debug_as_message;

/// The reason why a string with the prefix `xdstp:` is not a resource name, with the part and the position.
#[derive(Clone, PartialEq, Eq)]
pub struct NameError {
    /// The name. It is cut after 256 characters.
    name: String,
    /// The invalid part of it.
    part: NamePart,
    /// The position in the name, in bytes. It counts in the whole name, even if that is cut in the message.
    position: usize,
    /// What is wrong there.
    reason: Cow<'static, str>,
}

/// A part of an `xdstp:` name, in the order of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NamePart {
    /// `xdstp://`.
    Scheme,
    /// The authority, up to the first `/`.
    Authority,
    /// The type, such as `envoy.config.listener.v3.Listener`.
    ResourceType,
    /// The text after the type, up to `?` or `#`.
    Id,
    /// The context parameters after `?`.
    ContextParams,
    /// The directives after `#`.
    Directives,
}

impl NameError {
    /// An error at a position of a name.
    pub(crate) fn new(
        name: &str,
        part: NamePart,
        position: usize,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { name: shortened(name), part, position, reason: reason.into() }
    }

    /// The invalid part of the name.
    pub fn part(&self) -> NamePart {
        self.part
    }

    /// The position in the name, in bytes from its start.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, part, position, reason } = self;
        write!(f, "resource name {name:?}: {part} at byte {position}: {reason}")
    }
}

debug_as_message!(NameError);

impl std::error::Error for NameError {}

impl fmt::Display for NamePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "scheme",
            Self::Authority => "authority",
            Self::ResourceType => "resource type",
            Self::Id => "id",
            Self::ContextParams => "context parameters",
            Self::Directives => "directives",
        })
    }
}

/// Names come from servers, too, so the length in an error and in its log line is limited.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The length of names in errors.
const MAX_NAME_CHARS: usize = 256;
