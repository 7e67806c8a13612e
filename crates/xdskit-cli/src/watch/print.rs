//! The output of watches, as JSON for scripts and as text.

use std::{
    fmt::{self, Display, Write},
    io::{self, IsTerminal},
};

use serde::Serialize;
use serde_json::{Map, Value};
use xdskit::{
    WatchError,
    error::Escaped,
    resource::{Invalid, Version},
};

use super::{WatchArgs, target::Target};
use crate::{
    json::{Problem, TEXT_KEYS, json, printable},
    paint::Paint,
    program,
    wrap::{Size, wrap},
};

/// A formatter of states.
#[derive(Debug, Clone, Copy)]
pub enum Printer {
    /// An object per line.
    Json,
    /// Indented text for people.
    Text {
        /// The colors, if the output has any.
        paint: Paint,
        /// Whether long lines are wrapped.
        is_terminal: bool,
        /// Whether the output is JSON alone, and all other text is written to standard error.
        is_raw: bool,
    },
}

/// The output, each part with the end of its last line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// For standard output.
    text: String,
    /// For standard error: text that would disturb the standard output.
    note: String,
}

/// The shown content of a resource.
#[derive(Debug)]
pub struct Content<'a, T> {
    /// What is printed.
    body: Body<'a, T>,
    /// What is wrong with the resource, if anything; `None` if nothing can be.
    verdict: Option<Option<Wrong<'a>>>,
}

/// What is wrong with a resource.
#[derive(Debug)]
enum Wrong<'a> {
    /// gRPC's rules reject it.
    Rejected(&'a Invalid),
    /// The resource is no message of its type, or cannot be shown as one.
    Undecoded(String),
}

/// What is printed of a resource.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Body<'a, T> {
    /// A resource that was read by gRPC's rules.
    Typed(&'a T),
    /// A message in its JSON form.
    Message(Value),
    /// The resource cannot be read.
    Nothing,
}

impl Wrong<'_> {
    /// The reason alone.
    fn reason(&self) -> String {
        match self {
            Self::Rejected(invalid) => invalid.to_string(),
            Self::Undecoded(reason) => reason.clone(),
        }
    }
}

/// The line below the title of a resource.
impl Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(invalid) => write!(f, "gRPC rejects it: {}", Escaped(invalid)),
            Self::Undecoded(reason) => write!(f, "it cannot be decoded: {}", Escaped(reason)),
        }
    }
}

impl Printer {
    /// The form of the command line, for readers of the standard output. If it is not a terminal, messages are printed as JSON alone.
    pub fn new(args: &WatchArgs) -> Self {
        if args.look.json {
            return Self::Json;
        }
        let output = io::stdout();
        let is_terminal = output.is_terminal();
        let is_raw = args.raw && !is_terminal;
        Self::Text { paint: Paint::for_output(&output), is_terminal, is_raw }
    }

    /// The absence of a resource, with the reason.
    pub fn absent(self, target: &Target, name: &str, error: &WatchError) -> Lines {
        match self {
            Self::Json => Lines::text(json(&AbsentLine {
                watch: target.to_string(),
                name,
                state: "absent",
                error: error.into(),
            })),
            Self::Text { paint, is_terminal, is_raw } => {
                let title = paint.bold(format!("{} {}", target.ty.title(), Escaped(name)));
                let state = paint.red(format!("absent: {}", error.code()));
                let why = wrapped(&paint.red(error), is_terminal);
                Lines::note(format!("{} {title}  {state}\n{why}", paint.red("○"))).into_text_unless(is_raw)
            }
        }
    }

    /// Formats a resource.
    pub fn present<T: Serialize>(self, target: &Target, present: Present<'_, T>) -> Lines {
        let Present { name, version, content: Content { body, verdict }, warning } = present;
        match self {
            Self::Json => Lines::text(json(&PresentLine {
                watch: target.to_string(),
                name,
                state: "present",
                version: version.as_str(),
                resource: body,
                warning: warning.map(Problem::from),
                invalid: verdict.map(|wrong| wrong.map(|wrong| wrong.reason())),
            })),
            Self::Text { paint, is_terminal, is_raw } => {
                let title = paint.bold(format!("{} {}", target.ty.title(), Escaped(name)));
                let version = paint.dim(format!("version {}", Escaped(version)));
                // The kept resource was printed before.
                if let Some(why) = warning {
                    let state = paint.yellow(format!("kept, may be stale: {}", why.code()));
                    let why = wrapped(&paint.yellow(why), is_terminal);
                    let kept = format!("{} {title}  {version}  {state}\n{why}", paint.yellow("●"));
                    return Lines::note(kept).into_text_unless(is_raw);
                }
                let wrong = verdict.flatten();
                let mark = match wrong {
                    Some(_) => paint.yellow("●").to_string(),
                    None => paint.green("●").to_string(),
                };
                let mut head = format!("{mark} {title}  {version}\n");
                if let Some(wrong) = wrong {
                    head += &wrapped(&paint.yellow(wrong), is_terminal);
                }
                let mut text = String::new();
                match body {
                    Body::Typed(resource) => {
                        let value = serde_json::to_value(resource).expect(TEXT_KEYS);
                        write_value(&mut text, &value, 1, paint);
                    }
                    Body::Message(message) => text = pretty(&message),
                    Body::Nothing => {}
                }
                match is_raw {
                    true => Lines { text, note: head },
                    false => Lines::text(head + &text),
                }
            }
        }
    }
}

