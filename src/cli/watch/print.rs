//! What was seen, as JSON for scripts and as text for people.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use super::target::Target;
use crate::{
    Observed, WatchError,
    cli::{
        json::{Problem, TEXT_KEYS, json},
        paint::Paint,
    },
    error::Escaped,
    resource::Version,
};

/// Makes lines of what is observed, each with the end of its last line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Printer {
    Json,
    Text(Paint),
}

impl Printer {
    /// A resource as it is now; nothing while nothing is known.
    pub(crate) fn observed<T: Serialize>(
        self,
        target: &Target,
        name: &str,
        seen: &Observed<T>,
    ) -> Option<String> {
        match seen {
            Observed::Present { resource, version, warning, .. } => {
                let present = Present { name, version, resource, warning: warning.as_ref() };
                Some(self.present(target, &present))
            }
            Observed::Absent { reason, .. } => Some(self.absent(target, name, reason)),
            Observed::Pending => None,
        }
    }

    /// That there is none, and why.
    pub(crate) fn absent(self, target: &Target, name: &str, error: &WatchError) -> String {
        match self {
            Self::Json => {
                json(&AbsentLine { watch: target.to_string(), name, state: "absent", error: error.into() })
            }
            Self::Text(paint) => {
                let title = paint.bold(format!("{} {}", target.kind.as_str(), Escaped(name)));
                let state = paint.red(format!("absent: {}", error.code()));
                format!("{} {title}  {state}\n  {}\n", paint.red("○"), paint.red(error))
            }
        }
    }

    fn present<T: Serialize>(self, target: &Target, present: &Present<'_, T>) -> String {
        let Present { name, version, resource, warning } = *present;
        match self {
            Self::Json => json(&PresentLine {
                watch: target.to_string(),
                name,
                state: "present",
                version: version.as_str(),
                resource,
                warning: warning.map(Problem::from),
            }),
            Self::Text(paint) => {
                let title = paint.bold(format!("{} {}", target.kind.as_str(), Escaped(name)));
                let version = paint.dim(format!("version {}", Escaped(version)));
                // What is kept was shown when it came.
                if let Some(why) = warning {
                    let state = paint.yellow(format!("kept, may be stale: {}", why.code()));
                    return format!(
                        "{} {title}  {version}  {state}\n  {}\n",
                        paint.yellow("●"),
                        paint.yellow(why)
                    );
                }
                let mut text = format!("{} {title}  {version}\n", paint.green("●"));
                write_value(&mut text, &serde_json::to_value(resource).expect(TEXT_KEYS), 1, paint);
                text
            }
        }
    }
}

struct Present<'a, T> {
    name: &'a str,
    version: &'a Version,
    resource: &'a T,
    warning: Option<&'a WatchError>,
}

#[derive(Serialize)]
struct PresentLine<'a, T> {
    watch: String,
    name: &'a str,
    state: &'static str,
    version: &'a str,
    resource: &'a T,
    warning: Option<Problem>,
}

#[derive(Serialize)]
struct AbsentLine<'a> {
    watch: String,
    name: &'a str,
    state: &'static str,
    error: Problem,
}

/// Writes what a value holds in indented lines, without what is empty or unset.
fn write_value(out: &mut String, value: &Value, depth: usize, paint: Paint) {
    match value {
        Value::Object(fields) => write_fields(out, fields, depth, paint),
        Value::Array(items) => items.iter().for_each(|item| write_item(out, item, depth, paint)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            indent(out, depth);
            *out += &scalar(value);
            out.push('\n');
        }
    }
}

fn write_fields(out: &mut String, fields: &Map<String, Value>, depth: usize, paint: Paint) {
    for (key, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
        indent(out, depth);
        let _ = write!(out, "{}", paint.cyan(format_args!("{}:", Escaped(key)))); // Writing to a String cannot fail.
        match one_line(value) {
            Some(text) => *out += &format!(" {text}\n"),
            None => {
                out.push('\n');
                write_value(out, value, depth + 1, paint);
            }
        }
    }
}

fn write_item(out: &mut String, item: &Value, depth: usize, paint: Paint) {
    indent(out, depth);
    *out += "- ";
    if let Some(text) = one_line(item) {
        *out += &format!("{text}\n");
        return;
    }
    // The first line of the item has the dash in place of its last indentation.
    let mut lines = String::new();
    write_value(&mut lines, item, depth + 1, paint);
    *out += lines.strip_prefix(&"  ".repeat(depth + 1)).unwrap_or(&lines);
}

/// A value that is small enough for one line: one or several without a structure of their own.
fn one_line(value: &Value) -> Option<String> {
    let text = match value {
        Value::Array(items) => {
            let items: Option<Vec<_>> =
                items.iter().map(|item| is_plain(item).then(|| scalar(item))).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !is_empty(value));
            let fields: Option<Vec<_>> = fields
                .map(|(key, value)| is_plain(value).then(|| format!("{}: {}", Escaped(key), scalar(value))))
                .collect();
            format!("{{{}}}", fields?.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Some(scalar(value)),
    };
    (text.chars().count() <= ONE_LINE).then_some(text)
}

fn is_plain(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

/// Text without quotes where they say nothing.
fn scalar(value: &Value) -> String {
    let is_odd = |text: &str| text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace());
    match value.as_str() {
        Some(text) if !is_odd(text) => Escaped(text).to_string(),
        // JSON leaves some control characters as they are.
        Some(_) | None => Escaped(value).to_string(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn indent(out: &mut String, depth: usize) {
    *out += &"  ".repeat(depth);
}

/// Characters of a structure that is written in one line.
const ONE_LINE: usize = 80;
