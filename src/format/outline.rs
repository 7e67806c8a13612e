//! The positions of values in documents, for tools that show where a resource is wrong.

use saphyr_parser::{Event, Parser, StrInput};

/// The position of a value in a document, and the outlines of what is in it.
///
/// A field has the position of its name, an element of a list that of its first character. The values themselves are not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// The line, from 1; 0 in an outline without a document.
    pub line: usize,
    /// The column in characters, from 1; 0 in an outline without a document.
    pub column: usize,
    /// The fields of an object by their names as written, in their order; repeated ones of protobuf's text format are repeated.
    pub fields: Vec<(String, Self)>,
    /// The elements of a list.
    pub elements: Vec<Self>,
}

impl Outline {
    /// An outline without anything in it.
    fn at(line: usize, column: usize) -> Self {
        Self { line, column, ..Self::default() }
    }

    /// The outline of a JSON text. What is no JSON, or nested deeper than [`MAX_DEPTH`], is left out.
    pub(crate) fn of_json(text: &str) -> Self {
        let mut reader = Json { cursor: Cursor::new(text) };
        reader.skip_blank();
        reader.value(MAX_DEPTH)
    }

    /// The outline of a YAML text with one document. What follows an error is left out; aliases have nothing in them.
    pub(crate) fn of_yaml(text: &str) -> Self {
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
        let mut open = vec![Open { outline: Self::default(), is_list: true, key: None }];
        while let Some(Ok((event, span))) = parser.next_event() {
            // The parser counts lines from 1, and columns from 0.
            let at = Self::at(span.start.line(), span.start.col() + 1);
            match event {
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                Event::Alias(_) => add(&mut open, at),
                Event::Scalar(name, ..) => match open.last_mut() {
                    Some(object @ Open { is_list: false, key: None, .. }) => {
                        object.key = Some((name.into_owned(), at));
                    }
                    Some(_) | None => add(&mut open, at),
                },
                Event::SequenceStart(..) => open.push(Open { outline: at, is_list: true, key: None }),
                Event::MappingStart(..) => open.push(Open { outline: at, is_list: false, key: None }),
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some(Open { outline, .. }) = open.pop() {
                        add(&mut open, outline);
                    }
                }
            }
        }
        // After an error, what is open is closed.
        while open.len() > 1 {
            if let Some(Open { outline, .. }) = open.pop() {
                add(&mut open, outline);
            }
        }
        let document = open.pop().and_then(|root| root.outline.elements.into_iter().next());
        document.unwrap_or_default()
    }
}

/// A list or an object of YAML whose end has not been read.
#[derive(Debug)]
struct Open {
    /// What was read of it.
    outline: Outline,
    /// Whether it is a list.
    is_list: bool,
    /// The key whose value comes next, and its position.
    key: Option<(String, Outline)>,
}

/// Adds a value to the innermost list or object that is open.
fn add(open: &mut [Open], value: Outline) {
    let Some(parent) = open.last_mut() else { return };
    match parent.key.take() {
        Some((name, at)) => {
            parent.outline.fields.push((name, Outline { line: at.line, column: at.column, ..value }));
        }
        // A key that is a list or an object has no name, and is an error of the reader.
        None if parent.is_list => parent.outline.elements.push(value),
        None => {}
    }
}

/// A position in a text that only moves forward, so that all positions of a text are found in one pass.
#[derive(Debug)]
pub(super) struct Cursor<'t> {
    /// The bytes of the text.
    bytes: &'t [u8],
    /// The position in bytes.
    at: usize,
    /// The line at the position.
    line: usize,
    /// The column at the position.
    column: usize,
}

impl<'t> Cursor<'t> {
    /// The beginning of a text.
    pub(super) fn new(text: &'t str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, line: 1, column: 1 }
    }

    /// Moves to a byte, unless it is behind the cursor, and returns the outline of a value there.
    pub(super) fn outline_at(&mut self, at: usize) -> Outline {
        while self.at < at && self.next().is_some() {}
        self.outline()
    }

    /// The outline of a value at the position.
    fn outline(&self) -> Outline {
        Outline::at(self.line, self.column)
    }

    /// The next byte.
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes the next byte.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b'\n' => (self.line, self.column) = (self.line + 1, 1),
            // The bytes of a character after its first one.
            0x80..=0xbf => {}
            _ => self.column += 1,
        }
        Some(byte)
    }
}