impl Lines {
    /// Text for standard output alone.
    fn text(text: String) -> Self {
        Self { text, note: String::new() }
    }

    /// Text for standard error alone.
    fn note(note: String) -> Self {
        Self { text: String::new(), note }
    }

    /// Moves text to standard error if the output is JSON alone.
    fn into_text_unless(self, is_raw: bool) -> Self {
        if is_raw { self } else { Self::text(self.note) }
    }

    /// Prints both texts.
    ///
    /// # Errors
    /// The standard output has failed.
    pub fn print(&self) -> io::Result<()> {
        if !self.note.is_empty() {
            program::note(self.note.trim_end());
        }
        program::print(&self.text)
    }
}

impl<'a, T> Content<'a, T> {
    /// A resource that gRPC's rules have accepted.
    pub fn typed(resource: &'a T) -> Self {
        Self { body: Body::Typed(resource), verdict: None }
    }

    /// A resource that gRPC's rules accept, or else the reason.
    pub fn observed(typed: Result<&'a T, &'a Invalid>) -> Self {
        Self {
            body: typed.map_or(Body::Nothing, Body::Typed),
            verdict: Some(typed.err().map(Wrong::Rejected)),
        }
    }

    /// A message, unless it is secret, and the result of gRPC's rules.
    pub fn raw(message: Result<Value, Invalid>, invalid: Option<&'a Invalid>) -> Self {
        let verdict = Some(invalid.map(Wrong::Rejected));
        Self { body: message.map_or(Body::Nothing, Body::Message), verdict }
    }

    /// A message of a type that is known at run time alone, or the reason why it cannot be shown.
    pub(super) fn decoded(message: Result<Value, String>) -> Self {
        match message {
            Ok(message) => Self { body: Body::Message(message), verdict: Some(None) },
            Err(reason) => Self { body: Body::Nothing, verdict: Some(Some(Wrong::Undecoded(reason))) },
        }
    }
}

/// The parts of the output for a resource.
#[derive(Debug)]
pub struct Present<'a, T> {
    /// The name of the resource.
    pub name: &'a str,
    /// Its version.
    pub version: &'a Version,
    /// What is printed of it.
    pub content: Content<'a, T>,
    /// Why it may be stale.
    pub warning: Option<&'a WatchError>,
}

/// The JSON of a resource.
#[derive(Serialize)]
struct PresentLine<'a, T> {
    /// The target.
    watch: String,
    /// The name of the resource.
    name: &'a str,
    /// `present`.
    state: &'static str,
    /// Its version.
    version: &'a str,
    /// The resource.
    resource: Body<'a, T>,
    /// Why it may be stale.
    warning: Option<Problem>,
    /// For observed resources and types by their URLs: null, or the reason why it is rejected or not decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid: Option<Option<String>>,
}

/// The JSON of an absence.
#[derive(Serialize)]
struct AbsentLine<'a> {
    /// The target.
    watch: String,
    /// The name of the resource.
    name: &'a str,
    /// `absent`.
    state: &'static str,
    /// Why it is absent.
    error: Problem,
}

/// Indented, and wrapped at words on a terminal.
fn wrapped(text: &impl Display, is_terminal: bool) -> String {
    let line = format!("  {text}");
    match is_terminal {
        true => wrap(&line, Size::of_terminal(&io::stdout()).columns).join("\n") + "\n",
        false => line + "\n",
    }
}

/// A message as indented JSON.
fn pretty(message: &Value) -> String {
    printable(serde_json::to_string_pretty(message).expect(TEXT_KEYS)) + "\n"
}

/// Writes the content of a value in indented lines, without empty and unset fields.
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

/// Writes the fields of an object that are not empty, one per line.
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

/// Writes an element of a list after a dash.
fn write_item(out: &mut String, item: &Value, depth: usize, paint: Paint) {
    indent(out, depth);
    *out += "- ";
    if let Some(text) = one_line(item) {
        *out += &format!("{text}\n");
        return;
    }
    // The first line of the item has a dash in place of its last indentation.
    let mut lines = String::new();
    write_value(&mut lines, item, depth + 1, paint);
    *out += lines.strip_prefix(&"  ".repeat(depth + 1)).unwrap_or(&lines);
}

/// A value for one line: a scalar, or a short list or object of scalars.
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

/// Whether a value fits in a line by itself.
fn is_plain(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

/// Text, without quotes if they are not necessary.
fn scalar(value: &Value) -> String {
    let is_odd = |text: &str| text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace());
    match value.as_str() {
        Some(text) if !is_odd(text) => Escaped(text).to_string(),
        // JSON leaves some control characters unescaped.
        Some(_) | None => Escaped(value).to_string(),
    }
}

/// Whether there is nothing to print of a value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Writes the indentation of a depth.
fn indent(out: &mut String, depth: usize) {
    *out += &"  ".repeat(depth);
}

/// The maximum length in characters of a structure on one line.
const ONE_LINE: usize = 80;
