//! JSON values with their paths. Errors and warnings are collected with the path, and reading continues after them.

use std::{cell::RefCell, time::Duration};

use serde_json::{Map, Value};

use crate::config::ValidationError;

/// A collection of errors, and of warnings about fields without effect.
/// All readers of a document add to it, so both are behind a `RefCell`.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// All errors.
    errors: RefCell<Vec<ValidationError>>,
    /// As many of the warnings as are kept.
    warnings: RefCell<Warnings>,
}

/// The first warnings, and the number of the others. A document may have any number of fields without effect, and each warning is
/// logged.
#[derive(Debug, Default)]
struct Warnings {
    first: Vec<ValidationError>,
    further: usize,
}

/// A value of the document.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    /// The value.
    value: &'a Value,
    /// The path to it.
    path: String,
    /// Where its problems are reported.
    problems: &'a Problems,
}

/// An object of the document with fixed field names.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    /// The object.
    map: &'a Map<String, Value>,
    /// The path to it.
    path: String,
    /// Where its problems are reported.
    problems: &'a Problems,
}

impl Problems {
    /// Reports an error.
    pub(super) fn add(&self, problem: ValidationError) {
        self.errors.borrow_mut().push(problem);
    }

    /// Reports that something is ignored. The path is not made for warnings that are counted alone.
    pub(super) fn warn(&self, path: impl FnOnce() -> String, reason: &str) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.first.len() < MAX_WARNINGS {
            warnings.first.push(ValidationError::new(path(), reason));
        } else {
            warnings.further += 1;
        }
    }

    /// Whether there are no errors.
    #[cfg_attr(not(feature = "json"), allow(dead_code, reason = "only Envoy's format uses it"))]
    pub(super) fn is_empty(&self) -> bool {
        self.errors.borrow().is_empty()
    }

    /// The errors, in the order in which they were reported, and the warnings: the first [`MAX_WARNINGS`] of them, and one with the
    /// number of the others.
    pub(super) fn into_parts(self) -> (Vec<ValidationError>, Vec<ValidationError>) {
        let Warnings { first: mut warnings, further } = self.warnings.into_inner();
        if further > 0 {
            warnings.push(ValidationError::new("", format!("{further} further warnings are left out")));
        }
        (self.errors.into_inner(), warnings)
    }
}

impl<'a> Reader<'a> {
    /// A reader of a whole document.
    pub(super) fn new(document: &'a Value, problems: &'a Problems) -> Self {
        Self { value: document, path: String::new(), problems }
    }

    /// The value as it is.
    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// The value as an object; anything else is an error.
    pub(super) fn fields(&self) -> Option<Fields<'a>> {
        let Value::Object(map) = self.value else { return self.mismatch("an object") };
        Some(Fields { map, path: self.path.clone(), problems: self.problems })
    }

    /// The value as a string; anything else is an error.
    pub(super) fn text(&self) -> Option<&'a str> {
        let Value::String(text) = self.value else { return self.mismatch("a string") };
        Some(text)
    }

    /// The elements of a list; anything else is an error.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let Value::Array(items) = self.value else { return self.mismatch("a list") };
        let reader = |(index, value)| self.child(value, format!("[{index}]"));
        Some(items.iter().enumerate().map(reader).collect())
    }

    /// The keys and values of a map; anything else is an error.
    pub(super) fn entries(&self) -> Option<Vec<(&'a str, Self)>> {
        let Value::Object(map) = self.value else { return self.mismatch("an object") };
        let reader = |(key, value)| (String::as_str(key), self.child(value, format!("[{key:?}]")));
        Some(map.iter().map(reader).collect())
    }

    /// A duration in protobuf's JSON form: `"600s"`, `"1.5s"`.
    /// Anything else is an error, and so is a negative one.
    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.text()?;
        let duration = parse_duration(text);
        if duration.is_none() {
            self.fail(format!("{text:?} is not a duration such as \"600s\" or \"1.5s\""));
        }
        duration
    }

    /// A boolean; anything else is an error.
    pub(super) fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.mismatch("a boolean"))
    }

    /// Reports a problem of the value.
    pub(super) fn fail(&self, reason: impl Into<String>) {
        self.problems.add(ValidationError::new(&self.path, reason));
    }

    /// Reports that the value is ignored.
    pub(super) fn warn(&self, reason: &str) {
        self.problems.warn(|| self.path.clone(), reason);
    }

    /// A reader of a value within it; `step` is appended to the path.
    fn child(&self, value: &'a Value, step: String) -> Self {
        Self { value, path: format!("{}{step}", self.path), problems: self.problems }
    }

    /// Reports that the value is of another kind.
    fn mismatch<T>(&self, expected: &str) -> Option<T> {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.fail(format!("expected {expected}, found {found}"));
        None
    }
}