/// A reader of JSON that another reader has accepted.
#[derive(Debug)]
struct Json<'t> {
    /// The position in the text.
    cursor: Cursor<'t>,
}

impl Json<'_> {
    /// Reads a value, with at most so many levels in it.
    fn value(&mut self, depth: usize) -> Outline {
        let mut outline = self.cursor.outline();
        match self.cursor.peek() {
            Some(b'{' | b'[') if depth == 0 => self.cursor.at = self.cursor.bytes.len(),
            Some(b'{') => {
                while let Some(at) = self.entry(b'}') {
                    let name = self.string();
                    self.skip_blank();
                    // The colon.
                    self.cursor.next();
                    self.skip_blank();
                    let value = self.value(depth - 1);
                    outline.fields.push((name, Outline { line: at.line, column: at.column, ..value }));
                }
            }
            Some(b'[') => {
                while self.entry(b']').is_some() {
                    outline.elements.push(self.value(depth - 1));
                }
            }
            Some(b'"') => drop(self.string()),
            _ => {
                while self.cursor.peek().is_some_and(|c| !matches!(c, b',' | b'}' | b']' | b'\n' | b' ')) {
                    self.cursor.next();
                }
            }
        }
        self.skip_blank();
        outline
    }

    /// Moves over the opening character or a comma to the next entry, and returns the position of that; `None` at the end.
    fn entry(&mut self, close: u8) -> Option<Outline> {
        if self.cursor.peek() != Some(close) {
            self.cursor.next();
            self.skip_blank();
        }
        match self.cursor.peek()? {
            c if c == close => {
                self.cursor.next();
                None
            }
            _ => Some(self.cursor.outline()),
        }
    }

    /// Reads a string in quotes.
    fn string(&mut self) -> String {
        let start = self.cursor.at;
        self.cursor.next();
        while let Some(c) = self.cursor.next() {
            match c {
                b'\\' => drop(self.cursor.next()),
                b'"' => break,
                _ => {}
            }
        }
        let quoted = self.cursor.bytes.get(start..self.cursor.at).unwrap_or_default();
        serde_json::from_slice(quoted).unwrap_or_default()
    }

    /// Skips spaces and line ends.
    fn skip_blank(&mut self) {
        while self.cursor.peek().is_some_and(|c| c.is_ascii_whitespace()) {
            self.cursor.next();
        }
    }
}

/// The maximum nesting of lists and objects, as in JSON.
const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field with its position, in the order of the document.
    fn places(outline: &Outline) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in &outline.fields {
            found.push(format!("{name} {}:{}", value.line, value.column));
            found.extend(places(value));
        }
        for value in &outline.elements {
            found.push(format!("- {}:{}", value.line, value.column));
            found.extend(places(value));
        }
        found
    }

    #[test]
    fn values_of_json_have_the_positions_of_their_names() {
        let text = "{\n  \"a\": [1, {\"é\\n\": \"x]\"},\n    true],\n  \"b\" : {}, \"c\": -1.5e3\n}";
        let expected =
            ["a 2:3", "- 2:9", "- 2:12", "é\n 2:13", "- 3:5", "b 4:3", "c 4:13"].map(str::to_owned);
        assert_eq!(places(&Outline::of_json(text)), expected);
        assert_eq!((Outline::of_json("\n 7").line, Outline::of_json("\n 7").column), (2, 2));
    }

    #[test]
    fn values_of_yaml_have_the_positions_of_their_names() {
        let text = "# mesh\na:\n- 1\n- b: x\n  c: {d: [e, *f]}\ng: &h |\n  text\n";
        let expected = ["a 2:1", "- 3:3", "- 4:3", "b 4:3", "c 5:3", "d 5:7", "- 5:11", "- 5:14", "g 6:1"];
        let found = places(&Outline::of_yaml(text));
        assert_eq!(found[..7], expected[..7], "an alias of what is not there ends the document");
        let text = text.replace("*f", "f");
        assert_eq!(places(&Outline::of_yaml(&text)), expected);
    }

    #[test]
    fn texts_that_are_nested_without_end_have_an_outline() {
        let lists = "[".repeat(100_000);
        assert_eq!(Outline::of_json(&lists).line, 1);
        let objects = "{\"a\":".repeat(100_000);
        assert_eq!(Outline::of_json(&objects).fields.len(), 1);
        for text in ["", "{", "[1", "{\"a\"", "{\"a\":", "\"", "}", "{]", "[}"] {
            drop(Outline::of_json(text));
            drop(Outline::of_yaml(text));
        }
    }
}
