//! The JSON objects that `watch` and `walk` write for scripts.

use serde::Serialize;
use xdskit::{
    WatchError,
    error::{Code, Escaped},
};

/// The reason why a resource is absent, or may be stale.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// The name of a status code.
    pub code: &'static str,
    /// The reason.
    pub message: String,
}

impl Problem {
    /// The absence of a resource.
    pub fn not_found(message: &str) -> Self {
        Self { code: Code::NotFound.as_str(), message: message.to_owned() }
    }
}

impl From<&WatchError> for Problem {
    fn from(error: &WatchError) -> Self {
        Self { code: error.code().as_str(), message: error.to_string() }
    }
}

/// An object on a line, including the line end.
pub fn json(line: &impl Serialize) -> String {
    printable(serde_json::to_string(line).expect(TEXT_KEYS)) + "\n"
}

/// JSON that cannot control a terminal: the control characters beyond ASCII, and those that change the direction of text, which JSON
/// leaves as they are, become its escapes.
pub fn printable(json: String) -> String {
    // JSON has escaped the control characters of ASCII but for DEL.
    let is_odd = |c: char| !c.is_ascii() && Escaped(c).to_string().starts_with('\\') || c == '\u{7f}';
    if !json.contains(is_odd) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // All of them are below U+10000, and only strings have them.
            c if is_odd(c) => escaped += &format!("\\u{:04x}", u32::from(c)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Why resources can be written as JSON.
pub const TEXT_KEYS: &str = "resources are structs, and maps by text";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_escapes_for_what_controls_a_terminal() {
        let text = "a\u{9b}2J\u{202e}b\u{7f}\u{1b}[2J\nü\u{1f600}";
        let line = json(&text);
        assert_eq!(line, "\"a\\u009b2J\\u202eb\\u007f\\u001b[2J\\nü\u{1f600}\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        assert_eq!(printable("{\n  \"a\": 1\n}".to_owned()), "{\n  \"a\": 1\n}", "lines stay");
    }
}
