//! YAML as JSON values, by the core schema of YAML 1.2.
//!
//! Aliases are expanded by copies, within a budget, so that a small text cannot become a large value.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::{Map, Number, Value};

use super::error::{FormatError, Position};

/// Reads a text with a single document.
///
/// # Errors
/// The text is not YAML, has no document or several, or is too deep; or its aliases stand for more than [`MAX_COPIED`].
pub(super) fn read(text: &str) -> Result<Value, FormatError> {
    let mut reader = Reader::default();
    let mut events: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
    while let Some(event) = events.next_event() {
        let (event, span) = event.map_err(|e| unreadable(&e))?;
        reader.event(event, span.start)?;
    }
    reader.document.ok_or_else(|| FormatError::document("there is nothing in it"))
}

/// The state of reading a document, event by event.
#[derive(Debug, Default)]
struct Reader {
    /// The lists and objects around the position, the outermost first.
    open: Vec<Open>,
    /// The value of the document, once it was read.
    document: Option<Value>,
    /// Values with anchors, by the number of the anchor.
    anchors: HashMap<usize, Anchored>,
    /// The total weight of copied values.
    copied: usize,
}

/// A list or an object whose end has not been read.
#[derive(Debug)]
struct Open {
    /// The number of its anchor; 0 if it has none.
    anchor: usize,
    /// The depth of nested lists and objects in it.
    height: usize,
    /// What was read of it.
    kind: Kind,
}

/// A list or an object whose end has not been read, with what was read of it.
#[derive(Debug)]
enum Kind {
    /// The elements.
    List(Vec<Value>),
    /// The fields, and the key whose value comes next.
    Object { fields: Map<String, Value>, key: Option<String> },
}

impl Kind {
    /// The only tag that it may be written with.
    fn tag(&self) -> &'static str {
        match self {
            Self::List(_) => "seq",
            Self::Object { .. } => "map",
        }
    }
}

/// A value that aliases may stand for.
#[derive(Debug, Clone)]
struct Anchored {
    /// The value.
    value: Value,
    /// The depth of nested lists and objects in it.
    /// Known without a walk, so that the depth of an alias is checked in constant time.
    height: usize,
    /// Its approximate size in bytes.
    /// Computed once, at the anchor, and counted for each alias.
    weight: usize,
}

impl Reader {
    /// Handles an event of the parser.
    fn event(&mut self, event: Event<'_>, at: Marker) -> Result<(), FormatError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => match self.document {
                None => Ok(()),
                Some(_) => Err(error(at, "a second document, where one is read")),
            },
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_key() {
                    // Keys are texts whatever their syntax, as in JSON, and their anchors are not kept.
                    return self.key(text.into_owned(), at);
                }
                let value = scalar(&text, style, tag.as_deref()).map_err(|why| error(at, why))?;
                self.value(value, anchor, 0, at)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(anchor, Kind::List(Vec::new()), tag.as_deref(), at)
            }
            Event::MappingStart(anchor, tag) => {
                let kind = Kind::Object { fields: Map::new(), key: None };
                self.open(anchor, kind, tag.as_deref(), at)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                // The parser closes only open events.
                let Some(Open { anchor, height, kind }) = self.open.pop() else { return Ok(()) };
                let value = match kind {
                    Kind::List(values) => Value::Array(values),
                    Kind::Object { fields, .. } => Value::Object(fields),
                };
                self.value(value, anchor, height + 1, at)
            }
        }
    }

    /// Whether the next scalar is a key.
    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { kind: Kind::Object { key: None, .. }, .. }))
    }

    /// Handles a key.
    fn key(&mut self, name: String, at: Marker) -> Result<(), FormatError> {
        if let Some(Open { kind: Kind::Object { fields, key }, .. }) = self.open.last_mut() {
            if name == "<<" {
                return Err(error(at, "merge keys are not part of YAML 1.2"));
            }
            if fields.contains_key(&name) {
                return Err(error(at, format!("the key {name:?} is there twice")));
            }
            *key = Some(name);
        }
        Ok(())
    }

    /// Opens a list or an object.
    fn open(&mut self, anchor: usize, kind: Kind, tag: Option<&Tag>, at: Marker) -> Result<(), FormatError> {
        if self.wants_key() {
            return Err(error(at, "a key that is a list or an object"));
        }
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema() || tag.suffix != kind.tag()) {
            return Err(error(at, format!("unknown tag {tag}")));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(error(at, TOO_DEEP));
        }
        self.open.push(Open { anchor, height: 0, kind });
        Ok(())
    }

    /// Copies the value of an anchor, within the budget.
    fn alias(&mut self, anchor: usize, at: Marker) -> Result<(), FormatError> {
        if self.wants_key() {
            return Err(error(at, "a key that is an alias"));
        }
        // An anchor that contains its own alias is not registered yet.
        let Some(Anchored { value, height, weight }) = self.anchors.get(&anchor) else {
            return Err(error(at, "an alias of what is not there"));
        };
        // Before the copy: aliases of values with aliases multiply, so that a few lines could stand for gigabytes.
        self.copied = self.copied.saturating_add(*weight);
        if self.copied > MAX_COPIED {
            return Err(error(at, "aliases stand for too much"));
        }
        if self.open.len() + height > MAX_DEPTH {
            return Err(error(at, TOO_DEEP));
        }
        let (value, height) = (value.clone(), *height);
        self.value(value, 0, height, at)
    }

    /// Adds a complete value to what is open; it is the document if nothing is.
    fn value(&mut self, value: Value, anchor: usize, height: usize, at: Marker) -> Result<(), FormatError> {
        if anchor != 0 {
            let weight = weight(&value);
            // Anchored values are stored in addition.
            self.copied = self.copied.saturating_add(weight);
            if self.copied > MAX_COPIED {
                return Err(error(at, "too much has an anchor"));
            }
            self.anchors.insert(anchor, Anchored { value: value.clone(), height, weight });
        }
        let Some(open) = self.open.last_mut() else {
            self.document = Some(value);
            return Ok(());
        };
        open.height = open.height.max(height);
        match &mut open.kind {
            Kind::List(values) => values.push(value),
            Kind::Object { fields, key } => {
                if let Some(key) = key.take() {
                    fields.insert(key, value);
                }
            }
        }
        Ok(())
    }
}

