//! The reasons why a bootstrap cannot be used.

use std::{borrow::Cow, fmt, path::PathBuf};

use crate::{
    config::{ValidationError, write_errors},
    escape::{Escaped, debug_as_message},
};

/// The reason why a bootstrap is unusable: its origin, and all of its errors.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapError {
    /// Where the bootstrap is from.
    origin: Origin,
    /// What is wrong.
    kind: Kind,
}

/// The origin of a bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Text from the application.
    Text,
    /// A file.
    File {
        /// The path.
        path: PathBuf,
        /// The environment variable that contains the path, if there was one.
        variable: Option<&'static str>,
    },
    /// The contents of an environment variable.
    Variable(&'static str),
    /// The environment, in which no variable was set.
    Environment,
}

/// What is wrong with a bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// No environment variable names a bootstrap.
    Unset,
    /// There is no text.
    Unreadable(Cow<'static, str>),
    /// The text is not in its language.
    Syntax { language: &'static str, line: usize, column: usize, reason: String },
    /// Some fields are invalid.
    Invalid { problems: Vec<ValidationError>, is_envoys: bool },
}

impl BootstrapError {
    /// No environment variable names a bootstrap.
    pub(super) fn unset() -> Self {
        Self { origin: Origin::Environment, kind: Kind::Unset }
    }

    /// There is no text.
    pub(super) fn unreadable(origin: Origin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { origin, kind: Kind::Unreadable(reason.into()) }
    }

    /// The text is not JSON.
    pub(super) fn syntax(origin: Origin, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let reason =
            text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text).to_owned();
        // The column is that of the last byte that was read, and 0 if the text ends with a line feed.
        let column = column.max(1);
        Self { origin, kind: Kind::Syntax { language: "JSON", line, column, reason } }
    }

    /// The text is not YAML.
    #[cfg(feature = "json")]
    pub(super) fn yaml(origin: Origin, error: &crate::format::FormatError) -> Self {
        let reason = error.why().to_owned();
        match error.position() {
            Some((line, column)) => {
                Self { origin, kind: Kind::Syntax { language: "YAML", line, column, reason } }
            }
            // Only an error of the document as a whole, such as an empty one, has no position.
            None => Self::unreadable(origin, reason),
        }
    }

    /// `problems` is not empty.
    pub(super) fn invalid(origin: Origin, problems: Vec<ValidationError>) -> Self {
        Self { origin, kind: Kind::Invalid { problems, is_envoys: false } }
    }

    /// The error of an invalid document in Envoy's format.
    pub(super) fn invalid_for_envoy(origin: Origin, problems: Vec<ValidationError>) -> Self {
        Self { origin, kind: Kind::Invalid { problems, is_envoys: true } }
    }

    /// Returns whether the error is in the content of a document in Envoy's format, and not in that of gRPC.
    pub fn is_of_envoys_format(&self) -> bool {
        matches!(self.kind, Kind::Invalid { is_envoys: true, .. })
    }

    /// The origin of the bootstrap.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// All errors in the document, in its order. Empty if there was no document: no variable was set, the file could not be
    /// read, or the text was neither JSON nor YAML.
    pub fn errors(&self) -> &[ValidationError] {
        match &self.kind {
            Kind::Invalid { problems, .. } => problems,
            Kind::Unset | Kind::Unreadable(_) | Kind::Syntax { .. } => &[],
        }
    }

    /// The line and column, from 1, of the first syntax error.
    pub fn syntax_position(&self) -> Option<(usize, usize)> {
        match &self.kind {
            Kind::Syntax { line, column, .. } => Some((*line, *column)),
            Kind::Unset | Kind::Unreadable(_) | Kind::Invalid { .. } => None,
        }
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match &self.kind {
            Kind::Unset => {
                let (file, text) = (super::FILE_VARIABLE, super::TEXT_VARIABLE);
                write!(f, "neither {file} (the name of a file) nor {text} (JSON) is set")
            }
            Kind::Unreadable(reason) => write!(f, "cannot be read: {}", Escaped(reason)),
            Kind::Syntax { language, line, column, reason } => {
                write!(f, "not {language}: {} at line {line} column {column}", Escaped(reason))
            }
            Kind::Invalid { problems, .. } => write_errors(f, problems),
        }
    }
}

debug_as_message!(BootstrapError);

impl std::error::Error for BootstrapError {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text | Self::Environment => f.write_str("bootstrap"),
            Self::File { path, variable: None } => write!(f, "bootstrap file {}", Escaped(path.display())),
            Self::File { path, variable: Some(variable) } => {
                write!(f, "bootstrap file {} (from {variable})", Escaped(path.display()))
            }
            Self::Variable(variable) => write!(f, "bootstrap in {variable}"),
        }
    }
}
