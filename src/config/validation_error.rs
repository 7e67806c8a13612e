//! Problems of configurations, each at the path of a field.

use std::fmt;

use crate::escape::{Escaped, debug_as_message};

/// An error in a configuration, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// The path of the field.
    path: String,
    /// What is wrong.
    reason: String,
}

/// All errors of a configuration that was built in code.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// All problems that were found.
    errors: Vec<ValidationError>,
}

impl ValidationError {
    /// A problem of a field.
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }

    /// The field, as a path in the document, or in gRPC's bootstrap JSON for a configuration built in code, such as
    /// `xds_servers[1].server_uri` or `authorities["a.example"].xds_servers`. Empty for the document itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            Escaped(&self.reason).fmt(f)
        } else {
            write!(f, "{}: {}", Escaped(&self.path), Escaped(&self.reason))
        }
    }
}

impl ConfigError {
    /// `errors` is not empty.
    pub(crate) fn new(errors: Vec<ValidationError>) -> Self {
        Self { errors }
    }

    /// All errors, in the order of the configuration; at least one.
    pub fn errors(&self) -> &[ValidationError] {
        &self.errors
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_errors(f, &self.errors)
    }
}

debug_as_message!(ConfigError);

impl std::error::Error for ConfigError {}

/// Writes `a: b; c: d`.
pub(crate) fn write_errors(f: &mut fmt::Formatter<'_>, errors: &[ValidationError]) -> fmt::Result {
    for (index, error) in errors.iter().enumerate() {
        if index > 0 {
            f.write_str("; ")?;
        }
        write!(f, "{error}")?;
    }
    Ok(())
}
