//! Lines that are too long for a terminal, wrapped at words.

use std::io::IsTerminal;
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(windows)]
use std::os::windows::io::AsHandle;

use terminal_size::{Height, Width, terminal_size_of};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// The characters in a line.
    pub(crate) columns: usize,
    /// The number of lines.
    pub(crate) rows: usize,
}

/// An output that may be a terminal, whose size can be asked for.
#[cfg(unix)]
pub(crate) trait Output: IsTerminal + AsFd {}
#[cfg(unix)]
impl<T: IsTerminal + AsFd> Output for T {}
/// An output that may be a terminal, whose size can be asked for.
#[cfg(windows)]
pub(crate) trait Output: IsTerminal + AsHandle {}
#[cfg(windows)]
impl<T: IsTerminal + AsHandle> Output for T {}

impl Size {
    /// The size of the terminal of an output, or a default if it is unknown.
    pub(crate) fn of_terminal(output: &impl Output) -> Self {
        match terminal_size_of(output) {
            Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => {
                Self { columns: columns.into(), rows: rows.into() }
            }
            Some(_) | None => Self { columns: 80, rows: 24 },
        }
    }
}

/// The lines for an output: wrapped for a terminal, and unchanged otherwise.
pub(crate) fn for_output(lines: &str, output: &impl Output) -> String {
    if !output.is_terminal() {
        return lines.to_owned();
    }
    let columns = Size::of_terminal(output).columns;
    lines.split('\n').flat_map(|line| wrap(line, columns)).collect::<Vec<_>>().join("\n")
}

/// Wraps a line at words to this width, as far as there are words. The indentation, the guides of a tree, and colours
/// continue on the following lines.
pub(crate) fn wrap(line: &str, columns: usize) -> Vec<String> {
    if textwrap::core::display_width(line) <= columns {
        return vec![line.to_owned()];
    }
    // After the mark of a change, if there is one.
    let unmarked = line.strip_prefix(['+', '~', '-']).filter(|rest| rest.starts_with(' ')).unwrap_or(line);
    let guides = &line[..line.len() - unmarked.trim_start_matches(is_guide).len()];
    let below: String = guides.chars().map(continued).collect();
    let indent = format!("{below}  ");
    let options = Options::new(columns.max(NARROWEST + textwrap::core::display_width(&indent)))
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .initial_indent(guides)
        .subsequent_indent(&indent);
    let lines = textwrap::wrap(&line[guides.len()..], options);
    let mut colour = String::new();
    lines
        .iter()
        .enumerate()
        .map(|(number, line)| dyed(line, (number > 0).then_some(&*indent), &mut colour))
        .collect()
}

/// A line in the colour at the end of the previous one, after its indentation.
fn dyed(line: &str, indent: Option<&str>, colour: &mut String) -> String {
    let (indent, text) = match indent {
        Some(indent) => (indent, line.strip_prefix(indent).unwrap_or(line)),
        None => ("", line),
    };
    let mut dyed = format!("{indent}{colour}{text}");
    let mut rest = text;
    while let Some((_, code)) = rest.split_once(ESCAPE) {
        let end = code.find('m').map_or(code.len(), |end| end + 1);
        *colour = match &code[..end] {
            RESET => String::new(),
            code => format!("{ESCAPE}{code}"),
        };
        rest = &code[end..];
    }
    if !colour.is_empty() {
        dyed += &format!("{ESCAPE}{RESET}");
    }
    dyed
}

/// The characters of the guides of a tree.
fn is_guide(c: char) -> bool {
    matches!(c, '│' | '├' | '└' | '─' | ' ')
}

/// The character below a guide.
fn continued(guide: char) -> char {
    match guide {
        '│' | '├' => '│',
        _ => ' ',
    }
}

/// The first character of an escape sequence.
const ESCAPE: char = '\u{1b}';
/// The end of a colour, after the escape character.
const RESET: &str = "[0m";
/// The minimum width, below which wrapping is not helpful.
const NARROWEST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_words_and_stay_indented() {
        for (line, columns, expected) in [
            ("fits", 40, &["fits"] as &[_]),
            (
                "a line that is too long for the terminal",
                24,
                &["a line that is too long", "  for the terminal"],
            ),
            ("  two words that are indented here", 24, &["  two words that are", "    indented here"]),
            (
                "│  ├─ ✗ cart  NOT_FOUND: there is none",
                28,
                &["│  ├─ ✗ cart  NOT_FOUND:", "│  │    there is none"],
            ),
            ("└─ NOT_FOUND: there is really none", 26, &["└─ NOT_FOUND: there is", "     really none"]),
            ("a-name-without-any-space-that-is-long", 24, &["a-name-without-any-space-that-is-long"]),
        ] {
            assert_eq!(wrap(line, columns), expected, "{line:?} in {columns}");
        }
    }

    #[test]
    fn colours_do_not_run_into_the_guides() {
        let line = "├─ \u{1b}[31mred words that go on and on\u{1b}[0m end";
        let expected = ["├─ \u{1b}[31mred words that go on\u{1b}[0m", "│    \u{1b}[31mand on\u{1b}[0m end"];
        assert_eq!(wrap(line, 25), expected);
    }
}
