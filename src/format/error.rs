//! Errors of documents, and the path that a reader has come to.

use std::{error::Error, fmt};

use crate::escape::Escaped;

/// The reason why a document cannot be read, and the position of the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatError {
    /// Where the document is wrong.
    position: Position,
    /// What is wrong there, for display.
    why: String,
}

/// A position in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// The document as a whole.
    Document,
    /// Line and column, both from 1.
    Text { line: usize, column: usize },
    /// The path of a field, such as `resources[0].name`.
    Field(String),
}

impl Position {
    /// The position of a byte in a text.
    pub(super) fn of_byte(text: &str, at: usize) -> Self {
        // Lines are counted for an error alone: readers keep the position in bytes.
        let before = text.get(..at).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self::Text { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl FormatError {
    /// An error of the document as a whole.
    pub(super) fn document(why: impl Into<String>) -> Self {
        Self { position: Position::Document, why: why.into() }
    }

    /// An error at a position.
    pub(super) fn at(position: Position, why: impl Into<String>) -> Self {
        Self { position, why: why.into() }
    }
}

impl FormatError {
    /// Line and column in a text, both from 1, if known.
    pub(crate) fn position(&self) -> Option<(usize, usize)> {
        match self.position {
            Position::Text { line, column } => Some((line, column)),
            Position::Document | Position::Field(_) => None,
        }
    }

    /// The path of the field, if known.
    #[cfg(feature = "tool-support")]
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.position {
            Position::Field(path) => Some(path),
            Position::Document | Position::Text { .. } => None,
        }
    }

    /// The reason.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Position::Document => Escaped(&self.why).fmt(f),
            Position::Text { line, column } => {
                write!(f, "line {line}, column {column}: {}", Escaped(&self.why))
            }
            Position::Field(path) => write!(f, "{}: {}", Escaped(path), Escaped(&self.why)),
        }
    }
}

impl Error for FormatError {}

/// One step from a message to its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// The field of a name.
    Field(&'a str),
    /// The element of a list.
    Index(usize),
    /// The value of a key in a map.
    Key(&'a str),
}

/// The current path of a reader, and its warnings.
#[derive(Debug, Default)]
pub(super) struct Trail<'a> {
    /// The path from the document to the current value.
    steps: Vec<Step<'a>>,
    /// The first warnings.
    warnings: Vec<String>,
    /// The number of warnings that were not kept.
    untold: usize,
}

impl<'a> Trail<'a> {
    /// Descends by one step.
    pub(super) fn enter(&mut self, step: Step<'a>) {
        self.steps.push(step);
    }

    /// Returns from the last step.
    /// Not called after an error: the path of the error is taken by then, and reading ends.
    pub(super) fn leave(&mut self) {
        self.steps.pop();
    }

    /// Adds a warning at the current path. Only the first ones are kept.
    pub(super) fn warn(&mut self, what: impl fmt::Display) {
        // A document with the same unknown field in each of many resources would have as many warnings.
        match self.warnings.len() < MAX_WARNINGS {
            true => self.warnings.push(format!("{}: {what}", self.path())),
            false => self.untold += 1,
        }
    }

    /// An error at the current path.
    pub(super) fn error(&self, why: impl Into<String>) -> FormatError {
        match &*self.steps {
            [] => FormatError::document(why),
            _ => FormatError::at(Position::Field(self.path()), why),
        }
    }

    /// The kept warnings, and the number of others.
    pub(super) fn into_warnings(mut self) -> Vec<String> {
        if self.untold > 0 {
            self.warnings.push(format!("and {} more", self.untold));
        }
        self.warnings
    }

    /// The current path, such as `resources[0].name`.
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path.push_str(&format!("[{key:?}]")),
            }
        }
        path
    }
}

/// The maximum number of warnings of one document.
const MAX_WARNINGS: usize = 64;