/// The value of a scalar: a string if it is quoted or a block, otherwise by its syntax.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let plain = matches!(style, ScalarStyle::Plain);
    let tag = match tag {
        None => None,
        Some(tag) if tag.is_yaml_core_schema() => Some(&*tag.suffix),
        // The non-specific tag of quoted scalars.
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Some("str"),
        Some(tag) => return Err(format!("unknown tag {tag}")),
    };
    let value = match tag {
        Some("str") => return Ok(Value::String(text.to_owned())),
        None if !plain => return Ok(Value::String(text.to_owned())),
        None => return Ok(plain_scalar(text)),
        Some(_) => plain_scalar(text),
    };
    match (tag, &value) {
        (Some("int"), Value::Number(number)) if !number.is_f64() => Ok(value),
        (Some("float"), Value::Number(_)) | (Some("bool"), Value::Bool(_)) | (Some("null"), Value::Null) => {
            Ok(value)
        }
        (Some("float"), Value::String(word)) if matches!(&**word, "NaN" | "Infinity" | "-Infinity") => {
            Ok(value)
        }
        (tag, _) => Err(format!("{text:?} is not of the tag {}", tag.unwrap_or_default())),
    }
}

/// The value of a scalar without quotes, by its syntax.
fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        // The names in protobuf's JSON.
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return "Infinity".into(),
        "-.inf" | "-.Inf" | "-.INF" => return "-Infinity".into(),
        ".nan" | ".NaN" | ".NAN" => return "NaN".into(),
        _ => {}
    }
    number(text).map_or_else(|| text.into(), Value::Number)
}

/// Parses a number of the core schema.
fn number(text: &str) -> Option<Number> {
    let digits_of = |digits: &str, radix| {
        let all = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        all.then(|| u64::from_str_radix(digits, radix).ok())?.map(Number::from)
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return digits_of(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return digits_of(digits, 8);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let first = unsigned.strip_prefix('.').unwrap_or(unsigned);
    let numeric = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    // At least one digit in front, so that `.`, `-` and `e1` are texts, and so are `inf` and `nan`, which Rust parses.
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !unsigned.chars().all(numeric) {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    // What Rust does not parse here, such as `10.0.0.1` or a date, is a text.
    Number::from_f64(text.parse().ok()?)
}

/// The approximate size of a value in bytes.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
    };
    inside.saturating_add(NODE)
}

/// An error of the parser.
fn unreadable(scan: &ScanError) -> FormatError {
    error(*scan.marker(), scan.info())
}

/// An error at a position.
fn error(at: Marker, why: impl Into<String>) -> FormatError {
    // The parser counts lines from 1, and columns from 0.
    FormatError::at(Position::Text { line: at.line(), column: at.col() + 1 }, why)
}

/// The reason for an error of depth.
const TOO_DEEP: &str = "lists and objects are nested too deep";
/// The maximum nesting of lists and objects, as in JSON.
const MAX_DEPTH: usize = 127;
/// The maximum size of values with anchors and aliases, in bytes.
const MAX_COPIED: usize = 64 << 20;
/// The approximate size of a value without its content, in bytes.
const NODE: usize = 64;