impl<'a> Fields<'a> {
    /// A field that is present and not `null`.
    pub(super) fn get(&self, key: &str) -> Option<Reader<'a>> {
        // In protobuf's JSON `null` is the absence of a field.
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Reader { value, path: self.path_of(key), problems: self.problems })
    }

    /// A required field.
    pub(super) fn required(&self, key: &str) -> Option<Reader<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.fail(key, "missing");
        }
        found
    }

    /// A string, if present.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    /// A string, if present and not empty.
    pub(super) fn filled(&self, key: &str) -> Option<&'a str> {
        self.text(key).filter(|text| !text.is_empty())
    }

    /// A required, non-empty string.
    pub(super) fn required_text(&self, key: &str) -> Option<&'a str> {
        let field = self.required(key)?;
        let text = field.text()?;
        if text.is_empty() {
            field.fail("empty");
            return None;
        }
        Some(text)
    }

    /// A boolean; `false` if it is absent.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(|field| field.boolean()).unwrap_or(false)
    }

    /// An object, if present.
    pub(super) fn fields(&self, key: &str) -> Option<Self> {
        self.get(key)?.fields()
    }

    /// The elements of a list; none if it is absent.
    pub(super) fn items(&self, key: &str) -> Vec<Reader<'a>> {
        self.get(key).and_then(|field| field.items()).unwrap_or_default()
    }

    /// The keys and values of a map; none if it is absent.
    pub(super) fn entries(&self, key: &str) -> Vec<(&'a str, Reader<'a>)> {
        self.get(key).and_then(|field| field.entries()).unwrap_or_default()
    }

    /// Reports that all fields with other names than the known ones are ignored.
    pub(super) fn warn_of_others(&self, is_known: impl Fn(&str) -> bool) {
        let present = self.map.iter().filter(|(_, value)| !value.is_null());
        for (name, _) in present.filter(|(name, _)| !is_known(name)) {
            self.problems.warn(|| self.path_of(name), NOT_USED);
        }
    }

    /// Reports a problem of a field.
    pub(super) fn fail(&self, key: &str, reason: impl Into<String>) {
        self.problems.add(ValidationError::new(self.path_of(key), reason));
    }

    /// The path to the object.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Where problems are reported.
    pub(super) fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// The path to a field.
    pub(super) fn path_of(&self, key: &str) -> String {
        match (&*self.path, key) {
            // A field with an empty name has a path, too.
            (path, "") => format!("{path}[\"\"]"),
            ("", key) => key.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }
}

/// Parses seconds with at most nine decimals, and `s`. Negative durations are invalid here.
fn parse_duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    // `1.s`: a point without digits.
    let dangling = number.len() > whole.len() && decimals.is_empty();
    if whole.is_empty() || dangling || !digits(whole) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds = whole.parse().ok().filter(|seconds| *seconds <= MAX_SECONDS)?;
    let nanos = format!("{decimals:0<9}").parse().ok()?;
    Some(Duration::new(seconds, nanos))
}

/// The number of warnings of a document that are kept, and logged.
const MAX_WARNINGS: usize = 64;

/// The warning for a field without effect.
const NOT_USED: &str = "not used";

/// The range of `google.protobuf.Duration`.
const MAX_SECONDS: u64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_proto3_json() {
        let table = [
            ("600s", Some(Duration::from_secs(600))),
            ("0s", Some(Duration::ZERO)),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("1.000000001s", Some(Duration::new(1, 1))),
            ("315576000000s", Some(Duration::from_secs(MAX_SECONDS))),
            ("315576000001s", None),
            ("99999999999999999999s", None),
            ("1.0000000001s", None),
            ("1.s", None),
            (".5s", None),
            ("-1s", None),
            ("+1s", None),
            ("1e3s", None),
            ("600", None),
            ("10m", None),
            ("1 s", None),
            ("s", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }
}
